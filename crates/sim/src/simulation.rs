//! The stream of what both timestampers see.

use crate::device::Device;
use crate::error::Error;
use crate::frames::{Content, Frames};
use crate::scenario::Scenario;
use crate::truth::{Fate, Totals, Truth};
use probe::schedule::Departures;
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::{Peekable, Take};
use units::{Nanos, Pps};

/// Numbers of packets that never came to the device start here.
const FOREIGN: u64 = 1 << 63;
const MAX_REPEATABLE: u64 = 65_536;

/// A side of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side before the device.
    Pre,
    /// The side behind the device.
    Post,
}

/// A packet passes a timestamper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Side of the capture.
    pub side: Side,
    /// Time by the clock of that side.
    pub ts: Nanos,
    /// The length of the packet.
    pub orig_len: u32,
    /// Captured bytes.
    pub data: &'a [u8],
    /// True fate of the packet, told before the device.
    pub truth: Option<Truth>,
}

/// A running scenario. It holds the packets in the device and nothing of those that left.
#[derive(Clone, Debug)]
pub struct Simulation {
    scenario: Scenario,
    arrivals: Peekable<Take<Departures>>,
    coming: VecDeque<Coming>,
    device: Device,
    frames: Frames,
    latencies: Xoshiro256PlusPlus,
    fates: Xoshiro256PlusPlus,
    repeatable: Repeatable,
    on_their_way: BinaryHeap<Reverse<(u64, u64, Content)>>,
    order: u64,
    totals: Totals,
}

/// A packet that will come to the device: one of the batch that it takes next, or one that is lost.
#[derive(Clone, Debug)]
struct Coming {
    arrival_ns: u64,
    throw: Throw,
    /// Time at which the device is done with it, if it ever is.
    done_ns: Option<u64>,
}

/// The random numbers of one packet. Every throw takes as many numbers as any other, so that
/// changing one probability leaves alone what the others decide.
#[derive(Clone, Debug)]
struct Throw {
    keyless: Option<fn(u64) -> Content>,
    repeats: Option<u64>,
    lost: bool,
    late_by_ns: Option<u64>,
    held_back: bool,
    duplicated: bool,
    foreign_after_ns: Option<u64>,
}

/// The sequence numbers of the latest packets that are no copies themselves.
#[derive(Clone, Debug)]
struct Repeatable {
    seqs: Vec<u64>,
    most: usize,
    next: usize,
}

impl Simulation {
    /// Starts a scenario.
    ///
    /// # Errors
    /// When it cannot be: see [`Scenario::check`].
    pub fn new(scenario: &Scenario) -> Result<Self, Error> {
        scenario.check()?;
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(scenario.seed);
        let pattern = scenario.pattern;
        let departures = pattern.departures(Pps(scenario.rate_pps), seeds.next_u64())?;
        let arrivals = departures.take(usize::try_from(scenario.packets).unwrap_or(usize::MAX));
        let stalls = scenario.stalls.map(|it| (it, seeds.random_range(0..it.period_ns)));
        let in_two_windows = scenario.packets_in_window().saturating_mul(2);
        let mut simulation = Self {
            arrivals: arrivals.peekable(),
            coming: VecDeque::new(),
            device: Device::new(scenario.service_ns, stalls),
            frames: Frames::new(scenario.shape()),
            latencies: Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64()),
            fates: Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64()),
            repeatable: Repeatable::new(in_two_windows.clamp(1, MAX_REPEATABLE)),
            on_their_way: BinaryHeap::new(),
            order: 0,
            totals: Totals::default(),
            scenario: scenario.clone(),
        };
        simulation.take_batch();
        Ok(simulation)
    }

    /// Returns the next packet at either timestamper; those of one side in the order of their
    /// timestamps.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let next_departure_ns = self.on_their_way.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let next_arrival_ns = self.coming.front().map(|coming| coming.arrival_ns);
        match (next_arrival_ns, next_departure_ns) {
            (None, None) => {
                assert!(self.on_their_way.is_empty(), "every packet has left");
                self.totals.assert_conservation();
                None
            }
            (Some(arrival_ns), departure_ns) if departure_ns.is_none_or(|at| arrival_ns < at) => {
                let coming = self.coming.pop_front()?;
                if self.coming.is_empty() {
                    self.take_batch();
                }
                Some(self.arrive(&coming))
            }
            _ => self.depart(),
        }
    }

    /// Returns the truth about all packets so far.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Looks at the packets that the device will take next: those that have come when it begins, up to a batch.
    fn take_batch(&mut self) {
        let (mut begin_ns, mut packets, mut slowest_ns) = (None, 0, 0);
        let is_there =
            |begin_ns: Option<u64>, at: &Nanos| begin_ns.is_none_or(|begin| at.get() <= begin);
        while packets < u64::from(self.scenario.batch) {
            let Some(arrival) = self.arrivals.next_if(|at| is_there(begin_ns, at)) else { break };
            let arrival_ns = arrival.get();
            let throw = Throw::of(&self.scenario, &mut self.fates);
            let latency_ns = self.scenario.latency.sample(&mut self.latencies);
            if !throw.lost {
                begin_ns = begin_ns.or_else(|| Some(self.device.begins(arrival_ns)));
                (packets, slowest_ns) = (packets + 1, latency_ns.max(slowest_ns));
            }
            self.coming.push_back(Coming { arrival_ns, throw, done_ns: None });
            if begin_ns.is_none() {
                return; // a lost packet alone: memory does not grow with them
            }
        }
        let Some(begin_ns) = begin_ns else { return };
        let done_ns = self.device.serve(begin_ns, packets, slowest_ns);
        for coming in self.coming.iter_mut().filter(|coming| !coming.throw.lost) {
            coming.done_ns = Some(done_ns);
        }
    }

    fn arrive(&mut self, coming: &Coming) -> Event<'_> {
        let Coming { arrival_ns, ref throw, done_ns } = *coming;
        let repeats = throw.repeats.and_then(|at| self.repeatable.pick(at));
        let content = self.content(throw, repeats);
        let departure_ns = done_ns.map(|done_ns| self.leaves(done_ns, throw));
        if let Some(at_ns) = departure_ns {
            self.put_on_way(at_ns, content);
            if throw.duplicated {
                self.put_on_way(at_ns + self.scenario.duplicate_delay_ns, content);
            }
        }
        if let Some(after_ns) = throw.foreign_after_ns {
            self.put_on_way(arrival_ns + after_ns, Content::Probe(FOREIGN + self.totals.foreign));
            self.totals.foreign += 1;
        }
        let latency_ns = departure_ns.map(|at_ns| at_ns - arrival_ns);
        let truth = Truth {
            pre_ts: self.timestamp(self.scenario.clock.before(arrival_ns)),
            seq: content.number(),
            fate: Fate::of(latency_ns, self.scenario.window_ns),
            latency_ns,
            repeated: repeats.is_some(),
            duplicated: throw.duplicated,
            held_back: throw.held_back,
            keyless: throw.keyless.is_some(),
        };
        self.totals.count(&truth);
        let frame = self.frames.before(content);
        event(Side::Pre, truth.pre_ts, frame, self.scenario.snaplen, Some(truth))
    }

    fn content(&mut self, throw: &Throw, repeats: Option<u64>) -> Content {
        let number = self.totals.pre_packets;
        if let Some(keyless) = throw.keyless {
            return keyless(number);
        }
        if repeats.is_none() {
            self.repeatable.push(number);
        }
        Content::Probe(repeats.unwrap_or(number))
    }

    /// Returns when a packet leaves that the device has done with.
    fn leaves(&self, done_ns: u64, throw: &Throw) -> u64 {
        let held_back_ns = if throw.held_back { self.scenario.reorder_delay_ns } else { 0 };
        done_ns + held_back_ns + throw.late_by_ns.unwrap_or(0)
    }

    fn put_on_way(&mut self, at_ns: u64, content: Content) {
        self.on_their_way.push(Reverse((at_ns, self.order, content)));
        self.order += 1;
    }

    fn depart(&mut self) -> Option<Event<'_>> {
        let Reverse((at_ns, _, content)) = self.on_their_way.pop()?;
        self.totals.post_packets += 1;
        let ts = self.timestamp(self.scenario.clock.behind(at_ns));
        let frame = self.frames.behind(content);
        Some(event(Side::Post, ts, frame, self.scenario.snaplen, None))
    }

    fn timestamp(&self, since_start_ns: i64) -> Nanos {
        Nanos(self.scenario.start_ns.wrapping_add_signed(since_start_ns))
    }
}

fn event(side: Side, ts: Nanos, frame: &[u8], snaplen: u32, truth: Option<Truth>) -> Event<'_> {
    let data = &frame[..frame.len().min(snaplen as usize)];
    Event { side, ts, orig_len: frame.len() as u32, data, truth }
}

impl Throw {
    #[inline]
    fn of(scenario: &Scenario, random: &mut Xoshiro256PlusPlus) -> Self {
        let mut chance = |probability: f64| {
            let (share, which) = (random.random::<f64>(), random.next_u64());
            (share < probability).then_some(which)
        };
        let up_to = |which: u64, most: u64| ((u128::from(which) * u128::from(most)) >> 64) as u64;
        let lost = chance(scenario.loss).is_some();
        let late = chance(scenario.lateness).filter(|_| !lost);
        let window_ns = scenario.window_ns;
        let held_back = chance(scenario.reordering).is_some() && !lost && late.is_none();
        let kinds = [Content::Arp, Content::Datagram];
        let keyless = chance(scenario.keyless).map(|which| kinds[(which % 2) as usize]);
        Self {
            keyless,
            repeats: chance(scenario.repetition).filter(|_| keyless.is_none()),
            lost,
            late_by_ns: late.map(|which| window_ns + up_to(which, window_ns + window_ns / 2)),
            held_back,
            duplicated: chance(scenario.duplication).is_some() && !lost,
            foreign_after_ns: chance(scenario.foreign)
                .map(|which| up_to(which, 1_000_000_000 / scenario.rate_pps)),
        }
    }
}

impl Repeatable {
    fn new(most: u64) -> Self {
        Self { seqs: Vec::new(), most: most as usize, next: 0 }
    }

    fn push(&mut self, seq: u64) {
        debug_assert!(self.seqs.len() <= self.most, "memory does not grow with packets");
        if self.seqs.len() < self.most {
            self.seqs.push(seq);
        } else {
            self.seqs[self.next] = seq;
            self.next = (self.next + 1) % self.most;
        }
    }

    fn pick(&self, which: u64) -> Option<u64> {
        let at = which.checked_rem(self.seqs.len() as u64)?;
        Some(self.seqs[at as usize])
    }
}
