//! A recording gives the figures that the captures of the same packets give.

use std::path::Path;

use analysis::{
    Analysis, Basis, Clocks, Config, Observer, Recorded, Recording, Value, analyze_pair_on,
    analyze_recording,
};
use capture::{Compression, Format, Reader, Writer};
use probe::headers::{Addresses, Headers, Protocol};
use probe::key::MatchOn;
use probe::payload;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use units::{Clock, Nanos};

const CLOCK: Clock =
    Clock { tsc_hz: 2_599_999_999, tsc: 1 << 33, unix_ns: 1_700_000_000_000_000_000 };

#[derive(Clone, Debug, Default)]
struct Arrays {
    intended: Vec<u64>,
    departure: Vec<u64>,
    seq: Vec<u64>,
    arrival: Vec<u64>,
    corrupt: Vec<u64>,
    stall_start: Vec<u64>,
    stall_lasts: Vec<u64>,
}

impl Arrays {
    fn recording(&self) -> Recording<'_> {
        Recording {
            clock: CLOCK,
            intended_tsc: &self.intended,
            departure_tsc: &self.departure,
            arrival_seq: &self.seq,
            arrival_tsc: &self.arrival,
            corrupt_seq: &self.corrupt,
            stall_start_tsc: &self.stall_start,
            stall_duration_tsc: &self.stall_lasts,
            cut_off: false,
        }
    }
}

/// Packets that are late, lost, delayed, duplicated; some at the same tick.
fn arrays() -> impl Strategy<Value = Arrays> {
    let packet =
        (0..9_000_u64, 0..3_000_u64, prop::option::weighted(0.9, 300..100_000_u64), 0..10_u8);
    let packets = prop::collection::vec(packet, 1..300);
    let stalls = prop::collection::vec((1..200_000_u64, 3_000..90_000_u64), 0..20);
    (packets, stalls).prop_map(|(packets, stalls)| {
        let mut arrays = Arrays::default();
        let (mut intended, mut departure) = (CLOCK.tsc, CLOCK.tsc);
        let mut arrivals = Vec::new();
        for (seq, (gap, error, delay, fate)) in packets.into_iter().enumerate() {
            intended += gap / 3;
            departure = departure.max(intended + error);
            arrays.intended.push(intended);
            arrays.departure.push(departure);
            let Some(delay) = delay else { continue };
            match fate {
                0 => arrays.corrupt.push(seq as u64),
                1 => arrivals.extend([
                    (departure + delay, seq as u64),
                    (departure + delay + 5000, seq as u64),
                ]),
                _ => arrivals.push((departure + delay, seq as u64)),
            }
        }
        arrivals.sort_unstable();
        (arrays.arrival, arrays.seq) = arrivals.into_iter().unzip();
        let mut at = CLOCK.tsc;
        for (gap, lasts) in stalls {
            at += gap;
            arrays.stall_start.push(at);
            arrays.stall_lasts.push(lasts);
            at += lasts;
        }
        arrays
    })
}

fn frame(seq: u64) -> [u8; 60] {
    let addresses = Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1));
    let (to_mac, from_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let headers = Headers {
        to_mac,
        from_mac,
        vlan: None,
        outer: None,
        addresses,
        protocol: Protocol::Udp,
        from_port: 1,
        to_port: 53,
        ttl: 64,
    };
    let mut frame = [0; 60];
    payload::write(&mut frame[headers.payload_offset()..], seq);
    headers.write(&mut frame);
    frame
}

fn write(path: &Path, packets: impl Iterator<Item = (u64, u64)>) {
    let mut writer = Writer::create(path, Format::PcapNg, Compression::None).unwrap();
    for (seq, tsc) in packets {
        writer.write(CLOCK.unix(tsc), 60, &frame(seq)).unwrap();
    }
    writer.finish().unwrap();
}

fn captures(arrays: &Arrays, config: &Config) -> Analysis {
    let folder = tempfile::tempdir().unwrap();
    let (pre, post) = (folder.path().join("pre.pcapng"), folder.path().join("post.pcapng"));
    write(&pre, (0..).zip(arrays.departure.iter().copied()));
    write(&post, arrays.seq.iter().copied().zip(arrays.arrival.iter().copied()));
    let (pre, post) = (Reader::open(&pre).unwrap(), Reader::open(&post).unwrap());
    let config = Config { match_on: MatchOn::Probe, clocks: Clocks::Same, ..config.clone() };
    analyze_pair_on(pre, post, &config, Basis::default(), &mut ()).unwrap()
}

/// The figures that both have: all but names of files, corrupt packets and the instrument's own.
fn figures(analysis: &Analysis) -> Vec<(String, Value)> {
    let instrument = ["tainted", "stall", "least_", "untainted_", "intended_", "departure_error_"];
    let only_one = |name: &str| {
        let ends = ["_file", "_format", "_resolution", "_dropped", "_ci_low", "_ci_high", "clock"];
        let judged = [
            "lost",
            "lost_proven",
            "loss_ratio",
            "corrupt",
            "outside",
            "post_outside",
            "post_unknown",
        ];
        ends.iter().any(|end| name.ends_with(end))
            || judged.contains(&name)
            || ["span_start_s", "span_s", "resolution_ns"].contains(&name)
            || instrument.iter().any(|start| name.starts_with(start))
    };
    analysis.summary().into_iter().filter(|(name, _)| !only_one(name)).collect()
}

#[derive(Default)]
struct Collected(Vec<Recorded>);

impl Observer for Collected {
    fn recorded(&mut self, batch: &[Recorded]) -> ControlFlow<()> {
        self.0.extend(batch);
        ControlFlow::Continue(())
    }
}

proptest! {
    #[test]
    fn figures_are_those_of_the_captures(arrays in arrays(), trim in 0..2_000_000_u64) {
        for trim in [0, trim] {
            let config = Config { trim: Nanos(trim), ..Config::default() };
            let recorded = analyze_recording(&arrays.recording(), &config, &mut ()).unwrap();
            let captured = captures(&arrays, &config);
            prop_assert_eq!(figures(&recorded), figures(&captured));
            let (recorded, captured) = (recorded.counts, captured.counts);
            prop_assert_eq!(recorded.lost + recorded.corrupt, captured.lost + captured.outside);
            if trim == 0 {
                prop_assert_eq!(recorded.corrupt, arrays.corrupt.len() as u64);
            }
        }
    }

    /// What is on its way when a recording ends is not lost.
    #[test]
    fn nothing_is_lost_that_a_cut_hides(
        stalls in prop::collection::vec((0..200_000_u64, 0..90_000_u64), 0..40),
        packets in prop::collection::vec((1..20_000_u64, 0..300_000_u64), 2..300),
        kept in 0.0..1.0_f64,
    ) {
        let (mut arrays, _) = stalling(&stalls, &packets);
        let arrived = (arrays.seq.len() as f64 * kept) as usize;
        arrays.seq.truncate(arrived);
        arrays.arrival.truncate(arrived);
        let end = arrays.arrival.last().copied().unwrap_or(0);
        let sent = arrays.departure.partition_point(|at| *at <= end).max(1);
        arrays.departure.truncate(sent);
        arrays.intended.truncate(sent);
        let recording = Recording { clock: PLAIN, cut_off: true, ..arrays.recording() };
        let counts = analyze_recording(&recording, &Config::default(), &mut ()).unwrap().counts;
        prop_assert_eq!(counts.matched, arrived as u64);
        prop_assert_eq!(counts.matched + counts.lost + counts.outside, sent as u64);
        let longest = arrays.seq.iter().zip(&arrays.arrival);
        let longest = longest.map(|(seq, at)| at - arrays.departure[*seq as usize]).max().unwrap_or(0);
        let mut missing = (0..sent as u64).filter(|seq| !arrays.seq.contains(seq));
        let is_due = |seq: &u64| arrays.departure[*seq as usize] + longest <= end;
        prop_assert_eq!(counts.lost, missing.by_ref().filter(is_due).count() as u64);
    }

    #[test]
    fn a_match_carries_all_stalls_between_its_ends(arrays in arrays()) {
        let mut collected = Collected::default();
        let analysis = analyze_recording(&arrays.recording(), &Config::default(), &mut collected).unwrap();
        let unix = |tsc| CLOCK.unix(tsc).0;
        let stalls = arrays.stall_start.iter().zip(&arrays.stall_lasts);
        let stalls: Vec<_> = stalls.map(|(start, lasts)| (unix(*start), unix(start + lasts))).collect();
        let (mut tainted, mut least) = (0, Vec::new());
        for recorded in &collected.0 {
            let (seq, from) = (recorded.found.seq as usize, recorded.found.pre_ns);
            let to = from + recorded.found.latency_ns;
            let of = |(start, end): &(u64, u64)| (*end).min(to).saturating_sub((*start).max(from));
            let meanwhile = stalls.iter().map(of).sum::<u64>();
            prop_assert!(meanwhile <= recorded.instrument_stall_ns && recorded.instrument_stall_ns <= to - from);
            prop_assert_eq!(recorded.intended_ns, unix(arrays.intended[seq]));
            tainted += u64::from(recorded.tainted());
            least.push(recorded.least_ns());
        }
        least.sort_unstable();
        let instrument = analysis.instrument.unwrap();
        prop_assert_eq!(collected.0.len() as u64, analysis.counts.matched);
        prop_assert_eq!(instrument.tainted, tainted);
        let ranks: Vec<u64> = (1..=least.len() as u64).collect();
        prop_assert_eq!(instrument.least_latency.values_at(&ranks), least);
        prop_assert_eq!(instrument.departure_error.count(), arrays.departure.len() as u64);
        let errors = arrays.intended.iter().zip(&arrays.departure);
        let worst = errors.map(|(intended, left)| unix(*left) - unix(*intended)).max();
        prop_assert_eq!(instrument.departure_error.max(), worst);
    }

    /// The instrument stamps a departure, and may stall before the packet leaves; it stamps an
    /// arrival once it runs again. How long the device took is known.
    #[test]
    fn the_truth_lies_between_the_least_and_the_latency(
        stalls in prop::collection::vec((0..200_000_u64, 0..90_000_u64), 0..40),
        packets in prop::collection::vec((1..20_000_u64, 0..300_000_u64), 1..300),
    ) {
        let (arrays, truth) = stalling(&stalls, &packets);
        let mut collected = Collected::default();
        let recording = Recording { clock: PLAIN, ..arrays.recording() };
        let analysis = analyze_recording(&recording, &Config::default(), &mut collected).unwrap();
        prop_assert_eq!(collected.0.len(), truth.len());
        for recorded in &collected.0 {
            let (took, latency) = (truth[recorded.found.seq as usize], recorded.found.latency_ns);
            prop_assert!(recorded.least_ns() <= took && took <= latency, "{recorded:?}: {took}");
            prop_assert!(recorded.instrument_stall_ns > 0 || took == latency);
        }
        let mut sorted = truth;
        sorted.sort_unstable();
        let least = analysis.instrument.unwrap().least_latency;
        let qs = [0.0, 0.5, 0.9, 0.99, 1.0];
        for (low, high) in least.quantiles(&qs).iter().zip(analysis.latency.quantiles(&qs)) {
            let took = sorted[sorted.len() - 1 - high.beyond as usize];
            prop_assert!(low.value_ns <= took && took <= high.value_ns);
        }
    }
}

proptest! {
    /// A queue works on packets one after the other, and passes them on for some time more; what they
    /// would have taken had they left as they were meant to is known.
    #[test]
    fn the_least_has_no_queue_that_late_departures_built(
        stalls in prop::collection::vec((0..200_000_u64, 0..400_000_u64), 0..20),
        packets in prop_oneof![
            prop::collection::vec((0..20_000_u64, work()), 1..300),
            prop::collection::vec((0..20_000_u64, work()), 500..1500),
        ],
        transfer in prop_oneof![Just(0), 0..50_000_u64],
        lost in 0..4_usize,
        queues in 1..4_usize,
    ) {
        let (arrays, truth) = queueing(&stalls, &packets, transfer, lost, queues);
        let mut collected = Collected::default();
        let recording = Recording { clock: PLAIN, ..arrays.recording() };
        analyze_recording(&recording, &Config::default(), &mut collected).unwrap();
        prop_assert_eq!(collected.0.len(), arrays.seq.len());
        let mut fastest = u64::MAX;
        for recorded in &collected.0 {
            let took = truth[recorded.found.seq as usize];
            fastest = fastest.min(recorded.found.latency_ns);
            let unseen = fastest - (transfer + 1);
            prop_assert!(recorded.least_ns() <= took + unseen, "{recorded:?}: {took}");
        }
        if stalls.is_empty() {
            prop_assert!(collected.0.iter().all(|recorded| recorded.instrument_stall_ns == 0));
        }
    }
}

/// Work on a packet, often none.
fn work() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 3 => 0..30_000_u64]
}

/// What a stalling instrument records of queues that take packets by turns, and what each packet would
/// have taken had it not stalled. Of every four packets the first `lost` are lost at a queue's end.
fn queueing(
    stalls: &[(u64, u64)],
    packets: &[(u64, u64)],
    transfer: u64,
    lost: usize,
    queues: usize,
) -> (Arrays, Vec<u64>) {
    let gaps: Vec<_> = packets.iter().map(|(gap, _)| (*gap, 1)).collect();
    let (mut arrays, _) = stalling(stalls, &gaps);
    let through = |departures: &[u64]| {
        let mut free = vec![0; queues];
        let each = departures.iter().zip(packets).enumerate().map(|(seq, (left, (_, work)))| {
            let free = &mut free[seq % queues];
            *free = (*free).max(*left) + work;
            *free + transfer + 1
        });
        each.collect::<Vec<u64>>()
    };
    let (back, as_intended) = (through(&arrays.departure), through(&arrays.intended));
    let truth = as_intended.iter().zip(&arrays.intended).map(|(back, left)| back - left).collect();
    let mut came: Vec<_> = (0..packets.len()).filter(|seq| seq % 4 >= lost).collect();
    came.sort_by_key(|seq| back[*seq]);
    arrays.seq = came.iter().map(|seq| *seq as u64).collect();
    arrays.arrival = came.iter().map(|seq| back[*seq]).collect();
    (arrays, truth)
}

/// A device that takes 20 µs of packets each 200 µs, from whom a stall of 10 ms takes its rest.
#[test]
fn a_burst_after_a_stall_is_not_the_device_s() {
    let (gap, stall) = (200_000, (2_000_100, 10_000_000));
    let of = |work: u64, gap: u64| {
        let (arrays, _) = queueing(&[stall], &vec![(gap, work); 200], 0, 0, 1);
        let mut collected = Collected::default();
        let recording = Recording { clock: PLAIN, ..arrays.recording() };
        let analysis = analyze_recording(&recording, &Config::default(), &mut collected).unwrap();
        let least = analysis.instrument.unwrap().least_latency;
        (analysis.latency.max().unwrap(), least.max().unwrap(), collected.0)
    };
    let (most, least, packets) = of(20_000, gap);
    assert!(most > 900_000 && least == 20_001, "{most} {least}");
    let tainted = packets.iter().filter(|packet| packet.tainted()).count();
    assert!((50..60).contains(&tainted), "those that waited: {tainted}");
    // One that is too slow stays so, and so does a queue that the rate itself builds.
    assert_eq!(of(600_000, 2_000_000).1, 600_001);
    let (most, least, _) = of(300_000, gap);
    assert!(most - least <= stall.1 && least > 199 * 100_000 - stall.1, "{most} {least}");
}

/// A device that has always packets inside, as it passes them on for longer than they are apart.
#[test]
fn a_device_that_is_never_empty_gets_over_a_stall() {
    let stall = (2_000_100, 10_000_000);
    let (arrays, truth) = queueing(&[stall], &vec![(100_000, 0); 1500], 200_000, 0, 1);
    let recording = Recording { clock: PLAIN, ..arrays.recording() };
    let mut collected = Collected::default();
    analyze_recording(&recording, &Config::default(), &mut collected).unwrap();
    assert_eq!(truth[1000], 200_001);
    let least =
        |packets: &[Recorded]| packets.iter().filter(|each| each.least_ns() < 200_001).count();
    assert!((80..500).contains(&least(&collected.0)), "{}", least(&collected.0));
    assert_eq!(least(&collected.0[700..]), 0);
}

/// A device that loses packets for a reason of its own is as sure of those that it passes on.
#[test]
fn losses_long_after_a_stall_explain_nothing() {
    let stall = (2_000_100, 1_000_000);
    let (arrays, truth) = queueing(&[stall], &vec![(10_000, 500); 4000], 0, 1, 1);
    let recording = Recording { clock: PLAIN, ..arrays.recording() };
    let mut collected = Collected::default();
    analyze_recording(&recording, &Config::default(), &mut collected).unwrap();
    for recorded in &collected.0[1000..] {
        assert_eq!(recorded.least_ns(), truth[recorded.found.seq as usize]);
    }
}

/// Packets that are meant to leave together queue in the device, held back or not.
#[test]
fn a_burst_that_is_asked_for_is_the_device_s() {
    let packets: Vec<_> =
        (0..100).map(|at| (if at % 10 == 0 { 900_000 } else { 0 }, 20_000)).collect();
    let (arrays, truth) = queueing(&[(1_700_000, 500_000)], &packets, 0, 0, 1);
    assert!(arrays.intended != arrays.departure, "a burst is held back");
    let recording = Recording { clock: PLAIN, ..arrays.recording() };
    let mut collected = Collected::default();
    analyze_recording(&recording, &Config::default(), &mut collected).unwrap();
    let least: Vec<u64> = collected.0.iter().map(Recorded::least_ns).collect();
    assert_eq!(least, truth);
}

/// A stall holds the first packet back, which the second waits for; the third leaves as it is meant to.
#[test]
fn departures_outside_stalls_are_those_that_nothing_held_back() {
    let arrays = Arrays {
        intended: vec![150, 205, 230],
        departure: vec![210, 220, 231],
        stall_start: vec![100],
        stall_lasts: vec![100],
        ..Arrays::default()
    };
    let recording = Recording { clock: PLAIN, ..arrays.recording() };
    let analysis = analyze_recording(&recording, &Config::default(), &mut ()).unwrap();
    let instrument = analysis.instrument.unwrap();
    assert_eq!(instrument.departure_error.max(), Some(60));
    let untainted = instrument.untainted_departure_error;
    assert_eq!((untainted.count(), untainted.max()), (1, Some(1)));
}

const PLAIN: Clock = Clock { tsc_hz: 1_000_000_000, tsc: 0, unix_ns: 0 };

/// What an instrument that stalls records of packets that leave some time after each other, and
/// take some time; and what those that it saw took.
fn stalling(stalls: &[(u64, u64)], packets: &[(u64, u64)]) -> (Arrays, Vec<u64>) {
    let (mut arrays, mut at) = (Arrays::default(), 0);
    for (gap, lasts) in stalls {
        arrays.stall_start.push(at + gap);
        arrays.stall_lasts.push(*lasts);
        at += gap + lasts;
    }
    let both = || arrays.stall_start.iter().zip(&arrays.stall_lasts);
    let runs = |now: u64| {
        let within = both().find(|(start, lasts)| **start < now && now < **start + **lasts);
        within.map_or(now, |(start, lasts)| start + lasts)
    };
    let leaves = |stamped: u64| {
        both().find(|(start, _)| **start == stamped).map_or(stamped, |(start, lasts)| start + lasts)
    };
    let (mut due, mut departures, mut arrivals) = (0, Vec::new(), Vec::new());
    for (seq, (gap, took)) in (0..).zip(packets) {
        due += gap;
        let stamped = runs(due);
        departures.push((due, stamped));
        arrivals.push((runs(leaves(stamped) + took), seq));
    }
    arrivals.sort_unstable();
    (arrays.intended, arrays.departure) = departures.into_iter().unzip();
    (arrays.arrival, arrays.seq) = arrivals.into_iter().unzip();
    (arrays, packets.iter().map(|(_, took)| *took).collect())
}

#[test]
fn a_coarse_counter_widens_intervals_by_its_tick() {
    let departure: Vec<u64> = (0..1000).map(|seq| seq * 1000).collect();
    let arrays = Arrays {
        intended: departure.clone(),
        seq: (0..1000).collect(),
        arrival: departure.iter().map(|at| at + 25).collect(),
        departure,
        ..Arrays::default()
    };
    // Those of small boards, of QEMU, of Armv8.6 and of an x86-64.
    let hz = [25_000_000, 62_500_000, 1_000_000_000, 2_599_999_999];
    for (tsc_hz, tick_ns) in hz.into_iter().zip([Some(40_u32), Some(16), None, None]) {
        let clock = Clock { tsc_hz, tsc: 0, unix_ns: 0 };
        let recording = Recording { clock, ..arrays.recording() };
        let analysis = analyze_recording(&recording, &Config::default(), &mut ()).unwrap();
        assert_eq!(analysis.resolution_ns(), tick_ns.map(f64::from), "{tsc_hz}");
        let (median, took) = (&analysis.quantiles(&[0.5])[0], clock.duration(25).0);
        let tick_ns = tick_ns.map_or(0, u64::from);
        assert!(median.value_ns.abs_diff(took) <= 1, "{median:?}");
        assert!(median.ci_low_ns.unwrap() <= took + 1 - tick_ns, "{median:?}");
        assert!(median.ci_high_ns.unwrap() >= took + tick_ns, "{median:?}");
    }
}

#[test]
fn arrays_that_contradict_each_other_are_refused() {
    let good = Arrays {
        intended: vec![10, 20],
        departure: vec![11, 20],
        seq: vec![1, 0],
        arrival: vec![40, 50],
        corrupt: vec![],
        stall_start: vec![5, 9],
        stall_lasts: vec![1, 1],
    };
    let refused = |change: fn(&mut Arrays)| {
        let mut arrays = good.clone();
        change(&mut arrays);
        analyze_recording(&arrays.recording(), &Config::default(), &mut ()).unwrap_err().to_string()
    };
    assert!(analyze_recording(&good.recording(), &Config::default(), &mut ()).is_ok());
    for (message, expected) in [
        (refused(|arrays| arrays.intended.truncate(1)), "intended_tsc[1]"),
        (refused(|arrays| arrays.arrival.push(60)), "arrival_seq[2]"),
        (refused(|arrays| arrays.stall_lasts.clear()), "stall_duration_tsc[0]"),
        (refused(|arrays| arrays.departure[1] = 10), "departure_tsc[1]: got 10"),
        (refused(|arrays| arrays.arrival[1] = 39), "arrival_tsc[1]: got 39"),
        (refused(|arrays| arrays.stall_start[1] = 4), "stall_start_tsc[1]: got 4"),
        (refused(|arrays| arrays.seq[1] = 2), "arrival_seq[1]: got 2, expected less than 2"),
        (refused(|arrays| arrays.corrupt.push(7)), "corrupt_seq[0]: got 7"),
        (refused(|arrays| arrays.intended[0] = 12), "departure_tsc[0]: got 11"),
        (refused(|arrays| *arrays = Arrays::default()), "no packets"),
    ] {
        assert!(message.contains(expected), "{message:?} does not say {expected:?}");
    }
}
