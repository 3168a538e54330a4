//! The packets with the highest latencies.

use std::cmp::Reverse;

use crate::matcher::Match;

/// A packet among the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worst {
    /// Time at which it was seen before the device, in ns.
    pub pre_ns: u64,
    /// Time until it was seen behind it, in ns.
    pub latency_ns: u64,
    /// Place of the packet in pre, in order of time.
    pub seq: u64,
    pub(crate) tag: u64,
    /// The number of its flow and size; `None` where flows are not told apart.
    pub(crate) variety: Option<u32>,
}

/// Keeps the `capacity` packets of the highest latency; of equal ones the earlier.
///
/// Candidates gather in a list of twice the capacity; when it is full, the better half goes and
/// nothing below the rest is taken any more.
#[derive(Debug)]
pub(crate) struct WorstPackets {
    capacity: usize,
    candidates: Vec<Worst>,
    /// Least latency of what is taken, in ns.
    least_ns: u64,
}

impl WorstPackets {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, candidates: Vec::new(), least_ns: 0 }
    }

    /// Adds the next match in order of pre.
    #[inline]
    pub fn push(&mut self, found: &Match, variety: impl FnOnce() -> Option<u32>) {
        // Matches come in order of pre, so one of the least latency kept so far comes too late.
        if found.latency_ns < self.least_ns {
            return;
        }
        let &Match { seq, pre_ns, latency_ns, tag, .. } = found;
        self.candidates.push(Worst { pre_ns, latency_ns, seq, tag, variety: variety() });
        if self.candidates.len() >= (2 * self.capacity).max(1) {
            self.select();
        }
    }

    /// Adds the next matches in order of pre.
    pub fn push_all(&mut self, matches: &[Match], variety: impl Fn(&Match) -> Option<u32>) {
        let longest_ns = matches.iter().map(|found| found.latency_ns).fold(0, u64::max);
        if longest_ns >= self.least_ns {
            matches.iter().for_each(|found| self.push(found, || variety(found)));
        }
    }

    #[cold]
    fn select(&mut self) {
        if self.capacity == 0 {
            self.least_ns = u64::MAX;
        } else {
            let (_, last, _) = self.candidates.select_nth_unstable_by_key(self.capacity - 1, order);
            self.least_ns = last.latency_ns + 1;
        }
        self.candidates.truncate(self.capacity);
    }

    pub fn finish(self) -> Vec<Worst> {
        worst_of(self.candidates, self.capacity)
    }
}

/// Returns the worst of `packets`: latency descending, then in order of pre.
pub(crate) fn worst_of(mut packets: Vec<Worst>, capacity: usize) -> Vec<Worst> {
    packets.sort_unstable_by_key(order);
    packets.truncate(capacity);
    packets
}

fn order(packet: &Worst) -> (Reverse<u64>, u64, u64) {
    (Reverse(packet.latency_ns), packet.pre_ns, packet.seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_head_of_a_sort(latencies in prop::collection::vec(0..50u64, 0..200), n in 0..60usize) {
            let mut worst = WorstPackets::new(n);
            for (seq, &latency_ns) in (0u64..).zip(&latencies) {
                let pre_ns = seq / 3;
                worst.push(&Match { seq, post_seq: 0, pre_ns, latency_ns, tag: seq }, || None);
            }
            let mut sorted: Vec<(u64, u64)> = (0u64..).zip(latencies).collect();
            sorted.sort_by_key(|&(index, latency)| (Reverse(latency), index));
            sorted.truncate(n);
            let found: Vec<_> =
                worst.finish().into_iter().map(|w| (w.seq, w.latency_ns)).collect();
            prop_assert_eq!(found, sorted);
        }
    }
}
