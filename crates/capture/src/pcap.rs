//! The classic format: a header of 24 bytes, then records of 16 bytes and the packet.

use units::Nanos;

use crate::error::Error;
use crate::info::ByteOrder;
use crate::interface::{Description, Interfaces};
use crate::link::{LinkType, Shape};
use crate::step::{Record, Site, Step};
use crate::time::Resolution;

pub(crate) const HEADER: usize = 24;
pub(crate) const RECORD: usize = 16;
pub(crate) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
pub(crate) const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
pub(crate) const VERSION: (u16, u16) = (2, 4);

/// The bits of the header's last word that are the link type.
const LINK_BITS: u32 = 0x03ff_ffff;
/// Set where the four highest bits are the length of a frame check sequence, in words of 16 bits.
const HAS_FCS: u32 = 0x0400_0000;

pub(crate) struct Pcap {
    order: ByteOrder,
    unit_ns: u32,
    units_per_second: u32,
    /// Known once the header was read.
    shape: Option<Shape>,
    /// True if records follow now, and their shape is plain: the test that every packet pays for.
    is_plain: bool,
}

impl Pcap {
    /// Returns the variant that the first four bytes are the magic of.
    pub fn detect(head: &[u8]) -> Option<Self> {
        let head = head.try_into().ok()?;
        let (order, unit_ns) = match (u32::from_le_bytes(head), u32::from_be_bytes(head)) {
            (MAGIC_MICROS, _) => (ByteOrder::Little, 1_000),
            (MAGIC_NANOS, _) => (ByteOrder::Little, 1),
            (_, MAGIC_MICROS) => (ByteOrder::Big, 1_000),
            (_, MAGIC_NANOS) => (ByteOrder::Big, 1),
            _ => return None,
        };
        let units_per_second = 1_000_000_000 / unit_ns;
        Some(Self { order, unit_ns, units_per_second, shape: None, is_plain: false })
    }

    pub fn order(&self) -> ByteOrder {
        self.order
    }

    fn resolution(&self) -> Resolution {
        if self.unit_ns == 1 { Resolution::NANO } else { Resolution::MICRO }
    }

    /// Returns the packet that lies next, if it lies there whole and right, and is an Ethernet
    /// frame.
    #[inline]
    pub fn peek(&self, ahead: &[u8]) -> Option<Record> {
        if self.is_plain { self.record(ahead, Shape::PLAIN) } else { None }
    }

    #[inline]
    fn record(&self, ahead: &[u8], shape: Shape) -> Option<Record> {
        let (header, rest) = ahead.split_at_checked(RECORD)?;
        let [seconds, fraction, captured, orig_len] = self.order.words(header);
        let right = shape.lengths_hold(captured, orig_len) && fraction < self.units_per_second;
        if !right || rest.len() < captured as usize {
            return None;
        }
        // At most (2^32 − 1) · 10^9 + 10^9 − 1, which is less than 2^63.
        let ts = Nanos(u64::from(seconds) * 1_000_000_000 + u64::from(fraction * self.unit_ns));
        let len = RECORD + captured as usize;
        Some(Record { ts, orig_len, data: RECORD..len, len, shape })
    }

    pub fn step(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let Some(shape) = self.shape else { return self.begin(ahead, interfaces, site) };
        if let Some(record) = self.record(ahead, shape) {
            return Ok(Step::Packet(record));
        }
        let Some(header) = ahead.get(..RECORD) else { return Ok(Step::Need(RECORD)) };
        let [_, fraction, captured, orig_len] = self.order.words(header);
        if !shape.lengths_hold(captured, orig_len) {
            return Err(site.bad_lengths(shape, captured, orig_len));
        }
        if fraction >= self.units_per_second {
            return Err(self.bad_fraction(fraction, site));
        }
        Ok(Step::Need(RECORD + captured as usize))
    }

    /// Reads the header: it describes the one interface that there is.
    fn begin(
        &mut self,
        ahead: &[u8],
        interfaces: &mut Interfaces,
        site: Site<'_>,
    ) -> Result<Step, Error> {
        let Some(header) = ahead.get(..HEADER) else { return Ok(Step::Need(HEADER)) };
        let major = self.order.u16([header[4], header[5]]);
        let minor = self.order.u16([header[6], header[7]]);
        // Before 2.4 the two lengths of a record stood in either order.
        if major != VERSION.0 || minor < VERSION.1 {
            return Err(site.corrupt("version of pcap", format!("{major}.{minor}"), "2.4"));
        }
        let [_zone, _accuracy, snap_length, link] = self.order.words(&header[8..]);
        let link_type = LinkType(link & LINK_BITS);
        let shape = match Shape::new(link_type, fcs_bytes(link, site)?) {
            Some(shape) => shape,
            None if interfaces.is_listing() => Shape::PLAIN,
            None => return Err(site.refused(link_type)),
        };
        let found = Description::of_format(link_type, self.resolution(), snap_length);
        interfaces.describe(0, found, site)?;
        interfaces.decide(site)?;
        (self.shape, self.is_plain) = (Some(shape), shape.is_plain());
        Ok(Step::Header(HEADER))
    }

    fn bad_fraction(&self, fraction: u32, site: Site<'_>) -> Error {
        let unit = self.resolution();
        let expected = format!("less than {} x {unit}", self.units_per_second);
        site.corrupt("fraction of a second", format!("{fraction} x {unit}"), expected)
    }
}

fn fcs_bytes(link: u32, site: Site<'_>) -> Result<u8, Error> {
    match link >> 28 {
        _ if link & HAS_FCS == 0 => Ok(0),
        words @ 0..=2 => Ok(2 * words as u8),
        words => Err(site.corrupt(
            "length of the frame check sequence",
            format!("{words} words of 16 bits"),
            "0, 1 or 2",
        )),
    }
}
