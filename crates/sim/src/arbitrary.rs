//! Scenarios at random, for tests that want everything at once.

use crate::clock::Clock;
use crate::device::Stalls;
use crate::frames::Rewrite;
use crate::law::Law;
use crate::scenario::Scenario;
use probe::schedule::Pattern;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Nanos;

const NS_PER_S: u64 = 1_000_000_000;

impl Scenario {
    /// Returns a scenario of `packets` packets in which everything may happen: half of the mishaps
    /// are left out each time, the others are frequent. Latencies, delays and the offset of the
    /// clock are of the order of the window, which holds 2 to 200 packets, and often hit its edges
    /// to the nanosecond. Captures always keep enough of a packet for `frame`, `l3` and `probe`
    /// keys.
    #[must_use]
    pub fn arbitrary(seed: u64, packets: u32) -> Self {
        let mut draw = Draw(Xoshiro256PlusPlus::seed_from_u64(seed));
        let rate_pps = 10u64.pow(draw.within(3, 5) as u32) * draw.within(1, 10);
        let gap_ns = NS_PER_S / rate_pps;
        let window_ns = gap_ns * draw.within(2, 200) + draw.within(0, 1);
        let scenario = Self {
            seed,
            packets: packets.into(),
            rate_pps,
            window_ns,
            pattern: draw.pattern(gap_ns),
            vlan: draw.one_of(&[None, Some(5)]),
            ipv6: draw.one_of(&[false, false, true]),
            flows: draw.within(1, 8) as u32,
            latency: draw.law(gap_ns, window_ns),
            service_ns: draw.within(0, gap_ns / 4),
            batch: draw.one_of(&[1, 4, 32]),
            stalls: draw.stalls(window_ns),
            rewrite: draw.one_of(&[Rewrite::None, Rewrite::L2, Rewrite::L3]),
            loss: draw.probability(),
            duplication: draw.probability(),
            duplicate_delay_ns: draw.delay(gap_ns, window_ns),
            reordering: draw.probability(),
            reorder_delay_ns: draw.delay(gap_ns, window_ns),
            lateness: draw.probability(),
            repetition: draw.probability(),
            keyless: draw.probability(),
            foreign: draw.probability(),
            clock: draw.clock(gap_ns, window_ns),
            ..Self::default()
        };
        let shortest_bytes = scenario.shape().shortest_bytes();
        Self {
            start_ns: draw.one_of(&[scenario.start_ns, 2 * window_ns + NS_PER_S]),
            frame_bytes: shortest_bytes + draw.within(0, 100) as u32,
            snaplen: draw.one_of(&[scenario.snaplen, shortest_bytes.max(64)]),
            ..scenario
        }
    }
}

struct Draw(Xoshiro256PlusPlus);

impl Draw {
    fn within(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..=most)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.within(0, values.len() as u64 - 1) as usize]
    }

    fn probability(&mut self) -> f64 {
        let probability = self.0.random_range(0.0..0.3);
        self.one_of(&[0.0, probability])
    }

    /// Returns a delay that often meets an edge of the window.
    fn delay(&mut self, gap_ns: u64, window_ns: u64) -> u64 {
        let any = self.within(0, 2 * window_ns);
        let edges = [window_ns - 1, window_ns, window_ns + 1, 2 * window_ns - 1, 2 * window_ns];
        let edge = self.one_of(&edges);
        self.one_of(&[0, 1, gap_ns, any, edge])
    }

    fn pattern(&mut self, gap_ns: u64) -> Pattern {
        let (size, gap) = (self.within(2, 16) as u32, Nanos(self.within(0, gap_ns / 2)));
        self.one_of(&[Pattern::Cbr, Pattern::Poisson, Pattern::Burst { size, gap }])
    }

    fn law(&mut self, gap_ns: u64, window_ns: u64) -> Law {
        let (ns, low_ns) = (self.delay(gap_ns, window_ns), self.within(1, 4 * gap_ns));
        let high_ns = low_ns + self.within(0, window_ns);
        let (high_probability, sigma) = (self.probability(), self.0.random_range(0.0..1.0));
        self.one_of(&[
            Law::Constant { ns },
            Law::Uniform { low_ns, high_ns },
            Law::LogNormal { median_ns: low_ns, sigma },
            Law::Bimodal { low_ns, high_ns, high_probability, sigma },
        ])
    }

    fn stalls(&mut self, window_ns: u64) -> Option<Stalls> {
        let period_ns = window_ns * self.within(1, 8);
        let stalls = Stalls {
            period_ns,
            duration_ns: self.within(0, period_ns / 8),
            long_every: self.within(0, 4),
            long_duration_ns: self.within(0, period_ns / 4),
        };
        self.one_of(&[None, Some(stalls)])
    }

    fn clock(&mut self, gap_ns: u64, window_ns: u64) -> Clock {
        let offset_ns = self.delay(gap_ns, window_ns) as i64;
        Clock {
            offset_ns: self.one_of(&[0, 0, offset_ns, -offset_ns]),
            drift_ppb: self.one_of(&[0, 0, 100_000, -100_000]),
            resolution_ps: self.one_of(&[1_000, 12_500, 1_000_000, 1_000 * gap_ns]),
        }
    }
}
