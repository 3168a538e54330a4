//! The figures of some slices of a pair, and their joining into those of all of it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use probe::flow::Flow;
use units::counted;

use crate::error::Error;
use crate::ledger::FEWEST;
use crate::matcher::Tail;
use crate::pair::{Analysis, Captured};
use crate::side::Side;
use crate::skim::Head;
use crate::variation::Place;
use crate::worst::worst_of;

/// The figures of one slice of a pair, or of several that were joined.
///
/// Everything is a sum, a largest or a smallest one, but for two figures that look across the border
/// between slices: gaps, and the variation of delay between neighbours. So a part also knows the first
/// and the last packet of each stretch that it covers without a hole; two stretches that touch become
/// one, and what lies between is counted then. In whatever order parts are joined, each border is
/// joined once.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) heads: [Head; 2],
    pub(crate) covered: Vec<Covered>,
    /// How often packets of each flow were seen behind the device, and how many were lost.
    pub(crate) sightings: BTreeMap<Flow, [u64; 2]>,
    pub(crate) found: Analysis,
}

/// A stretch without a hole: its times, and the first and the last in it of what has an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    pub times: RangeInclusive<u64>,
    pub matches: Option<(Place, Place)>,
    /// Times in ns of the packets within the trimmed interval, of pre and of post.
    pub kept: [Option<(u64, u64)>; 2],
}

impl Part {
    /// Returns a part; `read_to` is the last time that was read for it.
    pub(crate) fn new(
        mut found: Analysis,
        times: RangeInclusive<u64>,
        read_to: u64,
        heads: [Head; 2],
    ) -> Self {
        // What the other capture saw behind the slice is not known in it, only that it went on.
        let [pre_goes_on, post_goes_on] =
            [0, 1].map(|side: usize| heads[side].last_ns.is_some_and(|last| last > read_to));
        if post_goes_on {
            found.tail = Tail { post_after: found.tail.post_after, ..Tail::default() };
        }
        if pre_goes_on {
            found.tail.post_after = 0;
        }
        let kept = [found.pre.side.kept_ends, found.post.side.kept_ends];
        let within =
            |(first, last)| times.contains(&first) && first <= last && last <= *times.end();
        assert!(kept.into_iter().flatten().all(within), "what is counted lies in the slice");
        let covered = vec![Covered { times, matches: found.variation.ends, kept }];
        let sightings = std::mem::take(&mut found.ledger).sightings();
        found.worst.iter_mut().for_each(|packet| packet.variety = None);
        Self { heads, covered, sightings, found }
    }

    /// Returns a part that is all of a pair of which nothing is to be read again.
    pub(crate) fn alone(found: Analysis, heads: [Head; 2]) -> Self {
        let part = Self::new(found, 0..=u64::MAX, u64::MAX, heads);
        Self { sightings: BTreeMap::new(), ..part }
    }

    /// Joins two parts of one pair.
    ///
    /// # Errors
    /// When they are of different pairs or were analysed in different ways, or have a time in common.
    pub fn join(mut self, other: &Self) -> Result<Self, Error> {
        self.check_same_pair(other)?;
        let mut covered = [&self.covered[..], &other.covered].concat();
        covered.sort_unstable_by_key(|covered| *covered.times.start());
        for pair in covered.windows(2) {
            let (reached, next) = (pair[0].times.end(), pair[1].times.start());
            if next <= reached {
                return Err(not_parts("begin of one", next, format!("more than {reached} ns")));
            }
        }
        self.found.add(&other.found);
        for (flow, more) in &other.sightings {
            let sum = self.sightings.entry(*flow).or_default();
            *sum = [sum[0] + more[0], sum[1] + more[1]];
        }
        self.covered.clear();
        for next in covered {
            match self.covered.last_mut() {
                Some(last) if last.times.end() + 1 == *next.times.start() => {
                    self.found.bridge(last, &next);
                    last.extend(next);
                }
                _ => self.covered.push(next),
            }
        }
        let apart = |a: &Covered, b: &Covered| a.times.end() + 1 < *b.times.start();
        assert!(self.covered.is_sorted_by(apart), "a hole lies between two stretches");
        Ok(self)
    }

    fn check_same_pair(&self, other: &Self) -> Result<(), Error> {
        for (got, expected) in other.heads.iter().zip(&self.heads) {
            if got != expected {
                let (got, expected) = (told(got), told(expected));
                return Err(not_parts("captures", got, expected));
            }
        }
        if self.found.config != other.found.config || self.found.basis != other.found.basis {
            let (got, expected) = (&other.found.config, &self.found.config);
            return Err(not_parts("settings", format!("{got:?}"), format!("{expected:?}")));
        }
        Ok(())
    }

    /// Returns what [`analyze_pair`](crate::analyze_pair) finds of the pair.
    ///
    /// # Errors
    /// When a stretch of the pair is missing, or its packets could not be told apart in slices.
    pub fn finish(mut self) -> Result<Analysis, Error> {
        self.check_complete()?;
        if self.found.torn {
            return Err(Error::Torn { window: self.found.config.window });
        }
        if self.sightings.values().any(|[seen, lost]| *seen == 0 && *lost >= FEWEST) {
            return Err(Error::FlowsUnseen);
        }
        assert_eq!(self.covered.len(), 1, "a stretch of all times leaves none to others");
        let Analysis { pre, post, counts, .. } = &mut self.found;
        (pre.side.kept_ends, post.side.kept_ends) = self.covered[0].kept.into();
        for (side, head) in [&pre.side, &post.side].into_iter().zip(&self.heads) {
            side.check(head)?;
        }
        if !counts.are_conserved(pre.side.packets, post.side.packets) {
            return Err(not_parts("counts", format!("{counts:?}"), "counts that add up"));
        }
        self.found.check_step(&[vec![], vec![]])?;
        let found = self.found.judged();
        found.check_clocks()?;
        Ok(found)
    }

    fn check_complete(&self) -> Result<(), Error> {
        let first = &self.covered[0].times;
        let missing = match (*first.start(), first.end().checked_add(1)) {
            (0, None) => return Ok(()),
            (0, Some(end)) => end,
            _ => 0,
        };
        let got = format!("none from {missing} ns on");
        Err(not_parts("times", got, "parts of all of the pair"))
    }
}

impl Side {
    fn check(&self, head: &Head) -> Result<(), Error> {
        let (name, expected) = (&head.info.name, head.packets);
        if self.packets != expected {
            return Err(not_parts("packets", format!("{} of {name}", self.packets), expected));
        }
        let (kept, gaps) = (self.kept, self.gaps.count());
        if self.kept_ends.is_some() != (kept > 0) || gaps != kept.saturating_sub(1) {
            return Err(not_parts("gaps", gaps, format!("one fewer than {kept} packets")));
        }
        Ok(())
    }
}

impl Analysis {
    /// Adds another stretch of the same pair, but for what lies between the two.
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.latency.add(&other.latency);
        assert_eq!(self.latency.count(), self.counts.matched, "every match has its latency");
        self.variation.add(&other.variation);
        self.reordered += other.reordered;
        self.local_behind += other.local_behind;
        let worst = std::mem::take(&mut self.worst);
        self.worst = worst_of([worst, other.worst.clone()].concat(), self.config.worst);
        self.pre.side.add(&other.pre.side);
        self.post.side.add(&other.post.side);
        self.tail.near_ns.extend(&other.tail.near_ns);
        self.tail.after += other.tail.after;
        self.tail.post_after += other.tail.post_after;
        self.floor.add(&other.floor);
        self.torn |= other.torn;
    }

    /// Adds what lies between two stretches that touch.
    fn bridge(&mut self, former: &Covered, later: &Covered) {
        if let (Some((_, last)), Some((first, _))) = (former.matches, later.matches) {
            self.variation.record(last, first);
        }
        let gaps = [&mut self.pre, &mut self.post].map(|Captured { side, .. }| &mut side.gaps);
        for (gaps, (former, later)) in gaps.into_iter().zip(former.kept.iter().zip(later.kept)) {
            if let (Some((_, last)), Some((first, _))) = (former, later) {
                assert!(*last < first, "stretches follow each other");
                gaps.record(first - last);
            }
        }
    }
}

impl Covered {
    fn extend(&mut self, later: Self) {
        self.times = *self.times.start()..=*later.times.end();
        self.matches = ends(self.matches, later.matches);
        self.kept = [ends(self.kept[0], later.kept[0]), ends(self.kept[1], later.kept[1])];
    }
}

fn ends<T>(former: Option<(T, T)>, later: Option<(T, T)>) -> Option<(T, T)> {
    match (former, later) {
        (Some((first, _)), Some((_, last))) => Some((first, last)),
        (former, later) => former.or(later),
    }
}

/// Returns a capture in a few words.
fn told(head: &Head) -> String {
    format!(
        "{} with {} from {:?} ns on",
        head.info.name,
        counted(head.packets, "packet"),
        head.first_ns
    )
}

fn not_parts(what: &'static str, got: impl ToString, expected: impl ToString) -> Error {
    Error::Parts { what, got: got.to_string(), expected: expected.to_string() }
}
