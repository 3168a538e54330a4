//! Times at which the clock of a capture is in doubt: packets that it stamped then have no latency.

use crate::basis::Skew;

/// Times in ns at which the clock of the capture before, and of that behind the device, is in doubt, as
/// that clock says them: each from the first to the last, apart, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts([Vec<(u64, u64)>; 2]);

impl Doubts {
    /// Takes intervals of each side, in whatever order; they may overlap.
    #[must_use]
    pub fn new(sides: [Vec<(u64, u64)>; 2]) -> Self {
        Self(sides.map(merged))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Returns the same if `skew` is taken out of the times behind the device.
    pub(crate) fn undone(&self, skew: Skew) -> Self {
        let [pre, post] = &self.0;
        let undone = post.iter().map(|(from, to)| (skew.undo(*from), skew.undo(*to)));
        Self([pre.clone(), merged(undone.collect())])
    }

    /// Returns true if one of the times of a packet, before and behind the device, is in doubt.
    #[inline]
    pub(crate) fn concern(&self, pre_ns: u64, post_ns: u64) -> bool {
        let [pre, post] = &self.0;
        (!pre.is_empty() && holds(pre, pre_ns)) || (!post.is_empty() && holds(post, post_ns))
    }
}

fn merged(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::new();
    for (from, to) in intervals {
        match apart.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => apart.push((from, to)),
        }
    }
    apart
}

fn holds(intervals: &[(u64, u64)], ns: u64) -> bool {
    let behind = intervals.partition_point(|(from, _)| *from <= ns);
    behind > 0 && ns <= intervals[behind - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_in_doubt_if_an_interval_holds_it(
            pre in prop::collection::vec((0..200_u64, 0..30_u64), 0..12),
            post in prop::collection::vec((0..200_u64, 0..30_u64), 0..12),
            asked in prop::collection::vec((0..260_u64, 0..260_u64), 1..40),
        ) {
            let ends = |side: &[(u64, u64)]| side.iter().map(|(at, lasts)| (*at, at + lasts)).collect();
            let (pre, post): (Vec<_>, Vec<_>) = (ends(&pre), ends(&post));
            let doubts = Doubts::new([pre.clone(), post.clone()]);
            let any = |side: &[(u64, u64)], ns: u64| side.iter().any(|(from, to)| (*from..=*to).contains(&ns));
            for (sent, seen) in asked {
                prop_assert_eq!(doubts.concern(sent, seen), any(&pre, sent) || any(&post, seen));
            }
        }
    }

    #[test]
    fn times_behind_the_device_follow_the_skew() {
        let skew = Skew { offset_ns: 100, ..Skew::NONE };
        let doubts = Doubts::new([vec![(5, 6)], vec![(200, 300)]]).undone(skew);
        assert!(doubts.concern(0, 100) && doubts.concern(0, 200) && doubts.concern(5, 0));
        assert!(!doubts.concern(0, 99) && !doubts.concern(0, 201));
    }
}
