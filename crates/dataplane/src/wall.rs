//! The clock of the day beside one that is never set, for times that the kernel takes.
//!
//! The kernel stamps packets with the time of day, which somebody may set meanwhile. What was stamped is
//! brought to a time that runs on: that of the monotonic clock, counted from 1970.

const NS_PER_S: i64 = 1_000_000_000;
/// Both clocks are read one after the other: they count as apart when they are by more than this.
const STEP_NS: i64 = 5_000;
/// A reading that took longer is repeated.
const QUICK_NS: i64 = 1_000;
const READINGS: usize = 3;

/// Two clocks and how far they are apart.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    /// What is added to the monotonic clock: the time of day when all began.
    begin_ns: i64,
    /// The time of day less the monotonic clock: now, and before it was set last.
    offsets_ns: [i64; 2],
}

/// The clock of the day was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub i64);

impl Wall {
    /// One that begins now.
    pub fn new() -> Self {
        let (_, offset, _) = read();
        Self { begin_ns: offset, offsets_ns: [offset; 2] }
    }

    /// Now, on the time that runs on.
    pub fn now(&self) -> u64 {
        (clock(libc::CLOCK_MONOTONIC) + self.begin_ns) as u64
    }

    /// Looks whether the clock of the day was set since it was looked at last.
    pub fn look(&mut self) -> Option<Step> {
        let (_, offset, error) = read();
        self.see(offset, error)
    }

    fn see(&mut self, offset: i64, error: i64) -> Option<Step> {
        let step = offset - self.offsets_ns[0];
        if step.abs() <= STEP_NS + error {
            return None;
        }
        self.offsets_ns = [offset, self.offsets_ns[0]];
        Some(Step(step))
    }

    /// The time of day at a time that runs on.
    pub fn of_day(&self, ns: u64) -> u64 {
        (ns as i64 - self.begin_ns + self.offsets_ns[0]) as u64
    }

    /// Brings a stamp of the kernel, which took it within `between`, to the time that runs on; `None` if it
    /// is not from there by any of the known clocks.
    pub fn place(&self, stamp_ns: u64, between: (u64, u64)) -> Option<u64> {
        let placed =
            self.offsets_ns.map(|offset| (stamp_ns as i64 - offset + self.begin_ns) as u64);
        placed.into_iter().find(|ns| (between.0..=between.1).contains(ns))
    }
}

/// The monotonic clock, the time of day less that, and how far the difference may be off.
fn read() -> (i64, i64, i64) {
    let mut best = (0, 0, i64::MAX);
    for _ in 0..READINGS {
        let before = clock(libc::CLOCK_MONOTONIC);
        let day = clock(libc::CLOCK_REALTIME);
        let took = clock(libc::CLOCK_MONOTONIC) - before;
        if took < best.2 {
            best = (before, day - before - took / 2, took);
        }
        if took <= QUICK_NS {
            break;
        }
    }
    best
}

fn clock(which: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in a structure that outlives the call.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    time.tv_sec * NS_PER_S + time.tv_nsec
}

/// How far the clock of the day may be off, as what keeps it tells the kernel.
pub fn clock_error() -> probe::stamp::ClockError {
    // SAFETY: a structure of numbers; with no modes the call only reads.
    let (state, clock) = unsafe {
        let mut clock = std::mem::zeroed::<libc::timex>();
        (libc::adjtimex(&raw mut clock), clock)
    };
    let synchronised =
        state >= 0 && state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0;
    let most_ns = (clock.maxerror.max(0) as u64).saturating_mul(1_000);
    probe::stamp::ClockError { synchronised, most_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_placed_by_the_clock_that_took_it() {
        let mut wall = Wall { begin_ns: 1_000_000_000, offsets_ns: [1_000_000_000; 2] };
        assert_eq!(wall.see(1_000_000_000 + STEP_NS + 20, 20), None);
        assert_eq!(wall.place(1_000_000_500, (1_000_000_400, 1_000_000_600)), Some(1_000_000_500));
        assert_eq!(wall.see(61_000_000_000, 20), Some(Step(60_000_000_000)));
        assert_eq!(wall.of_day(1_000_000_700), 61_000_000_700);
        for stamp in [1_000_000_550, 61_000_000_550] {
            assert_eq!(wall.place(stamp, (1_000_000_400, 1_000_000_600)), Some(1_000_000_550));
        }
        assert_eq!(wall.place(1_000_000_700, (1_000_000_400, 1_000_000_600)), None);
    }

    #[test]
    fn both_clocks_run_on() {
        let mut wall = Wall::new();
        let before = wall.now();
        assert_eq!(wall.look(), None);
        assert!(wall.now() >= before);
        let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!((day.as_nanos() as u64).abs_diff(wall.of_day(wall.now())) < 10_000_000_000);
    }
}
