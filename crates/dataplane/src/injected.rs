//! Stalls made on purpose, and the truth about them.

use crate::stalls::{Stall, StallLog};
use crate::ticks::Ticks;
use crate::turns::Turns;
use dpdk::tsc;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
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
    /// Turns since it was due.
    due_turns: u8,
    done: Stall,
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
            due_turns: 0,
            done: Stall { start: 0, duration: 0 },
            truth: StallLog::new(room),
        };
        injector.plan(tsc);
        injector
    }

    /// Does nothing for as long as it should; whether the loop shall look at the counter at once: what
    /// is done right after a stall seems to be a part of it.
    ///
    /// The first turn that is due passes, as the counter can be read before the work on earlier packets
    /// has reached memory; the second one stalls; the third writes that down. All go the same way, and
    /// the loop's beat goes on: fetching code or data again would count as part of the stall.
    #[inline(always)]
    pub fn act(&mut self, now: u64, turns: &mut Turns<'_>) -> bool {
        if self.due_turns > 1 {
            self.note();
        }
        let is_due = now >= self.at;
        let lasts = black_box(if self.due_turns == 1 { self.lasts } else { 0 });
        let start = tsc::now();
        let mut end = start;
        // No pause instruction: a hypervisor may take it for a lock that is waited for.
        while end.saturating_sub(start) < lasts {
            turns.beat();
            end = tsc::now();
        }
        self.done = Stall { start, duration: end.saturating_sub(start) };
        self.due_turns += u8::from(is_due);
        is_due
    }

    #[cold]
    fn note(&mut self) {
        let Stall { start, duration } = self.done;
        self.truth.push(start, duration);
        self.plan(start + duration);
        self.due_turns = 0;
    }

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
