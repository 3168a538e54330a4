//! The `munmap` that DPDK's drivers call: the system's, once no polling loop can be reading the memory.
//!
//! When its peer goes, the memif driver marks the link as down and unmaps the shared rings, on a thread
//! of its own, under the feet of whoever polls them. The driver offers no hook in between but this.

use std::ffi::{c_int, c_void};

/// Waits for the polling loops, then unmaps.
///
/// # Safety
/// As the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    dpdk::quiescence::wait();
    // SAFETY: what the caller promises is what the system asks for.
    unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int }
}
