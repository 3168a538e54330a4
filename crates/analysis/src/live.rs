//! A pair that is analysed while its packets come: what two links see, merged by time.
//!
//! Whoever listens hands over packets as they come ([`Live::take`]), says what it has missed
//! ([`Live::miss`]), and up to which time both links were heard ([`Live::advance`]). The beginning is
//! surveyed as that of captures is; from then on the analysis of captures (`pair.rs`) takes what both
//! sides have. A second is told once every packet of it had its window. Memory follows the window.

use capture::{ByteOrder, Compression, Format, Info, LinkType, Packet, Resolution};
use probe::key::{Keyed, MatchOn, Tap};

use crate::basis::{Basis, Clocks};
use crate::by::{By, Group};
use crate::config::Config;
use crate::error::Error;
use crate::ingest::{Ahead, Reading, Stamped};
use crate::matcher::Tail;
use crate::pair::{Analysis, Captured, Run, Source};
use crate::part::Part;
use crate::seconds::Second;
use crate::side::Side;
use crate::skim::Head;
use crate::survey::{ENOUGH, LOOKS, MOST_BYTES, Survey, survey_packets};
use crate::varieties::{News, Numbers};

const SECOND_NS: u64 = 1_000_000_000;
/// Time after which fewer packets than tell enough decide the key, in ns.
const LOOK_NS: u64 = 3 * SECOND_NS;
/// Time between two looks, in ns.
const LOOK_AGAIN_NS: u64 = SECOND_NS / 2;
/// Memory of each histogram, beyond which high values are counted by steps.
const MOST_HISTOGRAM_BYTES: usize = 64 << 20;

/// What a pair comes to in the end.
#[derive(Debug)]
pub struct Ended {
    /// Seconds that were not told before; the last may not be whole.
    pub seconds: Vec<Second>,
    /// Figures of each flow, those of the most packets first.
    pub flows: Vec<Group>,
    /// The figures of all, to be joined with nothing else.
    pub part: Part,
}

/// A pair under way.
pub struct Live {
    config: Config,
    names: [String; 2],
    /// Most bytes of a packet from its network header on that are handed over.
    held_bytes: u32,
    /// Both sides are heard from here on.
    since_ns: u64,
    until_ns: u64,
    stage: Stage,
}

enum Stage {
    Looking(Looking),
    Matching(Box<Run<Queue>>),
}

/// Packets that wait until it is decided by which key they are matched.
#[derive(Default)]
struct Looking {
    ahead: [Vec<Ahead>; 2],
    bytes: usize,
    /// Time of the next look.
    next_ns: u64,
    /// Side, times and number of packets that the listener missed.
    missed: Vec<(usize, (u64, u64), u64)>,
}

impl Live {
    /// Begins. `since_ns` is the time from which both sides are heard, and `kept_bytes` as many of
    /// each packet as are handed over at most.
    ///
    /// # Errors
    /// When there is no such window.
    pub fn new(
        config: Config,
        names: [String; 2],
        kept_bytes: u32,
        since_ns: u64,
    ) -> Result<Self, Error> {
        config.check()?;
        // Ethernet's header, and two tags.
        let held_bytes = kept_bytes.saturating_sub(22);
        let config = Config { clocks: Clocks::Same, whole: false, ..config };
        let stage = Stage::Looking(Looking { next_ns: since_ns, ..Looking::default() });
        Ok(Self { config, names, held_bytes, since_ns, until_ns: since_ns, stage })
    }

    /// Returns the key that was decided on, once it is.
    #[must_use]
    pub fn key(&self) -> Option<&MatchOn> {
        match &self.stage {
            Stage::Looking(_) => None,
            Stage::Matching(run) => Some(&run.config().match_on),
        }
    }

    /// Takes a packet; false if it comes too late, as its time was decided about.
    pub fn take(&mut self, tap: Tap, packet: &Packet<'_>) -> bool {
        if packet.ts.0 <= self.until_ns {
            return packet.ts.0 <= self.since_ns;
        }
        match &mut self.stage {
            Stage::Looking(Looking { ahead, bytes, .. }) => {
                *bytes += packet.data.len();
                ahead[tap as usize].push(Ahead::of(packet));
            }
            Stage::Matching(run) => run.side(tap).take_packet(packet),
        }
        true
    }

    /// Learns that packets were missed on a side between two times, of which the first is not before
    /// the latest that was gone on to.
    pub fn miss(&mut self, tap: Tap, gap: (u64, u64), packets: u64) {
        match &mut self.stage {
            Stage::Looking(looking) => looking.missed.push((tap as usize, gap, packets)),
            Stage::Matching(run) => run.miss(tap as usize, gap, packets),
        }
    }

    /// Goes on to a time up to which both sides have handed over all that they heard, and returns the
    /// seconds of which everything is decided.
    ///
    /// # Errors
    /// When more packets are under way than there is room for.
    pub fn advance(&mut self, until_ns: u64) -> Result<Vec<Second>, Error> {
        self.until_ns = self.until_ns.max(until_ns);
        if let Stage::Looking(looking) = &mut self.stage {
            if looking.next_ns > self.until_ns {
                return Ok(Vec::new());
            }
            looking.next_ns = self.until_ns + LOOK_AGAIN_NS;
            self.look(false);
        }
        self.go_on()
    }

    /// Ends: what is still under way is not judged.
    ///
    /// # Errors
    /// When no packet was seen on both sides.
    pub fn finish(mut self) -> Result<Ended, Error> {
        self.look(true);
        self.miss(Tap::Post, (self.until_ns.saturating_add(1), u64::MAX), 0);
        let mut seconds = self.go_on()?;
        let Stage::Matching(run) = self.stage else {
            let [pre, post] = self.names;
            return Err(Error::DifferentTraffic { pre, post, tried: String::new() });
        };
        let (rest, found) = run.end()?;
        seconds.extend(rest);
        let flows = found.groups(By::Flow);
        Ok(Ended { seconds, flows, part: part_of(found) })
    }

    fn go_on(&mut self) -> Result<Vec<Second>, Error> {
        let Stage::Matching(run) = &mut self.stage else { return Ok(Vec::new()) };
        run.side(Tap::Pre).advance(self.until_ns);
        run.side(Tap::Post).advance(self.until_ns);
        let seconds = run.go_on_to(self.until_ns)?;
        if !seconds.is_empty() {
            run.bound_histograms(MOST_HISTOGRAM_BYTES);
            for tap in [Tap::Pre, Tap::Post] {
                run.side(tap).side.gaps.bound(MOST_HISTOGRAM_BYTES);
            }
        }
        Ok(seconds)
    }

    /// Decides by what has come so far, if that tells enough, or there is no more.
    fn look(&mut self, is_last: bool) {
        let Stage::Looking(looking) = &mut self.stage else { return };
        let began = looking.ahead.iter().flatten().map(Ahead::ts).min();
        if looking.ahead.iter().any(Vec::is_empty) {
            self.since_ns = looking.shorten(self.since_ns);
            return;
        }
        let found = survey_packets(std::mem::take(&mut looking.ahead), &self.config);
        let matched = found.basis.tried.iter().map(|tried| tried.matched).max().unwrap_or(0);
        let began_ns = began.map_or(self.since_ns, |began| began.0);
        let is_long = is_last || self.until_ns.saturating_sub(began_ns) >= LOOK_NS;
        if found.relation.is_none() || (matched < ENOUGH && !is_long) {
            looking.ahead = found.ahead;
            self.since_ns = looking.shorten(self.since_ns);
            return;
        }
        let missed = std::mem::take(&mut looking.missed);
        let mut run = self.matching(found);
        missed.into_iter().for_each(|(side, gap, packets)| run.miss(side, gap, packets));
        self.stage = Stage::Matching(Box::new(run));
    }

    fn matching(&self, found: Survey) -> Run<Queue> {
        let Survey { match_on, mut basis, ahead, .. } = found;
        let limit = basis.limit_bytes.map_or(self.held_bytes, |all| all.min(self.held_bytes));
        basis.limit_bytes = Some(limit);
        let config = Config { match_on, ..self.config.clone() };
        let queue = |tap: Tap| Queue::new(&self.names[tap as usize], &config, &basis, tap);
        let [pre, post] = [queue(Tap::Pre), queue(Tap::Post)];
        let mut run = Run::live(pre, post, config, basis, self.since_ns);
        for (tap, packets) in [Tap::Pre, Tap::Post].into_iter().zip(&ahead) {
            let queue = run.side(tap);
            packets.iter().for_each(|packet| queue.take_packet(&packet.packet()));
        }
        run
    }
}

impl Looking {
    /// Forgets the older half of what nothing follows from, if it is more than a survey looks at, and
    /// returns the time up to which nothing is known.
    fn shorten(&mut self, since_ns: u64) -> u64 {
        let Self { ahead, bytes, .. } = self;
        let is_full = *bytes > 2 * MOST_BYTES || ahead.iter().any(|side| side.len() > LOOKS[1]);
        if !is_full {
            return since_ns;
        }
        let mut times: Vec<u64> = ahead.iter().flatten().map(|packet| packet.ts().0).collect();
        let middle = times.len() / 2;
        let from_ns = *times.select_nth_unstable(middle).1;
        ahead.iter_mut().for_each(|side| side.retain(|packet| packet.ts().0 > from_ns));
        *bytes = ahead.iter().flatten().map(|packet| packet.data.len()).sum();
        from_ns
    }
}

/// Makes of all figures a part that is whole by itself.
fn part_of(mut found: Analysis) -> Part {
    // What was heard to the end is judged, and what was not is outside already.
    found.tail = Tail::default();
    let head = |of: &Captured| Head {
        info: of.info.clone().expect("a link is described"),
        cut: None,
        packets: of.side.packets,
        first_ns: of.side.first_ns,
        last_ns: of.side.last_ns,
        origin_ns: of.side.origin_ns,
        disordered: of.side.disordered,
        disorder_ns_max: of.side.disorder_ns_max,
    };
    let heads = [head(&found.pre), head(&found.post)];
    Part::alone(found, heads)
}

/// Packets of one side that wait for those of the other.
struct Queue {
    name: String,
    reading: Reading,
    numbers: Numbers,
    /// Packets later than what was advanced to, in the order in which they came.
    coming: Vec<Stamped>,
    newest_ns: u64,
    is_disordered: bool,
    ready: Vec<Stamped>,
    next: usize,
    side: Side,
}

impl Queue {
    fn new(name: &str, config: &Config, basis: &Basis, tap: Tap) -> Self {
        Self {
            name: name.into(),
            reading: Reading::new(config, basis, tap),
            numbers: Numbers::default(),
            coming: Vec::new(),
            newest_ns: 0,
            is_disordered: false,
            ready: Vec::new(),
            next: 0,
            side: Side::new(config.trim),
        }
    }

    fn take_packet(&mut self, packet: &Packet<'_>) {
        let key = match self.reading.keyer.key(packet.data, packet.orig_len) {
            Keyed::Key(key) => Some(key),
            Keyed::None | Keyed::Short { .. } => None,
        };
        let variety = if self.reading.tells_flows {
            self.numbers.of_frame(packet.data, packet.orig_len)
        } else {
            0
        };
        let ts = packet.ts.0;
        if ts < self.newest_ns {
            self.is_disordered = true;
            self.side.disordered += 1;
            self.side.disorder_ns_max = self.side.disorder_ns_max.max(self.newest_ns - ts);
        }
        self.newest_ns = self.newest_ns.max(ts);
        let kind = self.reading.kind(packet.data);
        self.coming.push(Stamped::new(ts, key).of(kind, variety));
    }

    /// Makes ready what came up to a time.
    fn advance(&mut self, until_ns: u64) {
        assert_eq!(self.next, self.ready.len(), "all that was ready was taken");
        if std::mem::take(&mut self.is_disordered) {
            self.coming.sort_by_key(|packet| packet.ts);
        }
        let end = self.coming.partition_point(|packet| packet.ts <= until_ns);
        self.ready.clear();
        self.ready.extend(self.coming.drain(..end));
        self.next = 0;
        self.side.record_all(&self.ready);
    }
}

impl Source for Queue {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn waiting(&mut self) -> Result<&[Stamped], Error> {
        Ok(&self.ready[self.next..])
    }

    fn take_news(&mut self) -> News {
        self.numbers.take_news()
    }

    fn take(&mut self, count: usize) {
        self.next += count;
    }

    fn done_bytes(&self) -> u64 {
        0
    }

    fn finish(self) -> Captured {
        let info = Info {
            name: self.name.clone(),
            format: Format::Link,
            compression: Compression::None,
            byte_order: ByteOrder::Little,
            resolution: Resolution::new(10, 9),
            stamps: None,
            link_types: vec![LinkType::ETHERNET],
            interface: None,
            snap_length: None,
            dropped_packets: None,
        };
        Captured { name: self.name, info: Some(info), files: None, cut: None, side: self.side }
    }
}
