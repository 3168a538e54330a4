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

/// The time of day less the monotonic clock, and when it may have been so, on the time that runs on.
#[derive(Clone, Copy, Debug)]
struct Offset {
    ns: i64,
    since_ns: u64,
    until_ns: u64,
}

/// Two clocks and how far they are apart.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    /// What is added to the monotonic clock: the time of day when all began.
    begin_ns: i64,
    /// How far they are apart now, and were before the clock of the day was set last.
    offsets: [Offset; 2],
    /// When that was looked at last.
    looked_ns: u64,
}

/// The clock of the day was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub i64);

impl Wall {
    /// One that begins now.
    pub fn new() -> Self {
        let (at, offset, _) = read();
        Self::at((at + offset) as u64, offset)
    }

    fn at(looked_ns: u64, begin_ns: i64) -> Self {
        let offset = Offset { ns: begin_ns, since_ns: 0, until_ns: u64::MAX };
        Self { begin_ns, offsets: [offset; 2], looked_ns }
    }

    /// Now, on the time that runs on.
    pub fn now(&self) -> u64 {
        (clock(libc::CLOCK_MONOTONIC) + self.begin_ns) as u64
    }

    /// The monotonic clock at a time that runs on.
    pub fn monotonic(&self, ns: u64) -> u64 {
        (ns as i64 - self.begin_ns) as u64
    }

    /// Looks whether the clock of the day was set since it was looked at last.
    pub fn look(&mut self) -> Option<Step> {
        let (at, offset, error) = read();
        self.see((at + self.begin_ns) as u64, offset, error, self.now())
    }

    /// Compares what was read from `read_ns` on with what was read before.
    fn see(&mut self, read_ns: u64, offset: i64, error: i64, now_ns: u64) -> Option<Step> {
        let [last, _] = self.offsets;
        let since_ns = std::mem::replace(&mut self.looked_ns, read_ns);
        let step = offset - last.ns;
        if step.abs() <= STEP_NS + error {
            return None;
        }
        let next = Offset { ns: offset, since_ns, until_ns: u64::MAX };
        self.offsets = [next, Offset { until_ns: now_ns, ..last }];
        Some(Step(step))
    }

    /// The time of day at a time that runs on.
    pub fn of_day(&self, ns: u64) -> u64 {
        (ns as i64 - self.begin_ns + self.offsets[0].ns) as u64
    }

    /// Brings a stamp of the kernel, which took it within `between`, to the time that runs on; `None` if it
    /// is not from there by any of the known clocks, or by both, at different times.
    pub fn place(&self, stamp_ns: u64, between: (u64, u64)) -> Option<u64> {
        let mut placed = self.offsets.iter().filter_map(|offset| {
            let ns = (stamp_ns as i64 - offset.ns + self.begin_ns) as u64;
            let (since_ns, until_ns) =
                (offset.since_ns.max(between.0), offset.until_ns.min(between.1));
            (since_ns..=until_ns).contains(&ns).then_some(ns)
        });
        let first = placed.next()?;
        placed.all(|other| other == first).then_some(first)
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

    const BEGIN_NS: u64 = 1_000_000_000;
    const LATER_NS: i64 = 61_000_000_000;

    /// A clock that was looked at `at` ns from its begin on, and that is set by 60 s until 700.
    fn set(at: u64) -> Wall {
        let mut wall = Wall::at(BEGIN_NS, BEGIN_NS as i64);
        let now_ns = BEGIN_NS + at;
        assert_eq!(wall.see(now_ns, BEGIN_NS as i64 + STEP_NS + 20, 20, now_ns), None);
        let now_ns = BEGIN_NS + 700;
        assert_eq!(wall.see(now_ns, LATER_NS, 20, now_ns), Some(Step(60_000_000_000)));
        wall
    }

    #[test]
    fn a_stamp_is_placed_by_the_clock_that_took_it() {
        let wall = set(500);
        assert_eq!(wall.of_day(BEGIN_NS + 900), LATER_NS as u64 + 900);
        let around = (BEGIN_NS + 400, BEGIN_NS + 1_000);
        for stamp in [BEGIN_NS + 550, LATER_NS as u64 + 550] {
            assert_eq!(wall.place(stamp, around), Some(BEGIN_NS + 550));
        }
        // It cannot have been set before it was looked at, nor after it was seen to be.
        assert_eq!(wall.place(LATER_NS as u64 + 450, around), None);
        assert_eq!(wall.place(BEGIN_NS + 450, around), Some(BEGIN_NS + 450));
        assert_eq!(wall.place(BEGIN_NS + 750, around), None);
        assert_eq!(wall.place(LATER_NS as u64 + 750, around), Some(BEGIN_NS + 750));
    }

    #[test]
    fn a_stamp_that_both_clocks_may_have_taken_has_no_place() {
        let mut wall = Wall::at(BEGIN_NS, BEGIN_NS as i64);
        let (looked_ns, seen_ns) = (BEGIN_NS + 100_000, BEGIN_NS + 500_000);
        assert_eq!(wall.see(looked_ns, BEGIN_NS as i64, 20, looked_ns), None);
        let step_ns = 50_000;
        let later = BEGIN_NS as i64 + step_ns;
        assert_eq!(wall.see(seen_ns, later, 20, seen_ns), Some(Step(step_ns)));
        let ever = (0, BEGIN_NS + 1_000_000);
        assert_eq!(wall.place(BEGIN_NS + 300_000, ever), None);
        // What is from before, or from behind, was taken by one of them.
        assert_eq!(wall.place(BEGIN_NS + 120_000, ever), Some(BEGIN_NS + 120_000));
        assert_eq!(wall.place(BEGIN_NS + 540_000, ever), Some(BEGIN_NS + 490_000));
        assert_eq!(wall.place(BEGIN_NS + 600_000, ever), Some(BEGIN_NS + 550_000));
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
