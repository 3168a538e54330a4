//! How much of the time up to many moments a list of intervals covers.

/// Intervals in order of time, none of which overlaps another.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    start: Vec<i64>,
    end: Vec<i64>,
    /// What all intervals before each one cover; of one more than there are, too.
    before: Vec<i64>,
}

impl Coverage {
    /// Takes the intervals that begin and end at these times; `None` if one has no end.
    #[must_use]
    pub fn new(start: Vec<i64>, end: Vec<i64>) -> Option<Self> {
        let mut before = vec![0];
        before.extend(start.iter().zip(&end).scan(0, |sum, (start, end)| {
            *sum += end - start;
            Some(*sum)
        }));
        (start.len() == end.len()).then_some(Self { start, end, before })
    }

    /// Returns what is covered before each moment. Moments that ascend, mostly, take the least time.
    #[must_use]
    pub fn until(&self, moments: &[i64]) -> Vec<i64> {
        let mut begun = 0;
        let covered = moments.iter().map(|&moment| {
            begun = self.begun_before(moment, begun);
            let rest = begun.checked_sub(1).map_or(0, |last| (self.end[last] - moment).max(0));
            self.before[begun] - rest
        });
        covered.collect()
    }

    /// Returns how many intervals begin before a moment; `near` is how many that may be, roughly.
    #[inline]
    fn begun_before(&self, moment: i64, near: usize) -> usize {
        let (earlier, later) = self.start.split_at(near);
        if earlier.last().is_some_and(|&start| start >= moment) {
            return earlier.partition_point(|&start| start < moment);
        }
        let mut most = 1;
        while later.get(most - 1).is_some_and(|&start| start < moment) {
            most *= 2;
        }
        let least = most / 2;
        let rest = &later[least..later.len().min(most)];
        near + least + rest.partition_point(|&start| start < moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_covers_what_each_interval_does(
            gaps in prop::collection::vec((0..50_i64, 0..20_i64), 0..40),
            moments in prop::collection::vec(-10..1500_i64, 0..60),
        ) {
            let (mut at, mut start, mut end) = (0, vec![], vec![]);
            for (gap, lasts) in gaps {
                start.push(at + gap);
                at += gap + lasts;
                end.push(at);
            }
            let of = |moment: i64| -> i64 {
                start.iter().zip(&end).map(|(s, e)| (*e.min(&moment) - s).max(0)).sum()
            };
            let expected: Vec<i64> = moments.iter().map(|&moment| of(moment)).collect();
            let coverage = Coverage::new(start.clone(), end.clone()).unwrap();
            prop_assert_eq!(coverage.until(&moments), expected);
        }
    }

    #[test]
    fn each_interval_has_an_end() {
        assert!(Coverage::new(vec![1, 2], vec![2]).is_none());
    }
}
