//! Times that switches and taps put behind frames, or between their addresses and their type: what is read of them, and
//! how far the clock of the capture is from theirs.
//!
//! Behind the last byte of a frame lies its own frame check sequence, unless the tap drops it, then the trailer,
//! then a new frame check sequence, which a capture may have or not.

use std::collections::VecDeque;
use std::ops::Range;

use units::Nanos;

use crate::file::Packet;
use crate::info::{Stamps, TrailerKind};

const SECOND_NS: u64 = 1_000_000_000;
/// A trailer's time lies within so much of the capture's, in s: clocks may be wrong, but not by a month.
const NEAR_S: u64 = 30 * 24 * 3600;
/// Bytes of a frame check sequence, of the addresses of a frame, and of the shortest frame in front of a trailer.
const FCS: usize = 4;
const ADDRESSES: usize = 12;
const SHORTEST: usize = 14;
/// What fields of Ixia and of Gigamon are followed by.
const IXIA: u16 = 0xaf12;
const GIGAMON: u16 = 0x22e5;
/// The type of a header of Arista, and the kind of one that has a time.
const ARISTA: u16 = 0xd28b;
const WITH_TIME: u64 = 1;
/// Who writes times behind frames. What nothing proves comes last: of two that are read as often, it is taken.
const KINDS: [TrailerKind; 9] = [
    TrailerKind::Metamako,
    TrailerKind::Exablaze,
    TrailerKind::Ixia,
    TrailerKind::GigamonFields,
    TrailerKind::GigamonHeader,
    TrailerKind::Arista,
    TrailerKind::Gigamon,
    TrailerKind::Vss(0),
    TrailerKind::Vss(1),
];
/// The share of packets that must have a trailer.
const MOST: usize = 9;
const OF: usize = 10;
/// Spans of time whose least difference is kept, and the first length of one as a power of two, in ns.
const SPANS: u64 = 256;
const FIRST_SPAN_BITS: u32 = 20;
/// Fewest spans that tell a drift.
const LEAST_SPANS: usize = 8;

/// A time, and which bytes are those of the frame: all but the trailer or the header, and what check sequences are
/// no longer needed.
pub type Stamped = (Nanos, [Range<usize>; 2]);

/// A kind of trailer or header, and whether a frame check sequence ends the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Who writes it.
    pub kind: TrailerKind,
    /// True if the capture has the frame check sequence behind all.
    pub fcs: bool,
}

impl Trailer {
    /// Packets that are looked at to find one.
    pub(crate) const LOOK: usize = 64;

    /// Every trailer that there is.
    pub const ALL: [Self; 2 * KINDS.len()] = {
        let mut all = [Self { kind: KINDS[0], fcs: false }; 2 * KINDS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = Self { kind: KINDS[at / 2], fcs: at % 2 == 1 };
            at += 1;
        }
        all
    };

    /// Returns the trailer that nearly all of the first packets have: of several the one that is proven most often.
    pub fn of<'a>(packets: impl Iterator<Item = Packet<'a>>) -> Option<Self> {
        let packets: Vec<_> = packets.take(Self::LOOK).collect();
        let seen = |trailer: &Self| {
            let read = packets.iter().filter_map(|packet| Some((packet, trailer.read(packet)?.1)));
            let checked = read.clone().filter(|(of, kept)| trailer.is_proven(of.data, kept));
            (checked.count(), read.count())
        };
        let enough = |read: usize| read > 0 && read * OF >= packets.len() * MOST;
        let found = Self::ALL.into_iter().map(|trailer| (seen(&trailer), trailer));
        let best = found.filter(|((_, read), _)| enough(*read)).max_by_key(|(seen, _)| *seen)?;
        Some(best.1)
    }

    /// Returns true if nothing but a likely time says that it is there: payloads that end with a time have it, too.
    #[must_use]
    pub fn is_guess(self) -> bool {
        matches!(self.kind, TrailerKind::Vss(_))
    }

    /// Returns true if it proves that it is there: by the frame's own check sequence in front of it, by a checksum of its
    /// own, or by a type that nothing else has.
    fn is_proven(self, data: &[u8], kept: &[Range<usize>; 2]) -> bool {
        match self.kind {
            TrailerKind::Metamako | TrailerKind::Exablaze | TrailerKind::Gigamon => {
                let (frame, behind) = data.split_at(kept[0].end);
                behind.starts_with(&fcs(frame))
            }
            TrailerKind::Ixia | TrailerKind::GigamonFields => true,
            TrailerKind::GigamonHeader | TrailerKind::Arista => {
                let (frame, behind) = data.split_at(kept[1].end);
                !self.fcs || behind == fcs(frame)
            }
            TrailerKind::Vss(_) => false,
        }
    }

    /// Returns the time of a frame, and what its own bytes are; `None` if no such trailer or header is there, or the frame
    /// was not captured whole.
    #[must_use]
    pub fn read(self, packet: &Packet<'_>) -> Option<Stamped> {
        let Packet { data, orig_len, ts, .. } = *packet;
        if data.len() != orig_len as usize {
            return None;
        }
        let data = &data[..data.len().checked_sub(if self.fcs { FCS } else { 0 })?];
        let (ns, kept) = match self.kind {
            TrailerKind::Metamako => in_front(metamako(data)?),
            TrailerKind::Exablaze => in_front(exablaze(data)?),
            TrailerKind::Ixia => in_front(fields(data, IXIA)?),
            TrailerKind::GigamonFields => in_front(fields(data, GIGAMON)?),
            TrailerKind::GigamonHeader => around(gigamon_header(data)?, data),
            TrailerKind::Arista => around(arista(data, ts.0 / SECOND_NS)?, data),
            TrailerKind::Gigamon => in_front(gigamon(data)?),
            TrailerKind::Vss(port) => in_front(vss(data, usize::from(port))?),
        };
        let near = (ns / SECOND_NS).abs_diff(ts.0 / SECOND_NS) <= NEAR_S;
        let long = kept.iter().map(Range::len).sum::<usize>() >= SHORTEST;
        (near && long).then_some((Nanos(ns), kept))
    }
}

/// Returns a time, with the bytes in front of its trailer as those of the frame.
fn in_front((ns, before): (u64, usize)) -> (u64, [Range<usize>; 2]) {
    (ns, [0..before, before..before])
}

/// Returns a time, with the bytes around its header as those of the frame: the addresses, and what is behind the header.
fn around((ns, behind): (u64, usize), data: &[u8]) -> (u64, [Range<usize>; 2]) {
    (ns, [0..ADDRESSES, behind..data.len()])
}

/// Returns the frame check sequence of some bytes.
fn fcs(bytes: &[u8]) -> [u8; FCS] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

/// Returns the number that some bytes are, the most significant first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Reads extensions, seconds (4 bytes), nanoseconds (4), flags (1), device (2) and port (1).
///
/// Extensions are words of 4 bytes, each the last of its own data: bits 7 and 6 are the number of words before it
/// that belong to it, bit 5 says that it is the last one, and an identifier of all ones that bits 15 to 6 are that
/// number, less one.
fn metamako(data: &[u8]) -> Option<(u64, usize)> {
    let (mut before, end) = data.split_at_checked(data.len().checked_sub(12)?)?;
    let (ns, flags) = (time(&end[..8])?, end[8]);
    let mut extended = flags & 2 != 0;
    while extended {
        let (rest, word) = before.split_at_checked(before.len().checked_sub(4)?)?;
        let word = number(word);
        let words = if word & 0x1f == 0x1f { (word >> 6 & 0x3ff) + 1 } else { word >> 6 & 3 };
        before = &rest[..rest.len().checked_sub(4 * words as usize)?];
        extended = word >> 5 & 1 == 0;
    }
    Some((ns, before.len().checked_sub(FCS)?))
}

/// Reads the frame's own frame check sequence (4 bytes), device (1), port (1), seconds (4), a fraction of a second
/// (5) and a byte that says nothing.
fn exablaze(data: &[u8]) -> Option<(u64, usize)> {
    let before = data.len().checked_sub(16)?;
    let end = &data[before..];
    let (seconds, fraction) = (number(&end[6..10]), number(&end[10..15]));
    let ns = (u128::from(fraction) * u128::from(SECOND_NS)) >> 40;
    (seconds > 0).then_some((seconds * SECOND_NS + ns as u64, before))
}

/// Reads fields, their length (1), a signature (2), and the Internet checksum of all that (2).
fn fields(data: &[u8], signature: u16) -> Option<(u64, usize)> {
    let (content, sum) = data.split_at_checked(data.len().checked_sub(2)?)?;
    let (fields, end) = content.split_at_checked(content.len().checked_sub(3)?)?;
    let before = fields.len().checked_sub(usize::from(end[0]))?;
    if end[1..] != signature.to_be_bytes() || internet_checksum(&content[before..]) != number(sum) {
        return None;
    }
    Some((time_of_fields(&fields[before..])?, before))
}

/// Returns the time in fields, each a kind, a length and so many bytes: kinds 3 to 7 may be those of clocks.
fn time_of_fields(mut fields: &[u8]) -> Option<u64> {
    while let [kind, len, behind @ ..] = fields {
        let (field, next) = behind.split_at_checked(usize::from(*len))?;
        if (3..=7).contains(kind) && field.len() == 8 {
            return time(field);
        }
        fields = next;
    }
    None
}

/// Returns what is behind a type in place of the frame's own.
fn behind_type(data: &[u8], kind: u16) -> Option<&[u8]> {
    data.get(ADDRESSES..)?.strip_prefix(&kind.to_be_bytes())
}

/// Reads the header's length (1), itself included, and fields.
fn gigamon_header(data: &[u8]) -> Option<(u64, usize)> {
    let header = behind_type(data, GIGAMON)?;
    let len = usize::from(*header.first()?);
    Some((time_of_fields(header.get(1..len)?)?, ADDRESSES + 2 + len))
}

/// Reads the kind of the header (2), the scale of its time (1), which form this has (4 bits) and hardware (4 bits), then
/// seconds (4 bytes, or the lower 2 of them, nearest to `now_s`) and nanoseconds (4).
fn arista(data: &[u8], now_s: u64) -> Option<(u64, usize)> {
    let header = behind_type(data, ARISTA)?;
    let (head, field) = header.split_at_checked(4)?;
    if number(&head[..2]) != WITH_TIME {
        return None;
    }
    match head[3] >> 4 {
        1 => Some((time(field.get(..8)?)?, ADDRESSES + 2 + 4 + 8)),
        2 => {
            let (seconds, ns) = (number(field.get(..2)?), number(field.get(2..6)?));
            let first_s = now_s.saturating_sub(1 << 15);
            let seconds = first_s + (seconds.wrapping_sub(first_s) & 0xffff);
            (ns < SECOND_NS).then_some((seconds * SECOND_NS + ns, ADDRESSES + 2 + 4 + 6))
        }
        _ => None,
    }
}

/// Reads the frame's own frame check sequence (4 bytes), a port (2), seconds (4) and nanoseconds (4).
fn gigamon(data: &[u8]) -> Option<(u64, usize)> {
    let before = data.len().checked_sub(14)?;
    Some((time(&data[before + 6..])?, before))
}

/// Reads seconds (4), nanoseconds (4), of which the upper two bits are the source of the clock, and a port.
fn vss(data: &[u8], port: usize) -> Option<(u64, usize)> {
    let before = data.len().checked_sub(8 + port)?;
    let mut field: [u8; 8] = data[before..before + 8].try_into().ok()?;
    field[4] &= 0x3f;
    Some((time(&field)?, before))
}

/// Reads seconds (4) and nanoseconds (4).
fn time(field: &[u8]) -> Option<u64> {
    let (seconds, ns) = (number(&field[..4]), number(&field[4..]));
    (seconds > 0 && ns < SECOND_NS).then_some(seconds * SECOND_NS + ns)
}

/// Returns the checksum of RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| number(word) << (8 * (2 - word.len())));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum & 0xffff
}

/// Reads the times behind frames, and compares the clock of the capture with theirs.
pub(crate) struct Trailers {
    trailer: Trailer,
    without: u64,
    differences: Differences,
    /// The frame that was read last.
    frame: Vec<u8>,
}

impl Trailers {
    pub fn new(trailer: Trailer) -> Self {
        Self { trailer, without: 0, differences: Differences::default(), frame: Vec::new() }
    }

    /// Takes a packet if it has a time: returns that, the length on the wire without the trailer, and the offset of
    /// its record.
    pub fn take(&mut self, packet: &Packet<'_>) -> Option<(Nanos, u32, u64)> {
        let Some((ts, kept)) = self.trailer.read(packet) else {
            self.without += 1;
            return None;
        };
        self.differences.push(ts.0, packet.ts.0 as i64 - ts.0 as i64);
        self.frame.clear();
        kept.into_iter().for_each(|part| self.frame.extend_from_slice(&packet.data[part]));
        Some((ts, self.frame.len() as u32, packet.offset))
    }

    /// Returns the frame that was taken last.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    pub fn stamps(&self) -> Stamps {
        let Self { trailer, without, differences, .. } = self;
        Stamps {
            kind: trailer.kind,
            without: *without,
            offset_ns: differences.offset_ns(),
            drift_ppt: differences.drift_ppt(),
            largest_ns: differences.largest_ns,
        }
    }
}

/// The least difference of two clocks in each span of time.
#[derive(Default)]
struct Differences {
    span_bits: u32,
    first: u64,
    least: VecDeque<Option<i64>>,
    largest_ns: i64,
}

impl Differences {
    fn push(&mut self, ts: u64, ns: i64) {
        if ns.unsigned_abs() > self.largest_ns.unsigned_abs() {
            self.largest_ns = ns;
        }
        if self.least.is_empty() {
            self.span_bits = FIRST_SPAN_BITS;
            self.first = ts >> self.span_bits;
        }
        while (ts >> self.span_bits).abs_diff(self.first) >= SPANS {
            self.widen();
        }
        // What is out of order by more than all that was seen belongs to the first span.
        let at = (ts >> self.span_bits).saturating_sub(self.first) as usize;
        if at >= self.least.len() {
            self.least.resize(at + 1, None);
        }
        let least = &mut self.least[at];
        *least = Some(least.map_or(ns, |least| least.min(ns)));
    }

    fn widen(&mut self) {
        let former = std::mem::take(&mut self.least);
        let first = self.first;
        (self.span_bits, self.first) = (self.span_bits + 1, first >> 1);
        for (span, ns) in (first..).zip(former) {
            let at = ((span >> 1) - self.first) as usize;
            if at >= self.least.len() {
                self.least.resize(at + 1, None);
            }
            self.least[at] = [self.least[at], ns].into_iter().flatten().min();
        }
    }

    fn offset_ns(&self) -> i64 {
        let mut least: Vec<i64> = self.least.iter().copied().flatten().collect();
        least.sort_unstable();
        least.get(least.len() / 2).copied().unwrap_or(0)
    }

    /// Returns the slope of the line of least squares.
    fn drift_ppt(&self) -> Option<i64> {
        let span_ns = (1u64 << self.span_bits) as f64;
        let all = self.least.iter().enumerate();
        let points: Vec<(f64, f64)> =
            all.filter_map(|(at, ns)| Some((at as f64 * span_ns, (*ns)? as f64))).collect();
        if points.len() < LEAST_SPANS {
            return None;
        }
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let both: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        Some((both / spread * 1e12).round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_and_an_offset_are_those_of_the_fastest_packets() {
        let mut differences = Differences::default();
        for i in 0..40_000_u64 {
            let ts = 1_000_000_000_000_000_000 + i * 250_000;
            // 50 ppm, from 1 ms on; each third packet waits for 300 µs.
            let ns =
                1_000_000 + (i * 250_000 / 20_000) as i64 + if i % 3 == 0 { 0 } else { 300_000 };
            differences.push(ts, ns);
        }
        let drift = differences.drift_ppt().expect("spans enough");
        assert!((drift - 50_000_000).abs() < 500_000, "{drift}");
        assert!((differences.offset_ns() - 1_250_000).abs() < 5_000, "{}", differences.offset_ns());
        assert_eq!(differences.largest_ns, 1_000_000 + 499_975 + 300_000);
        assert!(differences.least.len() <= SPANS as usize);
    }

    #[test]
    fn a_few_packets_tell_no_drift() {
        let mut differences = Differences::default();
        differences.push(5, -7);
        assert_eq!((differences.offset_ns(), differences.drift_ppt()), (-7, None));
        assert_eq!(Differences::default().offset_ns(), 0);
    }
}
