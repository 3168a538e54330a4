//! TCP streams of a capture: which bytes of each were seen, and when first.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use capture::Reader;
use probe::flow::Flow;
use probe::tcp;
use xxhash_rust::xxh3::Xxh3;

use crate::basis::Skew;
use crate::error::Error;
use crate::pair::{Observer, Progress, continue_unless_stopped};
use crate::varieties::{News, Numbers};

/// Place of the first byte of a stream, of which the first segment that was seen may not be the first: it has room
/// in front of it.
pub(crate) const BASE: u64 = 1 << 32;
/// Bytes of streams of a capture that are kept, at most, with what is kept of each packet: so packets have a number.
const MOST_BYTES: usize = 1 << 32;
/// Packets between two looks at whether to stop.
const AT_ONCE: usize = 1 << 14;

/// Bytes of a stream that one packet was the first to carry. Places are counted by sequence numbers from [`BASE`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub start: u64,
    pub end: u64,
    /// Time of the packet, in ns.
    pub ts: u64,
    /// Place of the packet in the capture.
    pub packet: u32,
    /// Place of the first byte in the content of the capture.
    at: usize,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// Sequence number of the byte at [`BASE`].
    origin: Option<u32>,
    /// True if its SYN was seen: [`BASE`] is its beginning.
    pub opened: bool,
    /// The bytes that were seen, in order of their places.
    pub pieces: Vec<Piece>,
    /// Place of its end, if its FIN was seen.
    pub end: Option<u64>,
    /// The other end has received all bytes up to this place.
    pub acknowledged: Option<u64>,
    reached: u64,
    /// The pieces by their places instead, once one did not come in order, as long as some may come.
    read: BTreeMap<u64, Piece>,
}

/// What became of bytes of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All were seen; the last of them at this time, in ns.
    At(u64),
    /// Those at these places were not.
    Not(Vec<Range<u64>>),
}

impl Default for Stream {
    fn default() -> Self {
        let (origin, end, acknowledged) = (None, None, None);
        let (pieces, read) = (Vec::new(), BTreeMap::new());
        Self { origin, opened: false, pieces, end, acknowledged, reached: BASE, read }
    }
}

impl Stream {
    fn open(&mut self, origin: u32) {
        (self.origin, self.opened) = (Some(origin), true);
    }

    /// Returns the place of a sequence number: these begin again behind 2^32, so it is the one that is nearest to what
    /// was reached.
    fn place(&self, sequence: u32) -> Option<u64> {
        // The lower half of the base is 0.
        let reached = self.origin?.wrapping_add(self.reached as u32);
        let step = sequence.wrapping_sub(reached) as i32;
        Some(self.reached.saturating_add_signed(step.into()))
    }

    /// Adds the bytes of a packet that are new; returns true if some are.
    fn add(&mut self, whole: Piece) -> bool {
        if self.read.is_empty() {
            if self.pieces.last().is_none_or(|last| last.end <= whole.start) {
                self.pieces.push(whole);
                self.reached = self.reached.max(whole.end);
                return true;
            }
            let pieces = std::mem::take(&mut self.pieces).into_iter();
            self.read = pieces.map(|piece| (piece.start, piece)).collect();
        }
        let former = self.read.range(..=whole.start).next_back();
        let first = former.map_or(whole.start, |(start, _)| *start);
        let known = self.read.range(first..whole.end).map(|(_, piece)| (piece.start, piece.end));
        let known: Vec<(u64, u64)> = known.collect();
        let (mut from, mut is_new) = (whole.start, false);
        for (end, next) in known.into_iter().chain([(whole.end, whole.end)]) {
            if from < end {
                let at = whole.at + (from - whole.start) as usize;
                self.read.insert(from, Piece { start: from, end, at, ..whole });
                is_new = true;
            }
            from = from.max(next);
        }
        self.reached = self.reached.max(whole.end);
        is_new
    }

    /// Puts the bytes that were added in order.
    fn finish(&mut self) {
        if !self.read.is_empty() {
            self.pieces = std::mem::take(&mut self.read).into_values().collect();
        }
    }

    /// Returns when the last of these bytes was seen, or the places of those that were not.
    pub fn seen(&self, start: u64, end: u64) -> Seen {
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        let (mut reached, mut last_ns, mut missing) = (start, 0, Vec::new());
        for piece in self.pieces[first..].iter().take_while(|piece| piece.start < end) {
            if piece.start > reached {
                missing.push(reached..piece.start);
            }
            (reached, last_ns) = (piece.end, last_ns.max(piece.ts));
        }
        if reached < end {
            missing.push(reached..end);
        }
        if missing.is_empty() { Seen::At(last_ns) } else { Seen::Not(missing) }
    }

    /// Returns true if any of these bytes was seen.
    pub fn has_some(&self, start: u64, end: u64) -> bool {
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        self.pieces.get(first).is_some_and(|piece| piece.start < end)
    }

    /// Returns the places of the first byte, and behind the last one, that were seen.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.pieces.first()?.start, self.pieces.last()?.end))
    }

    /// Returns the number of bytes that were seen.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.start).sum()
    }
}

/// A connection, by its two streams: one for each flow of the pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// The stream of the end that opened it, if that was seen.
    pub opener: Option<usize>,
    /// True if an end has ended it at once.
    pub reset: bool,
    pub streams: [Stream; 2],
}

impl Connection {
    /// Returns true if a SYN of the stream `way` opens another connection of the same ends.
    fn is_over(&self, way: usize, origin: u32, answers: bool) -> bool {
        let stream = &self.streams[way];
        if stream.opened {
            return stream.origin != Some(origin);
        }
        let is_known = |stream: &Stream| stream.origin.is_some();
        if answers { is_known(stream) } else { self.streams.iter().any(is_known) }
    }
}

/// What a packet means to the streams of its capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is no TCP segment.
    Other,
    /// It carries no bytes of a stream.
    Empty,
    /// All of its bytes had been seen before.
    Again,
    /// It was the first to carry some bytes of a stream: by place of the connection, and number of the stream.
    First { connection: u32, way: u8 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub ts: u64,
    /// Number of its flow and size.
    pub variety: u32,
    pub role: Role,
}

/// The streams of a capture.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// All packets, in order of time.
    pub packets: Vec<Packet>,
    pub connections: Vec<Connection>,
    pub disordered: u64,
    pub disorder_ns_max: u64,
    /// Flows and sizes of packets.
    pub news: News,
    /// Times between its files in ns, of which packets may be missing.
    pub gaps: Vec<(u64, u64)>,
    content: Vec<u8>,
}

/// A packet, as it was read.
struct Read {
    ts: u64,
    variety: u32,
    segment: Option<Segment>,
}

/// A segment, without its bytes.
struct Segment {
    ends: u32,
    way: u8,
    sequence: u32,
    acknowledged: Option<u32>,
    syn: bool,
    fin: bool,
    rst: bool,
    at: usize,
    len: u32,
}

/// Numbers of pairs of ends, and which of their two flows a flow is.
#[derive(Default)]
struct Ends {
    of: HashMap<Flow, (u32, u8)>,
    count: u32,
}

impl Ends {
    fn of(&mut self, flow: Flow) -> (u32, u8) {
        if let Some(known) = self.of.get(&flow) {
            return *known;
        }
        let Flow { from, to, from_port, to_port, .. } = flow;
        let answers = Flow { from: to, to: from, from_port: to_port, to_port: from_port, ..flow };
        self.of.insert(flow, (self.count, 0));
        // An end may talk to itself.
        self.of.entry(answers).or_insert((self.count, 1));
        self.count += 1;
        (self.count - 1, 0)
    }
}

impl Streams {
    /// Reads all streams of a capture, the times of which `skew` corrects.
    ///
    /// # Errors
    /// When it cannot be read, holds only the beginning of a packet, or more bytes than are kept.
    pub fn read(
        reader: &mut Reader,
        skew: Skew,
        before: Progress,
        observer: &mut dyn Observer,
    ) -> Result<Self, Error> {
        let (mut ends, mut numbers) = (Ends::default(), Numbers::default());
        let (mut all, mut content) = (Vec::new(), Vec::new());
        while let Some(packet) = reader.next()? {
            let ts = skew.undo(packet.ts.0);
            let variety = numbers.of_frame(packet.data, packet.orig_len);
            let found = tcp::segment(packet.data, packet.orig_len);
            let is_cut = |of: &tcp::Segment<'_>| of.payload.len() < of.len as usize;
            if let Some((_, cut)) = found.filter(|(_, of)| is_cut(of)) {
                let (offset, got, need) = (packet.offset, packet.data.len(), cut.need);
                let (file, packet) = (reader.info().name, all.len() as u64 + 1);
                return Err(Error::ShortCapture { file, offset, packet, got, need });
            }
            let segment = found.map(|(flow, segment)| keep(ends.of(flow), segment, &mut content));
            all.push(Read { ts, variety, segment });
            if content.len() + all.len() * size_of::<Read>() > MOST_BYTES {
                let file = reader.info().name;
                let packet = all.len() as u64;
                return Err(Error::StreamsTooLong { file, packet, limit: MOST_BYTES });
            }
            if all.len() % AT_ONCE == 0 {
                let done_bytes = before.done_bytes + reader.consumed_bytes();
                continue_unless_stopped(observer.progress(Progress { done_bytes, ..before }))?;
            }
        }
        let gaps = reader.files().map_or(&[][..], |files| &files.gaps).iter();
        let gaps = gaps.map(|(from, to)| (skew.undo(*from), skew.undo(*to))).collect();
        let news = numbers.take_news();
        Ok(Self { content, news, gaps, ..Self::assembled(all, ends.count) })
    }

    fn assembled(mut all: Vec<Read>, ends: u32) -> Self {
        let mut streams = Self::default();
        let mut newest_ns = 0;
        for read in &all {
            streams.disordered += u64::from(read.ts < newest_ns);
            let back_ns = newest_ns.saturating_sub(read.ts);
            streams.disorder_ns_max = streams.disorder_ns_max.max(back_ns);
            newest_ns = newest_ns.max(read.ts);
        }
        all.sort_by_key(|read| read.ts);
        let mut open: Vec<Option<u32>> = vec![None; ends as usize];
        streams.packets.reserve(all.len());
        for (packet, Read { ts, variety, segment }) in (0u32..).zip(all) {
            let role = segment.map_or(Role::Other, |of| streams.take(&of, (ts, packet), &mut open));
            streams.packets.push(Packet { ts, variety, role });
        }
        let connections = streams.connections.iter_mut();
        connections.flat_map(|of| &mut of.streams).for_each(Stream::finish);
        streams
    }

    /// Adds a segment to its stream. `open` has the connection of each pair of ends.
    fn take(
        &mut self,
        segment: &Segment,
        (ts, packet): (u64, u32),
        open: &mut [Option<u32>],
    ) -> Role {
        let way = usize::from(segment.way);
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let (is_opening, answers) = (segment.syn, segment.acknowledged.is_some());
        let place = &mut open[segment.ends as usize];
        let known = place.filter(|known| {
            !(is_opening && self.connections[*known as usize].is_over(way, first, answers))
        });
        let number = known.unwrap_or(self.connections.len() as u32);
        if known.is_none() {
            *place = Some(number);
            self.connections.push(Connection::default());
        }
        let connection = &mut self.connections[number as usize];
        if is_opening {
            connection.streams[way].open(first);
            connection.opener.get_or_insert(if answers { 1 - way } else { way });
        }
        let other = &mut connection.streams[1 - way];
        let acknowledged = segment.acknowledged.and_then(|sequence| other.place(sequence));
        other.acknowledged = other.acknowledged.max(acknowledged);
        if segment.rst {
            connection.reset = true;
            return Role::Empty;
        }
        let stream = &mut connection.streams[way];
        stream.origin.get_or_insert(first);
        let start = stream.place(first).expect("it has an origin");
        let end = start + u64::from(segment.len);
        if segment.fin {
            stream.end = Some(end);
        }
        if segment.len == 0 {
            return Role::Empty;
        }
        // A keep-alive repeats the byte before what follows, which is the SYN in the beginning.
        let skipped = if stream.opened { BASE.saturating_sub(start) } else { 0 };
        let (start, at) = (start + skipped, segment.at + skipped as usize);
        if start < end && stream.add(Piece { start, end, ts, packet, at }) {
            Role::First { connection: number, way: way as u8 }
        } else {
            Role::Again
        }
    }

    /// Returns the bytes of a piece.
    pub fn bytes(&self, piece: &Piece) -> &[u8] {
        &self.content[piece.at..][..(piece.end - piece.start) as usize]
    }

    /// Returns the bytes of a stream from a place on, up to the first that was not seen.
    pub fn onwards<'a>(
        &'a self,
        stream: &'a Stream,
        place: u64,
    ) -> impl Iterator<Item = u8> + use<'a> {
        let first = stream.pieces.partition_point(|piece| piece.end <= place);
        let mut reached = place;
        let together = stream.pieces[first..].iter().take_while(move |piece| {
            let joins = piece.start <= reached;
            reached = piece.end;
            joins
        });
        together.flat_map(move |piece| {
            let skipped = place.saturating_sub(piece.start) as usize;
            self.bytes(piece)[skipped..].iter().copied()
        })
    }

    /// Returns the bytes of a stream before a place, the last first, down to one that was not seen.
    pub fn backwards<'a>(
        &'a self,
        stream: &'a Stream,
        place: u64,
    ) -> impl Iterator<Item = u8> + use<'a> {
        let behind = stream.pieces.partition_point(|piece| piece.start < place);
        let mut reached = place;
        let together = stream.pieces[..behind].iter().rev().take_while(move |piece| {
            let joins = piece.end >= reached;
            reached = piece.start;
            joins
        });
        together.flat_map(move |piece| {
            let taken = (place.min(piece.end) - piece.start) as usize;
            self.bytes(piece)[..taken].iter().rev().copied()
        })
    }

    /// Returns a hash of all that was seen of a stream, however it was cut.
    pub fn hash(&self, stream: &Stream) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(&[u8::from(stream.opened)]);
        let (mut reached, mut len) = (0, 0u64);
        for piece in &stream.pieces {
            if piece.start != reached {
                hash.update(&len.to_le_bytes());
                hash.update(&piece.start.to_le_bytes());
                len = 0;
            }
            hash.update(self.bytes(piece));
            (reached, len) = (piece.end, len + piece.end - piece.start);
        }
        hash.update(&len.to_le_bytes());
        hash.digest128()
    }
}

fn keep((ends, way): (u32, u8), found: tcp::Segment<'_>, content: &mut Vec<u8>) -> Segment {
    let at = content.len();
    let tcp::Segment { sequence, acknowledged, syn, fin, rst, len, payload, .. } = found;
    content.extend_from_slice(payload);
    Segment { ends, way, sequence, acknowledged, syn, fin, rst, at, len }
}

/// Captures of segments.
#[cfg(test)]
pub(crate) mod samples {
    use std::path::Path;

    use capture::{Compression, Format, Reader, Writer};
    use units::Nanos;

    use super::Streams;
    use crate::basis::Skew;
    use crate::pair::Progress;

    /// A segment.
    #[derive(Clone, Debug, Default)]
    pub struct Sent {
        pub ts: u64,
        pub connection: u16,
        /// True if the end sent it that did not open the connection.
        pub back: bool,
        pub syn: bool,
        pub sequence: u32,
        pub data: Vec<u8>,
    }

    impl Sent {
        /// Returns an Ethernet frame with the segment; checksums are left out.
        fn frame(&self) -> Vec<u8> {
            let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
            let (from, to) = if self.back { (server, client) } else { (client, server) };
            let port = 10_000 + self.connection;
            let ports = if self.back { [443, port] } else { [port, 443] };
            let mut frame = vec![0; 12];
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((40 + self.data.len() as u16).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
            frame.extend([from, to].concat());
            ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([0, 0, 0, 0, 0x50, if self.syn { 2 } else { 0 }, 4, 0, 0, 0, 0, 0]);
            frame.extend(&self.data);
            frame
        }
    }

    pub fn write(path: &Path, segments: &[Sent]) {
        let mut writer = Writer::create(path, Format::Pcap, Compression::None).unwrap();
        for sent in segments {
            let frame = sent.frame();
            writer.write(Nanos(sent.ts), frame.len() as u32, &frame).unwrap();
        }
        writer.finish().unwrap();
    }

    pub fn streams(segments: &[Sent]) -> Streams {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.pcap");
        write(&path, segments);
        let progress = Progress { done_bytes: 0, total_bytes: None };
        Streams::read(&mut Reader::open(&path).unwrap(), Skew::NONE, progress, &mut ()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn added(parts: &[(u64, u64)]) -> (Stream, Vec<bool>) {
        let mut stream = Stream::default();
        let add = |(packet, &(start, len)): (u32, &(u64, u64))| {
            let (start, end) = (BASE + start, BASE + start + len);
            stream.add(Piece { start, end, ts: packet.into(), packet, at: start as usize })
        };
        let new = (0u32..).zip(parts).map(add).collect();
        stream.finish();
        (stream, new)
    }

    #[test]
    fn the_first_packet_with_a_byte_counts() {
        let (stream, new) = added(&[(0, 10), (20, 10), (5, 20), (0, 30), (40, 1)]);
        assert_eq!(new, [true, true, true, false, true]);
        let pieces: Vec<_> =
            stream.pieces.iter().map(|of| (of.start - BASE, of.end - BASE, of.packet)).collect();
        assert_eq!(pieces, [(0, 10, 0), (10, 20, 2), (20, 30, 1), (40, 41, 4)]);
        assert_eq!(stream.seen(BASE + 5, BASE + 15), Seen::At(2));
        let gaps = vec![BASE + 30..BASE + 40, BASE + 41..BASE + 45];
        assert_eq!(stream.seen(BASE + 5, BASE + 45), Seen::Not(gaps));
        assert!(stream.has_some(BASE + 35, BASE + 41) && !stream.has_some(BASE + 30, BASE + 40));
    }

    #[test]
    fn what_comes_last_may_be_first() {
        let parts: Vec<_> = (0..100_000).rev().map(|start| (start, 1)).collect();
        let (stream, new) = added(&parts);
        assert!(new.into_iter().all(|new| new) && stream.len() == 100_000);
        assert!(stream.pieces.is_sorted_by(|one, next| one.end == next.start));
    }

    #[test]
    fn sequence_numbers_begin_again() {
        let mut stream = Stream::default();
        stream.open(u32::MAX - 9);
        assert_eq!(stream.place(u32::MAX - 9), Some(BASE));
        stream.reached = BASE + 5;
        assert_eq!(stream.place(20), Some(BASE + 30));
        assert_eq!(stream.place(u32::MAX - 10), Some(BASE - 1));
        stream.reached = BASE + (3 << 32) + 10;
        assert_eq!(stream.place(0), Some(BASE + (3 << 32) + 10));
    }

    proptest! {
        #[test]
        fn pieces_are_told_byte_by_byte(parts in prop::collection::vec((0u64..60, 1u64..20), 0..12)) {
            let (stream, new) = added(&parts);
            let mut first: HashMap<u64, u32> = HashMap::new();
            for (packet, ((start, len), new)) in (0u32..).zip(parts.iter().zip(new)) {
                let before = first.len();
                (*start..start + len).for_each(|byte| { first.entry(byte).or_insert(packet); });
                prop_assert_eq!(new, first.len() > before);
            }
            let mut found = HashMap::new();
            for piece in &stream.pieces {
                let bytes = piece.start - BASE..piece.end - BASE;
                bytes.for_each(|byte| assert!(found.insert(byte, piece.packet).is_none()));
            }
            prop_assert_eq!(found, first);
            prop_assert!(stream.pieces.is_sorted_by(|a, b| a.end <= b.start));
        }
    }
}
