//! The packets with the highest latencies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::matcher::Match;

/// A packet among the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worst {
    /// When it was seen before the device, in ns.
    pub pre_ns: u64,
    /// How much later it was seen behind it, in ns.
    pub latency_ns: u64,
    /// Place of the packet in pre, in order of time.
    pub pre_index: u64,
    pub(crate) tag: u64,
}

/// Latency ascending, then `pre_ns` and `pre_index` descending: the best of the worst is smallest.
type Rank = (u64, Reverse<u64>, Reverse<u64>);

/// Keeps the `capacity` packets of the highest latency; of equal ones the earlier.
#[derive(Debug)]
pub(crate) struct WorstPackets {
    capacity: usize,
    heap: BinaryHeap<Reverse<(Rank, u64)>>,
}

impl WorstPackets {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, heap: BinaryHeap::new() }
    }

    #[inline]
    pub fn push(&mut self, found: &Match) {
        if self.heap.len() < self.capacity {
            self.heap.push(Reverse((rank(found), found.tag)));
            return;
        }
        if let Some(mut best) = self.heap.peek_mut() {
            // Matches come in order of pre, so an equal latency is a later packet.
            if found.latency_ns > best.0.0.0 {
                *best = Reverse((rank(found), found.tag));
            }
        }
    }

    /// Latency descending, then in order of pre.
    pub fn finish(self) -> Vec<Worst> {
        let ranked = self.heap.into_sorted_vec().into_iter();
        ranked
            .map(|Reverse(((latency_ns, Reverse(pre_ns), Reverse(pre_index)), tag))| Worst {
                pre_ns,
                latency_ns,
                pre_index,
                tag,
            })
            .collect()
    }
}

fn rank(found: &Match) -> Rank {
    (found.latency_ns, Reverse(found.pre_ns), Reverse(found.pre_index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_head_of_a_sort(latencies in prop::collection::vec(1..50u64, 0..200), n in 0..60usize) {
            let mut worst = WorstPackets::new(n);
            for (pre_index, &latency_ns) in (0u64..).zip(&latencies) {
                let pre_ns = pre_index / 3;
                worst.push(&Match { pre_index, post_index: 0, pre_ns, latency_ns, tag: pre_index });
            }
            let mut sorted: Vec<(u64, u64)> = (0u64..).zip(latencies).collect();
            sorted.sort_by_key(|&(index, latency)| (Reverse(latency), index));
            sorted.truncate(n);
            let found: Vec<_> =
                worst.finish().into_iter().map(|w| (w.pre_index, w.latency_ns)).collect();
            prop_assert_eq!(found, sorted);
        }
    }
}
