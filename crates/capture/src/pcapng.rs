//! The block format (draft-ietf-opsawg-pcapng): sections, each with its byte order and interfaces,
//! each of these with its own clock.

use crate::error::{Error, Ticks};
use crate::info::ByteOrder;
use crate::interface::{Description, Interfaces};
use crate::link::{LinkType, Shape};
use crate::option::{self, Options};
use crate::step::{Record, Site, Step};
use crate::time::{Clock, Resolution};

pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const STATISTICS: u32 = 5;
pub(crate) const ENHANCED: u32 = 6;

pub(crate) const ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Options of an interface description.
const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
pub(crate) const OPTION_TSRESOL: u16 = 9;
const OPTION_FCSLEN: u16 = 13;
const OPTION_TSOFFSET: u16 = 14;
/// Option of an enhanced packet block: `epb_dropcount`.
const OPTION_DROPCOUNT: u16 = 4;
/// Options of interface statistics: `isb_ifdrop` and `isb_osdrop`.
const OPTION_IFDROP: u16 = 5;
const OPTION_OSDROP: u16 = 7;

/// Type and length; the length stands again at the block's end.
const HEAD: usize = 8;
const TAIL: usize = 4;
/// Length of a packet block before the packet, in bytes.
const PACKET_HEAD: usize = HEAD + 20;
/// Length of statistics before their options, in bytes: interface and time.
const STATISTICS_HEAD: usize = 12;
const MIN_BLOCK: u32 = 12;
/// The largest block that is believed: libpcap's own limit.
const MAX_BLOCK: u32 = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct PcapNg {
    section: Option<Section>,
    /// Offset up to which the packets' drop counts are summed: a packet may be looked at twice.
    drops_until: u64,
}

struct Section {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

struct Interface {
    /// Its place among the interfaces of the capture.
    index: usize,
    link_type: LinkType,
    fcs_bytes: u8,
    clock: Clock,
    /// The shape of its packets, if they are wanted and of a link type that is read.
    wanted: Option<Shape>,
}

impl PcapNg {
    pub fn order(&self) -> ByteOrder {
        self.section.as_ref().map_or(ByteOrder::Little, |section| section.order)
    }

    /// Returns the packet that lies next, if it is an Ethernet frame that lies there as a whole and
    /// right enhanced packet block without options.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        let section = self.section.as_ref()?;
        let [kind, len] = section.order.words(ahead.get(..HEAD)?);
        let block = ahead.get(..len as usize)?;
        if kind != ENHANCED || !length_holds(len) || section.trailer(block) != len {
            return None;
        }
        let record = section.packet(ENHANCED, block)?;
        let bare = record.data.end.next_multiple_of(4) + TAIL == block.len();
        (bare && record.shape.is_plain()).then_some(record)
    }

    pub fn step(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let Some(head) = ahead.get(..HEAD + 4) else { return Ok(Step::Need(HEAD + 4)) };
        // The type of a section header reads the same in both orders: its order comes after.
        let starts = head[..4] == SECTION.to_le_bytes();
        let order = if starts { section_order(head, site)? } else { self.order() };
        if !starts && self.section.is_none() {
            return Err(site.corrupt("first block", "another", "a section header"));
        }
        let [kind, len] = order.words(head);
        if !length_holds(len) {
            let expected = format!("a multiple of 4 from {MIN_BLOCK} to {MAX_BLOCK}");
            return Err(site.corrupt("block length", len, expected));
        }
        let Some(block) = ahead.get(..len as usize) else { return Ok(Step::Need(len as usize)) };
        let trailer = trailer(order, block);
        if trailer != len {
            return Err(site.corrupt("block length at its end", trailer, len));
        }
        if kind == SECTION {
            check_version(order, body(block), site)?;
            interfaces.begin_section();
            self.section = Some(Section { order, interfaces: vec![] });
            return Ok(Step::Header(block.len()));
        }
        self.block(kind, block, interfaces, site)
    }

    /// Returns a step over a whole block that is no section header.
    fn block(
        &mut self,
        kind: u32,
        block: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let section = self.section.as_mut().expect("a section has begun");
        match kind {
            INTERFACE => {
                section.describe(body(block), interfaces, site)?;
                return Ok(Step::Header(block.len()));
            }
            STATISTICS => section.note_statistics(body(block), interfaces),
            ENHANCED | PACKET | SIMPLE => {
                section.decide(interfaces, site)?;
                return self.packet_block(kind, block, interfaces, site);
            }
            _ => {}
        }
        Ok(Step::Skip(block.len()))
    }

    fn packet_block(
        &mut self,
        kind: u32,
        block: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let section = self.section.as_ref().expect("a section has begun");
        let Some(interface) = section.interface(kind, block) else {
            return Err(section.flaw(kind, block, site));
        };
        if !interfaces.wants(interface.index) {
            interfaces.count(interface.index, interface.device(kind, block));
            return Ok(Step::Skip(block.len()));
        }
        let record = section.packet(kind, block).filter(|_| kind != SIMPLE);
        let record = record.ok_or_else(|| section.flaw(kind, block, site))?;
        if kind == ENHANCED && site.offset >= self.drops_until {
            self.drops_until = site.offset + block.len() as u64;
            if let Some(packets) = section.drop_count(&record, block) {
                interfaces.dropped_between(interface.index, packets);
            }
        }
        Ok(Step::Packet(record))
    }
}

impl Section {
    #[inline]
    fn trailer(&self, block: &[u8]) -> u32 {
        trailer(self.order, block)
    }

    /// Returns the packet in a block of `kind`, if it is right and wanted.
    #[inline]
    fn packet(&self, kind: u32, block: &[u8]) -> Option<Record> {
        let [id, high, low, captured, orig_len] = self.order.words(block.get(HEAD..PACKET_HEAD)?);
        let interface = self.interfaces.get(self.interface_id(kind, id))?;
        let shape = interface.wanted?;
        let ts = interface.clock.nanos(u64::from(high) << 32 | u64::from(low))?;
        let data = PACKET_HEAD..PACKET_HEAD + captured as usize;
        let right = shape.lengths_hold(captured, orig_len) && data.end + TAIL <= block.len();
        right.then_some(Record { ts, orig_len, data, len: block.len(), shape })
    }

    /// Returns the interface of a packet block; a simple one belongs to the first.
    fn interface(&self, kind: u32, block: &[u8]) -> Option<&Interface> {
        if kind == SIMPLE {
            return self.interfaces.first();
        }
        let [id] = self.order.words(block.get(HEAD..PACKET_HEAD)?);
        self.interfaces.get(self.interface_id(kind, id))
    }

    /// Returns the interface of a packet; the obsolete packet block has a drop count in the second
    /// half of the word.
    #[inline]
    fn interface_id(&self, kind: u32, word: u32) -> usize {
        let id = match (kind, self.order) {
            (PACKET, ByteOrder::Little) => word & 0xffff,
            (PACKET, ByteOrder::Big) => word >> 16,
            _ => word,
        };
        id as usize
    }

    /// Returns why there is no packet in a block of `kind` whose packet is wanted.
    #[cold]
    fn flaw(&self, kind: u32, block: &[u8], site: Site<'_>) -> Error {
        if kind == SIMPLE {
            return Error::Untimed { place: site.place() };
        }
        let Some(head) = block.get(HEAD..PACKET_HEAD) else {
            let least = format!("at least {}", PACKET_HEAD + TAIL);
            return site.corrupt("length of a packet block", block.len(), least);
        };
        let [id, high, low, captured, orig_len] = self.order.words(head);
        let id = self.interface_id(kind, id);
        let Some(interface) = self.interfaces.get(id) else {
            return site.corrupt("interface", id, format!("less than {}", self.interfaces.len()));
        };
        let Some(shape) = interface.wanted else { return site.refused(interface.link_type) };
        if !shape.lengths_hold(captured, orig_len) {
            return site.bad_lengths(shape, captured, orig_len);
        }
        let count = u64::from(high) << 32 | u64::from(low);
        let Clock { resolution: unit, offset_s, .. } = interface.clock;
        if interface.clock.nanos(count).is_none() {
            return Error::Time { place: site.place(), got: Ticks { count, unit, offset_s } };
        }
        let space = block.len().saturating_sub(PACKET_HEAD + TAIL);
        site.corrupt("captured length", captured, format!("at most the {space} bytes of its block"))
    }

    fn describe(
        &mut self,
        body: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<(), Error> {
        let Some((head, list)) = body.split_at_checked(8) else {
            let (what, least) = ("length of an interface description", "at least 8");
            return Err(site.corrupt(what, body.len(), least));
        };
        let link_type = LinkType(self.order.u16([head[0], head[1]]).into());
        let [snap_length] = self.order.words(&head[4..]);
        let (name, description, resolution) = (None, None, Resolution::MICRO);
        let mut found = Description { name, description, link_type, resolution, snap_length };
        let (mut offset_s, mut fcs_bytes) = (0, 0);
        for option in Options::new(self.order, list) {
            let (code, value) = option.map_err(|wrong| {
                let most = format!("at most {}", wrong.most);
                site.corrupt("length of an option", wrong.len, most)
            })?;
            match code {
                OPTION_NAME => found.name = option::text(value),
                OPTION_DESCRIPTION => found.description = option::text(value),
                OPTION_TSRESOL => found.resolution = option::tsresol(value, site)?,
                OPTION_FCSLEN => fcs_bytes = option::fcslen(value, site)?,
                OPTION_TSOFFSET => offset_s = option::tsoffset(self.order, value, site)?,
                _ => {}
            }
        }
        let clock = Clock::new(found.resolution, offset_s);
        let index = interfaces.describe(self.interfaces.len(), found, site)?;
        let mut interface = Interface { index, link_type, fcs_bytes, clock, wanted: None };
        interface.note_wish(interfaces);
        self.interfaces.push(interface);
        Ok(())
    }

    /// Decides which interface is read, where that is still open: a packet follows.
    fn decide(&mut self, interfaces: &mut Interfaces, site: Site<'_>) -> Result<(), Error> {
        if !interfaces.is_decided() {
            interfaces.decide(site)?;
            self.interfaces.iter_mut().for_each(|interface| interface.note_wish(interfaces));
        }
        Ok(())
    }

    /// Counts the packets that the capturing host has dropped on an interface, as far as it says
    /// so. Statistics that contradict themselves say nothing: the packets are not in doubt.
    fn note_statistics(&self, body: &[u8], interfaces: &mut Interfaces) {
        let Some((head, list)) = body.split_at_checked(STATISTICS_HEAD) else { return };
        let [id] = self.order.words(head);
        let Some(interface) = self.interfaces.get(id as usize) else { return };
        let drops = [OPTION_IFDROP, OPTION_OSDROP].map(|wanted| self.number(list, wanted));
        let packets = drops.into_iter().flatten().reduce(u64::saturating_add);
        if let Some(packets) = packets {
            interfaces.dropped_in_all(interface.index, packets);
        }
    }

    /// Returns how many packets were dropped before this one, where its block says so.
    fn drop_count(&self, record: &Record, block: &[u8]) -> Option<u64> {
        let options = block.get(record.data.end.next_multiple_of(4)..block.len() - TAIL)?;
        self.number(options, OPTION_DROPCOUNT)
    }

    /// Returns the value of an option that is a number, if the options are right up to there.
    fn number(&self, list: &[u8], wanted: u16) -> Option<u64> {
        let mut options = Options::new(self.order, list).map_while(Result::ok);
        options
            .find(|(code, _)| *code == wanted)
            .and_then(|(_, value)| option::number(self.order, value))
    }
}

impl Interface {
    /// Returns the device that a packet names, if it names one.
    fn device(&self, kind: u32, block: &[u8]) -> Option<u32> {
        let data = block.get(PACKET_HEAD..block.len() - TAIL).filter(|_| kind != SIMPLE)?;
        Shape::new(self.link_type, self.fcs_bytes)?.device(data)
    }

    fn note_wish(&mut self, interfaces: &Interfaces) {
        let shape = Shape::new(self.link_type, self.fcs_bytes);
        self.wanted = shape.filter(|_| interfaces.wants(self.index));
    }
}

#[inline]
fn trailer(order: ByteOrder, block: &[u8]) -> u32 {
    let [len] = order.words(&block[block.len() - TAIL..]);
    len
}

fn body(block: &[u8]) -> &[u8] {
    &block[HEAD..block.len() - TAIL]
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
