//! SIGINT and SIGTERM: the loops end, and a valid result is printed.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
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
        // To open it would wait for who writes, whatever signals come.
        let mut pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(pipe)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::sync::mpsc::channel;

    #[test]
    fn a_pipe_that_nobody_opens_keeps_nobody_from_stopping() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("hold");
        let name = CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a system call with a string that ends.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let (stop, (said, heard)) = (Stop::default(), channel());
        std::thread::scope(|scope| {
            scope.spawn(|| said.send(stop.wait_for_byte(&pipe).is_ok()));
            assert!(heard.recv_timeout(Duration::from_millis(20)).is_err());
            stop.ask();
            // Nothing interrupts this wait, so it looks once more.
            assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok(true));
        });
    }
}
