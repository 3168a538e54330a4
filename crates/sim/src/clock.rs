//! The clock behind the device, seen from the one before it.

use serde::Serialize;

/// The difference of the timestamps after the device from those before it, and the resolution of
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// Lead of the clock at the first departure, in ns. Further behind than the device takes makes
    /// latencies negative.
    pub offset_ns: i64,
    /// Drift of the clock in billionths: 1000 is 1 ppm.
    pub drift_ppb: i64,
    /// Resolution of the timestamps on both sides, in picoseconds: 12500 is 12.5 ns.
    pub resolution_ps: u64,
}

impl Clock {
    /// Returns what the clock before the device shows, in ns since the first departure.
    #[inline]
    pub(crate) fn before(self, time_ns: u64) -> i64 {
        self.rounded(time_ns as i64)
    }

    /// Returns what the clock behind the device shows at the same time.
    #[inline]
    pub(crate) fn behind(self, time_ns: u64) -> i64 {
        self.rounded(time_ns as i64 + self.offset_ns + self.drift(time_ns))
    }

    fn drift(self, time_ns: u64) -> i64 {
        if self.drift_ppb == 0 {
            return 0; // spares almost every scenario the wide division
        }
        let product = i128::from(time_ns) * i128::from(self.drift_ppb);
        product.div_euclid(1_000_000_000) as i64
    }

    fn rounded(self, time_ns: i64) -> i64 {
        let resolution_ps = self.resolution_ps as i64;
        let ticks = (time_ns * 1_000).div_euclid(resolution_ps);
        (ticks * resolution_ps).div_euclid(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: Clock = Clock { offset_ns: 0, drift_ppb: 0, resolution_ps: 1_000 };

    #[test]
    fn an_exact_clock_shows_the_time() {
        for time_ns in [0, 1, 999, 2_592_000_000_000_000] {
            assert_eq!(EXACT.before(time_ns), time_ns as i64);
            assert_eq!(EXACT.behind(time_ns), time_ns as i64);
        }
    }

    #[test]
    fn drift_adds_up_to_the_nanosecond() {
        let fast = Clock { drift_ppb: 1_500, ..EXACT };
        let slow = Clock { drift_ppb: -1_500, ..EXACT };
        for (time_ns, gained, lost) in [
            (0, 0, 0),
            (666_666, 0, -1), // 0.999999 ns, rounded down
            (666_667, 1, -2),
            (1_000_000_000, 1_500, -1_500),
            (2_592_000_000_000_000, 3_888_000_000, -3_888_000_000),
        ] {
            assert_eq!(fast.behind(time_ns), time_ns as i64 + gained);
            assert_eq!(slow.behind(time_ns), time_ns as i64 + lost);
            assert_eq!(fast.before(time_ns), time_ns as i64);
        }
    }

    #[test]
    fn an_offset_shifts_the_clock_behind_alone() {
        let behind = Clock { offset_ns: -5_000, ..EXACT };
        assert_eq!((behind.before(3_000), behind.behind(3_000)), (3_000, -2_000));
    }

    #[test]
    fn both_sides_are_rounded_down() {
        let coarse = Clock { resolution_ps: 12_500, ..EXACT };
        for (time_ns, shown_ns) in [(0, 0), (12, 0), (13, 12), (24, 12), (25, 25), (99, 87)] {
            assert_eq!(coarse.before(time_ns), shown_ns);
            assert_eq!(coarse.behind(time_ns), shown_ns);
        }
        let before_start = Clock { offset_ns: -1, ..coarse };
        assert_eq!(before_start.behind(0), -13);
    }
}
