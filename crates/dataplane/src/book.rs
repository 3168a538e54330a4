//! What the generator writes down of the packets it sends and receives.

use crate::counters::Count;
use crate::error::Error;
use crate::live::Live;
use crate::series::{Arrivals, Departures};
use crate::ticks::Ticks;
use probe::headers::{Payload, transport_payload};
use probe::payload;

/// Packets with this bit in their number warm up: they are counted, and nothing else.
pub const WARM_UP: u64 = 1 << 63;
/// Packets with this bit in their number travel the other way.
pub const BACK: u64 = 1 << 62;
/// Corrupt packets of which the number is kept.
const CORRUPT_ROOM: usize = 1 << 16;

/// Where departures and arrivals are noted.
pub trait Book {
    /// The number of the next packet.
    fn next_seq(&self) -> u64;
    /// The next `count` packets left at `tsc`.
    fn departed(&mut self, count: usize, tsc: u64);
    /// The next packets of the schedule will not leave.
    fn gave_up(&mut self, late: GivenUp);
    /// This frame arrived at `tsc`.
    fn arrived(&mut self, frame: &[u8], tsc: u64);
    /// Whether everything that left has arrived.
    fn all_arrived(&self) -> bool;
}

/// Packets of the schedule that will not leave.
#[derive(Clone, Copy, Debug)]
pub struct GivenUp {
    /// How many.
    pub count: u64,
    /// Of those, the first so many: since their time the wire has taken less than was due.
    pub refused: u64,
}

/// Says which packet a frame is.
pub trait Identify {
    /// Looks at a frame that has arrived.
    fn identify(&self, frame: &[u8], departures: &Departures) -> Found;
    /// What is set in the numbers of packets that warm up, apart from [`WARM_UP`].
    fn mark(&self) -> u64;
}

/// Which packet a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The one with this number.
    Packet(u64),
    /// One that warmed up.
    WarmUp,
    /// The one with this number, but it came back changed.
    Corrupt(u64),
    /// None of ours.
    Foreign,
    /// One of several.
    Ambiguous,
}

/// Packets are known by the probe that they carry.
#[derive(Debug)]
pub struct Probes {
    /// Where it was when they left.
    pub payload_at: usize,
    /// [`BACK`] in their numbers, or nothing.
    pub mark: u64,
    /// The clock of their stamps.
    pub ticks: Ticks,
}

impl Identify for Probes {
    #[inline(always)]
    fn identify(&self, frame: &[u8], departures: &Departures) -> Found {
        let probe = probe_of(frame, self.payload_at);
        let Some((payload, seq)) = probe.and_then(|bytes| Some((bytes, payload::read(bytes)?)))
        else {
            return Found::Foreign;
        };
        let seq = seq ^ self.mark;
        if seq & WARM_UP != 0 {
            return if seq & BACK == 0 { Found::WarmUp } else { Found::Foreign };
        }
        let Some(departure) = departures.get(seq) else { return Found::Foreign };
        let stamped = payload::read_departure(payload).map(|(actual, _)| u64::from(actual));
        if stamped == Some(self.ticks.unix_ns(departure) % payload::MAX_ERROR_NS) {
            Found::Packet(seq)
        } else {
            Found::Corrupt(seq)
        }
    }

    fn mark(&self) -> u64 {
        self.mark
    }
}

/// What other threads may know while it is measured.
#[derive(Debug)]
pub struct Seen {
    /// Packets that left.
    pub sent: Count,
    /// Of those, packets that arrived at least once.
    pub received: Count,
    /// Packets that could not leave in time.
    pub unsent: Count,
    /// Latencies in ticks.
    pub latency: Live,
}

impl Seen {
    /// Nothing yet.
    pub fn new() -> Self {
        let latency = Live::new();
        Self {
            sent: Count::default(),
            received: Count::default(),
            unsent: Count::default(),
            latency,
        }
    }
}

/// The book of the warm-up: it only counts.
#[derive(Debug, Default)]
pub struct WarmUp {
    /// As in [`Probes`].
    pub mark: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that came back.
    pub received: u64,
}

impl Book for WarmUp {
    fn next_seq(&self) -> u64 {
        WARM_UP | self.sent
    }

    fn departed(&mut self, count: usize, _tsc: u64) {
        self.sent += count as u64;
    }

    fn gave_up(&mut self, _late: GivenUp) {}

    fn arrived(&mut self, frame: &[u8], _tsc: u64) {
        let seq = moved_probe(frame).and_then(payload::read);
        let own = |seq: u64| (seq ^ self.mark) & (WARM_UP | BACK) == WARM_UP;
        self.received += u64::from(seq.is_some_and(own));
    }

    fn all_arrived(&self) -> bool {
        self.received >= self.sent
    }
}

/// The book of the measurement. With `CAPTURE` it also keeps the bytes of what arrives.
#[derive(Debug)]
pub struct Measured<'a, I, const CAPTURE: bool> {
    names: &'a I,
    seen: &'a Seen,
    /// When every packet left.
    pub departures: Departures,
    /// Which packets of the schedule never left.
    pub skipped: Skipped,
    /// What arrived.
    pub arrivals: Arrivals,
    /// The bytes of what arrived.
    pub frames: Frames,
    /// Numbers of packets whose stamps came back changed.
    pub corrupt: Vec<u64>,
    /// Arrivals of packets that had arrived before.
    pub duplicated: u64,
    /// Frames that are none of ours.
    pub foreign: u64,
    /// Packets of the warm-up that arrived late.
    pub warm_up_received: u64,
    /// Corrupt packets of which the number was not kept.
    pub corrupt_unrecorded: u64,
    /// Frames that could be more than one of ours.
    pub ambiguous: u64,
}

impl<'a, I: Identify, const CAPTURE: bool> Measured<'a, I, CAPTURE> {
    /// An empty book with room for `scheduled` packets of at most `longest` bytes from `tsc` on.
    pub fn with_room(
        scheduled: u64,
        longest: usize,
        names: &'a I,
        tsc: u64,
        seen: &'a Seen,
    ) -> Result<Self, Error> {
        // An eighth more for duplicates; beyond that they are only counted.
        let arrivals = scheduled.saturating_add(scheduled / 8).saturating_add(1024);
        Ok(Self {
            names,
            seen,
            departures: Departures::with_room(scheduled)?,
            skipped: Skipped::with_room(scheduled),
            arrivals: Arrivals::with_room(arrivals, tsc)?,
            frames: Frames::with_room(if CAPTURE { arrivals } else { 0 }, longest)?,
            corrupt: Vec::with_capacity(CORRUPT_ROOM),
            duplicated: 0,
            foreign: 0,
            warm_up_received: 0,
            corrupt_unrecorded: 0,
            ambiguous: 0,
        })
    }

    #[cold]
    fn corrupted(&mut self, seq: u64) {
        if self.corrupt.len() < self.corrupt.capacity() {
            self.corrupt.push(seq);
        } else {
            self.corrupt_unrecorded += 1;
        }
    }
}

impl<I: Identify, const CAPTURE: bool> Book for Measured<'_, I, CAPTURE> {
    #[inline(always)]
    fn next_seq(&self) -> u64 {
        self.departures.len() as u64
    }

    #[inline(always)]
    fn departed(&mut self, count: usize, tsc: u64) {
        self.departures.push(tsc, count);
        self.skipped.left(count as u64);
        debug_assert!(self.skipped.slot >= self.departures.len() as u64, "each has its slot");
        self.seen.sent.add(count as u64);
    }

    fn gave_up(&mut self, late: GivenUp) {
        self.skipped.skip(late.refused, true);
        self.skipped.skip(late.count - late.refused, false);
        self.seen.unsent.add(late.count);
    }

    #[inline(always)]
    fn arrived(&mut self, frame: &[u8], tsc: u64) {
        let seq = match self.names.identify(frame, &self.departures) {
            Found::Packet(seq) => seq,
            Found::WarmUp => return self.warm_up_received += 1,
            Found::Corrupt(seq) => return self.corrupted(seq),
            Found::Foreign => return self.foreign += 1,
            Found::Ambiguous => return self.ambiguous += 1,
        };
        let Some(departure) = self.departures.get(seq) else { return self.foreign += 1 };
        if self.departures.arrive(seq) {
            self.seen.received.add(1);
            self.seen.latency.record(tsc.saturating_sub(departure));
        } else {
            self.duplicated += 1;
        }
        if self.arrivals.push(seq, tsc) && CAPTURE {
            self.frames.push(frame);
        }
    }

    fn all_arrived(&self) -> bool {
        self.seen.received.get() >= self.departures.len() as u64
    }
}

/// The probe in a frame: where it was sent, or where the headers now say it is.
#[inline(always)]
fn probe_of(frame: &[u8], payload_at: usize) -> Option<&[u8]> {
    match frame.get(payload_at..) {
        Some(bytes) if bytes.starts_with(&payload::MAGIC) => Some(bytes),
        _ => moved_probe(frame),
    }
}

/// A device may have added or taken away a tag.
fn moved_probe(frame: &[u8]) -> Option<&[u8]> {
    match transport_payload(frame) {
        Payload::At(at) => frame.get(at..),
        _ => None,
    }
}

/// Which packets of a schedule never left, and which of them the wire refused: a bit each.
#[derive(Debug)]
pub struct Skipped {
    bits: Bits,
    refused: Bits,
    slot: u64,
}

#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn with_room(bits: u64) -> Self {
        // Not zeros, which the system would only promise.
        let mut words = vec![u64::MAX; (bits / 64 + 1) as usize];
        words.fill(0);
        Self(words)
    }

    fn set(&mut self, bit: u64) {
        self.0[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    fn has(&self, bit: u64) -> bool {
        self.0[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }
}

impl Skipped {
    fn with_room(scheduled: u64) -> Self {
        Self { bits: Bits::with_room(scheduled), refused: Bits::with_room(scheduled), slot: 0 }
    }

    #[inline(always)]
    fn left(&mut self, count: u64) {
        self.slot += count;
    }

    fn skip(&mut self, count: u64, refused: bool) {
        for slot in self.slot..self.slot + count {
            self.bits.set(slot);
            if refused {
                self.refused.set(slot);
            }
        }
        self.slot += count;
    }

    /// Whether this packet of the schedule left.
    pub fn has_left(&self, slot: u64) -> bool {
        slot < self.slot && !self.bits.has(slot)
    }

    /// Whether this packet never left; and if so, whether the wire refused packets meanwhile.
    pub fn was_refused(&self, slot: u64) -> Option<bool> {
        (slot < self.slot && self.bits.has(slot)).then(|| self.refused.has(slot))
    }
}

/// The bytes of frames, each in as much room as the frame that was sent has, and a tag more.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    lens: Vec<u16>,
    stride: usize,
}

impl Frames {
    /// Headers and probe are well within.
    const MOST: usize = 128;

    fn with_room(frames: u64, frame_bytes: usize) -> Result<Self, Error> {
        let stride = (frame_bytes + 4).min(Self::MOST);
        let memory =
            || Error::Memory { packets: frames, bytes: frames.saturating_mul(stride as u64) };
        let room = usize::try_from(frames).map_err(|_| memory())?;
        let (mut bytes, mut lens) = (Vec::new(), Vec::new());
        let all = room.checked_mul(stride).ok_or_else(memory)?;
        bytes.try_reserve_exact(all).map_err(|_| memory())?;
        lens.try_reserve_exact(room).map_err(|_| memory())?;
        bytes.resize(all, u8::MAX);
        bytes.clear();
        lens.resize(room, u16::MAX);
        lens.clear();
        Ok(Self { bytes, lens, stride })
    }

    #[inline(always)]
    fn push(&mut self, frame: &[u8]) {
        debug_assert!(self.lens.len() < self.lens.capacity(), "memory is there beforehand");
        let kept = frame.len().min(self.stride);
        self.bytes.extend_from_slice(&frame[..kept]);
        self.bytes.resize(self.bytes.len() + self.stride - kept, 0);
        self.lens.push(frame.len() as u16);
        debug_assert_eq!(self.bytes.len(), self.lens.len() * self.stride, "frames lie in a row");
    }

    /// What was kept of each frame, and its length.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        assert_eq!(self.bytes.len(), self.lens.len() * self.stride, "frames lie in a row");
        self.bytes
            .chunks_exact(self.stride)
            .zip(&self.lens)
            .map(|(bytes, len)| (&bytes[..usize::from(*len).min(bytes.len())], u32::from(*len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Content, Template};
    use probe::headers::{Addresses, Headers, Protocol};
    use std::net::Ipv4Addr;
    use units::Clock;

    const CLOCK: Clock = Clock { tsc_hz: 3_000_000_000, tsc: 0, unix_ns: 1 << 60 };

    fn template(vlan: Option<u16>) -> Template {
        marked(vlan, 0)
    }

    fn marked(vlan: Option<u16>, mark: u64) -> Template {
        let addresses = Addresses::V4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        let mac = [2, 0, 0, 0, 0, 1];
        let (to_mac, from_mac) = (mac, mac);
        let headers = Headers {
            to_mac,
            from_mac,
            vlan,
            addresses,
            protocol: Protocol::Udp,
            from_port: 1,
            to_port: 2,
            ttl: 3,
        };
        Template::new(&[headers], &[68], mark).unwrap()
    }

    fn frame(template: &Template, seq: u64, tsc: u64) -> Vec<u8> {
        let mut frame = Vec::new();
        let ns = Ticks::new(CLOCK).unix_ns(tsc);
        template.copy(&mut frame, seq, ns, ns);
        frame
    }

    #[test]
    fn every_arrival_is_one_thing() {
        let (template, seen) = (template(None), Seen::new());
        let (payload_at, ticks) = (template.payload_at(), Ticks::new(CLOCK));
        let probes = Probes { payload_at, mark: 0, ticks };
        let mut book = Measured::<_, true>::with_room(10, 64, &probes, 0, &seen).unwrap();
        book.departed(2, 3000);
        book.gave_up(GivenUp { count: 3, refused: 1 });
        book.departed(1, 9000);
        assert_eq!(book.next_seq(), 3);
        let mut changed = frame(&template, 1, 3000);
        changed[template.payload_at() + payload::DEPARTED_LEN - 1] ^= 1;
        let frames = [
            frame(&template, 2, 9000),
            frame(&template, 0, 3000),
            frame(&template, 0, 3000),           // again
            changed,                             // corrupt
            frame(&template, 3, 9000),           // never sent
            frame(&template, WARM_UP | 7, 100),  // warm-up
            frame(&marked(None, BACK), 1, 3000), // the other way
            frame(&marked(None, BACK), WARM_UP | 7, 100),
            vec![0; 60], // something else
            vec![],
        ];
        for (frame, tsc) in frames.iter().zip(10_000..) {
            book.arrived(frame, tsc);
        }
        let arrivals: Vec<_> = book.arrivals.iter().collect();
        assert_eq!(arrivals, [(2, 10_000), (0, 10_001), (0, 10_002)]);
        assert_eq!((seen.received.get(), book.duplicated, book.foreign), (2, 1, 5));
        assert_eq!((book.corrupt.as_slice(), book.warm_up_received), ([1].as_slice(), 1));
        let left: Vec<_> = (0..10).filter(|slot| book.skipped.has_left(*slot)).collect();
        assert_eq!((left, seen.unsent.get(), book.all_arrived()), (vec![0, 1, 5], 3, false));
        let unsent: Vec<_> = (0..10).filter_map(|slot| book.skipped.was_refused(slot)).collect();
        assert_eq!(unsent, [true, false, false]);
        let kept: Vec<_> = book.frames.iter().map(|(bytes, len)| (bytes.to_vec(), len)).collect();
        assert_eq!(kept, frames[..3].iter().map(|frame| (frame.clone(), 64)).collect::<Vec<_>>());
    }

    #[test]
    fn a_tag_that_was_added_does_not_hide_a_probe() {
        let (sent, seen) = (template(None), Seen::new());
        let (payload_at, ticks) = (sent.payload_at(), Ticks::new(CLOCK));
        let probes = Probes { payload_at, mark: 0, ticks };
        let mut book = Measured::<_, false>::with_room(1, 64, &probes, 0, &seen).unwrap();
        book.departed(1, 3000);
        book.arrived(&frame(&template(Some(9)), 0, 3000), 4000);
        assert_eq!((seen.received.get(), book.foreign), (1, 0));
    }
}
