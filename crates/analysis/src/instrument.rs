//! What an instrument that stamps in software says of itself: how late it sent, and when it stalled.

use crate::histogram::Histogram;
use crate::matcher::Match;
use crate::quantile::QUANTILES;

/// A match, with what only the instrument knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The match.
    pub found: Match,
    /// When the packet was meant to leave, in ns.
    pub intended_ns: u64,
    /// Whether the instrument stalled between its departure and its arrival.
    pub tainted: bool,
}

/// The instrument's part in the figures.
#[derive(Clone, Debug, Default)]
pub struct Instrument {
    /// Matches during which the instrument stalled.
    pub tainted: u64,
    /// Latencies of the other matches.
    pub untainted_latency: Histogram,
    /// From when packets were meant to leave until they arrived: no coordinated omission.
    pub intended_latency: Histogram,
    /// By how much packets left later than they were meant to.
    pub departure_error: Histogram,
    /// The same for packets that no stall of the instrument held back.
    pub untainted_departure_error: Histogram,
    /// Stalls of the instrument.
    pub stalls: u64,
    /// Ns of all its stalls.
    pub stall_ns_total: u64,
    /// Ns of its longest stall.
    pub stall_ns_max: u64,
}

impl Instrument {
    pub(crate) fn push(&mut self, recorded: &Recorded) {
        let Recorded { found, intended_ns, tainted } = *recorded;
        self.intended_latency.record(found.pre_ns + found.latency_ns - intended_ns);
        if tainted {
            self.tainted += 1;
        } else {
            self.untainted_latency.record(found.latency_ns);
        }
    }

    pub(crate) fn warnings(&self, latency: &Histogram) -> Option<String> {
        let qs = QUANTILES.map(|(q, _)| q);
        let (all, untainted) = (latency.quantiles(&qs), self.untainted_latency.quantiles(&qs));
        let differs = all.iter().zip(&untainted).zip(QUANTILES).find(|((all, untainted), _)| {
            all.supported && untainted.supported && all.value_ns > untainted.value_ns * 11 / 10
        });
        let ((all, untainted), (q, _)) = differs?;
        Some(format!(
            "from p{} on the instrument's own stalls show: {} ns with tainted samples, {} ns without",
            percent(q),
            all.value_ns,
            untainted.value_ns
        ))
    }
}

/// A quantile as people write it: `99.9`.
fn percent(q: f64) -> String {
    let text = format!("{:.4}", q * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Stalls in order of time, asked for intervals whose begin never decreases.
#[derive(Debug)]
pub(crate) struct Stalls<'a> {
    stalls: &'a [(u64, u64)],
    next: usize,
}

impl<'a> Stalls<'a> {
    /// `stalls` are (start, end) in ns, apart from each other.
    pub fn new(stalls: &'a [(u64, u64)]) -> Self {
        Self { stalls, next: 0 }
    }

    /// Whether one overlaps `[start, end]`.
    pub fn overlap(&mut self, start: u64, end: u64) -> bool {
        while self.stalls.get(self.next).is_some_and(|(_, ends)| *ends <= start) {
            self.next += 1;
        }
        self.stalls.get(self.next).is_some_and(|(begins, _)| *begins <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn overlaps_are_those_of_every_stall(
            gaps in prop::collection::vec((0..50_u64, 1..20_u64), 0..20),
            mut asked in prop::collection::vec((0..1000_u64, 0..100_u64), 1..50),
        ) {
            let mut at = 0;
            let stalls: Vec<_> = gaps.into_iter().map(|(gap, lasts)| {
                let start = at + gap;
                at = start + lasts;
                (start, at)
            }).collect();
            asked.sort_unstable();
            let mut overlaps = Stalls::new(&stalls);
            for (start, lasts) in asked {
                let end = start + lasts;
                let expected = stalls.iter().any(|(begins, ends)| *begins <= end && *ends > start);
                prop_assert_eq!(overlaps.overlap(start, end), expected);
            }
        }
    }

    #[test]
    fn ranks_are_written_as_people_do() {
        let written = QUANTILES.map(|(q, _)| percent(q));
        assert_eq!(written, ["50", "90", "99", "99.9", "99.99", "99.999", "99.9999"]);
    }
}
