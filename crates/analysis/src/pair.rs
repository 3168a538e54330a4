//! The analysis of a pair: two sources of packets feed one matcher. Those of captures are ingest
//! threads; those of recordings are in `recording.rs`.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range, RangeInclusive};

use capture::{Files, Reader};
use probe::key::{Keyer, MatchOn, Tap};
use units::Nanos;

use crate::arrival::Reordering;
use crate::basis::{Basis, Clocks, Skew};
use crate::config::Config;
use crate::corrupt::Corruption;
use crate::counts::{Counts, TcpCounts};
use crate::error::Error;
use crate::floor::{Drift, Floor};
use crate::histogram::Histogram;
use crate::ingest::{Ahead, End, Extent, Ingest, Message, Reading, Stamped};
use crate::instrument::{Instrument, Recorded};
use crate::ledger::{Ledger, Lost, Packets};
use crate::matcher::{AT_ONCE, Fate, Match, Matcher, Rules, Stretch, Tail};
use crate::order::{BATCH, BATCH_IN_DOUBT};
use crate::readers::Listener;
use crate::residue::Residue;
use crate::seconds::{Second, Seconds};
use crate::side::Side;
use crate::survey::{Relation, Survey, decide};
use crate::variation::Variation;
use crate::varieties::News;
use crate::worst::{Worst, WorstPackets};

/// Matches that are counted at once.
const COUNTED_AT_ONCE: usize = 64;
/// Fewest packets that are worth to be taken at once, and the most that are taken one by one before that is tried again.
const WORTH_IT: usize = 16;
const MOST_ALONE: usize = 4096;
/// Fewest packets seen before they were sent, as one in so many, that put the clocks in doubt.
const STRAYS: u64 = 1000;

/// The progress of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes read of both files.
    pub done_bytes: u64,
    /// Bytes of both files; `None` where one is a pipe.
    pub total_bytes: Option<u64>,
}

/// Follows an analysis while it runs, and can stop it.
pub trait Observer {
    /// Takes packets that were seen on both sides while one of the clocks was in doubt, likewise.
    fn untimed(&mut self, _batch: &[Match]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Matches that are final and within the trimmed interval, in order of pre.
    fn matches(&mut self, _batch: &[Match]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Takes the same matches before [`matches`](Self::matches) does, and lost packets, with their flows.
    fn packets(&mut self, _packets: &Packets<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// True if [`packets`](Self::packets) listens.
    fn wants_packets(&self) -> bool {
        false
    }

    /// Takes matches, with what only a recording knows of each; called instead of `matches` for
    /// recordings.
    fn recorded(&mut self, _batch: &[Recorded]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Hears of the progress every few thousand packets.
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
    /// Description of the capture by itself; `None` for a recording.
    pub info: Option<capture::Info>,
    /// What is known of its files, if there are several.
    pub files: Option<Files>,
    /// End of the capture, if it was cut off.
    pub cut: Option<capture::Cut>,
    /// Its figures.
    pub side: Side,
}

/// Everything that a pair of captures says.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Settings of the analysis; `match_on` is the key that [`MatchOn::Auto`] turned out to mean.
    pub config: Config,
    /// Results of the look at the beginning of both captures.
    pub basis: Basis,
    /// Numbers of packets by their fate.
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
    /// Record of the instrument, if it recorded the pair.
    pub instrument: Option<Instrument>,
    /// Times in ns of packets that an observer heard were lost, and that came out in another form.
    pub resegmented_ns: Vec<u64>,
    /// Packets that came out damaged, in order of time.
    pub corruptions: Vec<Corruption>,
    /// What TCP streams were found, if the pair was matched by their bytes.
    pub tcp: Option<TcpCounts>,
    /// Of `post_unknown`, those that are control traffic of their link: none of them is a lost packet.
    pub local_behind: u64,
    pub(crate) ledger: Ledger,
    pub(crate) tail: Tail,
    pub(crate) floor: Floor,
    pub(crate) residue: Option<Residue>,
    /// True if much was found on one side alone.
    pub(crate) considerable: bool,
    /// True if packets that share a key reach back before what was read.
    pub(crate) torn: bool,
}

/// Matches two captures and computes every figure, in one pass behind a look at their beginning.
///
/// # Errors
/// When a capture cannot be read, when nothing can follow from the two, when their clocks are apart and
/// `config` does not say how, or when `observer` stops it.
pub fn analyze_pair(
    mut pre: Reader,
    mut post: Reader,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    config.check()?;
    let (config, Survey { basis, relation, ahead, .. }) = decide(&mut pre, &mut post, config)?;
    let [pre_name, post_name] = [pre.info().name, post.info().name];
    let found = start_on((pre, post), ahead, &config, basis)?.finish(observer)?;
    found.check_step(&[vec![], vec![]])?;
    found.checked(relation, [pre_name, post_name])
}

/// Does the same as [`analyze_pair`] in one pass: `config` and `basis` have decided everything.
///
/// # Errors
/// As [`analyze_pair`], but nothing is refused for what the captures hold.
pub fn analyze_pair_on(
    pre: Reader,
    post: Reader,
    config: &Config,
    basis: Basis,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    config.check()?;
    analyze_on((pre, post), [Vec::new(), Vec::new()], config, basis, observer)
}

/// Does the same behind packets that were read ahead.
pub(crate) fn analyze_on(
    captures: (Reader, Reader),
    ahead: [Vec<Ahead>; 2],
    config: &Config,
    basis: Basis,
    observer: &mut dyn Observer,
) -> Result<Analysis, Error> {
    Ok(start_on(captures, ahead, config, basis)?.finish(observer)?.judged())
}

pub(crate) fn start_on(
    (pre, post): (Reader, Reader),
    [pre_ahead, post_ahead]: [Vec<Ahead>; 2],
    config: &Config,
    basis: Basis,
) -> Result<Run<Ingested>, Error> {
    let total_bytes = pre.total_bytes().zip(post.total_bytes()).map(|(pre, post)| pre + post);
    let start = |reader, ahead, tap| {
        let reading = Reading::new(config, &basis, tap);
        Ingest::new(reader, ahead, reading, Extent::WHOLE, Side::new(config.trim))
    };
    let both = [start(pre, pre_ahead, Tap::Pre), start(post, post_ahead, Tap::Post)];
    let [pre, post] = Ingested::start(both);
    Ok(Run::whole(pre, post, config.clone(), basis, total_bytes)?.sized_for(total_bytes))
}

impl Reading {
    pub(crate) fn new(config: &Config, basis: &Basis, tap: Tap) -> Self {
        let marked = !matches!(config.match_on, MatchOn::Probe | MatchOn::Bytes { .. });
        Self {
            keyer: Keyer::new(&config.match_on, tap, basis.limit_bytes),
            skew: if tap == Tap::Post { config.clocks.skew() } else { Skew::NONE },
            marks_local: marked && tap == Tap::Pre,
            marks_control: marked && tap == Tap::Post,
            tells_flows: tap == Tap::Pre,
            marks_groups: basis.routed && tap == Tap::Pre,
            back: if tap == Tap::Pre { &basis.back } else { &basis.back_behind }.clone(),
            forth: if tap == Tap::Pre { basis.forth.clone() } else { BTreeSet::new() },
            batch: if config.doubts.is_empty() { BATCH } else { BATCH_IN_DOUBT },
        }
    }
}

impl Analysis {
    /// Returns the analysis, judged, if anything follows from it.
    pub(crate) fn checked(
        self,
        relation: Option<Relation>,
        [pre, post]: [String; 2],
    ) -> Result<Self, Error> {
        let found = self.judged();
        let none_came = found.config.whole && found.post.side.packets == 0;
        let Counts { matched, resegmented, post_ambiguous, untimed, .. } = found.counts;
        let joined = matched + resegmented + post_ambiguous + untimed > 0 || relation.is_some();
        if !joined && !none_came {
            return Err(Error::DifferentTraffic { pre, post, tried: found.basis.in_words() });
        }
        found.check_clocks()?;
        Ok(found)
    }

    /// Returns what the captures do not prove to be lost is outside: packets that would have come
    /// out when the one behind the device had ended, and as many as it dropped itself.
    pub(crate) fn judged(mut self) -> Self {
        self.considerable = Residue::is_considerable(&self.counts)
            || Residue::may_be_damaged(&self.counts, self.local_behind);
        let dropped =
            |of: &Captured| of.info.as_ref().and_then(|info| info.dropped_packets).unwrap_or(0);
        let (dropped, pre_dropped) = (dropped(&self.post), dropped(&self.pre));
        let tail = std::mem::take(&mut self.tail);
        let (last, longest) = (self.post.side.last_ns.unwrap_or(0), self.latency.max());
        let window = self.config.window.0;
        let late = |ts: &&u64| ends_later(**ts, longest, window, last);
        let near = tail.near_ns.iter().filter(late).count() as u64;
        if !self.config.whole {
            self.counts.set_outside(near + tail.after, tail.post_after);
        }
        self.counts.set_outside(dropped, pre_dropped);
        self
    }

    /// Returns by how much the fastest packets become slower.
    pub(crate) fn drift(&self) -> Option<Drift> {
        self.floor.drift(self.basis.grid.step_ns())
    }

    pub(crate) fn check_clocks(&self) -> Result<(), Error> {
        let drift = self.drift();
        let drift = match self.config.clocks {
            Clocks::Detect => drift.filter(Drift::is_proof),
            // Who knows an offset said that there are two clocks, and nothing of how they drift.
            clocks if clocks.drift_is_open() && self.tcp.is_none() => drift.filter(Drift::is_told),
            _ => return Ok(()),
        };
        if let Some(Drift { ppt, .. }) = drift {
            return Err(Error::ClocksApart { why: format!("they drift by {:.3} ppm", ppt / 1e6) });
        }
        // A few may be strays: packets alike, far apart.
        let negative = self.counts.negative;
        if negative * STRAYS <= self.counts.matched {
            return Ok(());
        }
        let which = if negative == 1 { "packet was" } else { "packets were" };
        let why = format!("{negative} {which} seen behind the device before being sent");
        Err(Error::ClocksApart { why })
    }
}

/// A source of one side's packets, in order of time.
pub(crate) trait Source {
    /// Returns what the side is called.
    fn name(&self) -> String;
    /// Returns the packets at hand that were not taken yet; none at the end.
    fn waiting(&mut self) -> Result<&[Stamped], Error>;
    /// Packets of the side before the first that was handed out.
    fn before(&self) -> u64 {
        0
    }
    /// Takes the varieties that are new since the last call.
    fn take_news(&mut self) -> News {
        News::default()
    }
    /// Takes the gaps between files that are new since the last call, in ns.
    fn take_gaps(&mut self) -> Vec<(u64, u64)> {
        Vec::new()
    }
    /// Takes the first `count` of them.
    fn take(&mut self, count: usize);
    /// Bytes that were read so far.
    fn done_bytes(&self) -> u64;
    /// Returns the figures of the side, once all of it was taken.
    fn finish(self) -> Captured;
}

/// A capture that is being read.
pub(crate) struct Ingested {
    name: String,
    listener: Listener,
    batch: Vec<Stamped>,
    next: usize,
    before: Option<u64>,
    news: News,
    gaps: Vec<(u64, u64)>,
    begin_bytes: u64,
    consumed_bytes: u64,
    end: Option<End>,
}

impl Ingested {
    /// Starts to read both captures of a pair.
    pub fn start(ingests: [Ingest; 2]) -> [Self; 2] {
        let known = ingests.each_ref().map(|of| (of.name().to_owned(), of.begin_bytes()));
        let [pre, post] = Listener::start(ingests);
        let [of_pre, of_post] = known;
        [(pre, of_pre), (post, of_post)].map(|(listener, (name, begin_bytes))| Self {
            name,
            listener,
            batch: Vec::new(),
            next: 0,
            before: None,
            news: News::default(),
            gaps: Vec::new(),
            begin_bytes,
            consumed_bytes: begin_bytes,
            end: None,
        })
    }
}

impl Source for Ingested {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn waiting(&mut self) -> Result<&[Stamped], Error> {
        while self.next == self.batch.len() && self.end.is_none() {
            match self.listener.next(std::mem::take(&mut self.batch)) {
                Message::Batch { packets, before, consumed_bytes, news, gaps } => {
                    self.news.extend(news);
                    self.gaps.extend(gaps);
                    assert!(!packets.is_empty(), "a batch holds packets");
                    self.consumed_bytes = consumed_bytes;
                    self.before.get_or_insert(before);
                    self.batch = packets;
                }
                Message::End(end) => self.end = Some((*end)?),
            }
            self.next = 0;
        }
        Ok(&self.batch[self.next..])
    }

    fn before(&self) -> u64 {
        self.before.unwrap_or(0)
    }

    fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    fn take_gaps(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.gaps)
    }

    fn take(&mut self, count: usize) {
        assert!(count <= self.batch.len() - self.next, "no more are taken than wait");
        self.next += count;
    }

    fn done_bytes(&self) -> u64 {
        self.consumed_bytes - self.begin_bytes
    }

    fn finish(self) -> Captured {
        let End { side, files, info, cut } = self.end.expect("all of it was read");
        Captured { name: info.name.clone(), info: Some(info), files, cut, side }
    }
}

/// An analysis under way.
pub(crate) struct Run<S> {
    config: Config,
    basis: Basis,
    pre: S,
    post: S,
    total_bytes: Option<u64>,
    stretch: Stretch,
    matcher: Matcher,
    reached_ns: u64,
    matches: Vec<Match>,
    untimed: Vec<Match>,
    fates: Vec<Fate>,
    lost: Vec<Lost>,
    ledger: Ledger,
    /// Flows whose names the observer knows.
    told_flows: usize,
    latency: Histogram,
    variation: Variation,
    reordering: Reordering,
    worst: WorstPackets,
    floor: Floor,
    /// What became of packets second by second, if somebody hears of it meanwhile.
    seconds: Option<Seconds>,
}

/// The times at which the captures of a pair began, before and behind the device, in ns; `None`
/// without packets.
pub(crate) type Begin = [Option<u64>; 2];

impl<S: Source> Run<S> {
    /// Returns all of a pair of captures.
    pub fn whole(
        mut pre: S,
        mut post: S,
        config: Config,
        basis: Basis,
        total_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let first = |packets: &[Stamped]| packets.first().map(|packet| packet.ts);
        let begin = [first(pre.waiting()?), first(post.waiting()?)];
        Ok(Self::new([pre, post], config, basis, Stretch::WHOLE, begin, total_bytes))
    }

    /// Returns all of what an instrument recorded, which looked all of the time.
    pub fn recorded(
        pre: S,
        mut post: S,
        config: Config,
        total_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let first = post.waiting()?.first().map(|packet| packet.ts);
        let stretch = Stretch::WHOLE;
        let mut run =
            Self::new([pre, post], config, Basis::default(), stretch, [None, first], total_bytes);
        run.matcher.judge_all();
        Ok(run)
    }

    /// Returns a pair that is heard from a time on, and told second by second.
    pub fn live(pre: S, post: S, config: Config, basis: Basis, since_ns: u64) -> Self {
        let begin = [Some(since_ns); 2];
        let mut run = Self::new([pre, post], config, basis, Stretch::WHOLE, begin, None);
        run.seconds = Some(Seconds::since(since_ns));
        run.ledger = run.ledger.for_days();
        run.add_gap(0, (0, since_ns));
        run
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn side(&mut self, tap: Tap) -> &mut S {
        match tap {
            Tap::Pre => &mut self.pre,
            Tap::Post => &mut self.post,
        }
    }

    /// Judges nothing by what a side lacks of a time, or a window around it.
    pub fn add_gap(&mut self, side: usize, gap: (u64, u64)) {
        self.matcher.add_gaps(side, vec![gap], self.config.window.0);
    }

    /// Learns that the listener has missed packets of a side between two times.
    pub fn miss(&mut self, side: usize, gap: (u64, u64), packets: u64) {
        self.add_gap(side, gap);
        self.seconds.iter_mut().for_each(|seconds| seconds.miss(side, gap.1, packets));
    }

    /// Takes what both sides have at hand up to a time, and returns the seconds of which everything is
    /// decided then.
    pub fn go_on_to(&mut self, until_ns: u64) -> Result<Vec<Second>, Error> {
        while self.step()? {
            self.collect(&mut ())?;
        }
        self.reached_ns = self.reached_ns.max(until_ns);
        self.matcher.pass(until_ns);
        self.collect(&mut ())?;
        let decided_ns = until_ns.saturating_sub(self.config.window.0);
        let close = |seconds: &mut Seconds| seconds.close(Some(decided_ns), &self.ledger);
        Ok(self.seconds.as_mut().map_or_else(Vec::new, close))
    }

    /// Counts high latencies by steps if they take more memory than this.
    pub fn bound_histograms(&mut self, most_bytes: usize) {
        self.latency.bound(most_bytes);
        self.variation.magnitude.bound(most_bytes);
    }

    /// Ends a pair that is told second by second, and returns the seconds that were not told.
    pub fn end(mut self) -> Result<(Vec<Second>, Analysis), Error> {
        while self.matcher.finish() {
            self.collect(&mut ())?;
        }
        self.collect(&mut ())?;
        let close = |seconds: &mut Seconds| seconds.close(None, &self.ledger);
        let seconds = self.seconds.as_mut().map_or_else(Vec::new, close);
        Ok((seconds, self.finish(&mut ())?))
    }

    /// Keeps what is left, for a second look.
    pub(crate) fn keeping_residue(mut self) -> Self {
        self.matcher.keep_residue();
        self
    }

    /// Sets the size of the files in bytes.
    pub(crate) fn sized_for(mut self, bytes: Option<u64>) -> Self {
        self.matcher.size_for(bytes);
        self
    }

    /// Returns a slice that counts `own`, and is read from `read_from` on.
    pub fn slice(
        [mut pre, mut post]: [S; 2],
        (config, basis): (Config, Basis),
        (own, read_from): (RangeInclusive<u64>, u64),
        begin: Begin,
        total_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        pre.waiting()?;
        post.waiting()?;
        let (before_pre, before_post) = (pre.before(), post.before());
        let stretch = Stretch { own, read_from, before_pre, before_post };
        Ok(Self::new([pre, post], config, basis, stretch, begin, total_bytes))
    }

    fn new(
        [pre, post]: [S; 2],
        config: Config,
        basis: Basis,
        stretch: Stretch,
        begin: Begin,
        total_bytes: Option<u64>,
    ) -> Self {
        let first = begin[1].filter(|_| config.trim.0 > 0);
        let rules = Rules {
            window: config.window,
            cut: first.map(|ts| Nanos(ts.saturating_add(config.trim.0))),
            begin_ns: begin.map(|ts| ts.filter(|_| !config.whole).unwrap_or(0)),
            copies_ns: basis.copies_ns.min(config.window.0 - 1),
            two_way: basis.two_way,
            max_in_flight: config.max_in_flight,
        };
        let names = [pre.name(), post.name()];
        let mut matcher = Matcher::new(rules, &stretch, names);
        matcher.doubt(config.doubts.undone(config.clocks.skew()));
        Self {
            ledger: Ledger::new(config.window.0, stretch.before_pre),
            matcher,
            worst: WorstPackets::new(config.worst),
            config,
            basis,
            pre,
            post,
            total_bytes,
            stretch,
            reached_ns: 0,
            matches: Vec::new(),
            untimed: Vec::new(),
            fates: Vec::new(),
            lost: Vec::new(),
            told_flows: 0,
            latency: Histogram::default(),
            variation: Variation::default(),
            reordering: Reordering::default(),
            floor: Floor::default(),
            seconds: None,
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
        self.collect_rest(observer)?;
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
            basis: self.basis,
            counts,
            latency: self.latency,
            variation: self.variation,
            reordered: self.reordering.count(),
            worst,
            pre,
            post,
            instrument: None,
            resegmented_ns: Vec::new(),
            corruptions: Vec::new(),
            tcp: None,
            ledger: self.ledger,
            local_behind: self.matcher.local_behind(),
            tail: self.matcher.tail().clone(),
            floor: self.floor,
            residue: self.matcher.take_residue(),
            considerable: false,
            torn: self.matcher.is_torn(),
        })
    }

    /// Merges the packets at hand by time until one side needs more; `false` when there are none.
    fn step(&mut self) -> Result<bool, Error> {
        self.pre.waiting()?;
        let news = self.pre.take_news();
        if !news.is_empty() {
            self.ledger.learn(news);
        }
        let tells_flows = !self.ledger.is_empty();
        self.post.waiting()?;
        let longest_ns = self.latency.max().unwrap_or(0);
        for (side, gaps) in [self.pre.take_gaps(), self.post.take_gaps()].into_iter().enumerate() {
            self.matcher.add_gaps(side, gaps, longest_ns);
        }
        let (pre, post) = (self.pre.waiting()?, self.post.waiting()?);
        let (mut i, mut j) = (0, 0);
        // What is out of order is taken packet by packet: to try again each time costs more than it gains.
        let (mut alone, mut pause) = (0, AT_ONCE);
        let first_ns =
            [pre.first(), post.first()].into_iter().flatten().map(|packet| packet.ts).min();
        assert!(first_ns.is_none_or(|first| self.reached_ns <= first), "time goes on");
        while i < pre.len() || j < post.len() {
            let [sent, seen] = match alone {
                0 => self.matcher.take_in_order(&pre[i..], &post[j..]),
                _ => [0, 0],
            };
            if alone == 0 {
                let is_worth_it = sent + seen >= WORTH_IT;
                (alone, pause) =
                    if is_worth_it { (0, AT_ONCE) } else { (pause, MOST_ALONE.min(2 * pause)) };
            } else {
                alone -= 1;
            }
            if sent + seen > 0 {
                if tells_flows {
                    pre[i..i + sent].iter().for_each(|packet| self.ledger.push(packet.variety()));
                }
                (i, j) = (i + sent, j + seen);
                continue;
            }
            let is_pre = match (pre.get(i), post.get(j)) {
                (Some(sent), Some(seen)) => sent.ts <= seen.ts,
                (Some(_), None) if post.is_empty() => true,
                (None, Some(_)) if pre.is_empty() => false,
                _ => break,
            };
            let (side, next) = if is_pre { (pre, &mut i) } else { (post, &mut j) };
            if *next % AT_ONCE == 0 && (is_pre || !self.matcher.is_in_order()) {
                self.matcher.warm_up(side[*next..].iter().take(AT_ONCE).map(Stamped::slot));
            }
            let packet = side[*next];
            *next += 1;
            if is_pre {
                self.matcher.pre(packet.ts, packet.key(), packet.kind())?;
                if tells_flows {
                    self.ledger.push(packet.variety());
                }
            } else {
                self.matcher.post(packet.ts, packet.key(), packet.kind())?;
            }
        }
        let last = [pre[..i].last(), post[..j].last()].into_iter().flatten();
        self.reached_ns = last.map(|packet| packet.ts).max().unwrap_or(self.reached_ns);
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
        self.matcher.take_untimed(&mut self.untimed);
        self.matcher.take_fates(&mut self.fates);
        if !self.ledger.is_empty() {
            self.ledger.settle(matches, &self.fates);
            self.untimed.iter().for_each(|found| self.ledger.pass(found.seq, [1, 1]));
            self.lost.clear();
            let newest_post_ns = self.matcher.newest_post_ns().unwrap_or(0);
            self.ledger.take_lost(self.reached_ns, newest_post_ns, &mut self.lost);
            if observer.wants_packets() && matches.len() + self.lost.len() > 0 {
                let packets = self.ledger.packets(&mut self.told_flows, matches, &self.lost);
                continue_unless_stopped(observer.packets(&packets))?;
            }
        }
        if let Some(seconds) = &mut self.seconds {
            seconds.take(matches, &self.fates, &self.ledger);
        }
        for some in matches.chunks(COUNTED_AT_ONCE) {
            let mut latencies = [0; COUNTED_AT_ONCE];
            latencies.iter_mut().zip(some).for_each(|(ns, found)| *ns = found.latency_ns);
            self.latency.record_all(&latencies[..some.len()]);
            self.floor.push_all(some);
            self.variation.push_all(some);
            self.worst.push_all(some, |found| self.ledger.variety(found.seq));
            self.reordering.push_all(some);
        }
        if !matches.is_empty() {
            continue_unless_stopped(observer.matches(matches))?;
        }
        if !self.untimed.is_empty() {
            continue_unless_stopped(observer.untimed(&self.untimed))?;
        }
        self.ledger.forget_before(self.matcher.oldest_seq());
        Ok(())
    }

    /// Takes the lost packets that no longer can turn out to be late, as nothing follows.
    fn collect_rest(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        if self.ledger.is_empty() {
            return Ok(());
        }
        let (longest, whole) = (self.latency.max(), self.config.whole);
        let last = self.matcher.newest_post_ns().unwrap_or(0);
        let window = self.config.window.0;
        self.lost.clear();
        self.ledger.take_rest(|ts| !whole && ends_later(ts, longest, window, last), &mut self.lost);
        if observer.wants_packets() && !self.lost.is_empty() {
            let packets = self.ledger.packets(&mut self.told_flows, &[], &self.lost);
            continue_unless_stopped(observer.packets(&packets))?;
        }
        Ok(())
    }

    /// Returns which of the matches are counted here. Those before are only asked what they were
    /// overtaken by.
    fn own_matches(&self) -> Range<usize> {
        let own = &self.stretch.own;
        let start = self.matches.partition_point(|found| found.pre_ns < *own.start());
        start..self.matches.partition_point(|found| found.pre_ns <= *own.end()).max(start)
    }
}

/// Returns true if a packet that was sent at `ts` would have come out when the capture behind the device had
/// ended, at `last`, if it had taken as long as the slowest.
fn ends_later(ts: u64, longest_ns: Option<u64>, window_ns: u64, last: u64) -> bool {
    let longest_ns = longest_ns.unwrap_or(window_ns);
    ts.checked_add(longest_ns).is_none_or(|end| end > last)
}

pub(crate) fn continue_unless_stopped(flow: ControlFlow<()>) -> Result<(), Error> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Stopped),
    }
}
