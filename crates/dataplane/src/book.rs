//! What the generator writes down of the packets it sends and receives.

use crate::counters::Count;
use crate::error::Error;
use crate::live::Live;
use crate::series::Departures;
use crate::stream::Stream;
use crate::ticks::Ticks;
use probe::payload;

/// Packets with this bit in their number warm up: they are counted, and nothing else.
pub const WARM_UP: u64 = 1 << 63;
/// Packets with this bit in their number travel the other way.
pub const BACK: u64 = 1 << 62;
/// Packets with this bit in their number left when the disk was behind: they are counted, and nothing else.
pub const UNRECORDED: u64 = 1 << 61;

/// Where departures and arrivals are noted.
pub trait Book {
    /// The number of the next packet, of `count` that may leave now.
    fn next_seq(&mut self, count: usize) -> u64;
    /// The next packets, which were meant to leave at these times, left at `tsc`.
    fn departed(&mut self, intended: &[u64], tsc: u64);
    /// The next packets of the schedule, which were meant to leave at these times, will not. Since the time of
    /// the first so many `refused` the wire has taken less than was due.
    fn gave_up(&mut self, intended: &[u64], refused: usize);
    /// This frame arrived at `tsc`.
    fn arrived(&mut self, frame: &[u8], tsc: u64);
    /// Whether everything that left has arrived.
    fn all_arrived(&self) -> bool;
}

/// Says which packet a frame is.
pub trait Identify {
    /// Whether packets carry their number. Else they are known by their place, and each is recorded.
    const IS_NUMBERED: bool;
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
    /// One of which nothing is recorded.
    Unrecorded,
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
    const IS_NUMBERED: bool = true;

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
        if seq & UNRECORDED != 0 {
            return if seq & BACK == 0 { Found::Unrecorded } else { Found::Foreign };
        }
        if !departures.has(seq) {
            return Found::Foreign;
        }
        let stamped = payload::read_departure(payload).map(|(actual, _)| u64::from(actual));
        let is_stamp =
            |departure| Some(self.ticks.unix_ns(departure) % payload::MAX_ERROR_NS) == stamped;
        // The stamp of one that left long ago is not remembered.
        if departures.when(seq).is_none_or(is_stamp) {
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
    fn next_seq(&mut self, _count: usize) -> u64 {
        WARM_UP | self.sent
    }

    fn departed(&mut self, intended: &[u64], _tsc: u64) {
        self.sent += intended.len() as u64;
    }

    fn gave_up(&mut self, _intended: &[u64], _refused: usize) {}

    fn arrived(&mut self, frame: &[u8], _tsc: u64) {
        let seq = payload::find(frame).and_then(payload::read);
        let own = |seq: u64| (seq ^ self.mark) & (WARM_UP | BACK) == WARM_UP;
        self.received += u64::from(seq.is_some_and(own));
    }

    fn all_arrived(&self) -> bool {
        self.received >= self.sent
    }
}

/// The book of the measurement. With `CAPTURE` it also keeps what captures are written of.
#[derive(Debug)]
pub struct Measured<'a, I, const CAPTURE: bool> {
    names: &'a I,
    seen: &'a Seen,
    /// Where departures and arrivals are recorded.
    pub stream: Stream,
    /// Packets that left.
    pub departures: Departures,
    /// What left and what arrived, for captures.
    pub kept: Kept,
    is_recorded: bool,
    /// Packets whose stamps came back changed.
    pub corrupt: u64,
    /// Arrivals of packets that had arrived before.
    pub duplicated: u64,
    /// Frames that are none of ours.
    pub foreign: u64,
    /// Packets of the warm-up that arrived late.
    pub warm_up_received: u64,
    /// Frames that could be more than one of ours.
    pub ambiguous: u64,
    /// Packets that left when the disk was behind.
    pub unrecorded_sent: u64,
    /// Arrivals of those.
    pub unrecorded_received: u64,
}

impl<'a, I: Identify, const CAPTURE: bool> Measured<'a, I, CAPTURE> {
    /// An empty book with room for `scheduled` packets of at most `longest` bytes, to which a device may add some.
    pub fn with_room(
        scheduled: u64,
        longest: usize,
        added_bytes: usize,
        names: &'a I,
        stream: Stream,
        seen: &'a Seen,
    ) -> Result<Self, Error> {
        Ok(Self {
            names,
            seen,
            stream,
            departures: Departures::with_room(scheduled)?,
            kept: Kept::with_room(if CAPTURE { scheduled } else { 0 }, longest, added_bytes)?,
            is_recorded: true,
            corrupt: 0,
            duplicated: 0,
            foreign: 0,
            warm_up_received: 0,
            ambiguous: 0,
            unrecorded_sent: 0,
            unrecorded_received: 0,
        })
    }
}

impl<I: Identify, const CAPTURE: bool> Book for Measured<'_, I, CAPTURE> {
    #[inline(always)]
    fn next_seq(&mut self, count: usize) -> u64 {
        self.is_recorded = !I::IS_NUMBERED || self.stream.takes(count);
        if self.is_recorded { self.departures.len() } else { UNRECORDED | self.unrecorded_sent }
    }

    #[inline(always)]
    fn departed(&mut self, intended: &[u64], tsc: u64) {
        if !self.is_recorded {
            self.unrecorded_sent += intended.len() as u64;
            return;
        }
        for intended in intended {
            self.departures.push(tsc);
            self.stream.departed(*intended, tsc);
            if CAPTURE {
                self.kept.departures.push((*intended, tsc));
            }
        }
        self.seen.sent.add(intended.len() as u64);
    }

    fn gave_up(&mut self, intended: &[u64], refused: usize) {
        for (at, intended) in intended.iter().enumerate() {
            self.stream.unsent(*intended, at < refused);
        }
        self.seen.unsent.add(intended.len() as u64);
    }

    #[inline(always)]
    fn arrived(&mut self, frame: &[u8], tsc: u64) {
        let seq = match self.names.identify(frame, &self.departures) {
            Found::Packet(seq) => seq,
            Found::WarmUp => return self.warm_up_received += 1,
            Found::Corrupt(seq) => {
                self.corrupt += 1;
                return self.stream.corrupt(seq);
            }
            Found::Foreign => return self.foreign += 1,
            Found::Ambiguous => return self.ambiguous += 1,
            Found::Unrecorded => return self.unrecorded_received += 1,
        };
        if !self.departures.has(seq) {
            return self.foreign += 1;
        }
        if self.departures.arrive(seq) {
            self.seen.received.add(1);
            if let Some(departure) = self.departures.when(seq) {
                self.seen.latency.record(tsc.saturating_sub(departure));
            }
        } else {
            self.duplicated += 1;
        }
        self.stream.arrived(seq, tsc);
        if CAPTURE {
            self.kept.arrived(frame, tsc);
        }
    }

    fn all_arrived(&self) -> bool {
        self.seen.received.get() >= self.departures.len()
    }
}

/// The probe in a frame: where it was sent, or where the headers now say it is.
#[inline(always)]
fn probe_of(frame: &[u8], payload_at: usize) -> Option<&[u8]> {
    match frame.get(payload_at..) {
        Some(bytes) if bytes.starts_with(&payload::MAGIC) => Some(bytes),
        // A device may have added or taken away a tag or a tunnel.
        _ => payload::find(frame),
    }
}

/// What captures are written of: when packets were meant to leave and left, and what arrived. The bytes of
/// each frame have as much room as the frame that was sent, and a tag more.
#[derive(Debug)]
pub struct Kept {
    /// When packets were meant to leave, and left.
    pub departures: Vec<(u64, u64)>,
    arrivals: Vec<(u64, u16)>,
    bytes: Vec<u8>,
    stride: usize,
    /// Frames for which there was no room.
    pub without_room: u64,
}

impl Kept {
    /// Headers and probe are well within, but for those of a tunnel.
    const MOST: usize = 128;

    fn with_room(packets: u64, frame_bytes: usize, added_bytes: usize) -> Result<Self, Error> {
        // An eighth more for duplicates; beyond that they are only counted.
        let frames = if packets == 0 { 0 } else { packets + packets / 8 + 1024 };
        let stride = (frame_bytes + 4).min(Self::MOST) + added_bytes;
        let bytes = frames.saturating_mul(stride as u64 + 32);
        let memory = || Error::Memory { packets: frames, bytes };
        Ok(Self {
            departures: touched(packets, (u64::MAX, u64::MAX)).ok_or_else(memory)?,
            arrivals: touched(frames, (u64::MAX, u16::MAX)).ok_or_else(memory)?,
            bytes: touched(frames.saturating_mul(stride as u64), u8::MAX).ok_or_else(memory)?,
            stride,
            without_room: 0,
        })
    }

    #[inline(always)]
    fn arrived(&mut self, frame: &[u8], tsc: u64) {
        if self.arrivals.len() == self.arrivals.capacity() {
            self.without_room += 1;
            return;
        }
        let kept = frame.len().min(self.stride);
        self.bytes.extend_from_slice(&frame[..kept]);
        self.bytes.resize(self.bytes.len() + self.stride - kept, 0);
        self.arrivals.push((tsc, frame.len() as u16));
        debug_assert_eq!(
            self.bytes.len(),
            self.arrivals.len() * self.stride,
            "frames lie in a row"
        );
    }

    /// How many packets there are, of both kinds.
    pub fn len(&self) -> usize {
        self.departures.len() + self.arrivals.len()
    }

    /// When each frame arrived, what was kept of it, and its length.
    pub fn arrivals(&self) -> impl Iterator<Item = (u64, &[u8], u32)> {
        assert_eq!(self.bytes.len(), self.arrivals.len() * self.stride, "frames lie in a row");
        let frames = self.bytes.chunks_exact(self.stride).zip(&self.arrivals);
        frames.map(|(bytes, (tsc, len))| {
            (*tsc, &bytes[..usize::from(*len).min(bytes.len())], u32::from(*len))
        })
    }
}

/// Empty, with room for so many. Every page is written to, so that none is missing later.
fn touched<T: Clone>(room: u64, mark: T) -> Option<Vec<T>> {
    let room = usize::try_from(room).ok()?;
    let mut values = Vec::new();
    values.try_reserve_exact(room).ok()?;
    values.resize(room, mark);
    values.clear();
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;
    use crate::stream::{Recorder, numbers};
    use crate::template::{Content, Template};
    use probe::headers::{Addresses, Headers, Protocol};
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicBool;
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
            outer: None,
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
        let folder = tempfile::tempdir().unwrap();
        let (mut streams, _stalls, recorder) =
            Recorder::create(folder.path(), &[""], 10, 1000, 0).unwrap();
        let stream = streams.remove(0);
        let mut book = Measured::<_, true>::with_room(10, 64, 0, &probes, stream, &seen).unwrap();
        assert_eq!(book.next_seq(2), 0);
        book.departed(&[2000, 2500], 3000);
        book.gave_up(&[2600, 2700, 2800], 1);
        assert_eq!(book.next_seq(1), 2);
        book.departed(&[8000], 9000);
        assert_eq!(book.next_seq(1), 3);
        let mut changed = frame(&template, 1, 3000);
        changed[template.payload_at() + payload::DEPARTED_LEN - 1] ^= 1;
        let frames = [
            frame(&template, 2, 9000),
            frame(&template, 0, 3000),
            frame(&template, 0, 3000),           // again
            changed,                             // corrupt
            frame(&template, 3, 9000),           // never sent
            frame(&template, WARM_UP | 7, 100),  // warm-up
            frame(&template, UNRECORDED, 100),   // when the disk was behind
            frame(&marked(None, BACK), 1, 3000), // the other way
            frame(&marked(None, BACK), WARM_UP | 7, 100),
            frame(&marked(None, BACK), UNRECORDED, 100),
            vec![0; 60], // something else
            vec![],
        ];
        for (frame, tsc) in frames.iter().zip(10_000..) {
            book.arrived(frame, tsc);
        }
        assert_eq!((seen.received.get(), book.duplicated, book.foreign), (2, 1, 6));
        assert_eq!((book.corrupt, book.warm_up_received, book.unrecorded_received), (1, 1, 1));
        assert_eq!((seen.unsent.get(), book.all_arrived()), (3, false));
        assert_eq!(book.kept.departures, [(2000, 3000), (2500, 3000), (8000, 9000)]);
        let kept: Vec<_> =
            book.kept.arrivals().map(|(tsc, bytes, len)| (tsc, bytes.to_vec(), len)).collect();
        let expected = (10_000..).zip(&frames[..3]).map(|(tsc, frame)| (tsc, frame.clone(), 64));
        assert_eq!(kept, expected.collect::<Vec<_>>());
        let written = recorder.run(&AtomicBool::new(true), &Stop::default());
        assert!(written.error.is_none());
        let array = |stem: &str| numbers(&folder.path().join(format!("{stem}.npy")));
        assert_eq!(array("intended_tsc"), [2000, 2500, 8000]);
        assert_eq!(array("departure_tsc"), [3000, 3000, 9000]);
        assert_eq!(
            (array("arrival_seq"), array("arrival_tsc")),
            (vec![2, 0, 0], vec![10_000, 10_001, 10_002])
        );
        assert_eq!(
            (array("unsent_tsc"), array("unsent_refused")),
            (vec![2600, 2700, 2800], vec![1, 0, 0])
        );
        assert_eq!(array("corrupt_seq"), [1]);
    }

    #[test]
    fn what_leaves_while_the_disk_is_behind_is_counted_and_nothing_else() {
        let (template, seen) = (template(None), Seen::new());
        let (payload_at, ticks) = (template.payload_at(), Ticks::new(CLOCK));
        let probes = Probes { payload_at, mark: 0, ticks };
        let (stream, _rows) = Stream::new(4);
        let mut book = Measured::<_, false>::with_room(10, 64, 0, &probes, stream, &seen).unwrap();
        let seqs = [0, 1, 2, UNRECORDED, UNRECORDED | 1];
        for seq in seqs {
            assert_eq!(book.next_seq(1), seq);
            book.departed(&[3000], 3000);
        }
        for seq in seqs {
            book.arrived(&frame(&template, seq, 3000), 4000);
        }
        assert_eq!((seen.sent.get(), seen.received.get()), (3, 3));
        assert_eq!((book.unrecorded_sent, book.unrecorded_received), (2, 2));
        // Of the three that came back, one had room.
        assert_eq!((book.stream.unrecorded, book.foreign), (2, 0));
    }

    #[test]
    fn a_tag_that_was_added_does_not_hide_a_probe() {
        let (sent, seen) = (template(None), Seen::new());
        let (payload_at, ticks) = (sent.payload_at(), Ticks::new(CLOCK));
        let probes = Probes { payload_at, mark: 0, ticks };
        let mut book =
            Measured::<_, false>::with_room(1, 64, 0, &probes, Stream::nowhere(), &seen).unwrap();
        book.departed(&[3000], 3000);
        book.arrived(&frame(&template(Some(9)), 0, 3000), 4000);
        assert_eq!((seen.received.get(), book.foreign), (1, 0));
    }
}
