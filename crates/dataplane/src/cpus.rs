//! Sets of CPUs, and threads that run on them.

use std::thread::{Scope, ScopedJoinHandle};

/// A set of CPUs.
#[derive(Clone, Copy)]
pub struct Cpus(libc::cpu_set_t);

impl Cpus {
    /// Those on which this thread may run.
    pub fn allowed() -> Self {
        // SAFETY: a set of bits; the call fills it in, or leaves it empty.
        unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            Self(set)
        }
    }

    /// Only this one.
    pub fn one(cpu: u32) -> Self {
        // SAFETY: a set of bits; CPU_SET ignores numbers beyond it.
        unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            libc::CPU_SET(cpu as usize, &mut set);
            Self(set)
        }
    }

    /// Those that are not among `cpus`; all of them where no other is left.
    pub fn without(self, cpus: impl Iterator<Item = u32>) -> Self {
        let mut rest = self.0;
        for cpu in cpus {
            // SAFETY: CPU_CLR ignores numbers beyond the set.
            unsafe { libc::CPU_CLR(cpu as usize, &mut rest) };
        }
        // SAFETY: counts bits.
        if unsafe { libc::CPU_COUNT(&rest) } == 0 { self } else { Self(rest) }
    }

    /// Moves this thread. Where that is refused it stays: no harm but noise, which the stall log shows.
    pub fn move_here(&self) {
        // SAFETY: a set of bits.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }

    /// Runs `work` in a thread of its own, on these CPUs.
    pub fn run<'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        scope.spawn(move || {
            self.move_here();
            work()
        })
    }
}
