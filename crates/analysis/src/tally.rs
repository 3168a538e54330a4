//! Latencies of many groups of packets: exact while they are few, in steps of a thousandth of
//! a power of two when memory demands it.

use crate::quantile::rank;

/// Samples of all groups that are kept as they are.
const MOST_EXACT: usize = 1 << 21;
/// Fewest samples of a group that take less memory in steps.
const FEWEST_STEPPED: usize = 1 << 14;
/// Bits of a value behind its highest one that are kept.
const STEP_BITS: u32 = 11;

/// Latencies of one group.
#[derive(Clone, Debug)]
pub(crate) enum Tally {
    /// Each latency, in ns.
    Exact(Vec<u64>),
    /// Numbers of latencies by their steps: 2048 to each power of two.
    Stepped(Steps),
    /// Nothing: there are too many groups.
    Unknown,
}

impl Default for Tally {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

const PAGE: usize = 1 << STEP_BITS;

/// Counts of steps, a page for each power of two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Vec<Option<Box<[u64; PAGE]>>>);

/// Returns the number of the step that a value lies in.
#[inline]
fn step(ns: u64) -> usize {
    let bits = (u64::BITS - ns.leading_zeros()).saturating_sub(STEP_BITS + 1);
    ((u64::from(bits) << STEP_BITS) + (ns >> bits)) as usize
}

/// Returns the lowest value of a step.
fn least(step: usize) -> u64 {
    let bits = (step >> STEP_BITS).saturating_sub(1);
    ((step - (bits << STEP_BITS)) as u64) << bits
}

impl Steps {
    #[inline]
    fn add(&mut self, step: usize, count: u64) {
        let page = step >> STEP_BITS;
        if page >= self.0.len() {
            self.0.resize(page + 1, None);
        }
        self.0[page].get_or_insert_with(|| Box::new([0; PAGE]))[step % PAGE] += count;
    }

    /// Returns the steps that are not empty, and how often each was counted.
    fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let pages = self.0.iter().enumerate();
        let there = pages.filter_map(|(at, page)| Some((at << STEP_BITS, page.as_ref()?)));
        let all = there.flat_map(|(first, page)| (first..).zip(page.iter().copied()));
        all.filter(|(_, count)| *count > 0)
    }
}

impl Tally {
    fn kept(&self) -> usize {
        if let Self::Exact(samples) = self { samples.len() } else { 0 }
    }

    /// Takes all of `other`.
    fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Unknown, _) => {}
            (_, Self::Unknown) => *self = Self::Unknown,
            (Self::Exact(samples), Self::Exact(more)) => samples.extend(more),
            (Self::Exact(_), Self::Stepped(_)) => {
                self.round();
                self.merge(other);
            }
            (Self::Stepped(steps), Self::Exact(more)) => {
                more.iter().for_each(|ns| steps.add(step(*ns), 1));
            }
            (Self::Stepped(steps), Self::Stepped(more)) => {
                more.counts().for_each(|(step, count)| steps.add(step, count));
            }
        }
    }

    fn round(&mut self) {
        if let Self::Exact(samples) = self {
            let mut steps = Steps::default();
            samples.iter().for_each(|ns| steps.add(step(*ns), 1));
            *self = Self::Stepped(steps);
        }
    }

    fn sort(&mut self) {
        if let Self::Exact(samples) = self {
            samples.sort_unstable();
        }
    }

    /// Returns a quantile, in ns; of a group that is sorted.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        match self {
            Self::Exact(samples) if samples.is_empty() => None,
            Self::Exact(samples) => Some(samples[rank(q, samples.len() as u64) as usize - 1]),
            Self::Stepped(steps) => {
                let mut left = rank(q, steps.counts().map(|(_, count)| count).sum());
                steps.counts().find_map(|(step, count)| {
                    let is_here = left <= count;
                    left -= count.min(left);
                    is_here.then(|| least(step))
                })
            }
            Self::Unknown => None,
        }
    }

    /// Returns the number of latencies above a limit; of a group that is sorted.
    pub fn above(&self, limit_ns: u64) -> Option<u64> {
        match self {
            Self::Exact(samples) => {
                Some((samples.len() - samples.partition_point(|ns| *ns <= limit_ns)) as u64)
            }
            Self::Stepped(steps) => {
                let above = steps.counts().filter(|(at, _)| *at > step(limit_ns));
                Some(above.map(|(_, count)| count).sum())
            }
            Self::Unknown => None,
        }
    }

    /// Returns true if quantiles are those of the samples, to the nanosecond.
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// Returns the joined tally of several, sorted.
    pub fn joined<'a>(several: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        several.into_iter().for_each(|one| all.merge(one));
        all.sort();
        all
    }
}

/// Tallies of all groups, within bounds of memory.
#[derive(Clone, Debug)]
pub(crate) struct Tallies {
    groups: Vec<Tally>,
    kept: usize,
    most_exact: usize,
}

impl Default for Tallies {
    fn default() -> Self {
        Self::keeping(MOST_EXACT)
    }
}

impl Tallies {
    /// Returns tallies that keep at most so many samples as they are.
    pub fn keeping(most_exact: usize) -> Self {
        Self { groups: Vec::new(), kept: 0, most_exact }
    }

    /// Makes room for so many groups.
    pub fn grow(&mut self, groups: usize) {
        self.groups.resize_with(groups, Tally::default);
    }

    #[inline]
    pub fn record(&mut self, group: usize, ns: u64) {
        match &mut self.groups[group] {
            Tally::Exact(samples) => {
                samples.push(ns);
                self.kept += 1;
                if self.kept > self.most_exact {
                    self.make_room();
                }
            }
            Tally::Stepped(steps) => steps.add(step(ns), 1),
            Tally::Unknown => {}
        }
    }

    /// Records all of `latencies`, which are of one group.
    #[inline]
    pub fn record_all(&mut self, group: usize, latencies: impl ExactSizeIterator<Item = u64>) {
        match &mut self.groups[group] {
            Tally::Exact(samples) if self.kept + latencies.len() <= self.most_exact => {
                self.kept += latencies.len();
                samples.extend(latencies);
            }
            _ => latencies.for_each(|ns| self.record(group, ns)),
        }
    }

    #[cold]
    fn make_room(&mut self) {
        let largest = self.groups.iter_mut().max_by_key(|group| group.kept());
        let largest = largest.expect("samples are those of a group");
        self.kept -= largest.kept();
        if largest.kept() >= FEWEST_STEPPED { largest.round() } else { *largest = Tally::Unknown }
    }

    pub fn of(&self, group: usize) -> &Tally {
        &self.groups[group]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn steps_are_near_what_they_stand_for(ns in any::<u64>()) {
            let low = least(step(ns));
            prop_assert!(low <= ns && ns - low <= ns >> STEP_BITS);
            prop_assert_eq!(step(low), step(ns));
        }

        #[test]
        fn quantiles_are_those_of_a_sort(
            mut samples in prop::collection::vec(0..1_000_000_u64, 1..300),
            cut in 0..300_usize,
            q in 0.0..=1.0,
            limit in 0..1_000_000_u64,
        ) {
            let mut tallies = Tallies::default();
            tallies.grow(2);
            samples.iter().enumerate().for_each(|(i, ns)| tallies.record(usize::from(i < cut), *ns));
            let exact = Tally::joined([tallies.of(0), tallies.of(1)]);
            samples.sort_unstable();
            let expected = samples[rank(q, samples.len() as u64) as usize - 1];
            prop_assert_eq!(exact.quantile(q), Some(expected));
            let above = samples.iter().filter(|ns| **ns > limit).count() as u64;
            prop_assert_eq!(exact.above(limit), Some(above));
            tallies.groups[0].round();
            let stepped = Tally::joined([tallies.of(1), tallies.of(0)]);
            prop_assert_eq!(stepped.quantile(q), Some(least(step(expected))));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let most = 2 * FEWEST_STEPPED;
        let mut tallies = Tallies::keeping(most);
        tallies.grow(3);
        (0..most as u64).for_each(|ns| tallies.record(0, ns));
        assert!(tallies.of(0).is_exact());
        tallies.record(1, 5);
        assert!(!tallies.of(0).is_exact() && tallies.of(1).is_exact());
        assert_eq!(tallies.kept, 1);
    }
}
