//! The thread on which drivers hear of what happens to their ports: a peer that goes, a link that changes.

use std::ffi::c_void;
use std::sync::mpsc::{self, Sender};

/// `RTE_INTR_INSTANCE_F_PRIVATE`, a macro that no bindings are made of: memory of this process alone.
const PRIVATE: u32 = 0;

/// Holds that thread for as long as the process lives, once what it does now is done.
///
/// A memif port whose peer goes is taken apart there, and DPDK's cleanup frees what the thread reads:
/// neither may happen beside the end of a session. An alarm would not do, because the cleanup waits for
/// alarms. Where DPDK refuses, nothing is held.
pub fn hold() {
    let (told, rests) = mpsc::channel::<()>();
    let told = Box::into_raw(Box::new(told));
    if wake(told) {
        let _ = rests.recv();
    } else {
        // SAFETY: it was given to nobody.
        drop(unsafe { Box::from_raw(told) });
    }
}

/// Has the thread call [`stay`]: an event of a descriptor that is ready from the beginning.
fn wake(told: *mut Sender<()>) -> bool {
    // SAFETY: plain calls; the handle and its descriptor live as long as the process.
    unsafe {
        let ready = libc::eventfd(1, libc::EFD_CLOEXEC);
        let handle = dpdk_sys::rte_intr_instance_alloc(PRIVATE);
        ready >= 0
            && !handle.is_null()
            && dpdk_sys::rte_intr_fd_set(handle, ready) == 0
            && dpdk_sys::rte_intr_type_set(handle, dpdk_sys::RTE_INTR_HANDLE_EXT) == 0
            && dpdk_sys::rte_intr_callback_register(handle, Some(stay), told.cast()) == 0
    }
}

unsafe extern "C" fn stay(told: *mut c_void) {
    // SAFETY: `hold` gave it away.
    let told = unsafe { Box::from_raw(told.cast::<Sender<()>>()) };
    let _ = told.send(());
    loop {
        std::thread::park();
    }
}
