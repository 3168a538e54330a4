//! Lets a driver take memory away while other threads poll.
//!
//! When the peer of a memif link goes, the driver's control thread marks the link as down and then
//! unmaps the shared rings, while a polling loop may still be reading them: DPDK's own testpmd dies of
//! it. Here every polling loop beats once an iteration. Once each of them has beaten after the mark,
//! none is inside of a burst that began before it, and the memory may go: [`wait`] waits for that.
//! [`pause`] holds all loops between two iterations, for what a port cannot bear while it is polled.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// More polling loops than this cannot be there at once.
const MOST: usize = 128;

#[repr(align(128))]
struct Slot {
    taken: AtomicBool,
    parked: AtomicBool,
    beats: AtomicU64,
}

static PAUSED: AtomicBool = AtomicBool::new(false);

static SLOTS: [Slot; MOST] = [const {
    Slot { taken: AtomicBool::new(false), parked: AtomicBool::new(false), beats: AtomicU64::new(0) }
}; MOST];

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
        if PAUSED.load(Ordering::Relaxed) {
            self.park();
        }
    }

    #[cold]
    fn park(&self) {
        let parked = &SLOTS[self.slot].parked;
        // Again where a new pause has begun: whoever did so may have seen this loop parked still.
        while PAUSED.load(Ordering::SeqCst) {
            parked.store(true, Ordering::SeqCst);
            while PAUSED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            parked.store(false, Ordering::SeqCst);
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        OWN.set(MOST);
        SLOTS[self.slot].taken.store(false, Ordering::SeqCst);
    }
}

/// Waits until every polling loop but this thread's own has beaten once, or is held.
pub fn wait() {
    fence(Ordering::SeqCst);
    for slot in others() {
        let seen = slot.beats.load(Ordering::Acquire);
        let is_polling = || {
            slot.taken.load(Ordering::SeqCst)
                && !slot.parked.load(Ordering::SeqCst)
                && slot.beats.load(Ordering::Acquire) == seen
        };
        while is_polling() {
            std::thread::yield_now();
        }
    }
}

/// Holds every polling loop but this thread's own between two iterations, until this is dropped.
#[derive(Debug)]
pub struct Pause(());

/// Begins a pause. One thread at a time.
#[must_use]
pub fn pause() -> Pause {
    PAUSED.store(true, Ordering::SeqCst);
    for slot in others() {
        while slot.taken.load(Ordering::SeqCst) && !slot.parked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    Pause(())
}

impl Drop for Pause {
    fn drop(&mut self) {
        PAUSED.store(false, Ordering::SeqCst);
    }
}

fn others() -> impl Iterator<Item = &'static Slot> {
    let own = OWN.try_with(Cell::get).unwrap_or(MOST);
    SLOTS.iter().enumerate().filter(move |(at, _)| *at != own).map(|(_, slot)| slot)
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
        static HAS_READ: AtomicBool = AtomicBool::new(false);
        let reader = thread::spawn(|| {
            let mut poller = Poller::start();
            while !STOP.load(Ordering::Relaxed) {
                poller.beat();
                if LINKED.load(Ordering::SeqCst) {
                    for _ in 0..100 {
                        assert_eq!(VALID.load(Ordering::SeqCst), 1, "read after it was taken away");
                    }
                    HAS_READ.store(true, Ordering::SeqCst);
                }
            }
        });
        while !HAS_READ.load(Ordering::SeqCst) && !reader.is_finished() {
            thread::yield_now();
        }
        for _ in 0..2_000 {
            LINKED.store(false, Ordering::SeqCst);
            wait();
            VALID.store(0, Ordering::SeqCst);
            thread::yield_now();
            VALID.store(1, Ordering::SeqCst);
            LINKED.store(true, Ordering::SeqCst);
        }
        for _ in 0..2_000 {
            let pause = pause();
            VALID.store(0, Ordering::SeqCst);
            wait();
            VALID.store(1, Ordering::SeqCst);
            drop(pause);
        }
        STOP.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        wait();
    }
}
