//! The processor's counter: the clock of everything that polls. On x86-64 it is the time-stamp counter, on
//! AArch64 the virtual count of the generic timer, which programs may read as well.

#[cfg(target_arch = "aarch64")]
use core::arch::asm;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use units::Clock;

/// Both clocks are read to some 20 ns, or to a tick, so the rate is known to less than a millionth.
const COUNTED_FOR: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 32;
/// What a processor says of its counter is taken if it is within this part, one in so many, of what was counted.
const AGREES: u64 = 10_000;

static COUNTED_HZ: OnceLock<u64> = OnceLock::new();

/// The counter now.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: Linux lets every program read the register. As with `rdtsc`, nothing keeps the processor
        // from reading it before earlier instructions have ended.
        unsafe {
            asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
        };
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    // SAFETY: reads a register.
    return unsafe { dpdk_sys::ts_tsc() };
}

/// Ticks per second as the processor itself says, exactly; `None` where none says so.
fn told_hz() -> Option<u64> {
    #[cfg(target_arch = "aarch64")]
    {
        let hz: u64;
        // SAFETY: Linux lets every program read the register.
        unsafe {
            asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags))
        };
        Some(hz)
    }
    #[cfg(not(target_arch = "aarch64"))]
    None
}

/// Ticks per second: as they were counted, else as DPDK says.
///
/// Where the processor does not say, DPDK rounds to 10 MHz: up to 0.2 % of every latency.
#[must_use]
pub fn hz() -> u64 {
    // SAFETY: reads a number that was set when DPDK started.
    COUNTED_HZ.get().copied().unwrap_or_else(|| unsafe { dpdk_sys::ts_tsc_hz() })
}

/// Ticks that are being counted, for the rate of the counter.
#[derive(Debug)]
pub struct Count {
    tsc: u64,
    raw: Duration,
}

impl Count {
    /// Begins to count.
    #[must_use]
    pub fn begin() -> Self {
        let (tsc, _, raw) = together(raw);
        Self { tsc, raw }
    }

    /// Counts until there are enough; from now on, [`hz`] is what came out.
    pub fn end(self) {
        std::thread::sleep((self.raw + COUNTED_FOR).saturating_sub(raw()));
        let (tsc, _, raw) = together(raw);
        let (ticks, ns) = (u128::from(tsc - self.tsc), (raw - self.raw).as_nanos());
        let hz = u64::try_from((ticks * 1_000_000_000 + ns / 2) / ns).unwrap_or(u64::MAX);
        // The firmware of some boards has never set what the processor says.
        let told = told_hz().filter(|told| told.abs_diff(hz) <= hz / AGREES);
        let _ = COUNTED_HZ.set(told.unwrap_or(hz));
    }
}

/// The kernel's clock that nobody sets, or has run faster or slower.
fn raw() -> Duration {
    time_of(libc::CLOCK_MONOTONIC_RAW)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `time`; every kernel that DPDK knows has these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The counter and Unix time at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Both, and the counter's rate.
    pub clock: Clock,
    /// Ticks within which Unix time was read, at least one: half of them are the error.
    pub width: u64,
}

/// Says what the counter is in Unix time.
#[must_use]
pub fn pair() -> Pair {
    let (tsc, width, unix) =
        together(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
    Pair { clock: Clock { tsc_hz: hz(), tsc, unix_ns }, width }
}

/// The counter and the clock by which the kernel stamps what BPF programs see, at the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    /// The counter.
    pub tsc: u64,
    /// The kernel's monotonic clock, in ns.
    pub ns: u64,
    /// Ticks within which that was read, at least one: half of them are the error.
    pub width: u64,
}

/// Says what the counter is on the kernel's monotonic clock.
#[must_use]
pub fn monotonic() -> Monotonic {
    let (tsc, width, time) = together(|| time_of(libc::CLOCK_MONOTONIC));
    Monotonic { tsc, ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), width }
}

/// Says what the counter is in a Unix time that is so far ahead of the monotonic clock, which nobody sets.
#[must_use]
pub fn steady(unix_ahead_ns: i64) -> Clock {
    let Monotonic { tsc, ns, .. } = monotonic();
    Clock { tsc_hz: hz(), tsc, unix_ns: ns.saturating_add_signed(unix_ahead_ns) }
}

/// The counter while another clock was read, and within how many ticks: the tightest of some attempts.
fn together<T>(read: impl Fn() -> T) -> (u64, u64, T) {
    let attempt = || {
        let before = now();
        let time = read();
        // The last tick has begun when it is read.
        (before, now() - before + 1, time)
    };
    let (before, width, time) =
        (0..ATTEMPTS).map(|_| attempt()).min_by_key(|(_, width, _)| *width).expect("attempts");
    (before + width / 2, width, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_same_when_it_is_counted_again() {
        let counted = || {
            let (first, _, began) = together(raw);
            std::thread::sleep(COUNTED_FOR);
            let (last, _, ended) = together(raw);
            (last - first) as f64 / (ended - began).as_secs_f64()
        };
        Count::begin().end();
        let again = (0..5).map(|_| (counted() / hz() as f64 - 1.0).abs()).fold(f64::MAX, f64::min);
        assert!(again < 2e-5, "off by {again}");
    }
}
