//! From the kernel's monotonic clock to ticks of the counter.

use dpdk::tsc::Monotonic;

/// Turns times into ticks by readings of both clocks, one before and one behind them.
///
/// Between two readings the clocks run straight: NTP changes the rate of the monotonic clock by little,
/// and how much that is shows at the reading in the middle of three.
#[derive(Debug)]
pub struct Ticks {
    before: Option<Monotonic>,
    from: Monotonic,
    to: Monotonic,
    error_ns: u64,
}

impl Ticks {
    /// Begins with two readings, of which the second is the later one.
    pub fn new(from: Monotonic, to: Monotonic) -> Self {
        let error_ns = half_width_ns(from, to).max(half_width_ns(to, from));
        Self { before: None, from, to, error_ns }
    }

    /// Goes on with a later reading: what is asked for from now on lies before it.
    pub fn advance(&mut self, to: Monotonic) {
        (self.before, self.from, self.to) = (Some(self.from), self.to, to);
        let bent = self.before.map_or(0, |before| {
            let straight = between(before, to, self.from.ns);
            ns_of(straight.abs_diff(self.from.tsc), before, to)
        });
        self.error_ns = self.error_ns.max(bent + half_width_ns(to, self.from));
    }

    /// The counter at a time of the monotonic clock.
    pub fn at(&self, ns: u64) -> u64 {
        between(self.from, self.to, ns)
    }

    /// How far that may be off.
    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }
}

fn between(from: Monotonic, to: Monotonic, ns: u64) -> u64 {
    let since = i128::from(ns) - i128::from(from.ns);
    let ticks = since * i128::from(to.tsc - from.tsc) / i128::from(to.ns - from.ns);
    (i128::from(from.tsc) + ticks).max(0) as u64
}

/// Half of the ticks within which the clock was read, rounded up.
fn half_width_ns(reading: Monotonic, other: Monotonic) -> u64 {
    ns_of(reading.width.div_ceil(2), reading, other)
}

/// How long ticks last, by the distance of two readings; rounded up.
fn ns_of(ticks: u64, one: Monotonic, other: Monotonic) -> u64 {
    let (ns, tsc) = (one.ns.abs_diff(other.ns), one.tsc.abs_diff(other.tsc));
    (u128::from(ticks) * u128::from(ns)).div_ceil(u128::from(tsc)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ns: u64, tsc: u64) -> Monotonic {
        Monotonic { tsc, ns, width: 60 }
    }

    #[test]
    fn times_between_readings_lie_on_the_line_through_them() {
        let mut ticks = Ticks::new(reading(1_000, 10_000), reading(2_000, 13_000));
        assert_eq!([1_000, 1_500, 2_000].map(|ns| ticks.at(ns)), [10_000, 11_500, 13_000]);
        ticks.advance(reading(3_000, 16_000));
        assert_eq!([1_990, 2_000, 2_500].map(|ns| ticks.at(ns)), [12_970, 13_000, 14_500]);
        assert_eq!(ticks.error_ns(), 10);
    }

    #[test]
    fn a_rate_that_changes_is_part_of_the_error() {
        let mut ticks = Ticks::new(reading(0, 0), reading(1_000, 3_000));
        ticks.advance(reading(2_000, 6_300));
        // On a straight line from the first to the last, the one between would be at 3150.
        assert!((55..=60).contains(&ticks.error_ns()), "{}", ticks.error_ns());
    }
}
