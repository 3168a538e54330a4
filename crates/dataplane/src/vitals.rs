//! Why a thread did not run: what the kernel counted of it meanwhile.

use messages::{CausedStalls, StallCause};
use probe::stamp::Cause;
use signal_hook::consts::SIGCONT;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What explains less than this part of a stall is not its cause.
const LEAST_PART: u64 = 3;
/// Counters are read anew after this time, so that only what belongs to a stall is counted for it.
const FRESH_NS: u64 = 10_000_000;
const NS_PER_US: u64 = 1_000;

/// What the kernel has counted of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Time on a CPU.
    pub ran_ns: u64,
    /// Time for which it waited for one.
    pub waited_ns: u64,
    /// Time for which its control groups had no quota left.
    pub throttled_ns: u64,
    /// Pages that had to be read from a disk.
    pub pages: u64,
}

/// A time in which a loop should have run, and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndStall {
    pub start_ns: u64,
    pub lasted_ns: u64,
    pub cause: Cause,
}

/// Watches the thread that made it.
pub struct Vitals {
    schedule: Option<File>,
    groups: Groups,
    continued: Arc<AtomicBool>,
    least_ns: u64,
    last: Counters,
    read_ns: u64,
    /// Stalls so far, those for which there was no room left out.
    pub stalls: Vec<EndStall>,
    /// How many there were.
    pub count: u64,
    /// Number, total and longest of each cause.
    totals: [[u64; 3]; Cause::ALL.len()],
}

impl Vitals {
    /// Watches this thread; what takes `least_ns` or longer is a stall, of which `room` are kept.
    pub fn new(least_ns: u64, room: usize) -> Self {
        let continued = Arc::new(AtomicBool::new(false));
        // Without the handler a stop has an unknown cause: no reason not to measure.
        let _ = signal_hook::flag::register(SIGCONT, continued.clone());
        let mut vitals = Self {
            schedule: File::open("/proc/thread-self/schedstat").ok(),
            groups: Groups::default(),
            continued,
            least_ns,
            last: Counters::default(),
            read_ns: 0,
            stalls: Vec::with_capacity(room),
            count: 0,
            totals: Default::default(),
        };
        vitals.last = vitals.counters();
        vitals
    }

    /// What the kernel had counted when it was looked at last.
    pub fn last(&self) -> Counters {
        self.last
    }

    /// What the kernel has counted until now.
    fn counters(&mut self) -> Counters {
        // Before anything else: pages that reading the rest takes belong to the stall that this is.
        // SAFETY: a structure of numbers, which the call fills in.
        let used = unsafe {
            let mut used = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut used);
            used
        };
        let [ran_ns, waited_ns] = self.schedule.as_ref().and_then(scheduled).unwrap_or_default();
        self.groups.look();
        let throttled_ns = self.groups.files.iter().filter_map(throttled).sum();
        Counters { ran_ns, waited_ns, throttled_ns, pages: used.ru_majflt as u64 }
    }

    /// The loop runs at `now_ns`, and should have since `due_ns`: notes a stall, if that is one.
    pub fn runs(&mut self, due_ns: u64, now_ns: u64) -> Option<EndStall> {
        let lasted_ns = now_ns.saturating_sub(due_ns);
        if lasted_ns < self.least_ns {
            if now_ns.saturating_sub(self.read_ns) >= FRESH_NS {
                // Before it reads: a stop meanwhile belongs to what follows.
                self.continued.store(false, Ordering::Relaxed);
                (self.last, self.read_ns) = (self.counters(), now_ns);
            }
            return None;
        }
        let stall = self.stalled(due_ns, now_ns);
        self.note(stall);
        Some(stall)
    }

    /// The loop did its work from `since_ns` to `now_ns`: notes a stall, if it was kept from it so long.
    pub fn worked(&mut self, since_ns: u64, now_ns: u64) -> Option<EndStall> {
        if now_ns.saturating_sub(since_ns) < self.least_ns {
            return None;
        }
        let stall = self.stalled(since_ns, now_ns);
        if stall.cause == Cause::Busy {
            return None;
        }
        self.note(stall);
        Some(stall)
    }

    fn stalled(&mut self, start_ns: u64, now_ns: u64) -> EndStall {
        let (counters, lasted_ns) = (self.counters(), now_ns - start_ns);
        let stopped = self.continued.swap(false, Ordering::Relaxed);
        let cause = match cause(self.last, counters, lasted_ns, stopped) {
            Cause::Preempted if !self.groups.is_known => Cause::Waited,
            cause => cause,
        };
        (self.last, self.read_ns) = (counters, now_ns);
        EndStall { start_ns, lasted_ns, cause }
    }

    /// Notes a stall whose cause is known.
    pub fn note(&mut self, stall: EndStall) {
        self.count += 1;
        let [count, total, longest] = &mut self.totals[stall.cause as usize];
        (*count, *total) = (*count + 1, *total + stall.lasted_ns);
        *longest = stall.lasted_ns.max(*longest);
        if self.stalls.len() < self.stalls.capacity() {
            self.stalls.push(stall);
        }
    }

    /// The stalls by cause, as messages have them.
    pub fn told(&self) -> Vec<CausedStalls> {
        let of_causes = Cause::ALL.into_iter().zip(self.totals);
        of_causes
            .filter(|(_, [count, ..])| *count > 0)
            .map(|(cause, [count, total, longest])| CausedStalls {
                cause: told(cause),
                count: count.into(),
                stall_ns_total: total.into(),
                stall_ns_max: longest.into(),
            })
            .collect()
    }
}

fn told(cause: Cause) -> StallCause {
    match cause {
        Cause::Unknown => StallCause::Unknown,
        Cause::Stopped => StallCause::Stopped,
        Cause::Throttled => StallCause::Throttled,
        Cause::Preempted => StallCause::Preempted,
        Cause::Paged => StallCause::Paged,
        Cause::Busy => StallCause::Busy,
        Cause::ClockStep => StallCause::ClockStep,
        Cause::Waited => StallCause::Waited,
    }
}

/// The cause of a stall, by what was counted before it and behind it.
fn cause(before: Counters, after: Counters, lasted_ns: u64, stopped: bool) -> Cause {
    if stopped {
        return Cause::Stopped;
    }
    let throttled = after.throttled_ns.saturating_sub(before.throttled_ns);
    // Who is throttled waits for a CPU, too.
    let waited = after.waited_ns.saturating_sub(before.waited_ns).saturating_sub(throttled);
    let ran = after.ran_ns.saturating_sub(before.ran_ns);
    let parts = [(throttled, Cause::Throttled), (waited, Cause::Preempted), (ran, Cause::Busy)];
    let (longest, cause) = parts.into_iter().max_by_key(|(ns, _)| *ns).expect("three parts");
    if longest >= lasted_ns / LEAST_PART {
        cause
    } else if after.pages > before.pages {
        Cause::Paged
    } else {
        Cause::Unknown
    }
}

/// Time on a CPU, and time waiting for one.
fn scheduled(file: &File) -> Option<[u64; 2]> {
    let text = read(file)?;
    let mut words = text.split_ascii_whitespace();
    Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
}

/// Time for which a control group was throttled, of either version.
fn throttled(file: &File) -> Option<u64> {
    read(file)?.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        let number = number.parse::<u64>().ok()?;
        match name {
            "throttled_usec" => Some(number * NS_PER_US),
            "throttled_time" => Some(number),
            _ => None,
        }
    })
}

fn read(file: &File) -> Option<String> {
    let mut bytes = [0; 1024];
    let len = file.read_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes[..len].to_vec()).ok()
}

/// The control groups that this process is in, up to the root.
#[derive(Default)]
struct Groups {
    /// What the kernel says of them, as a process may be moved.
    text: String,
    files: Vec<File>,
    /// Whether those counters can be read that tell how long this process was throttled.
    is_known: bool,
}

impl Groups {
    /// Looks where this process is now.
    fn look(&mut self) {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if text != self.text || !self.is_known {
            self.files.clear();
            self.is_known = false;
            for line in text.lines() {
                self.open(line);
            }
            self.text = text;
        }
    }

    fn open(&mut self, line: &str) {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return };
        let roots = match controllers {
            "" => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].as_slice(),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].as_slice()
            }
            _ => return,
        };
        for folder in Path::new(path).ancestors() {
            let of_root = |root: &&str| -> PathBuf {
                Path::new(root).join(folder.strip_prefix("/").unwrap_or(folder)).join("cpu.stat")
            };
            let file = roots.iter().map(of_root).find_map(|path| File::open(path).ok());
            self.is_known |= file.is_some() && folder == Path::new(path);
            self.files.extend(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ran_ns: u64, waited_ns: u64, throttled_ns: u64, pages: u64) -> Counters {
        Counters { ran_ns, waited_ns, throttled_ns, pages }
    }

    #[test]
    fn the_longest_part_of_a_stall_is_its_cause() {
        let before = Counters::default();
        let of = |after, stopped| cause(before, after, 90, stopped);
        assert_eq!(of(after(0, 80, 0, 0), true), Cause::Stopped);
        assert_eq!(of(after(5, 80, 75, 0), false), Cause::Throttled);
        assert_eq!(of(after(5, 80, 10, 1), false), Cause::Preempted);
        assert_eq!(of(after(80, 5, 0, 0), false), Cause::Busy);
        assert_eq!(of(after(5, 5, 0, 1), false), Cause::Paged);
        assert_eq!(of(after(5, 5, 0, 0), false), Cause::Unknown);
    }

    #[test]
    fn only_what_takes_long_is_a_stall() {
        let mut vitals = Vitals::new(100, 1);
        assert_eq!(vitals.runs(1_000, 1_099), None);
        assert_eq!(vitals.runs(1_000, 1_100).map(|stall| stall.lasted_ns), Some(100));
        assert!(vitals.runs(1_000, 2_000).is_some());
        assert_eq!((vitals.count, vitals.stalls.len()), (2, 1));
    }

    #[test]
    fn work_is_a_stall_if_it_was_kept_from_it() {
        let mut vitals = Vitals::new(100, 2);
        vitals.continued.store(true, Ordering::Relaxed);
        assert_eq!(vitals.worked(1_000, 1_099), None);
        assert_eq!(vitals.worked(1_000, 1_100).map(|stall| stall.cause), Some(Cause::Stopped));
        while vitals.counters().ran_ns < 100 {}
        // As if it had run since, and had not waited.
        vitals.last = after(0, u64::MAX, u64::MAX, 0);
        assert_eq!((vitals.worked(2_000, 2_100), vitals.count), (None, 1));
    }

    #[test]
    fn groups_that_cannot_be_read_are_not_known() {
        let mut groups = Groups::default();
        groups.open("3:cpu:/no-such-group");
        assert!(!groups.is_known);
    }

    #[test]
    fn the_kernel_counts_the_time_of_this_thread() {
        let mut vitals = Vitals::new(1, 1);
        let busy = std::time::Instant::now();
        while busy.elapsed() < std::time::Duration::from_millis(5) {}
        assert!(vitals.counters().ran_ns > vitals.last.ran_ns);
    }
}
