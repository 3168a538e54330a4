//! Reordering (RFC 4737), counted in order of pre.

use std::collections::VecDeque;

use crate::matcher::Match;

/// The time at which a packet arrived, then its place in post.
type Arrival = (u64, u64);

#[inline]
fn arrival(found: &Match) -> Arrival {
    (found.pre_ns + found.latency_ns, found.post_seq)
}

/// Counts packets that an earlier arrival had overtaken.
///
/// Type-P-Reordered of RFC 4737 §3.3: a packet is reordered if a packet sent after it arrived before
/// it. So the next packet sent makes all those reordered that arrived after it; what it leaves is in
/// order of arrival again, and each packet is looked at once.
#[derive(Debug, Default)]
pub(crate) struct Reordering {
    in_order: VecDeque<Arrival>,
    reordered: u64,
}

impl Reordering {
    /// Adds the next matches in order of pre.
    pub fn push_all(&mut self, matches: &[Match]) {
        if self.arrive_last(matches) {
            self.push_ordered(matches);
        } else {
            matches.iter().for_each(|found| self.push(found));
        }
    }

    /// Returns true if these arrived one behind the other, and behind all before.
    fn arrive_last(&self, matches: &[Match]) -> bool {
        let follow = matches.windows(2).all(|two| arrival(&two[0]) <= arrival(&two[1]));
        let first = matches.first().map(arrival);
        follow && self.in_order.back().is_none_or(|last| first.is_some_and(|first| *last <= first))
    }

    fn push_ordered(&mut self, matches: &[Match]) {
        let Some(last) = matches.last() else { return };
        while self.in_order.front().is_some_and(|first| first.0 < last.pre_ns) {
            self.in_order.pop_front();
        }
        let under_way = matches.iter().map(arrival).filter(|arrival| arrival.0 >= last.pre_ns);
        self.in_order.extend(under_way);
    }

    /// Adds the next match in order of pre.
    #[inline]
    pub fn push(&mut self, found: &Match) {
        let arrival = arrival(found);
        while self.in_order.back().is_some_and(|last| *last > arrival) {
            self.in_order.pop_back();
            self.reordered += 1;
        }
        // No packet that is still to come can arrive before it was sent.
        while self.in_order.front().is_some_and(|first| first.0 < found.pre_ns) {
            self.in_order.pop_front();
        }
        self.in_order.push_back(arrival);
    }

    /// Forgets what overtook until here, which is counted elsewhere.
    pub fn forget(&mut self) {
        self.reordered = 0;
    }

    /// Returns the packets that had been overtaken so far.
    pub fn count(&self) -> u64 {
        self.reordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_counts_packets_with_an_overtaker(latencies in prop::collection::vec(1..40u64, 0..120)) {
            let matches: Vec<Match> = (0u64..)
                .zip(&latencies)
                .map(|(i, &latency_ns)| Match {
                    seq: i,
                    post_seq: 1000 - i,
                    pre_ns: 5 * i,
                    latency_ns,
                    tag: 0,
                })
                .collect();
            let arrival = |m: &Match| (m.pre_ns + m.latency_ns, m.post_seq);
            let overtaken = |a: &&Match| {
                matches.iter().any(|b| b.seq > a.seq && arrival(b) < arrival(a))
            };
            let mut reordering = Reordering::default();
            matches.iter().for_each(|found| reordering.push(found));
            prop_assert_eq!(reordering.count(), matches.iter().filter(overtaken).count() as u64);
            prop_assert!(reordering.in_order.len() <= 9, "bounded by latency and rate");
            for at_once in [1, 2, 5, 120] {
                let mut batches = Reordering::default();
                matches.chunks(at_once).for_each(|some| batches.push_all(some));
                prop_assert_eq!(batches.count(), reordering.count());
                prop_assert_eq!(&batches.in_order, &reordering.in_order);
            }
        }
    }
}
