//! The reference on cases small enough to work out by hand, and the canary: every wrong rule is
//! told from the right one by the cases that the engine is tested with.

use crate::generate;
use crate::reference::{Figures, MatchOn, Packet, Question, Twist, figures};

fn packets(times: &[(u64, u8)]) -> Vec<Packet> {
    let packet = |&(ts, id)| Packet { ts, orig_len: 1, data: vec![id] };
    times.iter().map(packet).collect()
}

fn of(pre: &[(u64, u8)], post: &[(u64, u8)], trim: u64) -> Figures {
    let ask = Question {
        match_on: MatchOn::Bytes(vec![(0, 1)]),
        window: 10,
        trim,
        worst: 2,
        copies: 0,
        two_way: false,
    };
    figures(&packets(pre), &packets(post), &ask, Twist::None)
}

/// (count, without a match, late, ambiguous) and (duplicated, negative, ambiguous, late, unknown).
fn fates(pre: &[(u64, u8)], post: &[(u64, u8)]) -> ([u64; 4], [u64; 5]) {
    let c = of(pre, post, 0).counts;
    let unknown = c.post_unknown + c.post_outside;
    let posts = [c.duplicated, c.post_negative, c.post_ambiguous, c.post_late, unknown];
    ([c.count, c.lost + c.outside + c.negative, c.late, c.ambiguous], posts)
}

#[test]
fn a_match_lies_from_its_packet_on_within_the_window() {
    for (post, pre_fate, post_fate) in [
        (89, [0, 1, 0, 0], [0, 0, 0, 0, 1]),
        (90, [0, 1, 0, 0], [0, 0, 0, 0, 1]),
        (91, [0, 1, 0, 0], [0, 1, 0, 0, 0]),
        (99, [0, 1, 0, 0], [0, 1, 0, 0, 0]),
        (100, [1, 0, 0, 0], [0; 5]),
        (101, [1, 0, 0, 0], [0; 5]),
        (109, [1, 0, 0, 0], [0; 5]),
        (110, [0, 0, 1, 0], [0, 0, 0, 1, 0]),
        (119, [0, 0, 1, 0], [0, 0, 0, 1, 0]),
        (120, [0, 1, 0, 0], [0, 0, 0, 0, 1]),
    ] {
        assert_eq!(fates(&[(100, 7)], &[(post, 7)]), (pre_fate, post_fate), "post at {post}");
    }
}

#[test]
fn packets_alike_are_matched_where_order_proves_it() {
    // The packet at 90 shows that the capture had looked for a window before 100, and the one at 108
    // that it went on. The one at 91 is lost, so that it is no anchor.
    let train = |times: &[u64], posts: &[u64]| {
        let sent = times.iter().map(|&ts| (ts, 7));
        let pre: Vec<_> =
            [(90, 1), (91, 9)].into_iter().chain(sent).chain([(108, 2), (130, 3)]).collect();
        let seen = posts.iter().map(|&ts| (ts, 7));
        let mut post: Vec<_> = [(91, 1), (108, 2), (131, 3)].into_iter().chain(seen).collect();
        post.sort_unstable();
        let (pre, [duplicated, _, ambiguous, ..]) = fates(&pre, &post);
        (pre[0] - 3, pre[1] - 1, pre[3], duplicated + ambiguous)
    };
    assert_eq!(train(&[100, 104], &[101, 105]), (2, 0, 0, 0));
    assert_eq!(train(&[100, 104], &[104, 105]), (0, 0, 2, 2), "two were inside");
    assert_eq!(train(&[100, 104], &[105, 106]), (0, 0, 2, 2), "two were inside");
    assert_eq!(train(&[100, 104], &[105]), (0, 0, 2, 1), "one was lost");
    assert_eq!(train(&[100, 104], &[101, 102, 105]), (0, 0, 2, 3), "one came out twice");
    assert_eq!(
        train(&[100, 104], &[101]),
        (1, 0, 1, 0),
        "the last one may be a copy in the capture"
    );
    assert_eq!(train(&[100, 110], &[105]), (1, 1, 0, 0), "a window apart, they are not alike");
    assert_eq!(
        train(&[99, 104], &[101, 105]),
        (0, 0, 2, 2),
        "others may have gone in unseen before"
    );
    assert_eq!(
        train(&[100, 104], &[101, 109]),
        (1, 0, 1, 1),
        "another may have gone in unseen since"
    );
    assert_eq!(train(&[100, 104], &[95, 101, 105]), (0, 0, 2, 3), "one was inside before");
}

#[test]
fn a_packet_that_can_be_told_apart_anchors_those_behind_it() {
    let sent = [(99, 1), (100, 7), (104, 7), (108, 2)];
    let told = |post: &[(u64, u8)]| fates(&sent, post).0;
    assert_eq!(told(&[(99, 1), (101, 7), (105, 7), (109, 2)]), [4, 0, 0, 0]);
    assert_eq!(told(&[(99, 7), (100, 1), (105, 7), (109, 2)]), [2, 0, 0, 2], "a stray before");
    assert_eq!(told(&[(101, 7), (102, 1), (105, 7), (109, 2)]), [2, 0, 0, 2], "it was overtaken");
    assert_eq!(told(&[(101, 7), (105, 7), (109, 2)]), [1, 1, 0, 2], "it was lost");
    let twice = [(99, 1), (99, 1), (101, 7), (105, 7), (109, 2)];
    assert_eq!(told(&twice), [2, 0, 0, 2], "it came out twice");
    assert_eq!(fates(&[(100, 7), (100, 8)], &[(101, 8), (101, 7)]), ([2, 0, 0, 0], [0; 5]));
}

#[test]
fn what_is_not_found_is_judged_where_both_captures_looked() {
    let judged = |pre: &[(u64, u8)], post: &[(u64, u8)]| {
        let c = of(pre, post, 0).counts;
        (c.lost, c.outside)
    };
    let post = [(103, 1), (113, 2), (124, 5)];
    assert_eq!(judged(&[(100, 1), (110, 2), (115, 3), (121, 5)], &post), (1, 0));
    assert_eq!(judged(&[(99, 9), (100, 1), (110, 2), (121, 5)], &post), (0, 1));
    assert_eq!(judged(&[(100, 1), (110, 2), (121, 5), (122, 6), (125, 7)], &post), (0, 2));
    assert_eq!(judged(&[(100, 1), (110, 2), (120, 6), (121, 5)], &post), (1, 0));
}

#[test]
fn negative_comes_before_late() {
    assert_eq!(fates(&[(100, 7), (115, 7)], &[(112, 7)]), ([0, 2, 0, 0], [0, 1, 0, 0, 0]));
}

#[test]
fn the_first_post_counts() {
    assert_eq!(
        fates(&[(100, 7)], &[(102, 7), (105, 7), (113, 7)]),
        ([1, 0, 0, 0], [1, 0, 0, 0, 1])
    );
    assert_eq!(fates(&[(100, 7)], &[(111, 7), (112, 7)]), ([0, 0, 1, 0], [0, 0, 0, 2, 0]));
}

#[test]
fn the_trim_drops_by_post_what_matched_and_by_itself_what_did_not() {
    let pre = [(99, 0), (103, 1), (104, 2), (104, 9), (106, 8)];
    let post = [(100, 0), (104, 1), (105, 2)];
    let counts = of(&pre, &post, 4).counts;
    assert_eq!((counts.count, counts.lost + counts.outside, counts.pre_trimmed), (1, 1, 3));
    assert_eq!(counts.post_trimmed, 2);
}

#[test]
fn order_and_variation_follow_from_the_kept_matches() {
    let pre = [(100, 0), (101, 1), (102, 2), (103, 3), (104, 4)];
    let post = [(105, 1), (106, 0), (107, 4), (108, 2), (108, 9)];
    let figures = of(&pre, &post, 0);
    assert_eq!(figures.counts.reordered, 2);
    assert_eq!((figures.ipdv, figures.ipdv_range), (vec![2, 2], Some((-2, 2))));
    assert_eq!(
        figures.worst.iter().map(|w| (w.latency, w.seq)).collect::<Vec<_>>(),
        [(6, 0), (6, 2)]
    );
    assert_eq!(figures.latencies, [3, 4, 6, 6]);
    assert_eq!(figures.post.gaps, [0, 1, 1, 1]);
}

/// A figure that never moves is not tested.
#[test]
fn the_cases_reach_every_fate() {
    let mut seen = [0u64; 21];
    for seed in 0..2_000 {
        let case = generate::case(seed);
        let c = figures(&case.pre, &case.post, &case.ask, Twist::None).counts;
        let pre = [c.pre_trimmed, c.pre_unkeyed, c.ambiguous, c.count, c.lost, c.late];
        let more = [c.repeated, c.reverse, c.local, c.negative, c.outside];
        let post =
            [c.post_trimmed, c.post_unkeyed, c.duplicated, c.post_negative, c.post_ambiguous];
        let rest = [c.post_late, c.post_unknown, c.post_outside, c.post_reverse, c.reordered];
        for (seen, count) in seen.iter_mut().zip([&pre[..], &more, &post, &rest].concat()) {
            *seen += u64::from(count > 0);
        }
    }
    assert!(seen.iter().all(|&cases| cases >= 60), "{seen:?}");
}

#[test]
fn every_wrong_rule_is_noticed() {
    for twist in Twist::WRONG {
        let noticed = (0..2_000).filter(|&seed| {
            let case = generate::case(seed);
            let right = figures(&case.pre, &case.post, &case.ask, Twist::None);
            figures(&case.pre, &case.post, &case.ask, twist) != right
        });
        assert_eq!(noticed.take(3).count(), 3, "{twist:?} looks like the right rule");
    }
}

#[test]
fn what_goes_in_comes_out() {
    for seed in 0..2_000 {
        let case = generate::case(seed);
        let c = figures(&case.pre, &case.post, &case.ask, Twist::None).counts;
        let left = c.pre_trimmed + c.pre_unkeyed + c.ambiguous + c.repeated + c.reverse + c.local;
        assert_eq!(c.pre_packets, left + c.sent, "{seed}");
        let fates = c.duplicated + c.post_negative + c.post_reverse + c.post_ambiguous;
        let strays = c.post_late + c.post_outside + c.post_unknown;
        let all = c.post_trimmed + c.post_unkeyed + c.count + fates + strays;
        assert_eq!(c.post_packets, all, "{seed}");
    }
}
