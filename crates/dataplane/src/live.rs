//! Latency while it is being measured, for the progress line: buckets of at most 3 % width. The exact
//! figures come from what was recorded.

use crate::counters::Count;

const SUB_BITS: u32 = 5;
const BUCKETS: usize = (64 - SUB_BITS as usize) << SUB_BITS;

/// A histogram in logarithmic buckets that one thread fills and others read.
#[derive(Debug)]
pub struct Live {
    buckets: Box<[Count]>,
    max: Count,
    sum: Count,
}

impl Live {
    /// An empty one.
    pub fn new() -> Self {
        let buckets = (0..BUCKETS + (1 << SUB_BITS)).map(|_| Count::default()).collect();
        Self { buckets, max: Count::default(), sum: Count::default() }
    }

    /// Counts one value.
    #[inline(always)]
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value)].add(1);
        self.sum.set(self.sum.get().wrapping_add(value));
        if value > self.max.get() {
            self.max.set(value);
        }
    }

    /// The sum of all values; it wraps around.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// The buckets with values, ascending: the lower edge, and the number of values.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.buckets.iter().map(Count::get).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(at, count)| (lower_edge(at), count))
    }

    /// The largest value, and the lower edges of the buckets of these quantiles; `None` while empty.
    pub fn quantiles<const N: usize>(&self, qs: [f64; N]) -> Option<([u64; N], u64)> {
        let counts: Vec<u64> = self.buckets.iter().map(Count::get).collect();
        let total: u64 = counts.iter().sum();
        let quantile = |q: f64| {
            let rank = ((q * total as f64).ceil() as u64).max(1);
            let mut below = 0;
            let found = counts.iter().position(|count| {
                below += count;
                below >= rank
            });
            lower_edge(found.unwrap_or(counts.len() - 1))
        };
        (total > 0).then(|| (qs.map(quantile), self.max.get()))
    }
}

#[inline(always)]
fn bucket(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

fn lower_edge(bucket: usize) -> u64 {
    if bucket < 2 << SUB_BITS {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    ((bucket & ((1 << SUB_BITS) - 1)) as u64 + (1 << SUB_BITS)) << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_is_within_three_percent(value: u64) {
            let edge = lower_edge(bucket(value));
            prop_assert!(edge <= value && value - edge <= value / 32);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_buckets() {
        let live = Live::new();
        assert_eq!(live.quantiles([0.5]), None);
        (1..=1000).for_each(|value| live.record(value));
        let ([median, most], max) = live.quantiles([0.5, 0.999]).unwrap();
        assert!((480..=500).contains(&median) && (960..=999).contains(&most) && max == 1000);
        assert_eq!((live.sum(), live.filled().map(|(_, count)| count).sum()), (500_500, 1000));
        assert_eq!(live.filled().take(2).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
        live.record(u64::MAX);
        assert_eq!(live.quantiles([1.0]).unwrap().1, u64::MAX);
    }
}
