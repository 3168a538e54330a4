//! Lets a driver take memory away while other threads poll.
//!
//! When the peer of a memif link goes, the driver's control thread marks the link as down and then
//! unmaps the shared rings, while a polling loop may still be reading them: DPDK's own testpmd dies of
//! it. Here every polling loop beats once an iteration. Once each of them has beaten after the mark,
//! none is inside of a burst that began before it, and the memory may go: [`wait`] waits for that.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// More polling loops than this cannot be there at once.
const MOST: usize = 128;

#[repr(align(128))]
struct Slot {
    taken: AtomicBool,
    beats: AtomicU64,
}

static SLOTS: [Slot; MOST] =
    [const { Slot { taken: AtomicBool::new(false), beats: AtomicU64::new(0) } }; MOST];

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(MOST) };
}

/// A polling loop of this thread, from now until it is dropped.
#[derive(Debug)]
pub struct Poller {
    slot: usize,
    beats: u64,
    /// Belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Poller {
    /// Announces a polling loop on this thread.
    ///
    /// # Panics
    /// When more loops than lcores are possible run at once, or this thread has one already.
    #[must_use]
    pub fn start() -> Self {
        assert_eq!(OWN.get(), MOST, "one polling loop a thread");
        let free = |slot: &Slot| !slot.taken.swap(true, Ordering::SeqCst);
        let slot = SLOTS.iter().position(free).expect("a slot for every lcore");
        OWN.set(slot);
        Self {
            slot,
            beats: SLOTS[slot].beats.load(Ordering::Relaxed),
            _not_send: std::marker::PhantomData,
        }
    }

    /// Says that no burst is under way: once an iteration.
    #[inline(always)]
    pub fn beat(&mut self) {
        self.beats += 1;
        SLOTS[self.slot].beats.store(self.beats, Ordering::Release);
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        OWN.set(MOST);
        SLOTS[self.slot].taken.store(false, Ordering::SeqCst);
    }
}

/// Waits until every polling loop but this thread's own has beaten once.
pub fn wait() {
    fence(Ordering::SeqCst);
    let own = OWN.try_with(Cell::get).unwrap_or(MOST);
    for (_, slot) in SLOTS.iter().enumerate().filter(|(at, _)| *at != own) {
        let seen = slot.beats.load(Ordering::Acquire);
        while slot.taken.load(Ordering::SeqCst) && slot.beats.load(Ordering::Acquire) == seen {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    #[test]
    fn what_a_loop_may_still_read_outlives_its_iteration() {
        static VALID: AtomicU32 = AtomicU32::new(1);
        static LINKED: AtomicBool = AtomicBool::new(true);
        static STOP: AtomicBool = AtomicBool::new(false);
        let reader = thread::spawn(|| {
            let mut poller = Poller::start();
            let mut seen = 0_u64;
            while !STOP.load(Ordering::Relaxed) {
                poller.beat();
                if LINKED.load(Ordering::SeqCst) {
                    for _ in 0..100 {
                        assert_eq!(VALID.load(Ordering::SeqCst), 1, "read after it was taken away");
                        seen += 1;
                    }
                }
            }
            seen
        });
        for _ in 0..2_000 {
            LINKED.store(false, Ordering::SeqCst);
            wait();
            VALID.store(0, Ordering::SeqCst);
            thread::yield_now();
            VALID.store(1, Ordering::SeqCst);
            LINKED.store(true, Ordering::SeqCst);
        }
        STOP.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
        wait();
    }
}
