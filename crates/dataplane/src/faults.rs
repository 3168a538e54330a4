//! Memory that is not there before a loop touches it.

use crate::error::Error;
use crate::stalls::StallLog;
use dpdk::tsc;
use std::ptr::{null_mut, write_volatile};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A small page, in bytes.
pub const PAGE: usize = 4096;
/// Of fresh pages: a thousand a second for a minute.
const PAGES: usize = 1 << 16;

/// Memory of which the loop touches a page when it is asked to.
#[derive(Debug)]
pub struct Faults {
    asked: Arc<AtomicBool>,
    pages: *mut u8,
    touched: usize,
    /// What was done.
    pub truth: StallLog,
}

// SAFETY: the memory is its own.
unsafe impl Send for Faults {}

impl Faults {
    /// Those that are touched when `asked` is set.
    pub fn new(asked: Arc<AtomicBool>) -> Result<Self, Error> {
        let pages = fresh(PAGES * PAGE)?;
        Ok(Self { asked, pages, touched: 0, truth: StallLog::new(PAGES) })
    }

    /// What a loop has that is never asked to.
    pub fn none() -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        Self { asked, pages: null_mut(), touched: 0, truth: StallLog::new(0) }
    }

    /// Whether it is time to [`Faults::touch`].
    #[inline(always)]
    pub fn are_due(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Touches the next page.
    #[cold]
    #[inline(never)]
    pub fn touch(&mut self) {
        self.asked.store(false, Ordering::Relaxed);
        if self.touched == PAGES {
            return;
        }
        let start = tsc::now();
        // SAFETY: within the mapping.
        unsafe { write_volatile(self.pages.add(self.touched * PAGE), 1) };
        self.touched += 1;
        self.truth.push(start, tsc::now().saturating_sub(start));
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        if !self.pages.is_null() {
            // SAFETY: mapped by `new`, used by nobody else.
            unsafe { libc::munmap(self.pages.cast(), PAGES * PAGE) };
        }
    }
}

/// Memory without pages, of which each will be a small one.
pub fn fresh(bytes: usize) -> Result<*mut u8, Error> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(refused("memory"));
    }
    // SAFETY: the mapping of just now.
    unsafe { libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(memory.cast())
}

/// What the system refused, as the error that says so.
pub fn refused(what: &str) -> Error {
    Error::File { path: what.into(), source: std::io::Error::last_os_error() }
}
