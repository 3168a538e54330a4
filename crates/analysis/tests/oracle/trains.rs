//! Trains of packets alike, of which all is known: no match may be wrong, whatever was lost, came out
//! twice, or was captured in part.

use std::collections::HashMap;

use crate::engine;
use crate::equal::difference;
use crate::generate::{Dice, pcap};
use crate::reference::{Figures, Match, MatchOn, Packet, Question, Twist, figures};

/// The numbers that packets of a train have in common; others have numbers of their own.
const ALIKE: [u32; 2] = [0, 1];

/// A packet behind the device, and the one before it that it was.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ts: u64,
    number: u32,
    of: usize,
}

/// What two captures hold of some trains.
struct Trains {
    /// When each packet went in, and what tells it apart.
    sent: Vec<(u64, u32)>,
    seen: Vec<Seen>,
    ask: Question,
}

/// How the device treats packets.
struct Device {
    latency: u64,
    jitter: u64,
    lost_one_in: u64,
    copied_one_in: u64,
    /// Whether a copy may come when the next packet alike went in already. If that one is lost, nothing
    /// can tell the copy from it, so then none is.
    late_copies: bool,
}

impl Trains {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let gap = dice.pick(&[20, 1_000, 1_000_000]);
        let window = gap * dice.pick(&[12, 40, 300]);
        let sent = traffic(gap, window, &mut dice);
        let late_copies = dice.chance(3);
        let device = Device {
            latency: gap * dice.pick(&[2, 30, 60, 90, 102, 502]) / 100,
            jitter: gap * dice.pick(&[0, 0, 5, 50, 200]) / 100,
            lost_one_in: if late_copies { 1 << 40 } else { dice.pick(&[1 << 40, 1 << 40, 60, 5]) },
            copied_one_in: dice.pick(&[1 << 40, 1 << 40, 60, 5]),
            late_copies,
        };
        let seen = device.passed(&sent, gap, &mut dice);
        let ask = Question {
            match_on: MatchOn::Bytes(vec![(0, 4)]),
            window,
            trim: 0,
            worst: 0,
            copies: 0,
            two_way: false,
        };
        Self { sent, seen, ask }.captured(late_copies, &mut dice)
    }

    /// What is left of it in captures that begin and end anywhere; the last packet is often lost.
    fn captured(self, to_the_end: bool, dice: &mut Dice) -> Self {
        let count = self.sent.len() as u64;
        let first = if dice.chance(3) { 0 } else { dice.below(count) as usize };
        let last = if dice.chance(3) { dice.below(count) as usize } else { count as usize - 1 };
        let near = self.ask.window / dice.pick(&[1, 10, 100]);
        let times = |at: usize, dice: &mut Dice| {
            let shift = dice.pick(&[0, dice.clone().below(near + 1)]);
            if dice.chance(2) { self.sent[at].0 + shift } else { self.sent[at].0 - shift }
        };
        let (from, to) = (times(first, dice), times(last, dice) + near);
        let to = if to_the_end { u64::MAX } else { to };
        if last <= first || self.leaves_one_of_a_train(first, last) {
            return self;
        }
        let lost = (!to_the_end && dice.chance(2)).then_some(last);
        let is_captured = |seen: &&Seen| (from..=to).contains(&seen.ts) && lost != Some(seen.of);
        let seen = self.seen.iter().filter(is_captured);
        let seen = seen.map(|seen| Seen { of: seen.of.wrapping_sub(first), ..*seen }).collect();
        Self { sent: self.sent[first..=last].to_vec(), seen, ask: self.ask }
    }

    /// Whether only one packet of a train is captured: then nothing shows that it had one.
    fn leaves_one_of_a_train(&self, first: usize, last: usize) -> bool {
        let lengths = |sent: &[(u64, u32)], alike: u32| -> HashMap<u64, usize> {
            let alike = sent.iter().filter(|(_, number)| *number == alike);
            let times: Vec<u64> = alike.map(|(ts, _)| *ts).collect();
            let trains = times.chunk_by(|a, b| b - a < self.ask.window);
            trains.flat_map(|train| train.iter().map(|ts| (*ts, train.len()))).collect()
        };
        ALIKE.into_iter().any(|alike| {
            let all = lengths(&self.sent, alike);
            let some = lengths(&self.sent[first..=last], alike);
            some.iter().any(|(ts, length)| *length == 1 && all[ts] > 1)
        })
    }

    fn packets(&self) -> [Vec<Packet>; 2] {
        let packet =
            |ts: u64, number: u32| Packet { ts, orig_len: 4, data: number.to_be_bytes().to_vec() };
        let sent = self.sent.iter().map(|&(ts, number)| packet(ts, number)).collect();
        [sent, self.seen.iter().map(|seen| packet(seen.ts, seen.number)).collect()]
    }

    fn wrong<'a>(&self, matches: &'a [Match]) -> Vec<&'a Match> {
        let is_wrong = |found: &&Match| self.seen[found.post_seq as usize].of != found.seq as usize;
        matches.iter().filter(is_wrong).collect()
    }

    fn found(&self) -> Figures {
        let [pre, post] = self.packets();
        engine::ask(pcap(&pre), pcap(&post), &self.ask).unwrap().1
    }
}

/// Trains, between them packets that can be told apart and pauses of any length.
fn traffic(gap: u64, window: u64, dice: &mut Dice) -> Vec<(u64, u32)> {
    let (mut now, mut number) = (1_600_000_000_000_000_000, ALIKE[1]);
    let mut sent = Vec::new();
    let between = dice.pick(&[1 << 40, 1 << 40, 1, 3, 20]);
    let mixed = dice.pick(&[1, 2, 1 << 40]);
    for _ in 0..dice.pick(&[1, 1, 2, 3]) {
        for _ in 0..dice.pick(&[0, 1, 1, 4]) {
            number += 1;
            sent.push((now, number));
            now += dice.pick(&[1, gap / 10, gap, gap, 7 * gap]);
        }
        now += dice.pick(&[0, 0, gap, window - gap, window, 2 * window]);
        for _ in 0..dice.pick(&[2, 3, 5, 20, 60, 120]) {
            sent.push((now, ALIKE[0]));
            now += gap * (95 + dice.below(11)) / 100;
            if dice.chance(between) {
                number += 1;
                let other = if dice.chance(mixed) { number } else { ALIKE[1] };
                sent.push((now - gap / 2, other));
            }
        }
    }
    sent
}

impl Device {
    /// What comes out, in order but for copies.
    fn passed(&self, sent: &[(u64, u32)], gap: u64, dice: &mut Dice) -> Vec<Seen> {
        let (mut seen, mut last) = (Vec::new(), 0);
        for (of, &(ts, number)) in sent.iter().enumerate() {
            if dice.chance(self.lost_one_in) {
                continue;
            }
            last = (ts + self.latency + dice.below(self.jitter + 1)).max(last);
            seen.push(Seen { ts: last, number, of });
            if dice.chance(self.copied_one_in) {
                let next = sent[of + 1..].iter().find(|(_, other)| *other == number);
                let soon = next.map_or(gap, |(next, _)| next.saturating_sub(last + 1).min(gap));
                let within = if self.late_copies { 3 * gap } else { soon };
                seen.push(Seen { ts: last + dice.below(within + 1), number, of });
            }
        }
        seen.sort_by_key(|seen| seen.ts);
        seen
    }
}

/// Checks the trains of these seeds; how many packets they have, how many packets alike are matched, and
/// how many are ambiguous.
fn check(seeds: std::ops::Range<u64>) -> [u64; 3] {
    let mut total = [0; 3];
    for seed in seeds {
        let trains = Trains::new(seed);
        let found = trains.found();
        let wrong = trains.wrong(&found.matches);
        let told = wrong.iter().map(|found| (**found, trains.seen[found.post_seq as usize]));
        assert!(wrong.is_empty(), "seed {seed}: {:?}", told.collect::<Vec<_>>());
        let alike = |found: &&Match| ALIKE.contains(&trains.sent[found.seq as usize].1);
        let matched = found.matches.iter().filter(alike).count() as u64;
        let counts = [trains.sent.len() as u64, matched, found.counts.ambiguous];
        total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    total
}

#[test]
fn no_match_of_packets_alike_is_wrong() {
    let [packets, matched, ambiguous] = check(0..1_000);
    assert!(matched > packets / 20 && ambiguous > packets / 5, "{matched} {ambiguous} {packets}");
}

/// The same of a million packets, by hand: `cargo test -p tailscope-analysis --test oracle -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn no_match_of_a_million_packets_alike_is_wrong() {
    let (mut total, mut seed) = ([0; 3], 1_000);
    while total[0] < 1_000_000 {
        let more = check(seed..seed + 100);
        total.iter_mut().zip(more).for_each(|(sum, count)| *sum += count);
        seed += 100;
    }
    println!("{} packets: {} alike matched, {} ambiguous, 0 wrong", total[0], total[1], total[2]);
}

/// The trains are tested themselves: each part of the rule is needed.
#[test]
fn without_a_part_of_the_rule_matches_are_wrong() {
    for seed in 0..100 {
        let trains = Trains::new(seed);
        let [pre, post] = trains.packets();
        let want = figures(&pre, &post, &trains.ask, Twist::None);
        assert_eq!(difference(&trains.found(), &want), None, "seed {seed}");
    }
    for twist in [
        Twist::OrderProvesAll,
        Twist::AnchorIgnored,
        Twist::AnyPacketAnchors,
        Twist::CrowdForgiven,
        Twist::SurplusForgiven,
        Twist::EndIgnored,
    ] {
        let is_wrong = |seed: &u64| {
            let trains = Trains::new(*seed);
            let [pre, post] = trains.packets();
            !trains.wrong(&figures(&pre, &post, &trains.ask, twist).matches).is_empty()
        };
        assert!((0..10_000).any(|seed| is_wrong(&seed)), "{twist:?} does no harm");
    }
}
