//! The analysis of a pair: two sources of packets feed one matcher. Those of captures are ingest
//! threads; those of recordings are in `recording.rs`.

use std::ops::{ControlFlow, Range, RangeInclusive};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread;

use capture::{Compression, Info, Reader};
use probe::key::{Keyer, MatchOn};
use units::Nanos;

use crate::arrival::Reordering;
use crate::error::Error;
use crate::histogram::Histogram;
use crate::ingest::{Ahead, End, Extent, Ingest, Message, Stamped};
use crate::instrument::{Instrument, Recorded};
use crate::matcher::{AT_ONCE, Counts, MAX_WINDOW, Match, Matcher, Stretch};
use crate::side::Side;
use crate::variation::Variation;
use crate::worst::{Worst, WorstPackets};

/// Batches that may wait between an ingest thread and the matcher.
const AHEAD_BATCHES: usize = 4;

/// Packets that decide what [`MatchOn::Auto`] means.
pub(crate) const LOOK_AT: usize = 64;

/// How a pair is analysed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What makes a packet the same before and after the device.
    pub match_on: MatchOn,
    /// How long a packet may take.
    pub window: Nanos,
    /// How much of the beginning is left out.
    pub trim: Nanos,
    /// How many of the worst packets are kept.
    pub worst: usize,
    /// How many packets may wait for their counterpart before the analysis gives up.
    pub max_in_flight: usize,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if (Nanos(1)..=MAX_WINDOW).contains(&self.window) {
            return Ok(());
        }
        Err(Error::Window { got: self.window, max: MAX_WINDOW })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            match_on: MatchOn::Auto,
            window: Nanos(5_000_000_000),
            trim: Nanos(0),
            worst: 5000,
            max_in_flight: 1 << 24,
        }
    }
}

/// How far an analysis is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes read of both files.
    pub done_bytes: u64,
    /// Bytes of both files; `None` where one is a pipe.
    pub total_bytes: Option<u64>,
}

/// Follows an analysis while it runs, and can stop it.
pub trait Observer {
    /// Matches that are final and within the trimmed interval, in order of pre.
    fn matches(&mut self, _batch: &[Match]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// As `matches`, with what only a recording knows of each; called instead of it for recordings.
    fn recorded(&mut self, _batch: &[Recorded]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Called every few thousand packets.
    fn progress(&mut self, _progress: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// An observer that only lets the analysis run.
impl Observer for () {}

/// One of the two sides, and its figures.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The capture's name, or what was recorded.
    pub name: String,
    /// What the capture says of itself; `None` for a recording.
    pub info: Option<capture::Info>,
    /// Where it was cut off, if it was.
    pub cut: Option<capture::Cut>,
    /// Its figures.
    pub side: Side,
}

/// Everything that a pair of captures says.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// How the pair was analysed; `match_on` is what [`MatchOn::Auto`] turned out to mean.
    pub config: Config,
    /// What became of the packets.
    pub counts: Counts,
    /// Latencies of the matches.
    pub latency: Histogram,
    /// Inter-packet delay variation.
    pub variation: Variation,
    /// Packets that a packet sent later had overtaken.
    pub reordered: u64,
    /// The packets with the highest latencies: latency descending, then in order of pre.
    pub worst: Vec<Worst>,
    /// The capture before the device.
    pub pre: Captured,
    /// The capture behind the device.
    pub post: Captured,
    /// What the instrument says of itself, where it recorded the pair.
    pub instrument: Option<Instrument>,
}

/// Matches two captures and computes every figure, in one pass.
///
/// # Errors
/// When a capture cannot be read, when an answer would be wrong, or when `observer` stops it.
pub fn analyze_pair(
    mut pre: Reader,
    post: Reader,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    config.check()?;
    let ahead = Ahead::read(&mut pre, LOOK_AT)?;
    if ahead.is_empty() {
        return Err(Error::NoPackets { file: pre.info().name.clone() });
    }
    let frames = ahead.iter().map(|packet| packet.data.as_slice());
    let config = Config { match_on: config.match_on.clone().resolve(frames), ..config.clone() };
    let total_bytes = pre.total_bytes().zip(post.total_bytes()).map(|(pre, post)| pre + post);
    let side = || Side::new(config.trim);
    let pre = Ingested::start(pre, ahead, &config, Extent::WHOLE, side());
    let post = Ingested::start(post, Vec::new(), &config, Extent::WHOLE, side());
    Run::whole(pre, post, config, total_bytes)?.finish(observer)
}

/// Where packets of one side come from, in order of time.
pub(crate) trait Source {
    /// The packets at hand that were not taken yet; none at the end.
    fn waiting(&mut self) -> Result<&[Stamped], Error>;
    /// Packets of the side before the first that was handed out.
    fn before(&self) -> u64 {
        0
    }
    /// Takes the first `count` of them.
    fn take(&mut self, count: usize);
    /// Bytes that were read so far.
    fn done_bytes(&self) -> u64;
    /// The figures of the side, once all of it was taken.
    fn finish(self) -> Captured;
}

/// A capture that is being read.
pub(crate) struct Ingested {
    messages: Receiver<Message>,
    used: Sender<Vec<Stamped>>,
    batch: Vec<Stamped>,
    next: usize,
    before: Option<u64>,
    begin_bytes: u64,
    consumed_bytes: u64,
    end: Option<End>,
}

impl Ingested {
    /// `config` has decided what the key is; `side` knows what is known of the capture already.
    pub fn start(
        reader: Reader,
        ahead: Vec<Ahead>,
        config: &Config,
        extent: Extent,
        side: Side,
    ) -> Self {
        let (batches, messages) = sync_channel(AHEAD_BATCHES);
        let (used, unused) = channel();
        let Info { name, compression, .. } = reader.info();
        let begin = extent.mark.as_ref().filter(|_| compression == Compression::None);
        let begin_bytes = begin.map_or(0, |mark| mark.offset);
        let keyer = Keyer::new(&config.match_on);
        let ingest = Ingest::new(name, keyer, extent, side, batches, unused);
        // Not joined: one that waits for a pipe must not keep a stopped analysis from returning.
        thread::spawn(move || ingest.run(&ahead, reader));
        Self {
            messages,
            used,
            batch: Vec::new(),
            next: 0,
            before: None,
            begin_bytes,
            consumed_bytes: begin_bytes,
            end: None,
        }
    }
}

impl Source for Ingested {
    fn waiting(&mut self) -> Result<&[Stamped], Error> {
        while self.next == self.batch.len() && self.end.is_none() {
            match self.messages.recv() {
                Ok(Message::Batch { packets, before, consumed_bytes }) => {
                    assert!(!packets.is_empty(), "a batch holds packets");
                    self.consumed_bytes = consumed_bytes;
                    self.before.get_or_insert(before);
                    let _ = self.used.send(std::mem::replace(&mut self.batch, packets));
                    self.next = 0;
                }
                Ok(Message::End(end)) => self.end = Some((*end)?),
                Err(_) => unreachable!("an ingest thread says how it ended"),
            }
        }
        Ok(&self.batch[self.next..])
    }

    fn before(&self) -> u64 {
        self.before.unwrap_or(0)
    }

    fn take(&mut self, count: usize) {
        assert!(count <= self.batch.len() - self.next, "no more are taken than wait");
        self.next += count;
    }

    fn done_bytes(&self) -> u64 {
        self.consumed_bytes - self.begin_bytes
    }

    fn finish(self) -> Captured {
        let End { side, info, cut } = self.end.expect("all of it was read");
        Captured { name: info.name.clone(), info: Some(info), cut, side }
    }
}

/// An analysis under way.
pub(crate) struct Run<S> {
    config: Config,
    pre: S,
    post: S,
    total_bytes: Option<u64>,
    stretch: Stretch,
    matcher: Matcher,
    reached_ns: u64,
    matches: Vec<Match>,
    latency: Histogram,
    variation: Variation,
    reordering: Reordering,
    worst: WorstPackets,
}

impl<S: Source> Run<S> {
    /// All of a pair.
    pub fn whole(
        pre: S,
        mut post: S,
        config: Config,
        total_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let first_post_ns = post.waiting()?.first().map(|packet| packet.ts);
        Ok(Self::new([pre, post], config, Stretch::WHOLE, first_post_ns, total_bytes))
    }

    /// What is counted of it is `own`; the first packet of all of post was seen at `first_post_ns`.
    pub fn slice(
        [mut pre, mut post]: [S; 2],
        config: Config,
        own: RangeInclusive<u64>,
        first_post_ns: Option<u64>,
        total_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        pre.waiting()?;
        post.waiting()?;
        let stretch = Stretch { own, before_pre: pre.before(), before_post: post.before() };
        Ok(Self::new([pre, post], config, stretch, first_post_ns, total_bytes))
    }

    fn new(
        [pre, post]: [S; 2],
        config: Config,
        stretch: Stretch,
        first_post_ns: Option<u64>,
        total_bytes: Option<u64>,
    ) -> Self {
        let first = first_post_ns.filter(|_| config.trim.0 > 0);
        let cut = first.map(|ts| Nanos(ts.saturating_add(config.trim.0)));
        Self {
            matcher: Matcher::new(config.window, cut, config.max_in_flight, &stretch),
            worst: WorstPackets::new(config.worst),
            config,
            pre,
            post,
            total_bytes,
            stretch,
            reached_ns: 0,
            matches: Vec::new(),
            latency: Histogram::default(),
            variation: Variation::default(),
            reordering: Reordering::default(),
        }
    }

    /// Analyses all of a pair.
    pub fn finish(self, observer: &mut dyn Observer) -> Result<Analysis, Error> {
        let found = self.count(observer)?;
        found.counts.assert_conserved(found.pre.side.packets, found.post.side.packets);
        assert!(found.reordered <= found.counts.matched, "only matches are reordered");
        Ok(found)
    }

    /// Analyses what there is and counts what is its own.
    pub fn count(mut self, observer: &mut dyn Observer) -> Result<Analysis, Error> {
        while self.step()? {
            self.collect(observer)?;
            let done_bytes = self.pre.done_bytes() + self.post.done_bytes();
            let done_bytes = done_bytes.min(self.total_bytes.unwrap_or(u64::MAX));
            let progress = Progress { done_bytes, total_bytes: self.total_bytes };
            continue_unless_stopped(observer.progress(progress))?;
        }
        while self.matcher.finish() {
            self.collect(observer)?;
        }
        self.collect(observer)?;
        let (pre, post) = (self.pre.finish(), self.post.finish());
        let counts = self.matcher.counts();
        assert_eq!(counts.matched, self.latency.count(), "every match has its latency");
        let steps = self.variation.magnitude().count();
        assert!(steps <= counts.matched.saturating_sub(1), "a step lies between two matches");
        let worst = self.worst.finish();
        let most = counts.matched.min(self.config.worst as u64);
        assert_eq!(worst.len() as u64, most, "as many of the worst as are wanted");
        Ok(Analysis {
            config: self.config,
            counts,
            latency: self.latency,
            variation: self.variation,
            reordered: self.reordering.count(),
            worst,
            pre,
            post,
            instrument: None,
        })
    }

    /// Merges the packets at hand by time until one side needs more; `false` when there are none.
    fn step(&mut self) -> Result<bool, Error> {
        let (pre, post) = (self.pre.waiting()?, self.post.waiting()?);
        let (mut i, mut j) = (0, 0);
        let mut reached_ns = self.reached_ns;
        while i < pre.len() || j < post.len() {
            let is_pre = match (pre.get(i), post.get(j)) {
                (Some(sent), Some(seen)) => sent.ts <= seen.ts,
                (Some(_), None) if post.is_empty() => true,
                (None, Some(_)) if pre.is_empty() => false,
                _ => break,
            };
            let (side, next) = if is_pre { (pre, &mut i) } else { (post, &mut j) };
            if *next % AT_ONCE == 0 {
                self.matcher.warm_up(side[*next..].iter().take(AT_ONCE).map(Stamped::slot));
            }
            let packet = side[*next];
            *next += 1;
            assert!(reached_ns <= packet.ts, "packets are merged in order of time");
            reached_ns = packet.ts;
            if is_pre {
                self.matcher.pre(packet.ts, packet.key())?;
            } else {
                self.matcher.post(packet.ts, packet.key())?;
            }
        }
        self.reached_ns = reached_ns;
        self.pre.take(i);
        self.post.take(j);
        Ok(i + j > 0)
    }

    fn collect(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        self.matcher.take_matches(&mut self.matches);
        debug_assert!(self.matches.is_sorted_by_key(|found| found.pre_ns), "time goes on");
        let own = self.own_matches();
        self.matches[..own.start].iter().for_each(|found| self.reordering.push(found));
        if own.start > 0 {
            self.reordering.forget();
        }
        let matches = &self.matches[own];
        for found in matches {
            self.latency.record(found.latency_ns);
            self.variation.push(found);
            self.worst.push(found);
            self.reordering.push(found);
        }
        if matches.is_empty() {
            return Ok(());
        }
        continue_unless_stopped(observer.matches(matches))
    }

    /// Which of the matches are counted here. Those before are only asked what they were overtaken by.
    fn own_matches(&self) -> Range<usize> {
        let own = &self.stretch.own;
        let start = self.matches.partition_point(|found| found.pre_ns < *own.start());
        start..self.matches.partition_point(|found| found.pre_ns <= *own.end()).max(start)
    }
}

pub(crate) fn continue_unless_stopped(flow: ControlFlow<()>) -> Result<(), Error> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Stopped),
    }
}
