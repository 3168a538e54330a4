//! The block format (draft-ietf-opsawg-pcapng): sections, each with its byte order and interfaces,
//! each of these with its own clock.

use crate::error::{Error, Ticks};
use crate::info::ByteOrder;
use crate::step::{ETHERNET, Record, Site, Step, lengths_hold};
use crate::time::{Clock, Resolution};

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
const PACKET_HEAD: usize = HEAD + 20;
const MIN_BLOCK: u32 = 12;
/// The largest block that is believed: libpcap's own limit.
const MAX_BLOCK: u32 = 16 * 1024 * 1024;

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

    /// The packet that lies next, if it lies there as a whole and right enhanced packet block.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        let section = self.section.as_ref()?;
        let [kind, len] = section.order.words(ahead.get(..HEAD)?);
        let block = ahead.get(..len as usize)?;
        let right = kind == ENHANCED && length_holds(len) && section.trailer(block) == len;
        if right { section.packet(ENHANCED, block) } else { None }
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
        let [kind, len] = section.order.words(head);
        if !length_holds(len) {
            let expected = format!("a multiple of 4 from {MIN_BLOCK} to {MAX_BLOCK}");
            return Err(site.corrupt("block length", len, expected));
        }
        let Some(block) = ahead.get(..len as usize) else { return Ok(Step::Need(len as usize)) };
        let trailer = section.trailer(block);
        if trailer != len {
            return Err(site.corrupt("block length at its end", trailer, len));
        }
        let body = &block[HEAD..block.len() - TAIL];
        match kind {
            ENHANCED | PACKET => {
                let packet = section.packet(kind, block);
                return packet.map(Step::Packet).ok_or_else(|| section.flaw(kind, block, site));
            }
            SIMPLE => return Err(Error::Untimed { place: site.place() }),
            SECTION => check_version(section.order, body, site)?,
            INTERFACE => {
                let interface = Interface::read(section.order, body, site)?;
                self.coarsest = Some(coarser(self.coarsest, interface.clock.resolution));
                section.interfaces.push(interface);
            }
            _ => {}
        }
        Ok(match kind {
            SECTION | INTERFACE => Step::Header(block.len()),
            _ => Step::Skip(block.len()),
        })
    }
}

impl Section {
    #[inline]
    fn trailer(&self, block: &[u8]) -> u32 {
        let [len] = self.order.words(&block[block.len() - TAIL..]);
        len
    }

    /// The packet in a block of `kind`, if it is right.
    #[inline]
    fn packet(&self, kind: u32, block: &[u8]) -> Option<Record> {
        let [id, high, low, captured, orig_len] = self.order.words(block.get(HEAD..PACKET_HEAD)?);
        let interface = self.interfaces.get(self.interface_id(kind, id))?;
        let ts = interface.clock.nanos(u64::from(high) << 32 | u64::from(low))?;
        let data = PACKET_HEAD..PACKET_HEAD + captured as usize;
        let right = interface.link == ETHERNET
            && lengths_hold(captured, orig_len)
            && data.end + TAIL <= block.len();
        right.then_some(Record { ts, orig_len, data, len: block.len() })
    }

    /// The obsolete packet block has a drop count in the second half of the word.
    #[inline]
    fn interface_id(&self, kind: u32, word: u32) -> usize {
        let id = match (kind, self.order) {
            (PACKET, ByteOrder::Little) => word & 0xffff,
            (PACKET, ByteOrder::Big) => word >> 16,
            _ => word,
        };
        id as usize
    }

    /// Why there is no packet in a block of `kind`.
    #[cold]
    fn flaw(&self, kind: u32, block: &[u8], site: Site<'_>) -> Error {
        let Some(head) = block.get(HEAD..PACKET_HEAD) else {
            let least = PACKET_HEAD + TAIL;
            return site.corrupt(
                "length of a packet block",
                block.len(),
                format!("at least {least}"),
            );
        };
        let [id, high, low, captured, orig_len] = self.order.words(head);
        let id = self.interface_id(kind, id);
        let Some(interface) = self.interfaces.get(id) else {
            return site.corrupt("interface", id, format!("less than {}", self.interfaces.len()));
        };
        if interface.link != ETHERNET {
            return Error::LinkType { place: site.place(), got: interface.link };
        }
        if !lengths_hold(captured, orig_len) {
            return site.bad_lengths(captured, orig_len);
        }
        let count = u64::from(high) << 32 | u64::from(low);
        let Clock { resolution: unit, offset_s, .. } = interface.clock;
        if interface.clock.nanos(count).is_none() {
            return Error::Time { place: site.place(), got: Ticks { count, unit, offset_s } };
        }
        let space = block.len().saturating_sub(PACKET_HEAD + TAIL);
        site.corrupt("captured length", captured, format!("at most the {space} bytes of its block"))
    }
}

impl Interface {
    fn read(order: ByteOrder, body: &[u8], site: Site<'_>) -> Result<Self, Error> {
        let Some((head, mut options)) = body.split_at_checked(8) else {
            return Err(site.corrupt(
                "length of an interface description",
                body.len(),
                "at least 8",
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

#[inline]
fn length_holds(len: u32) -> bool {
    (MIN_BLOCK..=MAX_BLOCK).contains(&len) && len % 4 == 0
}

fn check_version(order: ByteOrder, body: &[u8], site: Site<'_>) -> Result<(), Error> {
    if body.len() < 16 {
        return Err(site.corrupt("length of a section header", body.len(), "at least 16"));
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
