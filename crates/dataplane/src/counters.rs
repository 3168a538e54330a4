//! What a loop counts and other threads read while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread counts up and others read. No locked instruction.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Count(AtomicU64);

impl Count {
    /// Counts `more`. Only ever called by the thread that counts.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Sets it. Only ever called by the thread that counts.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What every loop counts. A cache line of its own, so that readers disturb no other loop.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// The kernel's number of the thread that runs the loop.
    pub tid: Count,
    /// Iterations.
    pub iterations: Count,
    /// Packets received.
    pub rx_packets: Count,
    /// Packets that a transmit ring took.
    pub tx_packets: Count,
    /// Packets dropped because a transmit ring was full.
    pub tx_dropped: Count,
    /// Stalls.
    pub stalls: Count,
    /// Ticks of all stalls.
    pub stall_total: Count,
    /// Ticks of the longest stall.
    pub stall_longest: Count,
}

const _: () = assert!(size_of::<Counters>() == 128);
