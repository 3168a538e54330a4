use crate::nanos::Nanos;

const NS_PER_S: u128 = 1_000_000_000;

/// A counter of ticks, the processor's TSC, and what it says in Unix time.
///
/// The one conversion of a run: everything that shares the counter goes through the same clock, so
/// that times of different processes can be compared to the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Ticks per second.
    pub tsc_hz: u64,
    /// The counter at one moment,
    pub tsc: u64,
    /// and the Unix time at that moment, in ns.
    pub unix_ns: u64,
}

impl Clock {
    /// Returns the Unix time at `tsc`, rounded down; 0 before 1970. Never decreases as `tsc`
    /// increases.
    ///
    /// # Panics
    /// When `tsc_hz` is 0.
    #[inline]
    #[must_use]
    pub fn unix(&self, tsc: u64) -> Nanos {
        self.unix_since(tsc).unwrap_or_else(|| self.unix_anyway(tsc))
    }

    /// Returns the same without wide division, which takes longer than all else that is done with a
    /// packet's time; `None` before the moment at which the counter was read, and centuries after.
    #[inline]
    fn unix_since(&self, tsc: u64) -> Option<Nanos> {
        const NS: u64 = NS_PER_S as u64;
        let since = tsc.checked_sub(self.tsc)?;
        let (whole, rest) = (since / self.tsc_hz, since % self.tsc_hz);
        let ns = whole.checked_mul(NS)?.checked_add(rest.checked_mul(NS)? / self.tsc_hz)?;
        self.unix_ns.checked_add(ns).map(Nanos)
    }

    #[cold]
    fn unix_anyway(&self, tsc: u64) -> Nanos {
        let since = i128::from(tsc) - i128::from(self.tsc);
        let ns = (since * NS_PER_S as i128).div_euclid(i128::from(self.tsc_hz));
        let at_ns = (i128::from(self.unix_ns) + ns).clamp(0, i128::from(u64::MAX));
        Nanos(at_ns as u64)
    }

    /// Returns the duration of `ticks`, rounded down.
    ///
    /// # Panics
    /// When `tsc_hz` is 0.
    #[inline]
    #[must_use]
    pub fn duration(&self, ticks: u64) -> Nanos {
        let ns = u128::from(ticks) * NS_PER_S / u128::from(self.tsc_hz);
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the ticks that `duration` lasts, rounded up: `duration(ticks(d)) >= d`.
    #[inline]
    #[must_use]
    pub fn ticks(&self, duration: Nanos) -> u64 {
        let ticks = (u128::from(duration.0) * u128::from(self.tsc_hz)).div_ceil(NS_PER_S);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock =
        Clock { tsc_hz: 2_999_999_999, tsc: 1 << 40, unix_ns: 1_700_000_000_000_000_000 };

    #[test]
    fn time_is_exact_forwards_and_backwards() {
        for seconds in [0, 1, 86_400, 365 * 86_400] {
            let ticks = seconds * CLOCK.tsc_hz;
            let at = |tsc: u64| CLOCK.unix(tsc).0;
            assert_eq!(at(CLOCK.tsc + ticks), CLOCK.unix_ns + seconds * 1_000_000_000);
            if ticks <= CLOCK.tsc {
                assert_eq!(at(CLOCK.tsc - ticks), CLOCK.unix_ns - seconds * 1_000_000_000);
            }
        }
    }

    #[test]
    fn short_division_finds_the_same() {
        for tsc_hz in [1, 999, 2_999_999_999, u64::MAX] {
            let clock = Clock { tsc_hz, ..CLOCK };
            for since in [0, 1, 999, tsc_hz - 1, tsc_hz, (1 << 50) + 12_345, u64::MAX - CLOCK.tsc] {
                let tsc = CLOCK.tsc.saturating_add(since);
                assert!(clock.unix_since(tsc).is_none_or(|short| short == clock.unix_anyway(tsc)));
            }
        }
        let tsc = CLOCK.tsc + 100 * 365 * 86_400 * CLOCK.tsc_hz;
        assert_eq!(CLOCK.unix_since(tsc), Some(CLOCK.unix_anyway(tsc)));
    }

    #[test]
    fn time_never_decreases() {
        for near in [CLOCK.tsc, CLOCK.tsc + CLOCK.tsc_hz, 0] {
            let times = (0..1000).map(|tick| CLOCK.unix(near.saturating_sub(500) + tick));
            assert!(times.is_sorted());
        }
    }

    #[test]
    fn what_does_not_fit_stays_at_the_end() {
        let slow = Clock { tsc_hz: 1, tsc: u64::MAX, unix_ns: 5 };
        assert_eq!(slow.unix(0), Nanos(0));
        assert_eq!(Clock { tsc: 0, ..slow }.unix(u64::MAX), Nanos(u64::MAX));
        assert_eq!(slow.duration(u64::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn ticks_last_at_least_as_long_as_they_should() {
        for ns in [0, 1, 2, 999, 1_000_000_007] {
            let ticks = CLOCK.ticks(Nanos(ns));
            assert!(CLOCK.duration(ticks) >= Nanos(ns));
            assert!(ticks == 0 || CLOCK.duration(ticks - 1) < Nanos(ns));
        }
    }
}
