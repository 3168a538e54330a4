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
    /// Time that stalls of the instrument can explain: those between departure and arrival, and the
    /// wait behind packets that they held back. At most this much of the latency is the instrument's.
    pub instrument_stall_ns: u64,
}

/// Digits of a latency that people are shown where the instrument may have changed it.
const DIGITS: u32 = 4;

impl Recorded {
    /// Returns the least that the packet can have taken: its latency without all that stalls of the
    /// instrument can explain.
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
    /// The least that matches can have taken: latencies without all that stalls can explain.
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

    /// Returns how long the stall still lasts that `at` lies in, in ns.
    #[inline]
    fn rest_ns(&mut self, at: u64) -> u64 {
        while self.stalls.get(self.next).is_some_and(|stall| stall.end_ns <= at) {
            self.next += 1;
        }
        let within = self.stalls.get(self.next).filter(|stall| stall.start_ns <= at);
        within.map_or(0, |stall| stall.end_ns - at)
    }
}

/// Packets that stalls of the instrument held back, in order of departure.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    stalls: Stalls<'a>,
    until_ns: u64,
}

impl<'a> Held<'a> {
    /// Takes `stalls`, which lie apart from each other.
    pub fn new(stalls: &'a [Stall]) -> Self {
        Self { stalls: Stalls::new(stalls), until_ns: 0 }
    }

    /// Returns how late stalls made the next packet, in ns; `None` if none held it back, nor a
    /// packet for which it waited.
    #[inline]
    pub fn late_ns(&mut self, intended_ns: u64, departure_ns: u64) -> Option<u64> {
        let waits = intended_ns < self.until_ns;
        if !waits && self.stalls.overlap_ns(intended_ns, departure_ns) == 0 {
            return None;
        }
        self.until_ns = departure_ns;
        Some(departure_ns - intended_ns)
    }
}

/// What stalls explain of latencies, the queue that they cause included: packets that a stall held
/// back leave all at once.
///
/// Let d be the departures and t the intended ones of packets that stalls held back, and let the
/// device be such that packets which come h earlier leave it at most h earlier. If all had left as
/// intended, a packet would have come back at most max (d - t) earlier, of all since the device was
/// empty; it would have left d - t of its own earlier, so that only the difference of both is not the
/// device's. Nor can more of the latency be a wait than the time until all before it had come back,
/// if all did: one that did not, soon after a late one, may still be inside until each queue has
/// passed on another.
///
/// A device may never be empty: one that passes packets on for longer than they are apart. No packet
/// can have come back earlier than the fastest so far would have, had it left as intended. What comes
/// behind it in its queue cannot gain more than it, or than what a stall made late since. Of
/// `ENOUGH` packets in a row, which each queue has its share of, the one that could have gained most
/// so tells how much those that follow may.
#[derive(Debug)]
pub(crate) struct Explained<'a> {
    held: Held<'a>,
    meanwhile: Stalls<'a>,
    behind_wait: Stalls<'a>,
    /// The most that a stall made any packet late since the device was empty, in ns.
    latest_ns: u64,
    /// Time at which the last of all packets so far came back, in ns.
    back_ns: u64,
    /// Packets that have to come back until the device has none of those that did not.
    until_out: u32,
    /// Packets that came back since the last that a stall made late.
    on_time: u32,
    /// Latency of the fastest packet so far, in ns.
    fastest_ns: u64,
    /// Packets since that was last told, and the most that one of them could have come back earlier.
    told: u32,
    gained_ns: u64,
}

/// Packets in a row of which each queue of a device is taken to have some.
const ENOUGH: u32 = 256;

impl<'a> Explained<'a> {
    /// Takes `stalls`, which lie apart from each other.
    pub fn new(stalls: &'a [Stall]) -> Self {
        Self {
            held: Held::new(stalls),
            meanwhile: Stalls::new(stalls),
            behind_wait: Stalls::new(stalls),
            latest_ns: 0,
            back_ns: 0,
            until_out: 0,
            on_time: 0,
            fastest_ns: u64::MAX,
            told: 0,
            gained_ns: 0,
        }
    }

    /// Takes the next packet, which has no match.
    pub fn unmatched(&mut self, intended_ns: u64, departure_ns: u64) {
        let late_ns = self.leave(intended_ns, departure_ns);
        self.gained_ns = self.gained_ns.max(late_ns);
        // Long after the last late packet, one that is lost is taken to have waited for none.
        if self.on_time < ENOUGH {
            self.until_out = ENOUGH;
        }
    }

    /// Returns how much of the latency of the next packet stalls can explain, in ns.
    #[inline]
    pub fn of_match(&mut self, intended_ns: u64, departure_ns: u64, arrival_ns: u64) -> u64 {
        let late_ns = self.leave(intended_ns, departure_ns);
        let waited_for_unmatched = self.until_out > 0;
        self.until_out = self.until_out.saturating_sub(1);
        self.on_time = self.on_time.saturating_add(1);
        let stalled_ns = self.meanwhile.overlap_ns(departure_ns, arrival_ns);
        let free_ns = self.back_ns.clamp(departure_ns, arrival_ns);
        self.back_ns = self.back_ns.max(arrival_ns);
        let bunched_ns = self.latest_ns - late_ns;
        self.tell(arrival_ns - departure_ns, late_ns);
        if bunched_ns == 0 {
            return stalled_ns;
        }
        let most_ns = if waited_for_unmatched {
            arrival_ns - departure_ns
        } else {
            free_ns - departure_ns + self.behind_wait.overlap_ns(free_ns, arrival_ns)
        };
        (stalled_ns + bunched_ns).min(most_ns)
    }

    /// Takes what a packet that came back says of those that follow.
    #[inline]
    fn tell(&mut self, latency_ns: u64, late_ns: u64) {
        self.fastest_ns = self.fastest_ns.min(latency_ns);
        self.gained_ns = self.gained_ns.max(latency_ns - self.fastest_ns + late_ns);
        self.told += 1;
        if self.told == ENOUGH {
            self.latest_ns = self.latest_ns.min(self.gained_ns);
            (self.told, self.gained_ns) = (0, 0);
        }
    }

    /// Returns how late stalls made the next packet, in ns.
    #[inline]
    fn leave(&mut self, intended_ns: u64, departure_ns: u64) -> u64 {
        let held_ns = self.held.late_ns(intended_ns, departure_ns).unwrap_or(0);
        let late_ns = held_ns + self.meanwhile.rest_ns(departure_ns);
        if self.back_ns <= departure_ns && self.until_out == 0 {
            self.latest_ns = 0;
        }
        if late_ns > 0 {
            self.on_time = 0;
        }
        self.latest_ns = self.latest_ns.max(late_ns);
        late_ns
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
