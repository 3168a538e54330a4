//! ERF, as capture cards write it: no header, and records with a port, a time in 2^-32 s, and what
//! was lost before each.

use crate::error::Error;
use crate::interface::{Description, Interfaces};
use crate::link::{LinkType, Shape};
use crate::step::{Record, Site, Step};
use crate::time::{Clock, Resolution};

const HEADER: usize = 16;
/// Length of an extension header, of which each says in its first bit whether another follows.
const EXTENSION: usize = 8;
const MORE: u8 = 0x80;
/// Bytes between the headers and an Ethernet frame.
const PAD: usize = 2;
/// Length of the frame check sequence, which is part of a frame's length.
const FCS: u32 = 4;
/// Records are filled up to a multiple of this, or end in the middle of a frame.
const ALIGNMENT: usize = 8;

/// Types of records with an Ethernet frame: the plain one, whose loss counter is one, and those
/// that have a colour in its place.
const ETHERNET: u8 = 2;
const COLOURED: [u8; 3] = [11, 16, 20];
/// Types of records without a packet: counters, what describes the card, and filling.
const WITHOUT_PACKET: [u8; 4] = [13, 14, 27, 48];

pub(crate) struct Erf {
    clock: Clock,
    is_described: bool,
    /// Offset up to which losses are summed: a packet may be looked at twice.
    lost_until: u64,
}

/// The header of a record.
struct Head {
    ticks: u64,
    kind: u8,
    is_extended: bool,
    port: u8,
    /// Length of the record with its headers, in bytes.
    record_bytes: usize,
    lost_packets: u16,
    wire_bytes: u32,
}

impl Head {
    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let ticks = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        Self {
            ticks,
            kind: bytes[8] & !MORE,
            is_extended: bytes[8] & MORE != 0,
            port: bytes[9] & 3,
            record_bytes: word(10).into(),
            lost_packets: word(12),
            wire_bytes: word(14).into(),
        }
    }

    fn is_ethernet(&self) -> bool {
        self.kind == ETHERNET || COLOURED.contains(&self.kind)
    }

    /// Returns the length of all headers of a record; `None` if it ends within them.
    fn headers_bytes(&self, record: &[u8]) -> Option<usize> {
        let (mut end, mut is_extended) = (HEADER, self.is_extended);
        while is_extended {
            is_extended = record.get(end)? & MORE != 0;
            end += EXTENSION;
        }
        (end + PAD <= record.len()).then_some(end + PAD)
    }

    fn looks_right(&self, record: &[u8]) -> bool {
        if !self.is_ethernet() {
            return WITHOUT_PACKET.contains(&self.kind);
        }
        let most = self.wire_bytes as usize + ALIGNMENT;
        self.wire_bytes > FCS
            && self.headers_bytes(record).is_some_and(|headers| record.len() - headers <= most)
    }
}

impl Erf {
    /// Returns true if all records look right that lie whole in the beginning of a file, and one of
    /// them has a packet.
    pub fn detect(beginning: &[u8]) -> bool {
        let (mut at, mut packets) = (0, 0);
        while let Some(header) = beginning.get(at..at + HEADER) {
            let head = Head::of(header);
            if head.record_bytes < HEADER {
                return false;
            }
            let Some(record) = beginning.get(at..at + head.record_bytes) else { break };
            if !head.looks_right(record) {
                return false;
            }
            packets += usize::from(head.is_ethernet());
            at += head.record_bytes;
        }
        packets > 0
    }

    pub fn new() -> Self {
        let resolution = Resolution::new(2, 32).expect("64 bits count them");
        Self { clock: Clock::new(resolution, 0), is_described: false, lost_until: 0 }
    }

    pub fn step(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let Some(header) = ahead.get(..HEADER) else { return Ok(Step::Need(HEADER)) };
        self.describe(interfaces, site)?;
        let head = Head::of(header);
        if head.record_bytes < HEADER {
            let expected = format!("at least {HEADER}");
            return Err(site.corrupt("length of the record", head.record_bytes, expected));
        }
        let Some(record) = ahead.get(..head.record_bytes) else {
            return Ok(Step::Need(head.record_bytes));
        };
        if WITHOUT_PACKET.contains(&head.kind) {
            return Ok(Step::Skip(head.record_bytes));
        }
        if !head.is_ethernet() {
            let expected = "2, 11, 16 or 20 (Ethernet)";
            return Err(site.corrupt("type of the record", head.kind, expected));
        }
        let Some(start) = head.headers_bytes(record) else {
            let expected = "room for its headers";
            return Err(site.corrupt("length of the record", head.record_bytes, expected));
        };
        let Some(orig_len) = head.wire_bytes.checked_sub(FCS).filter(|len| *len > 0) else {
            let expected = format!("more than the {FCS} of its check sequence");
            return Err(site.corrupt("length of the packet", head.wire_bytes, expected));
        };
        if head.kind == ETHERNET && site.offset >= self.lost_until {
            interfaces.dropped_between(0, head.lost_packets.into());
            self.lost_until = site.offset + 1;
        }
        let captured = (head.record_bytes - start).min(orig_len as usize);
        Ok(Step::Packet(Record {
            ts: self.clock.nanos(head.ticks).expect("32 bits of seconds"),
            orig_len,
            data: start..start + captured,
            len: head.record_bytes,
            shape: Shape::of_port(head.port),
        }))
    }

    fn describe(&mut self, interfaces: &mut Interfaces, site: Site<'_>) -> Result<(), Error> {
        if self.is_described {
            return Ok(());
        }
        self.is_described = true;
        let found = Description::of_format(LinkType::ERF, self.clock.resolution, 0);
        interfaces.describe(0, found, site)?;
        interfaces.decide(site)
    }
}
