//! The way from a capture to keyed packets in order of time, a batch at a time.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::vec;

use capture::{Compression, Cut, Files, Info, Mark, Packet, Reader};
use probe::headers::addresses;
use probe::key::{Key, Keyed, Keyer};
use probe::{is_control, is_local, is_to_group};
use units::Nanos;

use crate::basis::{Flow, Skew};
use crate::error::Error;
use crate::order::{Order, Timed};
use crate::side::Side;
use crate::varieties::{News, Numbers};

/// A packet reduced to what matching needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    pub ts: u64,
    hi: u64,
    lo: u32,
    /// Bit 0: it has a key; bits 1 and 2: its kind; the others: its variety.
    marks: u32,
}

const KEYED: u32 = 1;
const KIND_BITS: u32 = 1;
const VARIETY_BITS: u32 = 3;

/// The kind of a packet without a counterpart, as far as its headers tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet to be found behind the device.
    #[default]
    Forward,
    /// A packet that concerns its link only.
    Local,
    /// A packet that travels the other way.
    Back,
    /// A packet of a flow that is known to travel forward.
    Forth,
}

const _: () = assert!(size_of::<Stamped>() == 24);

impl Stamped {
    #[inline]
    pub fn new(ts: u64, key: Option<Key>) -> Self {
        let Key { hi, lo } = key.unwrap_or(Key { hi: 0, lo: 0 });
        Self { ts, hi, lo: lo as u32, marks: u32::from(key.is_some()) }
    }

    #[inline]
    pub fn of(self, kind: Kind, variety: u32) -> Self {
        let kind = kind as u32;
        Self { marks: self.marks | kind << KIND_BITS | variety << VARIETY_BITS, ..self }
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        match self.marks >> KIND_BITS & 3 {
            0 => Kind::Forward,
            1 => Kind::Local,
            2 => Kind::Back,
            _ => Kind::Forth,
        }
    }

    /// Returns the number of its flow and size.
    #[inline]
    pub fn variety(&self) -> u32 {
        self.marks >> VARIETY_BITS
    }

    /// Returns the slot that [`Matcher::warm_up`](crate::matcher::Matcher::warm_up) takes.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.lo
    }

    #[inline]
    pub fn key(&self) -> Option<Key> {
        (self.marks & KEYED != 0).then_some(Key { hi: self.hi, lo: u64::from(self.lo) })
    }
}

impl Timed for Stamped {
    #[inline]
    fn ts(&self) -> u64 {
        self.ts
    }
}

/// What comes next of a capture.
pub(crate) enum Message {
    /// `before`: the packets of the capture before these, in order of time.
    Batch {
        packets: Vec<Stamped>,
        before: u64,
        consumed_bytes: u64,
        /// Varieties that no batch before had.
        news: News,
        /// Gaps between files, in ns, that begin before the batch ends, and that no batch before had.
        gaps: Vec<(u64, u64)>,
    },
    End(Box<Result<End, Error>>),
}

/// The facts about a capture that are known once all of it was read.
#[derive(Debug)]
pub(crate) struct End {
    pub side: Side,
    pub files: Option<Files>,
    pub info: Info,
    pub cut: Option<Cut>,
}

/// A packet that was read ahead.
pub(crate) struct Ahead {
    ts: Nanos,
    orig_len: u32,
    offset: u64,
    pub data: Vec<u8>,
}

impl Ahead {
    /// Reads on until there are `most` packets, or as many as hold `most_bytes`.
    pub fn read_on(
        reader: &mut Reader,
        ahead: &mut Vec<Self>,
        most: usize,
        most_bytes: usize,
    ) -> Result<(), Error> {
        let mut bytes: usize = ahead.iter().map(|packet| packet.data.len()).sum();
        while ahead.len() < most && bytes < most_bytes {
            let Some(packet) = reader.next()? else { break };
            bytes += packet.data.len();
            ahead.push(Self::of(&packet));
        }
        Ok(())
    }

    /// Passes over what lies before `ts_ns`, up to the first that does not.
    pub fn skip_to(reader: &mut Reader, ahead: &mut Vec<Self>, ts_ns: u64) -> Result<(), Error> {
        while let Some(packet) = reader.next()? {
            if packet.ts.0 >= ts_ns {
                ahead.push(Self::of(&packet));
                break;
            }
        }
        Ok(())
    }

    pub fn of(packet: &Packet<'_>) -> Self {
        let Packet { ts, orig_len, offset, data } = *packet;
        Self { ts, orig_len, offset, data: data.to_vec() }
    }

    pub fn ts(&self) -> Nanos {
        self.ts
    }

    pub fn orig_len(&self) -> u32 {
        self.orig_len
    }

    pub fn packet(&self) -> Packet<'_> {
        Packet { ts: self.ts, orig_len: self.orig_len, data: &self.data, offset: self.offset }
    }
}

/// The part of a capture that is read.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// Mark from which reading goes on; `None` is the place of the reader.
    pub mark: Option<Mark>,
    /// The times that are handed on, in ns.
    pub read: RangeInclusive<u64>,
    /// The times that are counted, in ns.
    pub own: RangeInclusive<u64>,
}

impl Extent {
    pub const WHOLE: Self = Self { mark: None, read: 0..=u64::MAX, own: 0..=u64::MAX };
}

/// The way in which packets are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub keyer: Keyer,
    /// Difference of the clock from the one before the device.
    pub skew: Skew,
    /// True if control traffic of the link is marked.
    pub marks_local: bool,
    /// True if control traffic is marked, but not what has no hop left: behind a router there may be none.
    pub marks_control: bool,
    /// True if flows are told apart.
    pub tells_flows: bool,
    /// True if frames to several stations are marked, too.
    pub marks_groups: bool,
    /// Flows that travel the other way.
    pub back: BTreeSet<Flow>,
    /// Flows that are known to travel forward, where packets travel both ways.
    pub forth: BTreeSet<Flow>,
    /// Packets a batch: disorder within one is mended.
    pub batch: usize,
}

impl Reading {
    // Always: most often nothing is marked.
    #[inline(always)]
    pub fn kind(&self, frame: &[u8]) -> Kind {
        let marks = self.marks_local || self.marks_control || self.marks_groups;
        let is_plain = !marks && self.back.is_empty() && self.forth.is_empty();
        if is_plain { Kind::Forward } else { self.kind_of_any(frame) }
    }

    fn kind_of_any(&self, frame: &[u8]) -> Kind {
        match () {
            () if self.marks_local && is_local(frame) => Kind::Local,
            () if self.marks_control && is_control(frame) => Kind::Local,
            () if self.marks_groups && is_to_group(frame) => Kind::Local,
            () if self.back.is_empty() && self.forth.is_empty() => Kind::Forward,
            () => self.way(frame),
        }
    }

    fn way(&self, frame: &[u8]) -> Kind {
        let Some((from, to)) = addresses(frame) else { return Kind::Forward };
        let flow = (from.to_vec(), to.to_vec());
        match () {
            () if self.back.contains(&flow) => Kind::Back,
            () if self.forth.contains(&flow) => Kind::Forth,
            () => Kind::Forward,
        }
    }
}

/// Reads one capture.
pub(crate) struct Ingest {
    reader: Reader,
    /// Packets that were read ahead, which come first.
    ahead: vec::IntoIter<Ahead>,
    /// The mark from which reading goes on, until it does.
    mark: Option<Mark>,
    intake: Intake,
    /// True once all was read.
    is_read: bool,
    /// Batches that are held when all was read.
    held: usize,
}

/// Takes packets in, and gives them out in batches.
struct Intake {
    name: String,
    reading: Reading,
    extent: Extent,
    side: Side,
    order: Order<Stamped>,
    /// Becomes the next batch.
    spare: Vec<Stamped>,
    numbers: Numbers,
    told_gaps: usize,
    read: u64,
    passed: u64,
    over: bool,
}

impl Ingest {
    /// Reads `ahead`, then `reader`; `side` knows what is known of the capture already.
    pub fn new(
        reader: Reader,
        ahead: Vec<Ahead>,
        reading: Reading,
        extent: Extent,
        side: Side,
    ) -> Self {
        let mark = extent.mark.clone();
        let passed = mark.as_ref().map_or(0, |mark| mark.packets);
        let intake = Intake {
            name: reader.info().name,
            order: Order::new(reading.batch),
            spare: Vec::new(),
            reading,
            extent,
            side,
            numbers: Numbers::default(),
            told_gaps: 0,
            read: passed,
            passed,
            over: false,
        };
        Self { reader, ahead: ahead.into_iter(), mark, intake, is_read: false, held: 2 }
    }

    pub fn name(&self) -> &str {
        &self.intake.name
    }

    /// Returns the byte at which reading begins.
    pub fn begin_bytes(&self) -> u64 {
        let is_plain = self.reader.info().compression == Compression::None;
        self.mark.as_ref().filter(|_| is_plain).map_or(0, |mark| mark.offset)
    }

    /// Returns true if more can always be read without waiting for anybody.
    pub fn is_file(&self) -> bool {
        self.reader.total_bytes().is_some()
    }

    /// Returns the next batch, or how the capture ended: nothing follows that. `spare` becomes a later batch.
    pub fn next(&mut self, spare: Vec<Stamped>) -> Message {
        self.intake.spare = spare;
        self.next_or_fail().unwrap_or_else(|error| Message::End(Box::new(Err(error))))
    }

    fn next_or_fail(&mut self) -> Result<Message, Error> {
        if let Some(mark) = self.mark.take() {
            self.reader.resume(&mark)?;
        }
        while !self.intake.over && self.held > 0 {
            self.is_read = self.is_read || !self.fill()?;
            self.held -= usize::from(self.is_read);
            if let Some(batch) = self.intake.next(&self.reader) {
                return Ok(batch);
            }
        }
        let mut side = std::mem::take(&mut self.intake.side);
        side.disordered = self.intake.order.disordered;
        side.disorder_ns_max = self.intake.order.disorder_ns_max;
        let (info, cut) = (self.reader.info(), self.reader.cut().cloned());
        let files = self.reader.files().cloned();
        Ok(Message::End(Box::new(Ok(End { side, files, info, cut }))))
    }

    /// Reads until a batch is full; false if nothing follows.
    fn fill(&mut self) -> Result<bool, Error> {
        let Self { reader, ahead, intake, .. } = self;
        while !intake.order.is_full() {
            let Some(packet) = ahead.next() else { break };
            intake.take_behind(packet.packet())?;
        }
        while !intake.order.is_full() {
            if let Some(packet) = reader.next_quick() {
                intake.take(packet)?;
                continue;
            }
            let Some(packet) = reader.next()? else { return Ok(false) };
            intake.take_behind(packet)?;
        }
        Ok(true)
    }
}

impl Intake {
    // Always: the packet stays in registers.
    #[inline(always)]
    fn take(&mut self, packet: Packet<'_>) -> Result<(), Error> {
        self.read += 1;
        let Reading { keyer, skew, .. } = &self.reading;
        let ts = skew.undo(packet.ts.0);
        if let Err(reached) = self.order.look_at(ts) {
            return Err(Error::time_goes_back(&self.name, &packet, self.read, reached));
        }
        let key = match keyer.key(packet.data, packet.orig_len) {
            Keyed::Key(key) => Some(key),
            Keyed::None => None,
            Keyed::Short { need } => return Err(self.short(&packet, need)),
        };
        let kind = self.reading.kind(packet.data);
        let variety = if self.reading.tells_flows {
            self.numbers.of_frame(packet.data, packet.orig_len)
        } else {
            0
        };
        self.order.push(Stamped::new(ts, key).of(kind, variety));
        Ok(())
    }

    /// Takes a packet that was not quick to tell.
    #[inline(never)]
    fn take_behind(&mut self, packet: Packet<'_>) -> Result<(), Error> {
        self.take(packet)
    }

    #[cold]
    fn short(&self, packet: &Packet<'_>, need: u32) -> Error {
        Error::ShortCapture {
            file: self.name.clone(),
            offset: packet.offset,
            packet: self.read,
            got: packet.data.len(),
            need,
        }
    }

    /// Returns of the next batch what is to be read, if any of it is.
    fn next(&mut self, reader: &Reader) -> Option<Message> {
        let mut spare = std::mem::take(&mut self.spare);
        spare.clear();
        spare.reserve_exact(self.reading.batch);
        let mut packets = self.order.next(spare);
        let count = packets.len();
        let (own, read) = (within(&self.extent.own, &packets), within(&self.extent.read, &packets));
        assert!(own.is_empty() || (read.start <= own.start && own.end <= read.end), "it is read");
        self.side.record_all(&packets[own]);
        self.over = read.end < count;
        packets.truncate(read.end);
        packets.drain(..read.start);
        let before = self.passed + read.start as u64;
        self.passed += count as u64;
        if packets.is_empty() {
            self.spare = packets;
            return None;
        }
        let news = self.numbers.take_news();
        let consumed_bytes = reader.consumed_bytes();
        let gaps = reader.files().map_or(&[][..], |files| &files.gaps[self.told_gaps..]).to_vec();
        self.told_gaps += gaps.len();
        let skew = self.reading.skew;
        let gaps = gaps.into_iter().map(|(from, to)| (skew.undo(from), skew.undo(to))).collect();
        Some(Message::Batch { packets, before, consumed_bytes, news, gaps })
    }
}

/// Returns which of `packets`, in order of time, lie within `times`.
fn within(times: &RangeInclusive<u64>, packets: &[Stamped]) -> Range<usize> {
    let start = packets.partition_point(|packet| packet.ts < *times.start());
    start..packets.partition_point(|packet| packet.ts <= *times.end()).max(start)
}
