//! An exact histogram of nanoseconds: every value is counted as itself, none is rounded.
//!
//! Two levels: the upper bits of a value choose a page of 4096 ns, the lower bits a cell in it. A
//! page begins as a list of what fell into it and becomes an array of counters once it holds
//! [`DENSE_FROM`] samples. The bulk of a latency distribution lies in a few dense pages; a tail
//! that is spread over seconds costs two bytes a sample, four at the worst.
//!
//! Whoever counts for days bounds it ([`Histogram::bound`]): once it has grown too large, values above
//! [`EXACT_TO`] are counted by steps of a two-thousandth.

use std::collections::BTreeMap;

const PAGE_BITS: u32 = 12;
const PAGE: usize = 1 << PAGE_BITS;
const LOW_PAGES: usize = 4096;

/// Highest value that is counted as itself in a histogram that had to be bounded: 1024 pages.
pub const EXACT_TO: u64 = (1 << 22) - 1;

/// Bits of a value behind its highest one that tell its step.
const STEP_BITS: u32 = 11;

/// Returns the lowest value of the step that a value lies in.
fn step(ns: u64) -> u64 {
    let bits = (u64::BITS - 1 - STEP_BITS).saturating_sub(ns.leading_zeros());
    ns >> bits << bits
}

/// Number of samples from which on a page is an array of counters.
pub const DENSE_FROM: usize = 2048;

#[derive(Clone, Debug)]
enum Page {
    Sparse(Vec<u16>),
    Narrow(Box<[u8; PAGE]>),
    Dense(Box<[u64; PAGE]>),
}

impl Default for Page {
    fn default() -> Self {
        Self::Sparse(Vec::new())
    }
}

impl Page {
    #[inline]
    fn add(&mut self, cell: u16) {
        match self {
            Self::Dense(counts) => counts[usize::from(cell) % PAGE] += 1,
            Self::Narrow(counts) => match counts[usize::from(cell) % PAGE].checked_add(1) {
                Some(count) => counts[usize::from(cell) % PAGE] = count,
                None => self.widened()[usize::from(cell) % PAGE] += 1,
            },
            Self::Sparse(cells) => {
                cells.push(cell);
                if cells.len() >= DENSE_FROM {
                    self.condense();
                }
            }
        }
    }

    fn add_many(&mut self, cell: u16, count: u64) {
        match self {
            Self::Sparse(cells) if cells.len() as u64 + count < DENSE_FROM as u64 => {
                cells.extend(std::iter::repeat_n(cell, count as usize));
            }
            Self::Sparse(_) => {
                self.condense();
                self.add_many(cell, count);
            }
            Self::Narrow(counts) => {
                let sum = u64::from(counts[usize::from(cell) % PAGE]) + count;
                match u8::try_from(sum) {
                    Ok(sum) => counts[usize::from(cell) % PAGE] = sum,
                    Err(_) => self.widened()[usize::from(cell) % PAGE] = sum,
                }
            }
            Self::Dense(counts) => counts[usize::from(cell) % PAGE] += count,
        }
    }

    /// Makes counters of a list.
    #[cold]
    fn condense(&mut self) {
        if let Self::Sparse(cells) = std::mem::replace(self, Self::Narrow(Box::new([0; PAGE]))) {
            cells.into_iter().for_each(|cell| self.add(cell));
        }
    }

    /// Makes room for counts of any size.
    #[cold]
    fn widened(&mut self) -> &mut [u64; PAGE] {
        if let Self::Narrow(counts) = self {
            let wide: Vec<u64> = counts.iter().map(|&count| count.into()).collect();
            *self = Self::Dense(wide.try_into().expect("as many"));
        }
        match self {
            Self::Dense(counts) => counts,
            _ => unreachable!("only narrow counters are widened"),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Sparse(cells) => cells.capacity() * size_of::<u16>(),
            Self::Narrow(_) => PAGE,
            Self::Dense(_) => PAGE * size_of::<u64>(),
        }
    }

    /// Calls `each(cell, count)` in ascending order of cells.
    fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        match self {
            Self::Dense(counts) => {
                for (cell, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    each(cell as u64, count);
                }
            }
            Self::Narrow(counts) => {
                for (cell, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    each(cell as u64, count.into());
                }
            }
            Self::Sparse(cells) => {
                let mut sorted = cells.clone();
                sorted.sort_unstable();
                for run in sorted.chunk_by(|a, b| a == b) {
                    each(u64::from(run[0]), run.len() as u64);
                }
            }
        }
    }
}

/// Counts of values in nanoseconds, exact at 1 ns.
#[derive(Clone, Debug)]
pub struct Histogram {
    low: Vec<Page>,
    high: BTreeMap<u64, Page>,
    /// Values above this are counted by their steps.
    exact_to: u64,
    steps: BTreeMap<u64, u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            low: vec![Page::default(); LOW_PAGES],
            high: BTreeMap::new(),
            exact_to: u64::MAX,
            steps: BTreeMap::new(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    // Always: whether the compiler inlines it by itself has changed with code elsewhere.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        self.note(ns, 1);
        if ns > self.exact_to {
            return self.add_step(ns, 1);
        }
        let (page, cell) = self.find(ns);
        page.add(cell);
    }

    /// Counts each of some values.
    pub fn record_all(&mut self, values: &[u64]) {
        let max = values.iter().copied().fold(0, u64::max);
        if max > self.exact_to {
            return values.iter().for_each(|ns| self.record(*ns));
        }
        let min = values.iter().copied().fold(u64::MAX, u64::min);
        self.count += values.len() as u64;
        self.sum += values.iter().map(|ns| u128::from(*ns)).sum::<u128>();
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
        if max >> PAGE_BITS == min >> PAGE_BITS {
            if let Page::Dense(counts) = self.find(max).0 {
                return values.iter().for_each(|ns| counts[*ns as usize % PAGE] += 1);
            }
        }
        for &ns in values {
            let (page, cell) = self.find(ns);
            page.add(cell);
        }
    }

    /// Counts a value `count` times.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if count > 0 {
            self.note(ns, count);
            self.count_many(ns, count);
        }
    }

    fn count_many(&mut self, ns: u64, count: u64) {
        if ns > self.exact_to {
            return self.add_step(ns, count);
        }
        let (page, cell) = self.find(ns);
        page.add_many(cell, count);
    }

    #[cold]
    fn add_step(&mut self, ns: u64, count: u64) {
        *self.steps.entry(step(ns)).or_default() += count;
    }

    /// Counts values above [`EXACT_TO`] by steps from now on, if it takes more memory than this.
    pub fn bound(&mut self, most_bytes: usize) {
        let pages = self.low.iter().chain(self.high.values());
        if self.is_exact() && pages.map(Page::memory_bytes).sum::<usize>() > most_bytes {
            self.step_above(EXACT_TO);
        }
    }

    /// Returns true if each value is counted as itself.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact_to == u64::MAX
    }

    fn step_above(&mut self, exact_to: u64) {
        let all = std::mem::replace(self, Self { exact_to, ..Self::default() });
        all.for_each(|ns, count| self.count_many(ns, count));
        let Self { count, sum, min, max, .. } = all;
        *self = Self { count, sum, min, max, ..std::mem::take(self) };
    }

    /// Returns what its values do not tell, as they are counted by steps: above which value, the least and the highest
    /// one, and their sum; `None` of an exact one.
    pub(crate) fn bounded(&self) -> Option<(u64, [u64; 2], u128)> {
        (!self.is_exact()).then_some((self.exact_to, [self.min, self.max], self.sum))
    }

    /// Returns an empty one that counts values above this by steps.
    pub(crate) fn stepped_above(exact_to: u64) -> Self {
        Self { exact_to, ..Self::default() }
    }

    /// Learns what its values do not tell; false if they contradict it.
    pub(crate) fn learn(&mut self, [min, max]: [u64; 2], sum: u128) -> bool {
        let tells = |value: u64| if value > self.exact_to { step(value) } else { value };
        let holds = [tells(min), tells(max)] == [self.min, self.max];
        let sums = self.sum..=u128::from(max) * u128::from(self.count);
        (self.min, self.max, self.sum) = (min, max, sum);
        holds && sums.contains(&sum)
    }

    /// Counts all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        let sum = self.count + other.count;
        if other.exact_to < self.exact_to {
            self.step_above(other.exact_to);
        }
        let (total, [min, max]) =
            (self.sum + other.sum, [self.min.min(other.min), self.max.max(other.max)]);
        other.for_each(|ns, count| self.record_many(ns, count));
        assert_eq!(self.count, sum, "the cells hold every value");
        (self.sum, self.min, self.max) = (total, min, max);
    }

    #[inline]
    fn note(&mut self, ns: u64, count: u64) {
        self.count += count;
        self.sum += u128::from(ns) * u128::from(count);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    #[inline]
    fn find(&mut self, ns: u64) -> (&mut Page, u16) {
        let page = ns >> PAGE_BITS;
        let cell = (ns % PAGE as u64) as u16;
        let page = match self.low.get_mut(page as usize) {
            Some(page) => page,
            None => self.high.entry(page).or_default(),
        };
        (page, cell)
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the smallest value; `None` without values.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the largest value; `None` without values.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the arithmetic mean; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Calls `each(value, count)` for every value that occurred, in ascending order.
    pub fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        let low = self.low.iter().enumerate().map(|(index, page)| (index as u64, page));
        for (index, page) in low.chain(self.high.iter().map(|(index, page)| (*index, page))) {
            page.for_each(|cell, count| each((index << PAGE_BITS) | cell, count));
        }
        self.steps.iter().for_each(|(ns, count)| each(*ns, *count));
    }

    /// Returns the values at `ranks` (1 is the smallest value, [`count`](Self::count) the largest),
    /// which must ascend, in one pass.
    ///
    /// # Panics
    /// When the ranks do not ascend or lie outside of `1..=count`.
    #[must_use]
    pub fn values_at(&self, ranks: &[u64]) -> Vec<u64> {
        assert!(ranks.is_sorted(), "ranks must ascend");
        assert!(ranks.iter().all(|rank| (1..=self.count).contains(rank)), "no such rank");
        let mut values = Vec::with_capacity(ranks.len());
        let mut seen = 0;
        self.for_each(|value, count| {
            seen += count;
            while ranks.get(values.len()).is_some_and(|&rank| rank <= seen) {
                values.push(value);
            }
        });
        assert_eq!(seen, self.count, "the cells hold every value");
        values
    }

    /// Returns non-empty buckets of `width` ns as (lower bound, count), in ascending order.
    ///
    /// # Panics
    /// When `width` is 0.
    #[must_use]
    pub fn buckets(&self, width: u64) -> Vec<(u64, u64)> {
        assert!(width > 0, "a bucket has a width");
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        self.for_each(|value, count| {
            let start = value - value % width;
            match buckets.last_mut() {
                Some((last, sum)) if *last == start => *sum += count,
                _ => buckets.push((start, count)),
            }
        });
        let sum: u64 = buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, self.count, "the buckets hold every value");
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&ns| histogram.record(ns));
        histogram
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        let one =
            prop_oneof![0..20_000u64, 0..200_000_000u64, any::<u64>(), Just(4095), Just(4096)];
        prop::collection::vec(one, 1..400)
    }

    proptest! {
        #[test]
        fn ranks_equal_sorting(values in values()) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let ranks: Vec<u64> = (1..=values.len() as u64).collect();
            let histogram = filled(&values);
            prop_assert_eq!(histogram.values_at(&ranks), sorted.clone());
            prop_assert_eq!(histogram.min(), sorted.first().copied());
            prop_assert_eq!(histogram.max(), sorted.last().copied());
        }

        #[test]
        fn added_histograms_are_one(values in values(), times in 1..5000u64, at in 0..400usize) {
            let (some, others) = values.split_at(at.min(values.len()));
            let (mut whole, mut added, mut other) = (filled(&values), filled(some), filled(others));
            other.record_many(values[0], times);
            added.add(&other);
            (0..times).for_each(|_| whole.record(values[0]));
            let all = |histogram: &Histogram| histogram.buckets(1);
            prop_assert_eq!(all(&added), all(&whole));
            let figures = |of: &Histogram| (of.count(), of.min(), of.max(), of.mean());
            prop_assert_eq!(figures(&added), figures(&whole));
        }

        #[test]
        fn buckets_hold_every_value(values in values(), width in 1..5000u64) {
            let mut expected = BTreeMap::new();
            for value in &values {
                *expected.entry(value / width * width).or_insert(0) += 1;
            }
            prop_assert_eq!(filled(&values).buckets(width), Vec::from_iter(expected));
        }
    }

    #[test]
    fn a_page_that_becomes_dense_keeps_its_counts() {
        let values: Vec<u64> =
            (0..3 * DENSE_FROM as u64).map(|i| 50_000_000 + i * i % 4000).collect();
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let ranks: Vec<u64> = (1..=values.len() as u64).collect();
        assert_eq!(filled(&values).values_at(&ranks), sorted);
    }

    #[test]
    fn a_counter_that_is_full_becomes_a_long_one() {
        for more in [1, 2, u64::from(u8::MAX), 1 << 40] {
            let mut histogram = filled(&Vec::from_iter(0..PAGE as u64));
            histogram.record_many(7, u64::from(u8::MAX) - 1);
            histogram.record_many(8, more);
            histogram.record(7);
            let counts: Vec<u64> =
                histogram.buckets(1).into_iter().map(|(_, count)| count).collect();
            assert_eq!(counts[6..10], [1, u64::from(u8::MAX) + 1, 1 + more, 1]);
        }
    }

    #[test]
    fn one_that_is_bounded_keeps_its_figures_to_a_two_thousandth() {
        let values: Vec<u64> = (0..400_000_u64).map(|i| i * i % 80_000_003).collect();
        let exact = filled(&values);
        let mut bounded = Histogram::default();
        for part in values.chunks(20_000) {
            part.iter().for_each(|ns| bounded.record(*ns));
            bounded.bound(1 << 20);
        }
        assert!(exact.is_exact() && !bounded.is_exact());
        assert!(bounded.steps.len() < 20_000);
        let figures = |of: &Histogram| (of.count(), of.min(), of.max(), of.mean());
        assert_eq!(figures(&bounded), figures(&exact));
        let ranks: Vec<u64> = (1..=values.len() as u64).step_by(97).collect();
        for (told, is) in bounded.values_at(&ranks).into_iter().zip(exact.values_at(&ranks)) {
            let most = if is > EXACT_TO { is / 2048 } else { 0 };
            assert!(told <= is && is - told <= most, "{told} for {is}");
        }
        let mut added = exact.clone();
        added.add(&bounded);
        assert_eq!((added.exact_to, added.count(), added.max()), (EXACT_TO, 800_000, exact.max()));
    }

    #[test]
    fn nothing_counted_has_no_figures() {
        let empty = Histogram::default();
        assert_eq!((empty.min(), empty.max(), empty.mean()), (None, None, None));
        assert_eq!(empty.buckets(100), []);
    }
}
