//! The time-stamp counter: the clock of everything that polls.

use std::time::{SystemTime, UNIX_EPOCH};
use units::Clock;

/// The counter now.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads a register.
    return unsafe { dpdk_sys::ts_tsc() };
}

/// Ticks per second, as DPDK determined it when it started.
#[must_use]
pub fn hz() -> u64 {
    // SAFETY: reads a number that was set when DPDK started.
    unsafe { dpdk_sys::ts_tsc_hz() }
}

/// The counter and Unix time at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Both, and the counter's rate.
    pub clock: Clock,
    /// Ticks within which Unix time was read: half of them are the error.
    pub width: u64,
}

/// Says what the counter is in Unix time: the tightest of some attempts to read both at once.
#[must_use]
pub fn pair() -> Pair {
    let attempt = || {
        let before = now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now() - before, before, unix)
    };
    let (width, before, unix) =
        (0..32).map(|_| attempt()).min_by_key(|(width, ..)| *width).expect("there are attempts");
    let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
    Pair { clock: Clock { tsc_hz: hz(), tsc: before + width / 2, unix_ns }, width }
}
