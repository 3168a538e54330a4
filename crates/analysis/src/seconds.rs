//! What became of packets, second by second.

use std::collections::{BTreeMap, VecDeque};

use crate::ledger::Ledger;
use crate::matcher::{Fate, Match};
use crate::quantile::rank;

const SECOND_NS: u64 = 1_000_000_000;
/// Flows of lost packets that a second names.
const NAMED_FLOWS: usize = 8;
/// Seconds without packets that are told at most: the clock was set where there are more.
const MOST_IDLE: u64 = 60;

/// What became of the packets that were sent in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Its begin since 1970, in ns.
    pub start_ns: u64,
    /// Latency of each match, in ns, in ascending order.
    pub latencies_ns: Vec<u64>,
    /// Packets that did not come out within the window.
    pub lost: u64,
    /// Of those that were lost in seconds before, packets that came out behind their window.
    pub late: u64,
    /// Packets that nobody can judge, because the listener missed some when they should have come out.
    pub unresolved: u64,
    /// Packets that could be one of several that came out.
    pub ambiguous: u64,
    /// Packets that the listener itself missed in this second: before the device, and behind it.
    pub missed: [u64; 2],
    /// The flows of most lost packets, with their numbers.
    pub lost_flows: Vec<(String, u64)>,
    /// The match of the highest latency.
    pub worst: Option<Match>,
}

impl Second {
    /// Returns a quantile of the latency, in ns; `None` without a match.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count = self.latencies_ns.len() as u64;
        (count > 0).then(|| self.latencies_ns[rank(q, count) as usize - 1])
    }

    /// Returns the number of matches that took as long, or longer.
    #[must_use]
    pub fn at_least(&self, ns: u64) -> u64 {
        (self.latencies_ns.len() - self.latencies_ns.partition_point(|latency| *latency < ns))
            as u64
    }

    /// Returns the number of packets that were sent, whatever became of them.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.latencies_ns.len() as u64 + self.lost + self.unresolved + self.ambiguous
    }
}

/// Seconds of which not everything is decided.
#[derive(Debug, Default)]
pub(crate) struct Seconds {
    open: BTreeMap<u64, Open>,
    /// The first second that was not told.
    next_ns: Option<u64>,
    late: u64,
    /// Side, time and number of packets that the listener missed, in order of time.
    missed: VecDeque<(usize, u64, u64)>,
}

#[derive(Debug, Default)]
struct Open {
    second: Second,
    lost: BTreeMap<u32, u64>,
}

impl Seconds {
    /// Begins at a time.
    pub fn since(ts: u64) -> Self {
        Self { next_ns: Some(ts - ts % SECOND_NS), ..Self::default() }
    }

    /// Learns that the listener has missed packets of a side by a time.
    pub fn miss(&mut self, side: usize, at_ns: u64, packets: u64) {
        let place = self.missed.partition_point(|(_, at, _)| *at <= at_ns);
        self.missed.insert(place, (side, at_ns, packets));
    }

    fn at(&mut self, ts: u64) -> &mut Open {
        self.open.entry(ts - ts % SECOND_NS).or_default()
    }

    /// Takes what was decided, while the ledger knows the packets.
    pub fn take(&mut self, matches: &[Match], fates: &[Fate], ledger: &Ledger) {
        for of_second in matches.chunk_by(|a, b| a.pre_ns / SECOND_NS == b.pre_ns / SECOND_NS) {
            let Open { second, .. } = self.at(of_second[0].pre_ns);
            second.latencies_ns.extend(of_second.iter().map(|found| found.latency_ns));
            let worst = of_second.iter().chain(&second.worst).copied();
            second.worst = worst.max_by_key(|found| (found.latency_ns, u64::MAX - found.pre_ns));
        }
        for fate in fates {
            match *fate {
                Fate::Lost { seq, pre_ns } => {
                    let open = self.at(pre_ns);
                    open.second.lost += 1;
                    if let Some(variety) = ledger.variety(seq) {
                        *open.lost.entry(ledger.variety_of(variety).flow).or_default() += 1;
                    }
                }
                Fate::Outside { pre_ns, .. } => self.at(pre_ns).second.unresolved += 1,
                Fate::Ambiguous { pre_ns, .. } => self.at(pre_ns).second.ambiguous += 1,
                Fate::Late { .. } => self.late += 1,
                Fate::Negative { .. } => {}
            }
        }
    }

    /// Takes the seconds that ended by a time; in the end, all that there are.
    pub fn close(&mut self, until_ns: Option<u64>, ledger: &Ledger) -> Vec<Second> {
        let mut closed = Vec::new();
        let last = self.open.keys().next_back().map_or(0, |last| last + SECOND_NS);
        let until_ns = until_ns.unwrap_or(last);
        let Some(mut start_ns) = self.next_ns else { return closed };
        let next_ns = self.open.keys().next().map_or(until_ns, |next| until_ns.min(*next));
        if next_ns.saturating_sub(start_ns) > MOST_IDLE * SECOND_NS {
            start_ns = next_ns - next_ns % SECOND_NS;
        }
        while start_ns + SECOND_NS <= until_ns {
            let Open { mut second, lost } = self.open.remove(&start_ns).unwrap_or_default();
            second.start_ns = start_ns;
            start_ns += SECOND_NS;
            second.latencies_ns.sort_unstable();
            second.late = std::mem::take(&mut self.late);
            let named = lost.into_iter().map(|(flow, lost)| (ledger.flow_name(flow), lost));
            second.lost_flows = named.collect();
            second.lost_flows.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
            second.lost_flows.truncate(NAMED_FLOWS);
            while let Some(&(side, _, packets)) =
                self.missed.front().filter(|(_, at, _)| *at < start_ns)
            {
                second.missed[side] += packets;
                self.missed.pop_front();
            }
            closed.push(second);
        }
        self.next_ns = Some(start_ns);
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 100 * SECOND_NS;

    fn starts(seconds: &[Second]) -> Vec<u64> {
        seconds.iter().map(|second| second.start_ns / SECOND_NS).collect()
    }

    #[test]
    fn seconds_without_packets_are_told_unless_the_clock_was_set() {
        let (mut seconds, ledger) = (Seconds::since(BEGIN + 5), Ledger::default());
        assert_eq!(starts(&seconds.close(Some(BEGIN + 3 * SECOND_NS), &ledger)), [100, 101, 102]);
        assert_eq!(starts(&seconds.close(Some(BEGIN + 3 * SECOND_NS), &ledger)), [0; 0]);
        let year = 31_536_000 * SECOND_NS;
        let lost = Fate::Outside { seq: 0, pre_ns: BEGIN + year + 7 };
        seconds.take(&[], &[lost], &ledger);
        let until = BEGIN + year + 2 * SECOND_NS;
        assert_eq!(starts(&seconds.close(Some(until), &ledger)), [31_536_100, 31_536_101]);
    }

    #[test]
    fn what_is_late_or_missed_is_told_with_the_next_second() {
        let (mut seconds, ledger) = (Seconds::since(BEGIN), Ledger::default());
        seconds.take(&[], &[Fate::Late { seq: 3 }], &ledger);
        seconds.miss(1, BEGIN + SECOND_NS + 1, 4);
        seconds.miss(0, BEGIN + 1, 2);
        let closed = seconds.close(Some(BEGIN + 2 * SECOND_NS), &ledger);
        let told: Vec<_> = closed.iter().map(|second| (second.late, second.missed)).collect();
        assert_eq!(told, [(1, [2, 0]), (0, [0, 4])]);
    }
}
