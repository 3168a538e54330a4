//! Ticks to ns and back without a division: for stamps, which may be off by 1 ns, and schedules.

use units::{Clock, Nanos};

const SHIFT: u32 = 62;

/// A clock for the hot loops.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    clock: Clock,
    ns_per_tick: u128,
    ticks_per_ns: u128,
}

impl Ticks {
    /// One that agrees with `clock`.
    pub fn new(clock: Clock) -> Self {
        assert!(clock.tsc_hz > 0, "a counter counts");
        let ratio = |over: u64, under: u64| (u128::from(over) << SHIFT) / u128::from(under);
        Self {
            clock,
            ns_per_tick: ratio(1_000_000_000, clock.tsc_hz),
            ticks_per_ns: ratio(clock.tsc_hz, 1_000_000_000),
        }
    }

    /// The Unix time at `tsc`, which is not before the clock's own moment.
    #[inline(always)]
    pub fn unix_ns(&self, tsc: u64) -> u64 {
        let since = u128::from(tsc.wrapping_sub(self.clock.tsc));
        self.clock.unix_ns.wrapping_add((since.wrapping_mul(self.ns_per_tick) >> SHIFT) as u64)
    }

    /// The ticks that `ns` last.
    #[inline(always)]
    pub fn ticks(&self, Nanos(ns): Nanos) -> u64 {
        (u128::from(ns).wrapping_mul(self.ticks_per_ns) >> SHIFT) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_the_exact_clock(
            tsc_hz in 25_000_000..6_000_000_000_u64, tsc in 0..1_u64 << 60, since in 0..1_u64 << 45,
        ) {
            let clock = Clock { tsc_hz, tsc, unix_ns: 1_700_000_000_000_000_000 };
            let ticks = Ticks::new(clock);
            prop_assert!(clock.unix(tsc + since).0.abs_diff(ticks.unix_ns(tsc + since)) <= 1);
            let ns = clock.duration(since);
            prop_assert!(ticks.ticks(ns) <= since && since - ticks.ticks(ns) <= tsc_hz / 1_000_000_000 + 1);
        }
    }
}
