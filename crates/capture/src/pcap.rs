//! The classic format: a header of 24 bytes, then records of 16 bytes and the packet.

use units::Nanos;

use crate::error::Error;
use crate::info::ByteOrder;
use crate::step::{ETHERNET, Record, Site, Step, lengths_hold};
use crate::time::Resolution;

pub(crate) const HEADER: usize = 24;
pub(crate) const RECORD: usize = 16;
pub(crate) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
pub(crate) const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
pub(crate) const VERSION: (u16, u16) = (2, 4);

/// The bits of the header's last word that are the link type; those above tell of a frame check
/// sequence.
const LINK_BITS: u32 = 0x03ff_ffff;

pub(crate) struct Pcap {
    order: ByteOrder,
    unit_ns: u32,
    units_per_second: u32,
    begun: bool,
}

impl Pcap {
    /// The variant that the first four bytes are the magic of.
    pub fn detect(head: &[u8]) -> Option<Self> {
        let head = head.try_into().ok()?;
        let (order, unit_ns) = match (u32::from_le_bytes(head), u32::from_be_bytes(head)) {
            (MAGIC_MICROS, _) => (ByteOrder::Little, 1_000),
            (MAGIC_NANOS, _) => (ByteOrder::Little, 1),
            (_, MAGIC_MICROS) => (ByteOrder::Big, 1_000),
            (_, MAGIC_NANOS) => (ByteOrder::Big, 1),
            _ => return None,
        };
        Some(Self { order, unit_ns, units_per_second: 1_000_000_000 / unit_ns, begun: false })
    }

    pub fn order(&self) -> ByteOrder {
        self.order
    }

    pub fn resolution(&self) -> Resolution {
        if self.unit_ns == 1 { Resolution::NANO } else { Resolution::MICRO }
    }

    /// The packet that lies next, if it lies there whole and right.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        let (header, rest) = ahead.split_at_checked(RECORD)?;
        let [seconds, fraction, captured, orig_len] = self.order.words(header);
        let right = lengths_hold(captured, orig_len) && fraction < self.units_per_second;
        if !self.begun || !right || rest.len() < captured as usize {
            return None;
        }
        // At most (2^32 − 1) · 10^9 + 10^9 − 1, which is less than 2^63.
        let ts = Nanos(u64::from(seconds) * 1_000_000_000 + u64::from(fraction * self.unit_ns));
        let len = RECORD + captured as usize;
        Some(Record { ts, orig_len, data: RECORD..len, len })
    }

    /// Why no packet lies next.
    pub fn step(&mut self, ahead: &[u8], site: Site<'_>) -> Result<Step, Error> {
        if !self.begun {
            return self.begin(ahead, site);
        }
        let Some(header) = ahead.get(..RECORD) else { return Ok(Step::Need(RECORD)) };
        let [_, fraction, captured, orig_len] = self.order.words(header);
        if !lengths_hold(captured, orig_len) {
            return Err(site.bad_lengths(captured, orig_len));
        }
        if fraction >= self.units_per_second {
            return Err(self.bad_fraction(fraction, site));
        }
        Ok(Step::Need(RECORD + captured as usize))
    }

    fn begin(&mut self, ahead: &[u8], site: Site<'_>) -> Result<Step, Error> {
        let Some(header) = ahead.get(..HEADER) else { return Ok(Step::Need(HEADER)) };
        let major = self.order.u16([header[4], header[5]]);
        let minor = self.order.u16([header[6], header[7]]);
        // Before 2.4 the two lengths of a record stood in either order.
        if major != VERSION.0 || minor < VERSION.1 {
            return Err(site.corrupt("version of pcap", format!("{major}.{minor}"), "2.4"));
        }
        let [_zone, _accuracy, _snaplen, link] = self.order.words(&header[8..]);
        if link & LINK_BITS != ETHERNET {
            return Err(Error::LinkType { place: site.place(), got: link & LINK_BITS });
        }
        self.begun = true;
        Ok(Step::Header(HEADER))
    }

    fn bad_fraction(&self, fraction: u32, site: Site<'_>) -> Error {
        let unit = self.resolution();
        let expected = format!("less than {} x {unit}", self.units_per_second);
        site.corrupt("fraction of a second", format!("{fraction} x {unit}"), expected)
    }
}
