//! The engine on simulated traffic: equal to the reference whatever is asked, and to the truth
//! where the truth can be told from the captures.

use sim::{Clock, Law, Scenario, SimPacket, simulate};

use crate::engine;
use crate::equal::difference;
use crate::generate::{Dice, pcap};
use crate::reference::{MatchOn, Packet, Question, Twist, figures};

fn packets(side: Vec<SimPacket>) -> Vec<Packet> {
    let packet = |p: SimPacket| Packet { ts: p.ts.0, orig_len: p.orig_len, data: p.data };
    side.into_iter().map(packet).collect()
}

/// Anything may be asked of any traffic: the right key, a wrong one, another window.
fn question(scenario: &Scenario, first_post: Option<&Packet>, dice: &mut Dice) -> Question {
    let bytes = MatchOn::Bytes(vec![(46, 8), (12, 2)]);
    let all = [MatchOn::Frame, MatchOn::L3, MatchOn::Probe, bytes];
    let window = scenario.window_ns;
    let trim = first_post.map_or(0, |_| dice.below(20 * window));
    Question {
        match_on: all[dice.below(4) as usize].clone(),
        window: dice.pick(&[window, window, window, window / 2, 2 * window + 1, 5_000_000_000]),
        trim: if dice.chance(2) { trim } else { 0 },
        worst: dice.pick(&[0, 3, 5_000]),
        copies: 0,
        two_way: false,
    }
}

#[test]
fn simulated_pairs() {
    let mut asked = [0u64; 4];
    let mut total = [0u64; 8];
    for seed in 0..4_000 {
        let mut dice = Dice::new(seed);
        let scenario = Scenario::arbitrary(seed, dice.pick(&[1, 20, 150, 150, 400]));
        // Enough for the key of IPv6 behind two tags.
        let scenario = Scenario { snaplen: scenario.snaplen.max(92), ..scenario };
        let pair = simulate(&scenario).unwrap();
        let (pre, post) = (packets(pair.pre), packets(pair.post));
        let ask = question(&scenario, post.first(), &mut dice);
        let want = figures(&pre, &post, &ask, Twist::None);
        let run = engine::ask(pcap(&pre), pcap(&post), &ask);
        let got = run.unwrap_or_else(|error| panic!("seed {seed}: {error}")).1;
        if let Some(what) = difference(&got, &want) {
            panic!("seed {seed}, {ask:?}, {scenario:?}: {what}");
        }
        asked[match ask.match_on {
            MatchOn::Frame => 0,
            MatchOn::L3 => 1,
            MatchOn::Probe => 2,
            MatchOn::Bytes(_) => 3,
            MatchOn::Payload | MatchOn::Inner => unreachable!("not asked here"),
        }] += got.counts.count;
        let c = want.counts;
        let all = [c.lost, c.late, c.ambiguous, c.duplicated, c.post_negative, c.pre_unkeyed];
        for (sum, packets) in
            total.iter_mut().zip([&all[..], &[c.reordered, c.pre_trimmed]].concat())
        {
            *sum += packets;
        }
    }
    assert!(asked.iter().all(|&matches| matches > 10_000), "{asked:?}");
    assert!(total.iter().all(|&packets| packets > 5_000), "{total:?}");
}

/// Mishaps that leave no doubt: every packet has its own key, clocks agree, copies come in time.
fn plain(seed: u64) -> Scenario {
    Scenario {
        seed,
        packets: 3_000,
        loss: 0.03,
        lateness: 0.02,
        duplication: 0.04,
        reordering: 0.05,
        keyless: 0.02,
        foreign: 0.03,
        window_ns: 20_000_000,
        clock: Clock { offset_ns: 0, drift_ppb: 0, resolution_ps: 1_000 },
        ..Scenario::default()
    }
}

#[test]
fn the_truth_is_found() {
    for seed in 0..30 {
        let scenario = plain(seed);
        let pair = simulate(&scenario).unwrap();
        let ask = Question {
            match_on: MatchOn::Probe,
            window: scenario.window_ns,
            trim: 0,
            worst: 10,
            copies: 0,
            two_way: false,
        };
        let (pre, post) = (packets(pair.pre), packets(pair.post));
        let got = engine::ask(pcap(&pre), pcap(&post), &ask).unwrap().1;
        let in_time =
            |truth: &&sim::Truth| truth.latency_ns.is_some_and(|ns| ns < scenario.window_ns);
        let keyed: Vec<&sim::Truth> = pair.truth.iter().filter(|truth| !truth.keyless).collect();
        let mut latencies: Vec<u64> =
            keyed.iter().copied().filter(in_time).filter_map(|truth| truth.latency_ns).collect();
        latencies.sort_unstable();
        assert_eq!(got.latencies, latencies, "seed {seed}");
        let lost =
            |truth: &&&sim::Truth| truth.latency_ns.is_none_or(|ns| ns >= 2 * scenario.window_ns);
        let missing = got.counts.lost + got.counts.outside;
        assert_eq!(missing, keyed.iter().filter(lost).count() as u64, "seed {seed}");
        assert!(got.counts.outside <= 10, "seed {seed}: {:?}", got.counts);
        assert_eq!(got.counts.sent, keyed.len() as u64, "seed {seed}");
        let copies = keyed.iter().copied().filter(in_time).filter(|truth| truth.duplicated).count();
        assert_eq!(got.counts.duplicated, copies as u64, "seed {seed}");
        assert_eq!(got.counts.negative + got.counts.ambiguous, 0, "seed {seed}");
        assert!(got.counts.late > 0 && got.counts.reordered > 0, "seed {seed}: {:?}", got.counts);
    }
}

/// Through simulator, capture, matcher and histogram: the interval holds the law's own quantile.
#[test]
fn intervals_hold_the_law() {
    let (low_ns, high_ns, q) = (1_000, 1_001_000, 0.9);
    let truth = low_ns + (q * (high_ns - low_ns) as f64) as u64;
    let holds = |seed: &u64| {
        let scenario = Scenario {
            seed: *seed,
            packets: 120,
            rate_pps: 500,
            latency: Law::Uniform { low_ns, high_ns },
            service_ns: 0,
            stalls: None,
            ..plain(0)
        };
        let scenario = Scenario { lateness: 0.0, reordering: 0.0, ..scenario };
        let pair = simulate(&scenario).unwrap();
        let (pre, post) = (packets(pair.pre), packets(pair.post));
        let ask = Question {
            match_on: MatchOn::Probe,
            window: 1 << 30,
            trim: 0,
            worst: 0,
            copies: 0,
            two_way: false,
        };
        let run = engine::ask(pcap(&pre), pcap(&post), &ask).unwrap();
        let found = run.0.latency.quantiles(&[q])[0];
        (found.ci_low_ns.unwrap()..=found.ci_high_ns.unwrap()).contains(&truth)
    };
    let held = (0..1_000).filter(holds).count();
    assert!((940..1_000).contains(&held), "{held} of 1000 runs");
}
