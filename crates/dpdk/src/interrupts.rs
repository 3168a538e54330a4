//! The thread on which drivers hear of what happens to their ports: a peer that goes, a link that changes.
//!
//! The memif driver builds a link there, and takes it apart, without a lock: a port that is stopped,
//! started or closed meanwhile takes away what the thread reads, and so does DPDK's cleanup. [`hold`]
//! keeps it out of the way.

use std::ffi::{c_int, c_void};
use std::sync::mpsc::{self, Receiver, Sender};

/// `RTE_INTR_INSTANCE_F_PRIVATE`, a macro that no bindings are made of: memory of this process alone.
const PRIVATE: u32 = 0;

/// That thread at rest, until this is dropped.
#[derive(Debug)]
pub struct Held {
    /// What wakes the thread, and what it is told by when it may go on; None where DPDK refused.
    rest: Option<(Event, Sender<()>)>,
}

/// An event that calls [`stay`], once.
#[derive(Debug)]
struct Event {
    handle: *mut dpdk_sys::rte_intr_handle,
    descriptor: c_int,
    given: *mut Given,
}

/// What [`stay`] is given.
struct Given {
    descriptor: c_int,
    rests: Sender<()>,
    end: Receiver<()>,
}

/// Waits until what the thread does now is done, and holds it. Where DPDK refuses, nothing is held.
#[must_use]
pub fn hold() -> Held {
    let (rests, resting) = mpsc::channel();
    let (go_on, end) = mpsc::channel();
    let event = Event::new(rests, end);
    let rest = event.filter(|_| resting.recv().is_ok()).map(|event| (event, go_on));
    Held { rest }
}

impl Held {
    /// Holds it for as long as the process lives: while DPDK is cleaned up, too.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The sender goes first: the event's end waits for its callback.
        if let Some((event, go_on)) = self.rest.take() {
            drop(go_on);
            drop(event);
        }
    }
}

impl Event {
    fn new(rests: Sender<()>, end: Receiver<()>) -> Option<Self> {
        // SAFETY: plain calls.
        let (descriptor, handle) = unsafe {
            (libc::eventfd(1, libc::EFD_CLOEXEC), dpdk_sys::rte_intr_instance_alloc(PRIVATE))
        };
        let given = Box::into_raw(Box::new(Given { descriptor, rests, end }));
        let event = Self { handle, descriptor, given };
        // SAFETY: a handle of its own; what the callback is given outlives its registration.
        let registered = descriptor >= 0
            && !handle.is_null()
            && unsafe {
                dpdk_sys::rte_intr_fd_set(handle, descriptor) == 0
                    && dpdk_sys::rte_intr_type_set(handle, dpdk_sys::RTE_INTR_HANDLE_EXT) == 0
                    && dpdk_sys::rte_intr_callback_register(handle, Some(stay), given.cast()) == 0
            };
        registered.then_some(event)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made in `new`; once the callback is gone, which this waits for, nobody has them.
        unsafe {
            if !self.handle.is_null() {
                let given = self.given.cast();
                dpdk_sys::rte_intr_callback_unregister_sync(self.handle, Some(stay), given);
                dpdk_sys::rte_intr_instance_free(self.handle);
            }
            if self.descriptor >= 0 {
                libc::close(self.descriptor);
            }
            drop(Box::from_raw(self.given));
        }
    }
}

unsafe extern "C" fn stay(given: *mut c_void) {
    // SAFETY: `Event` keeps it for as long as it is registered.
    let given = unsafe { &*given.cast::<Given>() };
    let mut count = 0_u64;
    // SAFETY: takes the event's one count, so that the callback is called once.
    unsafe { libc::read(given.descriptor, (&raw mut count).cast(), size_of::<u64>()) };
    let _ = given.rests.send(());
    let _ = given.end.recv();
}
