//! The record of an instrument that stamps in software: how late it sent, and when it stalled.

use crate::histogram::Histogram;
use crate::matcher::Match;
use crate::quantile::QUANTILES;

/// A match, with what only the instrument knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The match.
    pub found: Match,
    /// Time at which the packet was meant to leave, in ns.
    pub intended_ns: u64,
    /// Time that the instrument stalled between departure and arrival: at most this much of the
    /// latency is the instrument's.
    pub instrument_stall_ns: u64,
}

/// Digits of a latency that people are shown where the instrument may have changed it.
const DIGITS: u32 = 4;

impl Recorded {
    /// Returns the least that the packet can have taken: its latency without all stalls of the
    /// instrument.
    #[must_use]
    pub fn least_ns(&self) -> u64 {
        self.found.latency_ns - self.instrument_stall_ns
    }

    /// Returns true if the stalls could change the first four digits of the latency.
    #[must_use]
    pub fn tainted(&self) -> bool {
        if self.instrument_stall_ns == 0 {
            return false;
        }
        let latency = self.found.latency_ns;
        let digits = latency.checked_ilog10().map_or(0, |power| power + 1);
        let unit = 10_u64.pow(digits.saturating_sub(DIGITS));
        let shown = |ns: u64| (ns + unit / 2) / unit;
        shown(self.least_ns()) != shown(latency)
    }
}

/// The instrument's part in the figures.
#[derive(Clone, Debug, Default)]
pub struct Instrument {
    /// Matches whose latency its stalls could change in its first four digits.
    pub tainted: u64,
    /// The least that matches can have taken: latencies without all stalls of the instrument.
    pub least_latency: Histogram,
    /// Latency from the time at which packets were meant to leave: no coordinated omission.
    pub intended_latency: Histogram,
    /// Delay of departures, from the time at which packets were meant to leave.
    pub departure_error: Histogram,
    /// The same for packets that no stall of the instrument held back, nor a packet that one did.
    pub untainted_departure_error: Histogram,
    /// Stalls of the instrument.
    pub stalls: u64,
    /// Duration of all its stalls, in ns.
    pub stall_ns_total: u64,
    /// Duration of its longest stall, in ns.
    pub stall_ns_max: u64,
}

impl Instrument {
    pub(crate) fn push(&mut self, recorded: &Recorded) {
        let Recorded { found, intended_ns, .. } = *recorded;
        self.intended_latency.record(found.pre_ns + found.latency_ns - intended_ns);
        self.least_latency.record(recorded.least_ns());
        self.tainted += u64::from(recorded.tainted());
    }

    pub(crate) fn warnings(&self, latency: &Histogram) -> Option<String> {
        let qs = QUANTILES.map(|(q, _)| q);
        let (all, least) = (latency.quantiles(&qs), self.least_latency.quantiles(&qs));
        let differs = all.iter().zip(&least).zip(QUANTILES).find(|((all, least), _)| {
            all.supported && all.value_ns > least.value_ns.saturating_mul(11) / 10
        });
        let ((all, least), (q, _)) = differs?;
        Some(format!(
            "from p{q} on the instrument's own stalls show: p{q} lies between {:.3} and {:.3} µs",
            least.value_ns as f64 / 1e3,
            all.value_ns as f64 / 1e3,
            q = percent(q),
        ))
    }
}

/// Returns a quantile as people write it: `99.9`.
fn percent(q: f64) -> String {
    let text = format!("{:.4}", q * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Stalls in order of time, asked for intervals whose begin never decreases.
#[derive(Debug)]
pub(crate) struct Stalls<'a> {
    stalls: &'a [Stall],
    next: usize,
}

/// A stall of the instrument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    /// Time at which it began, in ns.
    pub start_ns: u64,
    /// Time at which it ended, in ns.
    pub end_ns: u64,
    /// Duration of all stalls before it, in ns.
    pub before_ns: u64,
}

impl<'a> Stalls<'a> {
    /// Takes `stalls`, which lie apart from each other.
    pub fn new(stalls: &'a [Stall]) -> Self {
        Self { stalls, next: 0 }
    }

    /// Returns how much of `[start, end]` they take, in ns.
    #[inline]
    pub fn overlap_ns(&mut self, start: u64, end: u64) -> u64 {
        while self.stalls.get(self.next).is_some_and(|stall| stall.end_ns <= start) {
            self.next += 1;
        }
        match self.stalls.get(self.next) {
            Some(first) if first.start_ns < end => self.overlap_from(*first, start, end),
            _ => 0,
        }
    }

    /// Returns the same if `first` is the first of those that reach into it.
    fn overlap_from(&self, first: Stall, start: u64, end: u64) -> u64 {
        let rest = &self.stalls[self.next..];
        let last = rest[rest.partition_point(|stall| stall.start_ns < end) - 1];
        let until_end = last.before_ns + (last.end_ns.min(end) - last.start_ns);
        let until_start = first.before_ns + start.saturating_sub(first.start_ns);
        until_end - until_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stalls_of(gaps: Vec<(u64, u64)>) -> Vec<Stall> {
        let (mut at, mut before_ns) = (0, 0);
        let stall = |(gap, lasts)| {
            let stall = Stall { start_ns: at + gap, end_ns: at + gap + lasts, before_ns };
            (at, before_ns) = (stall.end_ns, before_ns + lasts);
            stall
        };
        gaps.into_iter().map(stall).collect()
    }

    proptest! {
        #[test]
        fn overlaps_are_those_of_every_stall(
            gaps in prop::collection::vec((0..50_u64, 0..20_u64), 0..20),
            mut asked in prop::collection::vec((0..1000_u64, 0..400_u64), 1..50),
        ) {
            let stalls = stalls_of(gaps);
            asked.sort_unstable();
            let mut overlaps = Stalls::new(&stalls);
            for (start, lasts) in asked {
                let end = start + lasts;
                let of = |stall: &Stall| stall.end_ns.min(end).saturating_sub(stall.start_ns.max(start));
                let expected: u64 = stalls.iter().map(of).sum();
                prop_assert_eq!(overlaps.overlap_ns(start, end), expected);
            }
        }
    }

    #[test]
    fn a_sample_is_tainted_from_its_fourth_digit_on() {
        let tainted = |latency_ns, instrument_stall_ns| {
            let found = Match { seq: 0, post_seq: 0, pre_ns: 0, latency_ns, tag: 0 };
            Recorded { found, intended_ns: 0, instrument_stall_ns }.tainted()
        };
        assert!(!tainted(0, 0) && tainted(1, 1) && tainted(9_999, 1));
        assert!(!tainted(5_000_400, 800) && tainted(5_000_400, 901) && tainted(5_000_499, 1_000));
        assert!(!tainted(5_000_000, 0) && tainted(u64::MAX / 2, u64::MAX / 2));
    }

    #[test]
    fn ranks_are_written_as_people_do() {
        let written = QUANTILES.map(|(q, _)| percent(q));
        assert_eq!(written, ["50", "90", "99", "99.9", "99.99", "99.999", "99.9999"]);
    }
}
