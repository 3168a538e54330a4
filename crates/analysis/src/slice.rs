//! A pair in slices of time, each analysed apart: how a pair is divided, and what a slice must read.

use std::ops::{Range, RangeInclusive};

use capture::{Mark, Reader};
use probe::key::{MatchOn, Tap};
use units::Nanos;

use crate::basis::{Basis, Skew};
use crate::config::Config;
use crate::error::Error;
use crate::ingest::{Ahead, Extent, Ingest, Reading};
use crate::pair::{Ingested, Observer, Run};
use crate::part::Part;
use crate::skim::{Head, Skimmed, Spot, skim};
use crate::survey::{Survey, decide};

/// A slice is at least this many times as long as what is read around it.
const HALOS: u64 = 4;

/// The facts about a pair from a first pass over the times of its packets.
#[derive(Debug)]
pub struct Plan {
    config: Config,
    basis: Basis,
    sides: [Skimmed; 2],
}

/// A stretch of time of a pair, what is to be known of all of the pair, and how it is analysed.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub(crate) config: Config,
    pub(crate) basis: Basis,
    /// The times of the packets that are counted, in ns.
    pub(crate) own: RangeInclusive<u64>,
    pub(crate) sides: [Portion; 2],
}

/// The part of a capture that a slice reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub head: Head,
    pub mark: Mark,
    /// About how many bytes there are to read.
    pub bytes: u64,
}

impl Plan {
    /// Reads the times of all packets of a pair. What `config` leaves open is decided here.
    ///
    /// # Errors
    /// When a capture is a pipe or cannot be read, when an answer would be wrong, or when `observer`
    /// stops it.
    pub fn new(
        pre: Reader,
        post: Reader,
        config: &Config,
        observer: &mut dyn Observer,
    ) -> Result<Self, Error> {
        config.check()?;
        let sizes = [file_bytes(&pre)?, file_bytes(&post)?];
        let (mut pre, mut post) = (pre, post);
        let starts = [Spot::start(&pre), Spot::start(&post)];
        let (config, Survey { basis, ahead, .. }) = decide(&mut pre, &mut post, config)?;
        Self::skimmed([pre, post], (starts, &ahead), sizes, (config, basis), observer)
    }

    /// Does the same as [`new`](Self::new): `config` and `basis` have decided everything.
    ///
    /// # Errors
    /// As [`new`](Self::new), but nothing is refused for what the captures hold.
    pub fn on(
        pre: Reader,
        post: Reader,
        config: &Config,
        basis: Basis,
        observer: &mut dyn Observer,
    ) -> Result<Self, Error> {
        config.check()?;
        let sizes = [file_bytes(&pre)?, file_bytes(&post)?];
        let starts = [Spot::start(&pre), Spot::start(&post)];
        let ahead = (starts, &[vec![], vec![]]);
        Self::skimmed([pre, post], ahead, sizes, (config.clone(), basis), observer)
    }

    fn skimmed(
        [pre, post]: [Reader; 2],
        (starts, ahead): ([Spot; 2], &[Vec<Ahead>; 2]),
        [pre_bytes, post_bytes]: [u64; 2],
        (config, basis): (Config, Basis),
        observer: &mut dyn Observer,
    ) -> Result<Self, Error> {
        let total = pre_bytes + post_bytes;
        let pre = skim(pre, (starts[0], &ahead[0]), config.trim, observer, 0, total)?;
        let post = skim(post, (starts[1], &ahead[1]), config.trim, observer, pre_bytes, total)?;
        Ok(Self { config, basis, sides: [pre, post] })
    }

    /// Returns the pair, divided at these times, which must ascend: a packet at one of them is in
    /// the slice that begins there. Only one slice where [`why_one`](Self::why_one) says that more
    /// would not do.
    ///
    /// # Panics
    /// When the times do not ascend from 1 on.
    #[must_use]
    pub fn cut_at(&self, times: &[u64]) -> Vec<Slice> {
        let times = if self.why_whole().is_some() { &[] } else { times };
        let starts: Vec<u64> = [&[0], times].concat();
        assert!(starts.is_sorted_by(|a, b| a < b), "times must ascend");
        let lasts = starts[1..].iter().map(|next| next - 1).chain([u64::MAX]);
        starts.iter().zip(lasts).map(|(&first, last)| self.slice(first..=last)).collect()
    }

    /// Returns at most `at_most` slices of about as many packets each, every one of which is
    /// several times as long as what is read around it; so there may be only one.
    #[must_use]
    pub fn slices(&self, at_most: usize) -> Vec<Slice> {
        let most = (self.duration_ns() / self.least_ns()).min(at_most as u64);
        let cuts = (2..=most).rev().map(|count| self.cuts(count));
        let long_enough = |cuts: &Vec<u64>| self.shortest_ns(cuts) >= self.least_ns();
        let slices = self.cut_at(&cuts.into_iter().find(long_enough).unwrap_or_default());
        assert!(slices.len() <= at_most.max(1), "no more slices than were asked for");
        slices
    }

    /// Returns why [`slices`](Self::slices) makes only one, if it does.
    #[must_use]
    pub fn why_one(&self) -> String {
        if let Some(why) = self.why_whole() {
            return format!("not divided: {why}");
        }
        let (all, least) = (Nanos(self.duration_ns()), Nanos(self.least_ns()));
        format!(
            "not divided: the pair takes {all}, and with a window of {} a slice takes {least} at least, \
             {HALOS} times what is read around it",
            self.config.window
        )
    }

    /// Returns why slices would not tell what the pair tells, if they would not.
    fn why_whole(&self) -> Option<&'static str> {
        match () {
            () if self.config.match_on == MatchOn::TcpBytes => {
                Some("bytes of TCP streams are matched at once")
            }
            () if self.config.clocks.skew() != Skew::NONE => {
                Some("the clocks of the two captures are apart")
            }
            () if self.basis.two_way => Some("packets travel both ways"),
            () if self.basis.copies_ns > 0 => Some("the capture holds packets several times"),
            () => None,
        }
    }

    /// Returns the length of the pair, in ns.
    fn duration_ns(&self) -> u64 {
        let times = times(self.sides.each_ref().map(|side| &side.head));
        times.end - times.start
    }

    /// Returns how long a slice must be at least, in ns.
    fn least_ns(&self) -> u64 {
        let (before, behind) = halo(self.config.window);
        HALOS.saturating_mul(before.saturating_add(behind)).max(1)
    }

    fn slice(&self, own: RangeInclusive<u64>) -> Slice {
        let read = with_halo(&own, self.config.window);
        assert!(read.start() <= own.start() && own.end() <= read.end(), "what counts is read");
        let sides = self.sides.each_ref().map(|side| {
            let (mark, bytes) = side.portion(*read.start(), *read.end());
            Portion { head: side.head.clone(), mark, bytes }
        });
        Slice { config: self.config.clone(), basis: self.basis.clone(), own, sides }
    }

    /// Returns where slices begin but the first, with about as many packets in each.
    fn cuts(&self, count: u64) -> Vec<u64> {
        let weigh = |side: &Skimmed| side.times.kept.len() * side.times.every;
        let all: usize = self.sides.iter().map(weigh).sum();
        let mut times: Vec<(u64, usize)> = Vec::new();
        for side in &self.sides {
            times.extend(side.times.kept.iter().map(|ts| (*ts, side.times.every)));
        }
        times.sort_unstable();
        let (mut cuts, mut before) = (Vec::new(), 0);
        for (ts, weight) in times {
            let reached = (cuts.len() as u64 + 1) * all as u64 / count;
            if before as u64 >= reached && cuts.last().is_none_or(|last| *last < ts) && ts > 0 {
                cuts.push(ts);
            }
            before += weight;
        }
        cuts.truncate(count as usize - 1);
        cuts
    }

    fn shortest_ns(&self, cuts: &[u64]) -> u64 {
        let Range { start, end } = times(self.sides.each_ref().map(|side| &side.head));
        let all: Vec<u64> = [&[start], cuts, &[end]].concat();
        all.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min().unwrap_or(0)
    }
}

impl Slice {
    /// Returns the times of the packets that are counted, in ns; up to those of the pair.
    #[must_use]
    pub fn times(&self) -> Range<u64> {
        let all = times(self.sides.each_ref().map(|side| &side.head));
        let within = |ts: u64| ts.max(all.start).min(all.end);
        within(*self.own.start())..within(self.own.end().saturating_add(1))
    }
}

/// Returns the times from the first packet of a pair to behind the last.
fn times(heads: [&Head; 2]) -> Range<u64> {
    let first = heads.iter().filter_map(|head| head.first_ns).min().unwrap_or(0);
    let last = heads.iter().filter_map(|head| head.last_ns).max().unwrap_or(0);
    first..last.saturating_add(1)
}

/// Returns how far a slice reads before its first time and behind its last, in ns.
///
/// What a slice counts hangs on packets of one key around it. With a window of W:
///
/// - A packet `p` of pre is ambiguous if another one lies less than W before or behind it. Its match
///   and its duplicates lie less than W behind it; a negative post `o` less than W before it, and that
///   is one only if no packet of pre lies less than W before `o`. All of it lies less than 2W before
///   and less than W behind `p`.
/// - A post `o` that belongs to no packet of pre is claimed by one less than W behind it. It is late
///   for a packet `p` less than 2W before it, unless `p` is ambiguous by a packet `r` less than W
///   before `p`: less than 3W before `o`. What happened to `p` since lies between.
/// - A match is reordered by one that was sent less than W behind it, and is counted where that one
///   is. The one that overtakes looks at matches sent less than W before, and whether those are
///   ambiguous: less than 2W before.
///
/// - A packet of a chain is matched by what anchors the chain: what lies less than 2W before its first
///   packet. That matters of matches less than W before the slice, too, so a chain that begins less
///   than 2W − 1 behind what is read and reaches as far tears the slice (`Matcher::is_torn_off`).
///
/// Times are whole, so that less than W is at most W − 1: `o − p ≤ 2W − 1`, `p − r ≤ W − 1`. What is
/// wrong for want of packets still further away is so far out that none of these looks at it.
///
/// Nothing narrower does: of `r`, `p`, `o` and a packet `q` that claims `o`, the first and the last
/// may lie 4W − 3 apart, and each of them decides whether `p` is lost and what `o` is.
fn halo(window: Nanos) -> (u64, u64) {
    (3 * (window.0 - 1) + 1, window.0 - 1)
}

fn with_halo(own: &RangeInclusive<u64>, window: Nanos) -> RangeInclusive<u64> {
    let (before, behind) = halo(window);
    own.start().saturating_sub(before)..=own.end().saturating_add(behind)
}

/// Returns the bytes of a file; a pipe cannot be read twice.
fn file_bytes(reader: &Reader) -> Result<u64, Error> {
    if reader.files().is_some() {
        return Err(Error::SeveralFiles { file: reader.info().name });
    }
    reader.total_bytes().ok_or_else(|| Error::Pipe { file: reader.info().name })
}

/// Analyses a slice of a pair. `observer` hears of matches of the slice only.
///
/// # Errors
/// When a capture is not the one that the slice was made for or cannot be read, when an answer would
/// be wrong, or when `observer` stops it.
pub fn analyze_slice(
    pre: Reader,
    post: Reader,
    slice: &Slice,
    observer: &mut dyn Observer,
) -> Result<Part, Error> {
    let Slice { config, basis, own, sides: [pre_portion, post_portion] } = slice;
    let heads = [&pre_portion.head, &post_portion.head];
    let begin = heads.map(|head| head.first_ns);
    let total = pre_portion.bytes.saturating_add(post_portion.bytes);
    let file_bytes = pre_portion.mark.file_bytes.saturating_add(post_portion.mark.file_bytes);
    let [pre, post] = Ingested::start([
        pre_portion.ingest(pre, slice, Tap::Pre)?,
        post_portion.ingest(post, slice, Tap::Post)?,
    ]);
    let read = with_halo(own, config.window);
    let known = (config.clone(), basis.clone());
    let stretch = (own.clone(), *read.start());
    let run = Run::slice([pre, post], known, stretch, begin, Some(total))?;
    let run = run.sized_for(Some(file_bytes));
    Ok(Part::new(run.count(observer)?, own.clone(), *read.end(), heads.map(Clone::clone)))
}

impl Portion {
    fn ingest(&self, reader: Reader, slice: &Slice, tap: Tap) -> Result<Ingest, Error> {
        file_bytes(&reader)?;
        let Slice { config, basis, own, .. } = slice;
        let read = with_halo(own, config.window);
        // What is earlier was not there before; in the end the packets are counted.
        let first = self.head.first_ns.unwrap_or(0);
        let own = first.max(*own.start())..=*own.end();
        let extent = Extent { mark: Some(self.mark.clone()), read, own };
        let reading = Reading::new(config, basis, tap);
        Ok(Ingest::new(reader, Vec::new(), reading, extent, self.head.side(config.trim)))
    }
}
