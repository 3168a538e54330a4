//! The block format (draft-ietf-opsawg-pcapng): sections, each with its byte order and interfaces,
//! each of these with its own clock.

use crate::error::{Error, Ticks};
use crate::time::Clock;
use crate::walk::{ETHERNET, Record, Site, Step, lengths_hold};
use crate::{ByteOrder, Resolution};

pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
pub(crate) const ENHANCED: u32 = 6;

pub(crate) const ORDER_MAGIC: u32 = 0x1a2b_3c4d;
pub(crate) const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;
const OPTION_END: u16 = 0;

/// Type and length; the length stands again at the block's end.
const HEAD: usize = 8;
const TAIL: usize = 4;
/// What a packet block says before the packet.
const PACKET_HEAD: usize = 20;
/// The largest block that is believed: libpcap's own limit.
const MAX_BLOCK: usize = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct PcapNg {
    section: Option<Section>,
    coarsest: Option<Resolution>,
}

struct Section {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

struct Interface {
    link: u32,
    clock: Clock,
}

impl PcapNg {
    pub fn order(&self) -> ByteOrder {
        self.section.as_ref().map_or(ByteOrder::Little, |section| section.order)
    }

    pub fn resolution(&self) -> Option<Resolution> {
        self.coarsest
    }

    pub fn step(&mut self, ahead: &[u8], site: Site<'_>) -> Result<Step, Error> {
        let Some(head) = ahead.get(..HEAD + 4) else { return Ok(Step::Need(HEAD + 4)) };
        // The type of a section header reads the same in both orders: its order comes after.
        if head[..4] == SECTION.to_le_bytes() {
            self.section = Some(Section { order: section_order(head, site)?, interfaces: vec![] });
        }
        let Some(section) = &mut self.section else {
            return Err(site.corrupt("first block", "another", "a section header"));
        };
        let order = section.order;
        let [kind, len] = order.words(head);
        let len = checked_len(len as usize, site)?;
        let Some(block) = ahead.get(..len) else { return Ok(Step::Need(len)) };
        let [trailer] = order.words(&block[len - TAIL..]);
        if trailer as usize != len {
            return Err(site.corrupt("block length at its end", trailer, len));
        }
        let body = &block[HEAD..len - TAIL];
        match kind {
            ENHANCED | PACKET => return section.packet(kind, body, len, site).map(Step::Packet),
            SIMPLE => return Err(Error::Untimed { place: site.place() }),
            SECTION => check_version(order, body, site)?,
            INTERFACE => {
                let interface = Interface::read(order, body, site)?;
                self.coarsest = Some(coarser(self.coarsest, interface.clock.resolution));
                section.interfaces.push(interface);
            }
            _ => {}
        }
        Ok(Step::Skip(len))
    }
}

impl Section {
    #[inline]
    fn packet(&self, kind: u32, body: &[u8], len: usize, site: Site<'_>) -> Result<Record, Error> {
        let Some(head) = body.get(..PACKET_HEAD) else {
            return Err(site.corrupt("length of a packet block", len, "at least 32"));
        };
        let [id, high, low, captured, orig_len] = self.order.words(head);
        // The obsolete packet block has a drop count in the other half of the word.
        let id = if kind == PACKET { self.order.u16([head[0], head[1]]).into() } else { id };
        let Some(interface) = self.interfaces.get(id as usize) else {
            let known = format!("less than {}", self.interfaces.len());
            return Err(site.corrupt("interface", id, known));
        };
        if interface.link != ETHERNET {
            return Err(Error::LinkType { place: site.place(), got: interface.link });
        }
        if !lengths_hold(captured, orig_len) {
            return Err(site.bad_lengths(captured, orig_len));
        }
        let space = body.len() - PACKET_HEAD;
        if captured as usize > space {
            return Err(site.corrupt("captured length", captured, format!("at most {space}")));
        }
        let ticks = u64::from(high) << 32 | u64::from(low);
        let Some(ts) = interface.clock.nanos(ticks) else {
            return Err(interface.bad_time(ticks, site));
        };
        let start = HEAD + PACKET_HEAD;
        Ok(Record { ts, orig_len, data: start..start + captured as usize, len })
    }
}

impl Interface {
    fn read(order: ByteOrder, body: &[u8], site: Site<'_>) -> Result<Self, Error> {
        let Some((head, mut options)) = body.split_at_checked(8) else {
            return Err(site.corrupt(
                "length of an interface block",
                body.len() + 12,
                "at least 20",
            ));
        };
        let link = order.u16([head[0], head[1]]).into();
        let (mut resolution, mut offset_s) = (Resolution::MICRO, 0);
        while let Some((code, value, rest)) = option(order, options, site)? {
            match code {
                OPTION_TSRESOL => resolution = tsresol(value, site)?,
                OPTION_TSOFFSET => offset_s = tsoffset(order, value, site)?,
                _ => {}
            }
            options = rest;
        }
        Ok(Self { link, clock: Clock::new(resolution, offset_s) })
    }

    #[cold]
    fn bad_time(&self, count: u64, site: Site<'_>) -> Error {
        let Clock { resolution: unit, offset_s, .. } = self.clock;
        Error::Time { place: site.place(), got: Ticks { count, unit, offset_s } }
    }
}

fn section_order(head: &[u8], site: Site<'_>) -> Result<ByteOrder, Error> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.words(&head[HEAD..]) == [ORDER_MAGIC])
        .ok_or_else(|| {
            let got = format!("{:02x?}", &head[HEAD..]);
            site.corrupt("byte-order magic", got, "1a2b3c4d in either order")
        })
}

fn checked_len(len: usize, site: Site<'_>) -> Result<usize, Error> {
    if !(HEAD + TAIL..=MAX_BLOCK).contains(&len) || len % 4 != 0 {
        let expected = format!("a multiple of 4 from {} to {MAX_BLOCK}", HEAD + TAIL);
        return Err(site.corrupt("block length", len, expected));
    }
    Ok(len)
}

fn check_version(order: ByteOrder, body: &[u8], site: Site<'_>) -> Result<(), Error> {
    if body.len() < 16 {
        return Err(site.corrupt("length of a section header", body.len() + 12, "at least 28"));
    }
    let (major, minor) = (order.u16([body[4], body[5]]), order.u16([body[6], body[7]]));
    // 1.2 is 1.0 by another name (draft-ietf-opsawg-pcapng, section 4.1).
    if major != 1 || !matches!(minor, 0 | 2) {
        return Err(site.corrupt("version of pcapng", format!("{major}.{minor}"), "1.0"));
    }
    Ok(())
}

type PcapNgOption<'a> = (u16, &'a [u8], &'a [u8]);

/// The first of a list of options, and the list behind it; `None` at its end.
fn option<'a>(
    order: ByteOrder,
    list: &'a [u8],
    site: Site<'_>,
) -> Result<Option<PcapNgOption<'a>>, Error> {
    let Some((head, rest)) = list.split_at_checked(4) else { return Ok(None) };
    let code = order.u16([head[0], head[1]]);
    let len = usize::from(order.u16([head[2], head[3]]));
    if code == OPTION_END {
        return Ok(None);
    }
    let Some((value, _)) = rest.split_at_checked(len) else {
        return Err(site.corrupt("length of an option", len, format!("at most {}", rest.len())));
    };
    // A block's length is a multiple of four, so the padding is there.
    Ok(Some((code, value, &rest[len.next_multiple_of(4)..])))
}

fn tsresol(value: &[u8], site: Site<'_>) -> Result<Resolution, Error> {
    let &[byte] = value else {
        return Err(site.corrupt("length of if_tsresol", value.len(), 1));
    };
    Resolution::from_tsresol(byte)
        .ok_or_else(|| Error::Resolution { place: site.place(), got: byte })
}

fn tsoffset(order: ByteOrder, value: &[u8], site: Site<'_>) -> Result<i64, Error> {
    let Ok(bytes) = <[u8; 8]>::try_from(value) else {
        return Err(site.corrupt("length of if_tsoffset", value.len(), 8));
    };
    Ok(match order {
        ByteOrder::Little => i64::from_le_bytes(bytes),
        ByteOrder::Big => i64::from_be_bytes(bytes),
    })
}

fn coarser(known: Option<Resolution>, new: Resolution) -> Resolution {
    known.filter(|known| known.units_per_second() <= new.units_per_second()).unwrap_or(new)
}
