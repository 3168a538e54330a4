//! Small hostile pairs: keys that come back just inside, on and just outside every edge.

mod file;
mod frames;
mod long;

use crate::reference::{Packet, Question};
pub use file::pcap;
pub use frames::Frames;
pub use long::long_case;

/// A seeded generator of numbers (SplitMix64): the same everywhere.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, without, `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A pair of captures in file order and what is asked of it.
#[derive(Clone, Debug)]
pub struct Case {
    pub pre: Vec<Packet>,
    pub post: Vec<Packet>,
    pub ask: Question,
}

/// Where the generator puts packets; times are relative to `base`.
struct Plan {
    window: i64,
    unit: i64,
    base: i64,
    keys: u64,
    frames: Frames,
}

/// The case of a seed.
pub fn case(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let unit = dice.pick(&[1, 1, 1, 13, 1_000, 250_000_000]);
    let plan = Plan {
        window: dice.pick(&[1, 2, 3, 8, 20, 100]) * unit,
        unit,
        base: dice.pick(&[0, 1, 7, 1_600_000_000_000_000_000]),
        keys: dice.pick(&[1, 2, 3, 8, 40, 1000, 1000]),
        frames: Frames::new(&mut dice),
    };
    let sent = sent(&plan, &mut dice);
    let seen = seen(&plan, &sent, &mut dice);
    let ask = Question {
        match_on: plan.frames.match_on(),
        window: plan.window as u64,
        trim: trim(&sent, &seen, &mut dice),
        worst: dice.pick(&[0, 1, 2, 3, 5, 1000]),
        copies: if dice.chance(6) { plan.unit as u64 * dice.pick(&[1, 2, 5]) } else { 0 },
        two_way: dice.chance(2),
    };
    let mut packets = |times: &[(i64, u64)]| {
        times.iter().map(|&(ts, id)| plan.frames.packet(ts as u64, id, &mut dice)).collect()
    };
    Case { pre: packets(&sent), post: packets(&seen), ask }
}

/// Every key comes at its own times: anew anywhere, or again around the edge of the window.
fn sent(plan: &Plan, dice: &mut Dice) -> Vec<(i64, u64)> {
    let count = dice.pick(&[0, 1, 2, 5, 15, 40, 100]);
    let spread = plan.window * dice.pick(&[1, 4, 12]);
    let again_one_in = dice.pick(&[2, 6, 30]);
    let mut sent: Vec<(i64, u64)> = Vec::new();
    for _ in 0..count {
        let ts = plan.base + dice.below(spread as u64 + 1) as i64;
        let (ts, id) = match (dice.chance(again_one_in), sent.is_empty()) {
            (true, false) => {
                let (ts, id) = dice.pick(&sent);
                (ts + around(plan, dice), id)
            }
            _ => (ts, dice.below(plan.keys)),
        };
        sent.push((ts.max(0), id));
    }
    sent.sort_by_key(|&(ts, _)| ts);
    sent
}

/// What arrives: mostly what was sent, around the edges of every rule; sometimes anything.
fn seen(plan: &Plan, sent: &[(i64, u64)], dice: &mut Dice) -> Vec<(i64, u64)> {
    let mut seen = Vec::new();
    let lost_one_in = dice.pick(&[2, 5, 1000]);
    let jitter = dice.pick(&[1, 3, plan.window.max(1)]);
    for &(ts, id) in sent {
        if !dice.chance(lost_one_in) {
            seen.push((ts + 1 + dice.below(jitter as u64) as i64, id));
        }
        if dice.chance(4) {
            seen.push((ts + around(plan, dice), id));
        }
    }
    for _ in 0..dice.below(6) {
        let ts = plan.base + dice.below(8 * plan.window as u64 + 1) as i64;
        seen.push((ts, dice.below(plan.keys + 2)));
    }
    if dice.chance(30) {
        seen.clear();
    }
    for (ts, _) in &mut seen {
        *ts = (*ts).max(0);
    }
    seen.sort_by_key(|&(ts, _)| ts);
    seen
}

/// A distance at which some rule changes its mind, or nearly so.
fn around(plan: &Plan, dice: &mut Dice) -> i64 {
    let w = plan.window;
    let edge = dice.pick(&[-2 * w, -w, 0, 0, w, w, 2 * w, 3 * w]);
    edge + dice.pick(&[-plan.unit, -1, 0, 0, 1, plan.unit])
}

/// Often nothing; else such that the cut falls on or beside a packet.
fn trim(sent: &[(i64, u64)], seen: &[(i64, u64)], dice: &mut Dice) -> u64 {
    let (Some(&(first, _)), true) = (seen.first(), dice.chance(2)) else { return 0 };
    let side = if dice.chance(3) && !sent.is_empty() { sent } else { seen };
    let (ts, _) = dice.pick(side);
    let trim = ts - first + dice.pick(&[-1, 0, 0, 1]);
    u64::try_from(trim).unwrap_or(0)
}
