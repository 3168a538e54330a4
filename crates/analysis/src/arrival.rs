//! Reordering (RFC 4737): matches arrive in order of pre, this puts them in order of arrival.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::matcher::Match;

/// When a packet arrived, then its place in post, then its place in pre.
type Arrival = (u64, u64, u64);

/// Counts packets that an earlier arrival had overtaken.
///
/// Type-P-Reordered of RFC 4737 §3.3: a packet is reordered if a packet sent after it arrived before
/// it. Matches that come in order of arrival, nearly all, wait in a plain queue; the others in a heap.
#[derive(Debug, Default)]
pub(crate) struct Reordering {
    in_order: VecDeque<Arrival>,
    overtaken: BinaryHeap<Reverse<Arrival>>,
    next_expected: u64,
    reordered: u64,
}

impl Reordering {
    #[inline]
    pub fn push(&mut self, found: &Match) {
        let arrival = (found.pre_ns + found.latency_ns, found.post_index, found.pre_index);
        if self.in_order.back().is_none_or(|last| *last < arrival) {
            self.in_order.push_back(arrival);
        } else {
            self.overtaken.push(Reverse(arrival));
        }
    }

    /// Counts the arrivals up to `settled_ns`: no match that is still to come arrived before that.
    pub fn settle(&mut self, settled_ns: u64) {
        while let Some((_, _, pre_index)) = self.pop_until(settled_ns) {
            self.reordered += u64::from(pre_index < self.next_expected);
            self.next_expected = self.next_expected.max(pre_index + 1);
        }
    }

    /// Everything arrived: the number of reordered packets.
    pub fn finish(mut self) -> u64 {
        self.settle(u64::MAX);
        self.reordered
    }

    #[inline]
    fn pop_until(&mut self, settled_ns: u64) -> Option<Arrival> {
        let first = self.in_order.front().copied();
        let overtaken = self.overtaken.peek().map(|Reverse(arrival)| *arrival);
        let (next, from_heap) = match (first, overtaken) {
            (Some(a), Some(b)) if b < a => (b, true),
            (Some(a), _) => (a, false),
            (None, Some(b)) => (b, true),
            (None, None) => return None,
        };
        if next.0 > settled_ns {
            return None;
        }
        if from_heap {
            self.overtaken.pop();
        } else {
            self.in_order.pop_front();
        }
        Some(next)
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
                    pre_index: i,
                    post_index: 1000 - i,
                    pre_ns: 5 * i,
                    latency_ns,
                    tag: 0,
                })
                .collect();
            let arrival = |m: &Match| (m.pre_ns + m.latency_ns, m.post_index);
            let overtaken = |a: &&Match| {
                matches.iter().any(|b| b.pre_index > a.pre_index && arrival(b) < arrival(a))
            };
            let mut reordering = Reordering::default();
            for found in &matches {
                reordering.settle(found.pre_ns);
                reordering.push(found);
            }
            prop_assert_eq!(reordering.finish(), matches.iter().filter(overtaken).count() as u64);
        }
    }
}
