//! Stalls made on purpose, and the truth about them.

use crate::stalls::{Stall, StallLog};
use crate::ticks::Ticks;
use dpdk::tsc;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Nanos;

/// Stalls the loop that asks: every period, later by a random jitter, for each duration in turn.
///
/// What is needed around a stall shares a cache line with what every turn looks at: a cache miss there
/// would count as a part of the stall.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Injector {
    at: u64,
    lasts: u64,
    /// One that was done and not yet written down.
    done: Option<Stall>,
    due: u64,
    period: u64,
    jitter: u64,
    durations: Vec<u64>,
    random: Xoshiro256PlusPlus,
    /// What was done.
    pub truth: StallLog,
}

impl Injector {
    /// One that begins a period after `tsc`; never without durations.
    pub fn new(
        period: Nanos,
        jitter: Nanos,
        durations: &[Nanos],
        seed: u64,
        ticks: Ticks,
        tsc: u64,
    ) -> Self {
        let durations: Vec<u64> = durations.iter().map(|lasts| ticks.ticks(*lasts)).collect();
        let room = if durations.is_empty() { 0 } else { StallLog::ROOM };
        let mut injector = Self {
            period: ticks.ticks(period).max(1),
            jitter: ticks.ticks(jitter),
            durations,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            due: tsc,
            at: u64::MAX,
            lasts: 0,
            done: None,
            truth: StallLog::new(room),
        };
        injector.plan(tsc);
        injector
    }

    /// Whether it is time to [`Injector::act`].
    #[inline(always)]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.at
    }

    /// Does nothing for as long as it should; writes that down when called next, which is at once:
    /// whatever is done right after a stall seems to be a part of it.
    #[inline(always)]
    pub fn act(&mut self) {
        match self.done.take() {
            None => {
                let start = tsc::now();
                let mut end = start;
                // No pause instruction: a hypervisor may take it for a lock that is waited for.
                while end.saturating_sub(start) < self.lasts {
                    end = tsc::now();
                }
                self.done = Some(Stall { start, duration: end - start });
                self.at = 0;
            }
            Some(Stall { start, duration }) => {
                self.truth.push(start, duration);
                self.plan(start + duration);
            }
        }
    }

    #[cold]
    fn plan(&mut self, end: u64) {
        let Some(count) = (self.truth.count() as usize).checked_rem(self.durations.len()) else {
            return;
        };
        self.lasts = self.durations[count];
        while self.due <= end {
            self.due += self.period;
        }
        self.at = self.due + self.random.random_range(0..=self.jitter);
    }

    /// The stalls that were injected.
    pub fn stalls(&self) -> &[Stall] {
        self.truth.stalls()
    }
}
