//! What a simulation promises about its packets, seen from outside.

use capture::{Compression, Format, Writer};
use probe::key::{Key, Keyed, Keyer, MatchOn, Tap};
use probe::{headers, payload};
use sim::{
    Clock, Fate, Law, Pair, Pattern, Rewrite, Scenario, SimPacket, Simulation, Totals, simulate,
};
use std::collections::{BTreeMap, HashSet};
use xxhash_rust::xxh3::xxh3_64;

const EXACT: Clock = Clock { offset_ns: 0, drift_ppb: 0, resolution_ps: 1_000 };

fn quiet() -> Scenario {
    let latency = Law::Uniform { low_ns: 1_000, high_ns: 3_000 };
    Scenario { latency, stalls: None, clock: EXACT, packets: 20_000, ..Scenario::default() }
}

fn run(scenario: &Scenario) -> Pair {
    simulate(scenario).unwrap_or_else(|error| panic!("{error}: {scenario:#?}"))
}

fn sum_up(scenario: &Scenario) -> Totals {
    let mut simulation = Simulation::new(scenario).unwrap();
    while simulation.next_event().is_some() {}
    *simulation.totals()
}

fn seq(packet: &SimPacket) -> Option<u64> {
    match headers::transport_payload(&packet.data) {
        headers::Payload::At(at) => payload::read(&packet.data[at..]),
        _ => None,
    }
}

fn keys(match_on: MatchOn, packets: &[SimPacket]) -> Vec<Option<Key>> {
    let keyer = Keyer::new(&match_on, Tap::Pre, None);
    let key = |packet: &SimPacket| match keyer.key(&packet.data, packet.orig_len) {
        Keyed::Key(key) => Some(key),
        Keyed::None => None,
        Keyed::Short { need } => panic!("captured too short: needs {need} bytes"),
    };
    packets.iter().map(key).collect()
}

fn bytes(packets: &[SimPacket]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, Compression::None).unwrap();
    for packet in packets {
        writer.write(packet.ts, packet.orig_len, &packet.data).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The share of `hits` in `of`, held against `expected` within 4 standard errors.
fn assert_share(what: &str, hits: u64, of: u64, expected: f64) {
    let share = hits as f64 / of as f64;
    let error = (expected * (1.0 - expected) / of as f64).sqrt();
    assert!((share - expected).abs() <= 4.0 * error, "{what}: {share}, expected {expected}");
}

#[test]
fn the_truth_accounts_for_every_packet_of_arbitrary_scenarios() {
    for seed in 0..1_000 {
        let Pair { pre, post, truth, totals } = run(&Scenario::arbitrary(seed, 300));
        assert_eq!((pre.len(), truth.len()), (300, 300), "seed {seed}");
        assert_eq!((totals.pre_packets, totals.post_packets), (300, post.len() as u64));
        assert!(pre.is_sorted_by_key(|packet| packet.ts), "seed {seed}");
        assert!(post.is_sorted_by_key(|packet| packet.ts), "seed {seed}");

        let mut expected = BTreeMap::<u64, u64>::new();
        for truth in truth.iter().filter(|truth| !truth.keyless && truth.fate != Fate::Lost) {
            *expected.entry(truth.seq).or_default() += 1 + u64::from(truth.duplicated);
        }
        let mut got = BTreeMap::<u64, u64>::new();
        for seq in post.iter().filter_map(seq).filter(|seq| *seq < 300) {
            *got.entry(seq).or_default() += 1;
        }
        assert_eq!(got, expected, "seed {seed}");
        let foreign = post.iter().filter_map(seq).filter(|seq| *seq >= 300).count() as u64;
        assert_eq!(foreign, totals.foreign, "seed {seed}");
    }
}

#[test]
fn everything_happens_in_arbitrary_scenarios() {
    let totals: Vec<_> = (0..50).map(|seed| run(&Scenario::arbitrary(seed, 300)).totals).collect();
    let ever = |count: fn(&Totals) -> u64| totals.iter().map(count).sum::<u64>();
    for (what, count) in [
        ("late", ever(|it| it.late)),
        ("lost", ever(|it| it.lost)),
        ("duplicated", ever(|it| it.duplicated)),
        ("foreign", ever(|it| it.foreign)),
        ("repeated", ever(|it| it.repeated)),
        ("held back", ever(|it| it.held_back)),
        ("keyless", ever(|it| it.keyless)),
    ] {
        assert!(count > 100, "{what}: {count}");
    }
}

#[test]
fn a_scenario_is_always_the_same_bytes() {
    let hashes = |seed| {
        let Pair { pre, post, .. } = run(&Scenario::arbitrary(seed, 500));
        [xxh3_64(&bytes(&pre)), xxh3_64(&bytes(&post))]
    };
    assert_eq!(hashes(1), hashes(1));
    assert_ne!(hashes(1), hashes(2));
    // Also on every platform: these were computed on x86-64.
    let all: Vec<u8> = (0..20).flat_map(hashes).flat_map(u64::to_le_bytes).collect();
    assert_eq!(xxh3_64(&all), 8_376_376_012_386_143_560);
}

#[test]
fn exact_clocks_show_the_true_latency() {
    let Pair { pre, post, truth, totals } = run(&quiet());
    let latencies: Vec<_> = truth.iter().map(|truth| truth.latency_ns.unwrap()).collect();
    let shown: Vec<_> = pre.iter().zip(&post).map(|(pre, post)| post.ts.0 - pre.ts.0).collect();
    assert_eq!(shown, latencies);
    assert!(pre.iter().zip(&truth).all(|(pre, truth)| pre.ts == truth.pre_ts));
    assert_eq!(totals.latency_ns_min, latencies.iter().min().copied());
    assert_eq!(totals.latency_ns_max, latencies.iter().max().copied());
    assert_eq!(totals.latency_ns_sum, u128::from(latencies.iter().sum::<u64>()));
}

#[test]
fn a_clock_behind_shows_negative_latencies() {
    let clock = Clock { offset_ns: -10_000, ..EXACT };
    let Pair { pre, post, truth, .. } = run(&Scenario { clock, ..quiet() });
    for ((pre, post), truth) in pre.iter().zip(&post).zip(&truth) {
        assert_eq!(pre.ts.0 + truth.latency_ns.unwrap(), post.ts.0 + 10_000);
    }
}

#[test]
fn drift_grows_with_time() {
    let clock = Clock { drift_ppb: 20_000, ..EXACT };
    let Pair { pre, post, truth, .. } = run(&Scenario { clock, ..quiet() });
    let start_ns = pre[0].ts.0;
    for ((pre, post), truth) in pre.iter().zip(&post).zip(&truth) {
        let left_ns = pre.ts.0 + truth.latency_ns.unwrap();
        assert_eq!(post.ts.0 - left_ns, (left_ns - start_ns) / 50_000);
    }
}

#[test]
fn mishaps_are_as_frequent_as_asked_for() {
    let scenario = Scenario {
        packets: 100_000,
        loss: 0.01,
        duplication: 0.02,
        reordering: 0.03,
        lateness: 0.04,
        repetition: 0.05,
        keyless: 0.06,
        foreign: 0.07,
        ..quiet()
    };
    let totals = run(&scenario).totals;
    let sent = totals.pre_packets - totals.lost;
    assert_share("lost", totals.lost, 100_000, 0.01);
    assert_share("duplicated", totals.duplicated, sent, 0.02);
    assert_share("held back", totals.held_back, sent - totals.late, 0.03);
    assert_share("late", totals.late, sent, 0.04);
    assert_share("repeated", totals.repeated, 100_000 - totals.keyless, 0.05);
    assert_share("keyless", totals.keyless, 100_000, 0.06);
    assert_share("foreign", totals.foreign, 100_000, 0.07);
}

#[test]
fn one_mishap_leaves_the_others_alone() {
    let latency = Law::Uniform { low_ns: 1_000, high_ns: 3_000 };
    let without = run(&Scenario { latency, duplication: 0.1, ..quiet() });
    let with = run(&Scenario { latency, duplication: 0.1, loss: 0.1, reordering: 0.0, ..quiet() });
    assert_eq!(with.pre, without.pre);
    let kept = with.truth.iter().zip(&without.truth).filter(|(with, _)| with.fate != Fate::Lost);
    assert!(kept.clone().all(|(with, without)| with == without));
    assert_share("kept", kept.count() as u64, 20_000, 0.9);
}

#[test]
fn a_repeated_packet_is_an_earlier_one_to_the_byte() {
    let scenario = Scenario { repetition: 0.2, window_ns: 1_000_000, flows: 7, ..quiet() };
    let Pair { pre, truth, .. } = run(&scenario);
    let mut distances = HashSet::new();
    for (at, truth) in truth.iter().enumerate().filter(|(_, truth)| truth.repeated) {
        let original = truth.seq as usize;
        assert!(original < at && pre[original].data == pre[at].data);
        distances.insert(at - original);
    }
    // Two windows are 20 packets that are no copies themselves: 25 packets, give or take.
    assert!((1..=20).all(|distance| distances.contains(&distance)));
    assert!(distances.iter().all(|distance| *distance < 50));
}

#[test]
fn devices_rewrite_no_more_than_they_should() {
    for (rewrite, kept) in [
        (Rewrite::None, [true, true, true]),
        (Rewrite::L2, [true, true, true]),
        (Rewrite::L3, [false, true, true]),
    ] {
        for (vlan, ipv6) in [(None, false), (Some(9), false), (None, true)] {
            let scenario =
                Scenario { rewrite, vlan, ipv6, frame_bytes: 100, packets: 100, ..quiet() };
            let Pair { pre, post, .. } = run(&scenario);
            for (match_on, kept) in
                [MatchOn::Frame, MatchOn::L3, MatchOn::Probe].into_iter().zip(kept)
            {
                let same = keys(match_on.clone(), &pre) == keys(match_on, &post);
                assert_eq!(same, kept, "{scenario:#?}");
            }
            assert_eq!(pre[0].data[..12] == post[0].data[..12], rewrite == Rewrite::None);
        }
    }
}

#[test]
fn what_is_keyless_or_foreign_matches_nothing() {
    let Pair { pre, post, truth, totals } =
        run(&Scenario { keyless: 0.3, foreign: 0.2, packets: 2_000, ..quiet() });
    let before = keys(MatchOn::Probe, &pre);
    assert!(before.iter().zip(&truth).all(|(key, truth)| key.is_none() == truth.keyless));
    let lengths: HashSet<_> = pre
        .iter()
        .zip(&before)
        .filter(|(_, key)| key.is_none())
        .map(|(it, _)| it.orig_len)
        .collect();
    assert_eq!(lengths, HashSet::from([42, 60]));
    let known: HashSet<_> = before.into_iter().flatten().collect();
    let unknown =
        keys(MatchOn::Probe, &post).into_iter().flatten().filter(|key| !known.contains(key));
    assert_eq!(unknown.count() as u64, totals.foreign);
}

#[test]
fn a_packet_held_back_is_overtaken() {
    // Held back for two and a half gaps, it meets the next two on their way.
    let Pair { post, truth, .. } = run(&Scenario { reordering: 0.1, packets: 1_000, ..quiet() });
    let order: Vec<_> = post.iter().filter_map(seq).collect();
    let place = |seq: u64| order.iter().position(|it| *it == seq).unwrap();
    let held_back: Vec<_> = truth.iter().filter(|it| it.held_back && it.seq < 998).collect();
    assert!(held_back.len() > 50);
    for truth_of_it in held_back {
        assert!(truth_of_it.latency_ns >= Some(251_000));
        for next in &truth[truth_of_it.seq as usize + 1..][..2] {
            assert_eq!(place(next.seq) < place(truth_of_it.seq), !next.held_back);
        }
    }
}

#[test]
fn late_is_a_window_or_more() {
    let scenario = Scenario { lateness: 0.5, window_ns: 100_000, ..quiet() };
    for truth in run(&scenario).truth {
        let latency_ns = truth.latency_ns.unwrap();
        assert_eq!(truth.fate == Fate::Late, latency_ns >= 100_000);
        assert!(latency_ns < 253_000);
    }
}

#[test]
fn captures_keep_what_they_are_told_to() {
    let scenario = Scenario { snaplen: 64, frame_bytes: 128, packets: 10, ..quiet() };
    let Pair { pre, post, .. } = run(&scenario);
    for packet in pre.iter().chain(&post) {
        assert_eq!((packet.orig_len, packet.data.len()), (124, 64));
    }
}

#[test]
fn the_default_is_shaped_after_the_published_forwarder() {
    let scenario = Scenario { packets: 300_000, ..Scenario::default() };
    let mut latencies: Vec<_> =
        run(&scenario).truth.iter().map(|truth| truth.latency_ns.unwrap()).collect();
    latencies.sort_unstable();
    // noms2020, Table II, DPDK-l2fwd HW 10
    for (rank, published_ns) in [(0.5, 3_137), (0.99, 3_362), (0.999, 7_712), (0.9999, 12_162)] {
        let ns = latencies[(rank * 300_000.0) as usize];
        assert!(ns.abs_diff(published_ns) * 20 < published_ns, "{rank}: {ns} ns");
    }
    assert!((13_000..14_000).contains(latencies.last().unwrap()));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let stalls = sim::Stalls { period_ns: 10, duration_ns: 10, long_every: 0, long_duration_ns: 0 };
    let base = quiet;
    for (field, scenario) in [
        ("packets", Scenario { packets: u64::MAX, ..base() }),
        ("frame_bytes", Scenario { frame_bytes: 57, ..base() }),
        ("frame_bytes", Scenario { frame_bytes: 64, ipv6: true, ..base() }),
        ("frame_bytes", Scenario { frame_bytes: 1 << 20, ..base() }),
        ("vlan", Scenario { vlan: Some(4096), ..base() }),
        ("flows", Scenario { flows: 0, ..base() }),
        ("snaplen", Scenario { snaplen: 0, ..base() }),
        ("loss", Scenario { loss: 1.1, ..base() }),
        ("foreign", Scenario { foreign: f64::NAN, ..base() }),
        ("latency", Scenario { latency: Law::Uniform { low_ns: 2, high_ns: 1 }, ..base() }),
        ("window_ns", Scenario { window_ns: 0, ..base() }),
        ("stalls.duration_ns", Scenario { stalls: Some(stalls), ..base() }),
        ("service_ns", Scenario { service_ns: 100_000, ..base() }),
        ("clock.resolution_ps", Scenario { clock: Clock { resolution_ps: 0, ..EXACT }, ..base() }),
        ("start_ns", Scenario { start_ns: 9, clock: Clock { offset_ns: -9, ..EXACT }, ..base() }),
    ] {
        match simulate(&scenario) {
            Err(sim::Error::Scenario { field: got, .. }) => assert_eq!(got, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    let overlap = Pattern::Burst { size: 2, gap: units::Nanos(200_000) };
    assert!(matches!(
        simulate(&Scenario { pattern: overlap, ..base() }),
        Err(sim::Error::Schedule(probe::Error::Burst { .. }))
    ));
}

#[test]
fn days_of_latency_add_up() {
    let day_ns: u64 = 86_400_000_000_000;
    let scenario = Scenario {
        latency: Law::Constant { ns: day_ns - 1 },
        window_ns: day_ns,
        packets: 220_000,
        ..quiet()
    };
    let totals = sum_up(&scenario);
    assert_eq!(totals.delivered, 220_000);
    assert_eq!(totals.latency_ns_sum, 220_000 * u128::from(day_ns - 1));
}

#[test]
fn a_device_may_stall_as_long_as_it_catches_up() {
    // Stalled for 0.9, 0.1, 0.1 of three periods: it has 63 % of the time for packets.
    let stalls = sim::Stalls {
        period_ns: 1_000_000,
        duration_ns: 100_000,
        long_every: 3,
        long_duration_ns: 900_000,
    };
    let scenario = |service_ns| Scenario { stalls: Some(stalls), service_ns, ..quiet() };
    assert!(scenario(60_000).check().is_ok());
    match scenario(64_000).check() {
        Err(sim::Error::Scenario { field: "service_ns", expected, .. }) => {
            assert!(expected.contains("busy for 64.0 %"), "{expected}");
            assert!(expected.contains("stalled for 36.7 %"), "{expected}");
        }
        other => panic!("{other:?}"),
    }
    let longest_ns = run(&scenario(60_000)).totals.latency_ns_max;
    assert!(longest_ns < Some(10_000_000), "{longest_ns:?}");
}
