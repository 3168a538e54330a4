//! Disturbances of a loop's CPU, made on purpose, and when: the ground truth of what explains stalls.

use crate::cpus::Cpus;
use crate::error::Error;
use crate::faults::{Faults, PAGE, fresh, refused};
use crate::session::Session;
use crate::stalls::Stall;
use crate::ticks::Ticks;
use crate::values::time;
use clap::{Args, ValueEnum};
use dpdk::{Lcore, tsc};
use std::ptr::write_volatile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use units::Nanos;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Memory is unmapped by another CPU.
    Tlb,
    /// A barrier that another CPU wants of all.
    Call,
    /// Another task is woken on the CPU, and sleeps again.
    Reschedule,
    /// Another task works on the CPU for a while.
    Busy,
    /// The loop touches memory that is not there yet.
    Fault,
}

/// How to disturb.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Disturb the first loop's CPU, by one after the other.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    disturb: Vec<Kind>,
    /// So often.
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = time)]
    disturb_period: Nanos,
    /// For how long a task works.
    #[arg(long, default_value = "100us", value_name = "TIME", value_parser = time)]
    disturb_duration: Nanos,
}

/// Threads that disturb until they are stopped.
pub struct Disturber {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<(Kind, Stall)>>>,
}

impl Disturber {
    /// Starts to disturb the CPU of `lcore`; its loop keeps the faults.
    pub fn start(
        session: &Session,
        lcore: Lcore,
        options: &Options,
    ) -> Result<(Self, Faults), Error> {
        let asked = Arc::new(AtomicBool::new(false));
        let kinds = options.disturb.clone();
        let faults = match kinds.contains(&Kind::Fault) {
            true => Faults::new(asked.clone())?,
            false => Faults::none(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        if kinds.is_empty() {
            return Ok((Self { stop, thread: None }, faults));
        }
        if kinds.contains(&Kind::Busy) && options.disturb_period <= options.disturb_duration {
            return Err(Error::Option {
                option: "--disturb-period",
                got: options.disturb_period.to_string(),
                expected: format!("more than --disturb-duration, {}", options.disturb_duration),
            });
        }
        if kinds.contains(&Kind::Call) {
            register_barrier()?;
        }
        let competitor = Competitor::start(lcore);
        let lasts = Ticks::new(session.clock).ticks(options.disturb_duration);
        let period = Duration::from_nanos(options.disturb_period.0);
        let (stopped, housekeeping) = (stop.clone(), session.housekeeping);
        let thread = spawn(move || {
            housekeeping.move_here();
            let mut done = Vec::new();
            let mut next = Instant::now();
            for kind in kinds.iter().cycle() {
                next += period;
                if !waited(next, &stopped) {
                    done.extend(competitor.finish());
                    return done;
                }
                match kind {
                    Kind::Tlb => done.extend(timed(*kind, unmap)),
                    Kind::Call => done.extend(timed(*kind, barrier)),
                    Kind::Reschedule => competitor.work(*kind, 0),
                    Kind::Busy => competitor.work(*kind, lasts),
                    Kind::Fault => asked.store(true, Ordering::Relaxed),
                }
            }
            unreachable!("a cycle of kinds does not end")
        });
        Ok((Self { stop, thread: Some(thread) }, faults))
    }

    /// Stops, and writes down what was done to the loop that kept `faults`; says how often that was.
    pub fn finish(self, session: &mut Session, faults: &Faults) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.map(|thread| thread.join().expect("disturbing does not panic"));
        let mut done = ended.unwrap_or_default();
        done.extend(faults.truth.stalls().iter().map(|stall| (Kind::Fault, *stall)));
        done.sort_by_key(|(_, stall)| stall.start);
        assert_eq!(faults.truth.unrecorded, 0, "a page each has its place in the log");
        session.record("disturbed_kind", done.iter().map(|(kind, _)| *kind as u64));
        session.record("disturbed_start_tsc", done.iter().map(|(_, stall)| stall.start));
        session.record("disturbed_duration_tsc", done.iter().map(|(_, stall)| stall.duration));
        done.len()
    }
}

/// Waits until then; whether nobody has stopped it before.
fn waited(until: Instant, stopped: &AtomicBool) -> bool {
    while !stopped.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        sleep(left.min(LOOK_EVERY));
    }
    false
}

/// A task on the loop's CPU that sleeps until there is work.
struct Competitor {
    orders: SyncSender<(Kind, u64)>,
    thread: JoinHandle<Vec<(Kind, Stall)>>,
}

impl Competitor {
    fn start(lcore: Lcore) -> Self {
        let (orders, receiver): (_, Receiver<(Kind, u64)>) = sync_channel(1);
        let work = move || {
            if let Some(cpu) = lcore.cpu() {
                Cpus::one(cpu).move_here();
            }
            let mut done = Vec::new();
            for (kind, lasts) in receiver {
                let start = tsc::now();
                while tsc::now().saturating_sub(start) < lasts {}
                done.push((kind, Stall { start, duration: tsc::now().saturating_sub(start) }));
            }
            done
        };
        let named = Builder::new().name("disturb".into());
        let thread = named.spawn(work).expect("a thread can be started");
        Self { orders, thread }
    }

    /// Wakes it up; one that is late already is left to what it does.
    fn work(&self, kind: Kind, lasts: u64) {
        let _ = self.orders.try_send((kind, lasts));
    }

    fn finish(self) -> Vec<(Kind, Stall)> {
        drop(self.orders);
        self.thread.join().expect("working does not panic")
    }
}

fn timed(kind: Kind, act: impl FnOnce() -> Option<u64>) -> Option<(Kind, Stall)> {
    let start = act()?;
    Some((kind, Stall { start, duration: tsc::now().saturating_sub(start) }))
}

/// Maps a page, touches it, unmaps it; says when the unmapping began.
fn unmap() -> Option<u64> {
    let page = fresh(PAGE).ok()?;
    // SAFETY: one page, mapped just now.
    unsafe {
        write_volatile(page, 1);
        let start = tsc::now();
        libc::munmap(page.cast(), PAGE);
        Some(start)
    }
}

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

fn register_barrier() -> Result<(), Error> {
    // SAFETY: a system call without pointers.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
    if status == 0 { Ok(()) } else { Err(refused("membarrier")) }
}

fn barrier() -> Option<u64> {
    let start = tsc::now();
    // SAFETY: a system call without pointers.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    (status == 0).then_some(start)
}
