//! What is matched while it comes, against an obvious reference and against captures of the same
//! packets.

use analysis::{Config, Ended, Live, Second, analyze_pair};
use capture::{Compression, Format, Packet, Reader, Writer};
use probe::key::Tap;
use proptest::prelude::*;
use std::path::Path;
use units::Nanos;

const BEGIN_NS: u64 = 1_700_000_000_300_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const WINDOW_NS: u64 = 50_000_000;
const KEPT_BYTES: usize = 96;

/// A packet that is sent, and what becomes of it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    gap_ns: u64,
    /// `None`: it is lost.
    latency_ns: Option<u64>,
    twice: bool,
}

fn frame(id: u64) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 8 + 100];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 128, 0, 1, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 1, (id % 3) as u8]);
    frame[34..40].copy_from_slice(&[0x30, 0x39, 0, 9, 0, 108]);
    frame[42..50].copy_from_slice(&id.to_be_bytes());
    frame
}

/// Time and number of each packet of both sides, in order of time.
fn sides(sent: &[Sent]) -> [Vec<(u64, u64)>; 2] {
    let (mut pre, mut post, mut now) = (Vec::new(), Vec::new(), BEGIN_NS);
    for (id, one) in (0..).zip(sent) {
        now += one.gap_ns;
        pre.push((now, id));
        for copy in 0..one.latency_ns.map_or(0, |_| 1 + u64::from(one.twice)) {
            post.push((now + one.latency_ns.unwrap_or(0) + copy, id));
        }
    }
    post.sort_unstable();
    [pre, post]
}

/// Hears both sides in steps, and misses what comes out between `missed`.
fn listen(sides: &[Vec<(u64, u64)>; 2], step_ns: u64, missed: &[(u64, u64)]) -> Ended {
    let config = Config { window: Nanos(WINDOW_NS), ..Config::default() };
    let names = ["in", "out"].map(String::from);
    let mut live = Live::new(config, names, KEPT_BYTES as u32, BEGIN_NS).expect("a window");
    let (mut next, mut seconds, mut reached) = ([0, 0], Vec::new(), BEGIN_NS);
    let end = sides.iter().flatten().map(|(ts, _)| *ts).max().unwrap_or(BEGIN_NS) + WINDOW_NS;
    while reached < end {
        let until = reached + step_ns;
        for (side, tap) in [Tap::Pre, Tap::Post].into_iter().enumerate() {
            let mut batch: Vec<_> = sides[side][next[side]..].to_vec();
            batch.truncate(batch.partition_point(|(ts, _)| *ts <= until));
            next[side] += batch.len();
            // Queues of a card hand over what came at about the same time in any order.
            batch.chunks_mut(3).for_each(<[_]>::reverse);
            for (ts, id) in batch {
                let is_missed = missed.iter().any(|(from, to)| (*from..=*to).contains(&ts));
                if side == 1 && is_missed {
                    continue;
                }
                let frame = frame(id);
                let data = &frame[..KEPT_BYTES];
                let packet =
                    Packet { ts: Nanos(ts), orig_len: frame.len() as u32, data, offset: 0 };
                assert!(live.take(tap, &packet), "its time was not decided about");
            }
        }
        for gap in missed.iter().filter(|(_, to)| (reached + 1..=until).contains(to)) {
            live.miss(Tap::Post, *gap, 7);
        }
        seconds.extend(live.advance(heard_until(missed, until)).expect("there is room"));
        reached = until;
    }
    seconds.extend(live.advance(end + step_ns).expect("there is room"));
    let ended = live.finish().expect("packets crossed");
    Ended { seconds: [seconds, ended.seconds].concat(), ..ended }
}

/// Nobody goes on to a time while it is not known whether packets before it were missed.
fn heard_until(missed: &[(u64, u64)], until: u64) -> u64 {
    let open = missed.iter().find(|(from, to)| *from <= until && *to > until);
    open.map_or(until, |(from, _)| *from)
}

/// What becomes of each packet, by looking at all of them.
fn reference([pre, post]: &[Vec<(u64, u64)>; 2], missed: &[(u64, u64)]) -> Vec<Second> {
    let begin = BEGIN_NS - BEGIN_NS % SECOND_NS;
    let last = pre.last().map_or(begin, |(ts, _)| *ts);
    let mut seconds: Vec<Second> = (0..=(last - begin) / SECOND_NS)
        .map(|at| Second { start_ns: begin + at * SECOND_NS, ..Second::default() })
        .collect();
    let is_missed = |ts: u64| missed.iter().any(|(from, to)| (*from..=*to).contains(&ts));
    for (ts, id) in pre {
        let second = &mut seconds[((ts - begin) / SECOND_NS) as usize];
        let seen = post.iter().find(|(seen, other)| other == id && !is_missed(*seen));
        let latency = seen.map(|(seen, _)| seen - ts);
        let is_judged = missed.iter().all(|(from, to)| ts + WINDOW_NS < *from || to < ts);
        match latency.filter(|latency| *latency < WINDOW_NS) {
            Some(latency) => second.latencies_ns.push(latency),
            None if is_judged => second.lost += 1,
            None => second.unresolved += 1,
        }
    }
    seconds.iter_mut().for_each(|second| second.latencies_ns.sort_unstable());
    seconds
}

fn seen(second: &Second) -> (u64, Vec<u64>, u64, u64) {
    (second.start_ns, second.latencies_ns.clone(), second.lost, second.unresolved)
}

fn sent() -> impl Strategy<Value = Sent> {
    let latency = prop_oneof![
        8 => (1..2_000_000_u64).prop_map(Some),
        1 => (WINDOW_NS..3 * WINDOW_NS).prop_map(Some),
        1 => Just(None),
    ];
    let gap = prop_oneof![20 => 1..2_000_000_u64, 1 => 1..1_500_000_000_u64];
    (gap, latency, prop::bool::weighted(0.1)).prop_map(|(gap_ns, latency_ns, twice)| Sent {
        gap_ns,
        latency_ns,
        twice,
    })
}

fn missed() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let one = (0..3_000_000_000_u64, 1..80_000_000_u64);
    prop::collection::vec(one, 0..3).prop_map(|spans| {
        let mut at = BEGIN_NS;
        let spans = spans.into_iter().map(|(after, lasts)| {
            let from = at + after;
            at = from + lasts;
            (from, at)
        });
        spans.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn each_second_is_what_a_look_at_all_packets_tells(
        sent in prop::collection::vec(sent(), 150..400),
        missed in missed(),
        step_ns in 1_000_000..300_000_000_u64,
    ) {
        let sides = sides(&sent);
        let ended = listen(&sides, step_ns, &missed);
        let expected = reference(&sides, &missed);
        let found = &ended.seconds[..expected.len()];
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert_eq!(seen(found), seen(expected));
            let worst = found.worst.map(|worst| worst.latency_ns);
            prop_assert_eq!(worst, expected.latencies_ns.last().copied());
        }
        prop_assert!(ended.seconds[expected.len()..].iter().all(|second| second.sent() == 0));
        let missing: u64 = ended.seconds.iter().map(|second| second.missed[1]).sum();
        prop_assert!(missing <= 7 * missed.len() as u64);
    }

    #[test]
    fn the_figures_are_those_of_captures_of_the_same_packets(
        sent in prop::collection::vec(sent(), 200..400),
        step_ns in 1_000_000..300_000_000_u64,
    ) {
        let sides = sides(&sent);
        let live = listen(&sides, step_ns, &[]).part.finish().expect("it is whole");
        let folder = tempfile::tempdir().expect("a folder");
        let [pre, post] = [0, 1].map(|side| write(folder.path(), side, &sides[side]));
        let config = Config { window: Nanos(WINDOW_NS), ..Config::default() };
        let whole = analyze_pair(pre, post, &config, &mut ()).expect("a pair");
        prop_assert_eq!(live.config.match_on, whole.config.match_on);
        prop_assert_eq!(live.latency.buckets(1), whole.latency.buckets(1));
        prop_assert_eq!(live.counts.duplicated, whole.counts.duplicated);
        prop_assert_eq!(live.pre.side.rate, whole.pre.side.rate);
        // A capture ends with its last packet; who listens on hears that no more come.
        let unjudged = |counts: &analysis::Counts| counts.lost + counts.outside + counts.late;
        prop_assert_eq!(unjudged(&live.counts), unjudged(&whole.counts));
        prop_assert!(live.counts.lost >= whole.counts.lost);
    }
}

fn write(folder: &Path, side: usize, packets: &[(u64, u64)]) -> Reader {
    let path = folder.join(side.to_string());
    let mut writer = Writer::create(&path, Format::PcapNg, Compression::None).expect("a file");
    for (ts, id) in packets {
        let frame = frame(*id);
        let kept = &frame[..KEPT_BYTES];
        writer.write(Nanos(*ts), frame.len() as u32, kept).expect("it is written");
    }
    writer.finish().expect("it is written");
    Reader::open(&path).expect("a capture")
}

#[test]
fn part_of_a_tap_outlives_its_bytes() {
    let one = Sent { gap_ns: 1_000_000, latency_ns: Some(10_000), twice: false };
    let ended = listen(&sides(&[one; 300]), 20_000_000, &[]);
    assert_eq!(ended.flows.iter().map(|flow| flow.matched).sum::<u64>(), 300);
    let bytes = ended.part.to_bytes();
    let again = analysis::Part::from_bytes(&bytes).expect("a part").finish().expect("it is whole");
    assert_eq!((again.counts.matched, again.counts.lost), (300, 0));
    assert_eq!(again.latency.buckets(1), [(10_000, 300)]);
}

#[test]
fn unrelated_links_have_no_figures() {
    let config = Config { window: Nanos(WINDOW_NS), ..Config::default() };
    let names = ["in", "out"].map(String::from);
    let mut live = Live::new(config, names, KEPT_BYTES as u32, BEGIN_NS).expect("a window");
    for at in 1..2000 {
        for (tap, id) in [(Tap::Pre, at), (Tap::Post, 1_000_000 + at)] {
            let frame = frame(id);
            let ts = Nanos(BEGIN_NS + at * 1_000_000);
            live.take(tap, &Packet { ts, orig_len: frame.len() as u32, data: &frame, offset: 0 });
        }
        assert_eq!(live.advance(BEGIN_NS + at * 1_000_000).expect("there is room"), []);
    }
    assert!(live.key().is_none());
    assert_eq!(live.finish().expect_err("nothing crossed").code(), "different-traffic");
}
