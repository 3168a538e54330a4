//! A thread beside the loops: it watches links and prints progress.

use crate::cpus::Cpus;
use crate::events;
use crate::links::Links;
use crate::writing::Told;
use dpdk::tsc;
use messages::{Message, ProgressEvent};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// It may share a CPU with a loop, which each look keeps from its work.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// While a link is down, whose other end may come at any time.
const LOOK_EVERY_WHILE_DOWN: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The counter and Unix time, read at once, in order of time.
pub type Pairs = Arc<Mutex<Vec<tsc::Pair>>>;

/// The thread, until it is ended.
pub struct Monitor<'scope> {
    end: Arc<AtomicBool>,
    thread: ScopedJoinHandle<'scope, Vec<u64>>,
}

impl<'scope> Monitor<'scope> {
    /// Starts it on `cpus`; `tid` becomes its number, and `pairs` grow once a second. `state` gives the
    /// progress event of a time, the last of which is left in `told`.
    pub fn start(
        cpus: Cpus,
        scope: &'scope Scope<'scope, '_>,
        (mut links, pairs, told): (Links, Pairs, Told),
        tid: &Arc<AtomicU64>,
        mut state: impl FnMut(f64) -> ProgressEvent + Send + 'scope,
    ) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let tid = tid.clone();
        let thread = cpus.run(scope, move || {
            // SAFETY: a system call without arguments.
            tid.store(unsafe { libc::gettid() } as u64, Ordering::Relaxed);
            let started = Instant::now();
            let mut tell = || {
                let event = state(started.elapsed().as_secs_f64());
                *told.lock().expect("telling does not panic") = Some(event.clone());
                events::print(&Message::Progress(event));
            };
            let mut next = PROGRESS_EVERY;
            while !ended.load(Ordering::Relaxed) {
                let pause = if links.are_up() { LOOK_EVERY } else { LOOK_EVERY_WHILE_DOWN };
                std::thread::park_timeout(pause);
                links.look();
                if started.elapsed() >= next {
                    next += PROGRESS_EVERY;
                    note(&pairs);
                    tell();
                }
            }
            note(&pairs);
            tell();
            links.downs()
        });
        Self { end, thread }
    }

    /// Ends it and says how often each link went down.
    pub fn finish(self) -> Vec<u64> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("watching links does not panic")
    }
}

fn note(pairs: &Pairs) {
    pairs.lock().expect("noting does not panic").push(tsc::pair());
}
