//! The ends of what the engine takes: of the clock, of order, of memory.

use std::ops::ControlFlow;

use analysis::{Config, Error, MAX_WINDOW, Match, Observer, Progress};
use capture::{Compression, Format, Writer};
use probe::key::MatchOn;
use units::Nanos;

use crate::engine;
use crate::equal::difference;
use crate::generate::{Case, case, pcap};
use crate::reference::{Packet, Twist, figures};

/// A capture whose times may be later than a pcap can say.
fn pcapng(packets: &[Packet]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, Compression::None).unwrap();
    for packet in packets {
        writer.write(Nanos(packet.ts), packet.orig_len, &packet.data).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The same packets, the last of which is at the last nanosecond there is.
fn at_the_end(mut case: Case) -> Case {
    let last = case.pre.iter().chain(&case.post).map(|packet| packet.ts).max().unwrap_or(0);
    for packet in case.pre.iter_mut().chain(&mut case.post) {
        packet.ts += u64::MAX - last;
    }
    case
}

#[test]
fn times_may_reach_the_end_of_the_clock() {
    for seed in 0..1_000 {
        let case = at_the_end(case(seed));
        let run = engine::ask(pcapng(&case.pre), pcapng(&case.post), &case.ask);
        let want = figures(&case.pre, &case.post, &case.ask, Twist::None);
        assert_eq!(difference(&run.unwrap().1, &want), None, "seed {seed}");
    }
}

#[test]
fn windows_and_trims_may_be_as_long_as_they_like() {
    for seed in 0..500 {
        let mut case = case(seed);
        case.ask.window = if seed % 2 == 0 { MAX_WINDOW.0 } else { case.ask.window };
        case.ask.trim = if seed % 3 == 0 { u64::MAX } else { case.ask.trim };
        let run = engine::ask(pcap(&case.pre), pcap(&case.post), &case.ask);
        let want = figures(&case.pre, &case.post, &case.ask, Twist::None);
        assert_eq!(difference(&run.unwrap().1, &want), None, "seed {seed}");
    }
    let too_long = Config { window: Nanos(MAX_WINDOW.0 + 1), ..Config::default() };
    assert!(matches!(engine::run(pcap(&[]), pcap(&[]), &too_long), Err(Error::Window { .. })));
    let too_short = Config { window: Nanos(0), ..Config::default() };
    assert!(matches!(engine::run(pcap(&[]), pcap(&[]), &too_short), Err(Error::Window { .. })));
}

/// Four-byte packets, one every 10 ns.
fn steady(count: u64) -> Vec<Packet> {
    (0..count)
        .map(|number| Packet {
            ts: 1_000 + 10 * number,
            orig_len: 4,
            data: (number as u32).to_be_bytes().to_vec(),
        })
        .collect()
}

fn by_bytes(window: u64, max_in_flight: usize) -> Config {
    let match_on: MatchOn = "bytes:0+4".parse().unwrap();
    Config { match_on, window: Nanos(window), max_in_flight, ..Config::default() }
}

#[test]
fn a_packet_far_out_of_order_is_named() {
    let mut packets = steady(40_000);
    let early = packets.remove(100);
    packets.insert(30_000, early);
    let run = engine::run(pcap(&packets), pcap(&steady(1)), &by_bytes(1_000, 1 << 24));
    let Err(Error::TimeGoesBack { file, offset, packet, got_ns, expected_ns }) = run else {
        panic!("{run:?}")
    };
    assert_eq!((file.as_str(), packet, got_ns), ("pre", 30_001, 2_000));
    assert_eq!(offset, 24 + 30_000 * 20);
    assert!(got_ns < expected_ns && expected_ns < 301_000, "{expected_ns}");
}

#[test]
fn values_that_are_counted_by_steps_are_named() {
    let packets = steady(100);
    let run = engine::run(pcap(&packets), pcap(&packets), &by_bytes(1_000, 1 << 24));
    let (mut analysis, _) = run.unwrap();
    let before = analysis.warnings();
    analysis.latency.bound(0);
    analysis.post.side.gaps.bound(0);
    let after = analysis.warnings();
    let named: Vec<_> =
        after[before.len()..].iter().map(|text| text.split(" above").next()).collect();
    assert_eq!(named, [Some("latencies"), Some("gaps behind the device")]);
}

#[test]
fn a_packet_captured_too_short_is_named() {
    let mut packets = steady(10_000);
    packets[9_000].data.truncate(3);
    for (pre, post, file) in [(&packets, &steady(10), "pre"), (&steady(10_000), &packets, "post")] {
        let run = engine::run(pcap(pre), pcap(post), &by_bytes(1_000, 1 << 24));
        let Err(Error::ShortCapture { file: named, offset, packet, got, need }) = run else {
            panic!("{run:?}")
        };
        assert_eq!((named.as_str(), offset, packet), (file, 24 + 9_000 * 20, 9_001));
        assert_eq!((got, need), (3, 4));
    }
}

/// Lost packets stay in flight for a window, late ones for two; nothing may wait for longer.
#[test]
fn what_is_in_flight_is_bounded() {
    let (pre, post) = (steady(50_000), steady(1));
    for (window, least) in [(1_000, 100), (100_000, 10_000)] {
        let run = |most: usize| engine::run(pcap(&pre), pcap(&post), &by_bytes(window, most));
        let Err(Error::InFlight { limit, .. }) = run(least - 1) else {
            panic!("{least} packets fit into {}", least - 1)
        };
        assert_eq!(limit, least - 1);
        let counts = run(3 * least).unwrap().1.counts;
        assert_eq!((counts.count, counts.outside), (1, 49_999));
    }
}

/// What waits is bounded behind the device too: posts that nobody sent.
#[test]
fn what_nobody_sent_is_bounded() {
    let (pre, post) = (steady(1), steady(50_000));
    let run = |most: usize| engine::run(pcap(&pre), pcap(&post), &by_bytes(100_000, most));
    assert!(matches!(run(5_000), Err(Error::InFlight { .. })));
    assert_eq!(run(30_000).unwrap().1.counts.post_outside, 49_999);
}

/// Stops at the first chance.
struct Impatient;

impl Observer for Impatient {
    fn matches(&mut self, _batch: &[Match]) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        assert!(progress.total_bytes.is_some_and(|total| progress.done_bytes <= total));
        ControlFlow::Break(())
    }
}

#[test]
fn an_observer_can_stop_it() {
    let reader = |packets: &[Packet]| capture::Reader::from_bytes("x", pcap(packets)).unwrap();
    let (sent, mut seen) = (steady(200_000), steady(200_000));
    seen.iter_mut().for_each(|packet| packet.ts += 5);
    let (pre, post) = (reader(&sent), reader(&seen));
    let run = analysis::analyze_pair(pre, post, &by_bytes(1_000, 1 << 24), &mut Impatient);
    assert!(matches!(run, Err(Error::Stopped)));
}
