//! What becomes of the packets of a flow: events joined to ways through the kernel, and the time that
//! packets spend in each stage of theirs.
//!
//! A packet that the kernel hands from one of its links to another, as over a veth pair, goes two ways, one
//! after the other. The time between two points of a packet is that of the stage which the first of them
//! begins, so that stages sum to the whole.

use super::tracer::Event;
use crate::live::Live;
use messages::{Count, FlowDrop, FlowPacket, FlowStage, FlowWay, FollowedFlow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};

/// The slowest packets of each way that are kept.
const SLOWEST: usize = 4096;
/// The slowest packets of each way that are told.
const TOLD: usize = 20;
/// The tail is the slowest of so many packets, but no less than ten.
const TAIL: u64 = 1000;
const TAIL_LEAST: u64 = 10;
/// Packets under way that are remembered; what had no event for a second is forgotten beyond.
const MOST_OPEN: usize = 1 << 20;
/// The latest writes to a stream that are remembered, and sockets.
const MOST_WRITES: usize = 4096;
const MOST_SOCKETS: usize = 1 << 16;
/// Streams whose packets may be joined, and the latest packets of each.
const MOST_STREAMS: usize = 4096;
const MOST_PARTS: usize = 256;
const FORGOTTEN_NS: u64 = 1_000_000_000;
/// Events about one reading of a socket come that close together.
const TOGETHER_NS: u64 = 10_000_000;
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The points that `stages.bpf.c` numbers so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Arrived,
    Received,
    Queued,
    Started,
    Dropped,
    HandedOn,
    Merged,
    Consumed,
    AtTcp,
    ReadTcp,
    AtUdp,
    ReadUdp,
    Written,
    WritesTcp,
    WrittenTcp,
    Filtered,
}

const POINTS: [Point; 16] = [
    Point::Arrived,
    Point::Received,
    Point::Queued,
    Point::Started,
    Point::Dropped,
    Point::HandedOn,
    Point::Merged,
    Point::Consumed,
    Point::AtTcp,
    Point::ReadTcp,
    Point::AtUdp,
    Point::ReadUdp,
    Point::Written,
    Point::WritesTcp,
    Point::WrittenTcp,
    Point::Filtered,
];

/// Names of the stages.
const STAGES: [&str; 5] = ["driver", "stack", "socket queue", "qdisc", "netfilter"];
const DRIVER: usize = 0;
const STACK: usize = 1;
const SOCKET: usize = 2;
const QDISC: usize = 3;
const NETFILTER: usize = 4;

/// The stage that begins at a point.
fn stage_from(point: Point) -> usize {
    match point {
        Point::Arrived | Point::Merged => DRIVER,
        Point::AtTcp | Point::AtUdp => SOCKET,
        Point::Queued => QDISC,
        _ => STACK,
    }
}

/// Names of the ways, and which stages they have.
const WAYS: [(&str, &[usize]); 5] = [
    ("received", &[DRIVER, STACK, NETFILTER, SOCKET]),
    ("kernel", &[DRIVER, STACK, NETFILTER]),
    ("forwarded", &[DRIVER, STACK, NETFILTER, QDISC]),
    ("sent", &[STACK, NETFILTER, QDISC]),
    ("queued", &[STACK, NETFILTER, QDISC]),
];
const RECEIVED: usize = 0;
const KERNEL: usize = 1;
const FORWARDED: usize = 2;
const SENT: usize = 3;
const QUEUED: usize = 4;

/// What is no part of a stream, and what is one without bytes.
const NO_SEGMENT: (u32, u32) = (0, 0);
const EMPTY_SEGMENT: (u32, u32) = (1, 0);

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Leg {
    /// The stream that it is of, and the number behind its last byte.
    segment: (u32, u32),
    received_ns: u64,
    begin_ns: u64,
    last_ns: u64,
    last: Point,
    /// Where it was handed to a driver last, at which its way may end.
    stages_ns: [u64; STAGES.len()],
    is_sent: bool,
    is_written: bool,
    is_late: bool,
    is_lacking: bool,
}

impl Leg {
    fn begin(event: &Event, point: Point) -> Self {
        // What is queued and has come by another link is late: the programs mark it.
        let is_start = point == Point::Arrived || (point == Point::Queued && event.reason == 0);
        let is_arrived = point == Point::Arrived;
        Self {
            segment: if is_arrived { (event.ifindex, event.reason) } else { NO_SEGMENT },
            received_ns: 0,
            begin_ns: event.time_ns,
            last_ns: event.time_ns,
            last: point,
            stages_ns: [0; STAGES.len()],
            is_sent: point == Point::Queued,
            is_written: false,
            is_late: !is_start,
            is_lacking: !is_start,
        }
    }

    fn pass(&mut self, time_ns: u64, point: Point) {
        self.is_lacking |= !may_follow(self.last, point);
        let time_ns = time_ns.max(self.last_ns);
        self.stages_ns[stage_from(self.last)] += time_ns - self.last_ns;
        (self.last_ns, self.last) = (time_ns, point);
        if point == Point::Received {
            self.received_ns = time_ns;
        }
    }

    /// Netfilter has had it for a while, until now.
    fn filtered(&mut self, until_ns: u64, took_ns: u64) {
        let since_ns = until_ns.saturating_sub(took_ns).max(self.last_ns);
        let until_ns = until_ns.max(since_ns);
        self.stages_ns[stage_from(self.last)] += since_ns - self.last_ns;
        self.stages_ns[NETFILTER] += until_ns - since_ns;
        self.last_ns = until_ns;
    }

    /// Lets the way begin where a program has written the packet.
    fn begin_at(&mut self, time_ns: u64) {
        let before_ns = self.begin_ns.saturating_sub(time_ns);
        self.stages_ns[STACK] += before_ns;
        self.begin_ns -= before_ns;
        self.is_written = true;
    }

    fn latency_ns(&self) -> u64 {
        self.last_ns - self.begin_ns
    }
}

/// Whether a packet that has passed one point passes another one next, or one between was missed.
fn may_follow(last: Point, next: Point) -> bool {
    match last {
        Point::Arrived => matches!(next, Point::Arrived | Point::Received | Point::Merged),
        Point::Merged => next == Point::Received,
        Point::Received => {
            !matches!(next, Point::Started | Point::ReadTcp | Point::ReadUdp | Point::HandedOn)
        }
        Point::Queued => next == Point::Started,
        Point::Started => matches!(next, Point::Queued | Point::Started),
        Point::AtTcp => next == Point::ReadTcp,
        Point::AtUdp => matches!(next, Point::ReadUdp | Point::Consumed),
        _ => false,
    }
}

/// A packet that is among the slowest.
#[derive(Clone, Copy, Debug)]
struct Slow(u64, Leg);

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Slow {}

impl PartialOrd for Slow {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slow {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// What is known beside events.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// How far Unix time is ahead of the monotonic clock.
    pub unix_ns: i128,
    /// Whether the kernel tells when netfilter begins and ends.
    pub netfilter: bool,
}

/// The packets that went one way.
struct Way {
    packets: u64,
    whole: u64,
    latencies: Live,
    latency_ns_total: u64,
    stages: [(Live, u64); STAGES.len()],
    slowest: BinaryHeap<Reverse<Slow>>,
}

impl Way {
    fn new() -> Self {
        Self {
            packets: 0,
            whole: 0,
            latencies: Live::new(),
            latency_ns_total: 0,
            stages: std::array::from_fn(|_| (Live::new(), 0)),
            slowest: BinaryHeap::new(),
        }
    }

    fn add(&mut self, leg: Leg) {
        let latency_ns = leg.latency_ns();
        self.packets += 1;
        self.latencies.record(latency_ns);
        if !leg.is_lacking {
            self.whole += 1;
            self.latency_ns_total += latency_ns;
            for ((lasted, total), ns) in self.stages.iter_mut().zip(leg.stages_ns) {
                lasted.record(ns);
                *total += ns;
            }
        }
        if self.slowest.len() < SLOWEST {
            self.slowest.push(Reverse(Slow(latency_ns, leg)));
        } else if self.slowest.peek().is_some_and(|least| least.0.0 < latency_ns) {
            self.slowest.pop();
            self.slowest.push(Reverse(Slow(latency_ns, leg)));
        }
    }

    fn told(self, (name, stages): (&'static str, &[usize]), seen: Seen) -> FlowWay {
        let is_seen = |at: &&usize| seen.netfilter || **at != NETFILTER;
        let slowest: Vec<Leg> =
            self.slowest.into_sorted_vec().into_iter().map(|Reverse(Slow(_, leg))| leg).collect();
        let tail = (self.packets / TAIL).max(TAIL_LEAST).min(slowest.len() as u64);
        let tail_legs = &slowest[..tail as usize];
        let whole = || tail_legs.iter().filter(|leg| !leg.is_lacking);
        let (quantiles, longest) = self.latencies.quantiles(QUANTILES).unwrap_or_default();
        let stage = |at: &usize| {
            let (lasted, total) = &self.stages[*at];
            let (quantiles, longest) = lasted.quantiles(QUANTILES).unwrap_or_default();
            FlowStage {
                stage: STAGES[*at],
                ns_quantiles: quantiles.map(Count).to_vec(),
                ns_max: longest.into(),
                ns_total: (*total).into(),
                tail_ns_total: whole().map(|leg| leg.stages_ns[*at]).sum::<u64>().into(),
            }
        };
        let packet = |leg: &Leg| FlowPacket {
            begin_unix_ns: ((i128::from(leg.begin_ns) + seen.unix_ns).max(0) as u64).into(),
            latency_ns: leg.latency_ns().into(),
            stages_ns: stages
                .iter()
                .filter(is_seen)
                .filter(|_| !leg.is_lacking)
                .map(|at| leg.stages_ns[*at].into())
                .collect(),
        };
        FlowWay {
            way: name,
            packets: self.packets.into(),
            whole: self.whole.into(),
            latency_ns_quantiles: quantiles.map(Count).to_vec(),
            latency_ns_max: longest.into(),
            latency_ns_total: self.latency_ns_total.into(),
            stages: stages.iter().filter(is_seen).map(stage).collect(),
            tail_packets: tail.into(),
            tail_whole: whole().count().into(),
            slowest: slowest.iter().take(TOLD).map(packet).collect(),
        }
    }
}

/// The packets in the queue of a socket, in the order in which they are read.
#[derive(Default)]
struct Socket {
    /// By TCP with the number behind their last byte, by UDP with the time at which they came.
    waiting: VecDeque<(u64, u64)>,
    /// Times of readings whose packets have not been told yet.
    ahead_ns: VecDeque<u64>,
    /// By TCP the numbers of the bytes that programs wrote next, and when.
    writes: VecDeque<(u32, u64)>,
}

/// Joins events.
pub struct Legs {
    open: HashMap<u64, Leg>,
    sockets: HashMap<u32, Socket>,
    /// The packets of each stream that may be joined to another one: the number behind the last byte, and
    /// that of the packet.
    streams: HashMap<u32, VecDeque<(u32, u64)>>,
    /// The CPUs that send the parts of a packet that was divided.
    dividing: HashSet<u32>,
    ways: [Way; 5],
    drops: BTreeMap<(u32, &'static str), u64>,
    late: u64,
    segmented: u64,
    acknowledgements: u64,
    unended: u64,
}

impl Default for Legs {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            sockets: HashMap::new(),
            streams: HashMap::new(),
            dividing: HashSet::new(),
            ways: std::array::from_fn(|_| Way::new()),
            drops: BTreeMap::new(),
            late: 0,
            segmented: 0,
            acknowledgements: 0,
            unended: 0,
        }
    }
}

impl Legs {
    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let Some(point) = POINTS.get(event.point as usize).copied() else { return };
        match point {
            Point::ReadTcp => return self.read_tcp(event),
            Point::ReadUdp => return self.read_udp(event),
            Point::WritesTcp => return self.write_tcp(event),
            Point::WrittenTcp => return self.written_tcp(event),
            Point::AtUdp => self.wait_udp(event),
            _ => {}
        }
        let known = self.open.get_mut(&event.seq);
        if let Some(leg) = known {
            match point {
                Point::HandedOn | Point::Dropped | Point::Consumed => {
                    self.end(event, point);
                }
                Point::Written => leg.begin_at(event.time_ns),
                Point::Filtered => leg.filtered(event.time_ns, event.reason.into()),
                _ => leg.pass(event.time_ns, point),
            }
        } else if point == Point::Dropped {
            self.late += 1;
            *self.drops.entry((event.reason, "unknown")).or_default() += 1;
        } else if matches!(point, Point::Arrived | Point::Received | Point::Queued | Point::Started)
        {
            self.begin(event, point);
        }
        match point {
            Point::AtTcp => self.wait_tcp(event),
            Point::AtUdp => self.read_ahead(event),
            _ => {}
        }
    }

    fn begin(&mut self, event: &Event, point: Point) {
        let leg = Leg::begin(event, point);
        if point == Point::Queued {
            self.dividing.remove(&event.cpu);
        }
        let is_part = point == Point::Started && self.dividing.contains(&event.cpu);
        self.late += u64::from(leg.is_late && !is_part);
        self.open.insert(event.seq, leg);
        if leg.segment != NO_SEGMENT && leg.segment != EMPTY_SEGMENT {
            let (stream, end_seq) = leg.segment;
            if self.streams.len() == MOST_STREAMS {
                self.streams.clear();
            }
            let parts = self.streams.entry(stream).or_default();
            if parts.len() == MOST_PARTS {
                parts.pop_front();
            }
            parts.push_back((end_seq, event.seq));
        }
        if self.open.len() > MOST_OPEN {
            let oldest_ns = event.time_ns.saturating_sub(FORGOTTEN_NS);
            let before = self.open.len();
            self.open.retain(|_, leg| leg.last_ns >= oldest_ns);
            self.unended += (before - self.open.len()) as u64;
        }
    }

    /// Ends the way of a packet.
    fn end(&mut self, event: &Event, point: Point) {
        let Some(mut leg) = self.open.get(&event.seq).copied() else { return };
        match (point, leg.last) {
            (Point::Dropped, last) => {
                let stage = if last == Point::Started { "link" } else { STAGES[stage_from(last)] };
                *self.drops.entry((event.reason, stage)).or_default() += 1;
            }
            (_, Point::Started) => self.conclude(leg),
            // It is read later, when its bytes are.
            (Point::Consumed, Point::AtTcp) => return,
            // What is divided has reached the driver, in parts.
            (Point::Consumed, Point::Queued) => {
                self.segmented += 1;
                self.dividing.insert(event.cpu);
                leg.pass(event.time_ns, Point::Started);
                self.conclude(leg);
            }
            _ => {
                leg.pass(event.time_ns, point);
                self.conclude(leg);
            }
        }
        self.open.remove(&event.seq);
    }

    /// Counts a packet whose way has ended.
    fn conclude(&mut self, leg: Leg) {
        if leg.is_late {
            return;
        }
        let way = match leg.last {
            Point::Started if leg.is_written => SENT,
            Point::Started if leg.is_sent => QUEUED,
            Point::Started => FORWARDED,
            Point::ReadTcp | Point::ReadUdp => RECEIVED,
            Point::Consumed if leg.stages_ns[SOCKET] > 0 => RECEIVED,
            _ => KERNEL,
        };
        self.ways[way].add(leg);
    }

    fn socket(&mut self, number: u32) -> &mut Socket {
        if self.sockets.len() > MOST_SOCKETS {
            self.sockets.retain(|_, socket| !socket.waiting.is_empty());
        }
        // Closed ones that nobody has read to the end stay otherwise.
        if self.sockets.len() > MOST_SOCKETS {
            self.sockets.clear();
        }
        self.sockets.entry(number).or_default()
    }

    fn write_tcp(&mut self, event: &Event) {
        let writes = &mut self.socket(event.ifindex).writes;
        if writes.len() == MOST_WRITES {
            writes.pop_front();
        }
        writes.push_back((event.reason, event.time_ns));
    }

    /// A packet was written when its first byte was.
    fn written_tcp(&mut self, event: &Event) {
        let writes = &self.socket(event.ifindex).writes;
        let is_before = |(seq, _): &&(u32, u64)| !is_behind((*seq).into(), event.reason.into());
        let written_ns = writes.iter().rev().find(is_before).map(|(_, time_ns)| *time_ns);
        if let (Some(time_ns), Some(leg)) = (written_ns, self.open.get_mut(&event.seq)) {
            leg.begin_at(time_ns);
        }
    }

    /// A packet came to TCP, with all that were joined to it since it arrived.
    fn wait_tcp(&mut self, event: &Event) {
        let own = self.open.get(&event.seq).copied().filter(|leg| leg.segment != NO_SEGMENT);
        // It ends no later than TCP says.
        let own_end = own.map(|leg| leg.segment.1);
        let own_end = own_end
            .filter(|end_seq| !is_behind((*end_seq).into(), event.reason.into()))
            .unwrap_or(event.reason);
        self.wait_until(event.ifindex, own_end, event.seq);
        let Some(own) = own else { return };
        let Some(parts) = self.streams.get_mut(&own.segment.0) else { return };
        let is_later = |end_seq: u32| is_behind(end_seq.into(), event.reason.into());
        let here = parts.iter().filter(|(end_seq, _)| !is_later(*end_seq)).copied();
        let joined: Vec<_> = here
            .filter(|(end_seq, number)| {
                *number != event.seq && is_behind((*end_seq).into(), own_end.into())
            })
            .collect();
        parts.retain(|(end_seq, _)| is_later(*end_seq));
        for (end_seq, number) in joined {
            let Some(leg) = self.open.get_mut(&number) else { continue };
            match leg.last {
                Point::Merged => leg.pass(own.received_ns, Point::Received),
                Point::Received => {}
                _ => continue,
            }
            leg.pass(event.time_ns, Point::AtTcp);
            self.wait_until(event.ifindex, end_seq, number);
        }
    }

    fn wait_until(&mut self, socket: u32, end_seq: u32, number: u64) {
        let waiting = &mut self.socket(socket).waiting;
        let end_seq = u64::from(end_seq);
        let at = waiting.iter().rposition(|(before, _)| !is_behind(*before, end_seq));
        waiting.insert(at.map_or(0, |at| at + 1), (end_seq, number));
    }

    fn read_tcp(&mut self, event: &Event) {
        let Some(socket) = self.sockets.get_mut(&event.ifindex) else { return };
        let copied_seq = u64::from(event.reason);
        let mut read = Vec::new();
        while let Some((end_seq, number)) = socket.waiting.front().copied() {
            if is_behind(end_seq, copied_seq) {
                break;
            }
            socket.waiting.pop_front();
            read.push(number);
        }
        read.into_iter().for_each(|number| self.read(number, event.time_ns, Point::ReadTcp));
    }

    fn wait_udp(&mut self, event: &Event) {
        let is_new = !self.sockets.contains_key(&event.ifindex);
        let waiting = &mut self.socket(event.ifindex).waiting;
        if is_new {
            let before = event.reason.saturating_sub(1) as usize;
            waiting.extend(std::iter::repeat_n((event.time_ns, 0), before));
        }
        waiting.push_back((event.time_ns, event.seq));
    }

    /// A reader on another CPU may have been told first.
    fn read_ahead(&mut self, event: &Event) {
        let Some(socket) = self.sockets.get_mut(&event.ifindex) else { return };
        while let Some(time_ns) = socket.ahead_ns.pop_front() {
            if time_ns + TOGETHER_NS < event.time_ns {
                continue;
            }
            if let Some((_, number)) = socket.waiting.pop_front() {
                self.read(number, event.time_ns, Point::ReadUdp);
            }
            return;
        }
    }

    fn read_udp(&mut self, event: &Event) {
        let socket = self.socket(event.ifindex);
        let Some((_, number)) = socket.waiting.pop_front() else {
            socket.ahead_ns.retain(|time_ns| time_ns + TOGETHER_NS >= event.time_ns);
            socket.ahead_ns.push_back(event.time_ns);
            return;
        };
        let mut unseen = Vec::new();
        while socket.waiting.len() > event.reason as usize {
            match socket.waiting.front() {
                Some((came_ns, number)) if came_ns + TOGETHER_NS < event.time_ns => {
                    unseen.push(*number);
                    socket.waiting.pop_front();
                }
                _ => break,
            }
        }
        for number in unseen {
            self.unended += u64::from(self.open.remove(&number).is_some());
        }
        self.read(number, event.time_ns, Point::ReadUdp);
    }

    fn read(&mut self, number: u64, time_ns: u64, point: Point) {
        if let Some(mut leg) = self.open.remove(&number) {
            leg.pass(time_ns, point);
            self.conclude(leg);
        }
    }

    /// The figures of all packets.
    pub fn finish(mut self, reasons: &BTreeMap<u32, String>, seen: Seen) -> FollowedFlow {
        let (mut waiting, mut merged) = (0, 0);
        for (_, leg) in std::mem::take(&mut self.open) {
            match leg.last {
                Point::Started => self.conclude(leg),
                Point::AtTcp | Point::AtUdp => waiting += 1,
                Point::Merged => merged += 1,
                Point::Received if leg.segment == EMPTY_SEGMENT => self.acknowledgements += 1,
                _ => self.unended += 1,
            }
        }
        let ways = self.ways.into_iter().zip(WAYS).filter(|(way, _)| way.packets > 0);
        let name = |reason: u32| {
            reasons.get(&reason).cloned().unwrap_or_else(|| format!("reason {reason}"))
        };
        let mut drops: Vec<FlowDrop> = self
            .drops
            .into_iter()
            .map(|((reason, stage), packets)| FlowDrop {
                reason: name(reason),
                stage,
                packets: packets.into(),
            })
            .collect();
        drops.sort_by_key(|drop| Reverse(drop.packets.0));
        FollowedFlow {
            ways: ways.map(|(way, named)| way.told(named, seen)).collect(),
            drops,
            merged: Count(merged),
            segmented: self.segmented.into(),
            acknowledgements: self.acknowledgements.into(),
            waiting: Count(waiting),
            late: self.late.into(),
            unended: self.unended.into(),
        }
    }
}

/// Whether a sequence number of TCP lies behind another one, by arithmetic that wraps around.
fn is_behind(one: u64, other: u64) -> bool {
    (one as u32).wrapping_sub(other as u32) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: u32 = 3;

    /// Events: time, number, point, and the socket with what the point says beside, or 0.
    fn followed(events: &[(u64, u64, Point, u32, u32)]) -> FollowedFlow {
        let seen = Seen { unix_ns: 1000, netfilter: true };
        let mut legs = Legs::default();
        for (time_ns, seq, point, ifindex, reason) in events.iter().copied() {
            let point = POINTS.iter().position(|one| *one == point).expect("a point") as u32;
            legs.take(&Event { time_ns, seq, point, ifindex, cpu: 0, reason });
        }
        legs.finish(&BTreeMap::from([(6, "NETFILTER_DROP".to_owned())]), seen)
    }

    /// A way as its name, its packets, those seen at every point, and the sums of its stages.
    fn ways(flow: &FollowedFlow) -> Vec<(&'static str, u64, u64, Vec<u64>)> {
        let stages = |way: &FlowWay| way.stages.iter().map(|stage| stage.ns_total.0).collect();
        let all = flow.ways.iter();
        all.map(|way| (way.way, way.packets.0, way.whole.0, stages(way))).collect()
    }

    #[test]
    fn stages_sum_to_the_whole_on_every_way() {
        use Point::*;
        let flow = followed(&[
            (0, 1, Queued, LINK, 0),
            (5, 1, Started, LINK, 0),
            (7, 1, HandedOn, 4, 0),
            (7, 2, Arrived, 4, 0),
            (10, 2, Received, 4, 0),
            (19, 2, Filtered, 0, 7),
            (28, 2, Filtered, 0, 5),
            (30, 2, Queued, 5, 0),
            (31, 2, Started, 5, 0),
            (32, 2, HandedOn, 6, 0),
            (32, 3, Arrived, 6, 0),
            (35, 3, Received, 6, 0),
            (40, 3, AtUdp, 77, 1),
            (90, 0, ReadUdp, 77, 0),
            (200, 4, Arrived, 6, 0),
            (201, 4, Received, 6, 0),
            (203, 4, Consumed, 0, 0),
        ]);
        let expected = [
            ("received", 1, 1, vec![3, 5, 0, 50]),
            ("kernel", 1, 1, vec![1, 2, 0]),
            ("forwarded", 1, 1, vec![3, 8, 12, 1]),
            ("queued", 1, 1, vec![0, 0, 5]),
        ];
        assert_eq!(ways(&flow), expected);
        for way in &flow.ways {
            let sum: u64 = way.stages.iter().map(|stage| stage.ns_total.0).sum();
            assert_eq!(sum, way.latency_ns_total.0);
        }
        assert_eq!(flow.ways[0].slowest[0].begin_unix_ns.0, 1032);
        assert_eq!((flow.late.0, flow.unended.0, flow.waiting.0), (0, 0, 0));
    }

    #[test]
    fn a_packet_that_lacks_a_point_is_in_the_whole_but_in_no_stage() {
        use Point::*;
        let flow = followed(&[
            (0, 1, Arrived, LINK, 0),
            (9, 1, AtUdp, 7, 1),
            (20, 0, ReadUdp, 7, 0),
            (30, 2, Received, LINK, 0),
            (31, 2, AtUdp, 7, 1),
            (40, 0, ReadUdp, 7, 0),
            (50, 3, Queued, LINK, 1),
            (51, 3, Started, LINK, 0),
        ]);
        assert_eq!(ways(&flow), [("received", 1, 0, vec![0, 0, 0, 0])]);
        assert_eq!(flow.ways[0].latency_ns_max.0, 20);
        assert_eq!((flow.ways[0].tail_packets.0, flow.ways[0].tail_whole.0), (1, 0));
        assert!(flow.ways[0].slowest[0].stages_ns.is_empty());
        assert_eq!(flow.late.0, 2);
    }

    #[test]
    fn streams_are_read_by_their_bytes_in_whatever_order_they_came() {
        use Point::*;
        let packet = |at, number, end_seq| {
            [
                (at, number, Arrived, 55, end_seq),
                (at + 1, number, Received, LINK, 0),
                (at + 2, number, AtTcp, 9, end_seq),
            ]
        };
        let events = [
            &packet(0, 1, u32::MAX - 4)[..],
            &packet(10, 2, 20),
            &packet(20, 3, 5),
            &[(30, 0, ReadTcp, 9, 4), (40, 0, ReadTcp, 9, 5), (50, 0, ReadTcp, 9, 20)],
            &packet(60, 4, 30),
        ];
        let flow = followed(&events.concat());
        assert_eq!(ways(&flow), [("received", 3, 3, vec![3, 3, 0, 28 + 18 + 38])]);
        assert_eq!(flow.waiting.0, 1);
    }

    #[test]
    fn what_is_joined_to_another_packet_is_read_with_its_own_bytes() {
        use Point::*;
        let flow = followed(&[
            (0, 1, Arrived, 55, 100),
            (2, 1, Received, LINK, 0),
            (10, 2, Arrived, 55, 200),
            (11, 2, Merged, 0, 0),
            (12, 3, Arrived, 55, 300),
            (15, 3, Received, LINK, 0),
            (16, 4, Arrived, 55, 400),
            (17, 4, Received, LINK, 0),
            (20, 1, AtTcp, 9, 300),
            (30, 0, ReadTcp, 9, 100),
            (40, 0, ReadTcp, 9, 300),
        ]);
        // The second one arrived later than the first one was received: it spends no time there.
        assert_eq!(ways(&flow), [("received", 3, 3, vec![2 + 1 + 3, 18 + 9 + 5, 0, 10 + 20 + 20])]);
        assert_eq!((flow.merged.0, flow.unended.0), (0, 1));
    }

    #[test]
    fn others_in_a_queue_and_a_reader_that_is_ahead_change_no_order() {
        use Point::*;
        let packet = |at, number, waiting| {
            [
                (at, number, Arrived, LINK, 0),
                (at + 1, number, Received, LINK, 0),
                (at + 2, number, AtUdp, 9, waiting),
            ]
        };
        let events = [
            // Two were there before.
            &packet(0, 1, 3)[..],
            &[(5, 0, AtUdp, 9, 4), (10, 0, ReadUdp, 9, 3), (11, 0, ReadUdp, 9, 2)],
            &[(12, 0, ReadUdp, 9, 1), (13, 0, ReadUdp, 9, 0), (100, 0, ReadUdp, 9, 0)],
            &packet(99, 2, 0),
        ];
        let flow = followed(&events.concat());
        assert_eq!(ways(&flow), [("received", 2, 2, vec![2, 2, 0, 10])]);
    }

    #[test]
    fn what_programs_send_begins_where_they_wrote_it() {
        use Point::*;
        let flow = followed(&[
            (100, 1, Queued, LINK, 0),
            (90, 1, Written, 0, 0),
            (104, 1, Started, LINK, 0),
            (200, 0, WritesTcp, 9, 1000),
            (210, 0, WritesTcp, 9, 3000),
            (220, 2, Queued, LINK, 0),
            (221, 2, WrittenTcp, 9, 2400),
            (230, 2, Started, LINK, 0),
            (240, 3, Queued, LINK, 0),
            (241, 3, WrittenTcp, 9, 900),
            (250, 3, Started, LINK, 0),
        ]);
        let expected = [("sent", 2, 2, vec![10 + 20, 0, 4 + 10]), ("queued", 1, 1, vec![0, 0, 10])];
        assert_eq!(ways(&flow), expected);
    }

    #[test]
    fn drops_have_reason_and_stage() {
        use Point::*;
        let flow = followed(&[
            (0, 1, Arrived, LINK, 0),
            (1, 1, Received, LINK, 0),
            (2, 1, Dropped, 0, 6),
            (3, 2, Dropped, 0, 99),
            (4, 3, Arrived, LINK, 0),
            (5, 3, Merged, 0, 0),
            (6, 4, Queued, LINK, 0),
            (7, 4, Consumed, 0, 0),
            (8, 5, Started, LINK, 0),
        ]);
        let drops: Vec<_> =
            flow.drops.iter().map(|drop| (&*drop.reason, drop.stage, drop.packets.0)).collect();
        assert_eq!(drops, [("NETFILTER_DROP", "stack", 1), ("reason 99", "unknown", 1)]);
        assert_eq!((flow.merged.0, flow.segmented.0, flow.late.0, flow.ways.len()), (1, 1, 1, 1));
    }
}
