//! SIGINT and SIGTERM: the loops end, and a valid result is printed.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a wait looks.
const POLL: Duration = Duration::from_millis(1);
/// How often a wait looks that a signal interrupts: others measure meanwhile.
const RARE_POLL_MS: libc::c_int = 1_000;

/// Whether to stop. Cheap to ask, once an iteration.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

impl Stop {
    /// One that the two signals set.
    pub fn on_signals() -> std::io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.flag.clone())?;
        }
        signal_hook::flag::register(SIGTERM, stop.terminated.clone())?;
        Ok(stop)
    }

    /// Whether to stop.
    #[inline(always)]
    pub fn asked(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Asks all loops to stop.
    pub fn ask(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Waits until SIGTERM has come.
    pub fn wait_for_sigterm(&self) {
        while !self.terminated.load(Ordering::Relaxed) {
            std::thread::sleep(POLL);
        }
    }

    /// Waits until a pipe gives a byte or is closed, or this is to stop.
    pub fn wait_for_byte(&self, pipe: &Path) -> io::Result<()> {
        let mut pipe = File::open(pipe)?;
        let mut wanted = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        while !self.asked() {
            // SAFETY: one structure, of a file that is open.
            if unsafe { libc::poll(&raw mut wanted, 1, RARE_POLL_MS) } > 0 {
                return pipe.read(&mut [0]).map(drop);
            }
        }
        Ok(())
    }
}
