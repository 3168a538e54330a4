//! The fate of every packet, rule by rule.

use std::collections::HashMap;

use super::keys::{Keyed, is_local, key};
use super::{Counts, Match, Packet, Question, Twist};

/// What became of a packet before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreFate {
    Unkeyed,
    Repeated,
    Ambiguous,
    Matched(usize),
    Negative,
    Local,
    Late,
    Lost,
}

/// Where a packet after the device came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostFate {
    Unkeyed,
    Match(usize),
    Duplicated,
    Negative,
    Ambiguous,
    Late,
    Unknown,
}

/// An answer to a packet: which post, and whether that is certain.
#[derive(Clone, Copy, Debug)]
struct Answer {
    post: usize,
    certain: bool,
}

/// Both sides' fates; packets in order of time.
pub fn fates(
    pre: &[Packet],
    post: &[Packet],
    ask: &Question,
    twist: Twist,
) -> (Vec<PreFate>, Vec<PostFate>) {
    let mut fates = vec![PreFate::Unkeyed; pre.len()];
    let mut post_fates = vec![PostFate::Unkeyed; post.len()];
    let mut same_key: HashMap<Vec<u8>, [Vec<usize>; 2]> = HashMap::new();
    for (side, packets) in [pre, post].into_iter().enumerate() {
        for (index, packet) in packets.iter().enumerate() {
            if let Some(key) = key_of(packet, ask, twist) {
                same_key.entry(key).or_default()[side].push(index);
            }
        }
    }
    for [sent, seen] in same_key.values() {
        of_one_key((pre, sent), (post, seen), &mut fates, &mut post_fates, ask, twist);
    }
    (fates, post_fates)
}

fn key_of(packet: &Packet, ask: &Question, twist: Twist) -> Option<Vec<u8>> {
    match key(&ask.match_on, &packet.data, packet.orig_len as usize, twist) {
        Keyed::Key(bytes) => Some(bytes),
        Keyed::None => None,
        Keyed::Short => panic!("the generator made a packet shorter than its key"),
    }
}

/// The fates of the packets of one key.
fn of_one_key(
    (pre, sent): (&[Packet], &[usize]),
    (post, seen): (&[Packet], &[usize]),
    fates: &mut [PreFate],
    post_fates: &mut [PostFate],
    ask: &Question,
    twist: Twist,
) {
    let w = i128::from(ask.window);
    let sent_at = |q: usize| i128::from(pre[q].ts);
    let mut answers: HashMap<usize, Answer> = HashMap::new();
    let mut strays = Vec::new();
    let mut back: Vec<(usize, usize)> = Vec::new();
    let mut repeated = Vec::new();
    let copies = if twist == Twist::CopiesCount { 0 } else { ask.copies.min(ask.window - 1) };
    let (all_sent, mut sent) = (sent, Vec::new());
    let mut coming = all_sent.iter().copied().peekable();
    let mut take_sent = |until: Option<u64>, sent: &mut Vec<usize>, strays: &[usize]| {
        while let Some(q) = coming.next_if(|&q| until.is_none_or(|until| pre[q].ts <= until)) {
            let is_copy = |last: &usize| pre[q].ts - pre[*last].ts <= copies;
            if copies > 0 && sent.last().is_some_and(is_copy) {
                repeated.push(q);
                continue;
            }
            let is_before = |p: &&usize| {
                let at = i128::from(post[**p].ts);
                at < sent_at(q) && sent_at(q) < at + w && back.iter().all(|(_, taken)| taken != *p)
            };
            match strays.iter().find(is_before).filter(|_| ask.two_way) {
                Some(&p) => back.push((q, p)),
                None => sent.push(q),
            }
        }
    };
    for &p in seen {
        take_sent(Some(post[p].ts), &mut sent, &strays);
        let now = i128::from(post[p].ts);
        let is_open = |q: usize| match twist {
            Twist::ZeroLatencyIsNegative => sent_at(q) < now && now < sent_at(q) + w,
            Twist::WindowHoldsItsEnd => sent_at(q) <= now && now <= sent_at(q) + w,
            _ => sent_at(q) <= now && now < sent_at(q) + w,
        };
        let open: Vec<usize> = sent.iter().copied().filter(|&q| is_open(q)).collect();
        let waiting: Vec<usize> =
            open.iter().copied().filter(|q| !answers.contains_key(q)).collect();
        match (&open[..], &waiting[..]) {
            ([], _) => strays.push(p),
            ([.., newest], []) if twist == Twist::LastPostWins => {
                answers.insert(*newest, Answer { post: p, certain: true });
            }
            (_, []) => post_fates[p] = PostFate::Duplicated,
            (_, [only]) => {
                answers.insert(*only, Answer { post: p, certain: true });
                open.iter().for_each(|q| {
                    if let Some(answer) = answers.get_mut(q) {
                        answer.certain = true;
                    }
                });
            }
            (_, [oldest, ..]) => {
                let certain = twist == Twist::OrderProvesAll;
                answers.insert(*oldest, Answer { post: p, certain });
            }
        }
    }
    take_sent(None, &mut sent, &strays);
    for q in repeated {
        fates[q] = PreFate::Repeated;
    }
    let mut claimed: Vec<usize> = back.iter().map(|(_, p)| *p).collect();
    for (q, p) in back {
        fates[q] = PreFate::Negative;
        post_fates[p] = PostFate::Negative;
    }
    for (at, &q) in sent.iter().enumerate() {
        let near = |a: &usize| sent_at(q).abs_diff(sent_at(*a)) < w as u128;
        let answered_before = sent[..at].iter().any(|a| near(a) && answers.contains_key(a));
        let alike = sent.iter().any(|a| *a != q && near(a));
        fates[q] = match answers.get(&q) {
            _ if twist == Twist::OrderIgnored && alike => PreFate::Ambiguous,
            Some(answer) if answer.certain => PreFate::Matched(answer.post),
            Some(_) => PreFate::Ambiguous,
            None if answered_before && twist != Twist::CopiesAreLost => PreFate::Ambiguous,
            None => PreFate::Lost,
        };
        if let Some(answer) = answers.get(&q) {
            post_fates[answer.post] = match fates[q] {
                PreFate::Matched(_) => PostFate::Match(q),
                _ => PostFate::Ambiguous,
            };
        }
    }
    // Packets that came out before they went in, first: what they claim was not late.
    for &p in strays.iter().filter(|_| !ask.two_way) {
        let now = i128::from(post[p].ts);
        let is_ahead = |q: usize| match twist {
            Twist::ZeroLatencyIsNegative => now <= sent_at(q) && sent_at(q) < now + w,
            Twist::NegativeHoldsTheWindow => now < sent_at(q) && sent_at(q) <= now + w,
            _ => now < sent_at(q) && sent_at(q) < now + w,
        };
        let behind = sent.iter().any(|&q| sent_at(q) + w <= now && now < sent_at(q) + 2 * w);
        if twist == Twist::LateBeforeNegative && behind {
            continue;
        }
        if let Some(&q) = sent.iter().find(|&&q| is_ahead(q)) {
            claimed.push(p);
            post_fates[p] = match fates[q] {
                PreFate::Ambiguous if twist != Twist::NegativeIgnoresAmbiguity => {
                    PostFate::Ambiguous
                }
                _ => PostFate::Negative,
            };
            if fates[q] == PreFate::Lost && twist != Twist::NegativeIsLost {
                fates[q] = PreFate::Negative;
            }
        }
    }
    for &q in &sent {
        if fates[q] == PreFate::Lost && is_local(&ask.match_on, &pre[q].data) {
            fates[q] = PreFate::Local;
        }
    }
    for &p in strays.iter().filter(|p| !claimed.contains(p)) {
        let now = i128::from(post[p].ts);
        let is_behind = |q: usize| match twist {
            Twist::LateForever => sent_at(q) + w <= now,
            Twist::LateEndsLater => sent_at(q) + w <= now && now <= sent_at(q) + 2 * w,
            _ => sent_at(q) + w <= now && now < sent_at(q) + 2 * w,
        };
        let can_be_late = |fate: PreFate| match twist {
            Twist::LateEvenWhenMatched => fate != PreFate::Ambiguous,
            _ => matches!(fate, PreFate::Lost | PreFate::Late),
        };
        let late = sent.iter().rev().find(|&&q| is_behind(q) && can_be_late(fates[q]));
        post_fates[p] = match late {
            Some(&q) => {
                if fates[q] == PreFate::Lost {
                    fates[q] = PreFate::Late;
                }
                PostFate::Late
            }
            None => PostFate::Unknown,
        };
    }
}

/// Rules 5 and 6: what the trim leaves is counted, and the matches among it are handed back.
pub fn keep(
    pre: &[Packet],
    post: &[Packet],
    fates: (&[PreFate], &[PostFate]),
    ask: &Question,
    twist: Twist,
    counts: &mut Counts,
) -> Vec<Match> {
    let first = post.iter().map(|packet| packet.ts).min();
    let cut = first.filter(|_| ask.trim > 0).map(|ts| i128::from(ts) + i128::from(ask.trim));
    let is_kept = |ts: u64| match twist {
        Twist::TrimKeepsTheCut => cut.is_none_or(|cut| i128::from(ts) >= cut),
        _ => cut.is_none_or(|cut| i128::from(ts) > cut),
    };
    let (first_pre, last_pre) = ends(pre);
    let (first_post, last_post) = ends(post);
    let longest = longest(pre, post, fates.0, is_kept, twist);
    let is_outside = |ts: u64| {
        let in_flight = i128::from(ts) + i128::from(ask.window) > last_post
            && longest.is_none_or(|longest| i128::from(ts) + i128::from(longest) > last_post);
        (i128::from(ts) < first_post && twist != Twist::EarlyIsLost)
            || (in_flight && twist != Twist::TailIsLost)
    };
    let mut matches = Vec::new();
    counts.pre_packets = pre.len() as u64;
    counts.post_packets = post.len() as u64;
    for (seq, (packet, &fate)) in pre.iter().zip(fates.0).enumerate() {
        let decides = match fate {
            PreFate::Matched(post_seq) if twist != Twist::TrimByPre => post[post_seq].ts,
            _ => packet.ts,
        };
        if !is_kept(decides) {
            counts.pre_trimmed += 1;
            continue;
        }
        match fate {
            PreFate::Unkeyed => counts.pre_unkeyed += 1,
            PreFate::Repeated => counts.repeated += 1,
            PreFate::Ambiguous => counts.ambiguous += 1,
            PreFate::Negative if ask.two_way => counts.reverse += 1,
            PreFate::Negative => counts.negative += 1,
            PreFate::Local => counts.local += 1,
            PreFate::Late => counts.late += 1,
            PreFate::Lost if is_outside(packet.ts) => counts.outside += 1,
            PreFate::Lost => counts.lost += 1,
            PreFate::Matched(post_seq) => matches.push(Match {
                seq: seq as u64,
                post_seq: post_seq as u64,
                pre_ts: packet.ts,
                post_ts: post[post_seq].ts,
            }),
        }
    }
    counts.count = matches.len() as u64;
    counts.sent = counts.count + counts.lost + counts.late + counts.negative + counts.outside;
    for (packet, &fate) in post.iter().zip(fates.1) {
        let counter = match fate {
            _ if !is_kept(packet.ts) => &mut counts.post_trimmed,
            PostFate::Unkeyed => &mut counts.post_unkeyed,
            PostFate::Match(_) => continue,
            PostFate::Duplicated => &mut counts.duplicated,
            PostFate::Negative if ask.two_way => &mut counts.post_reverse,
            PostFate::Negative => &mut counts.post_negative,
            PostFate::Ambiguous => &mut counts.post_ambiguous,
            PostFate::Late => &mut counts.post_late,
            PostFate::Unknown
                if twist != Twist::UnknownBeyondPre
                    && !(first_pre..=last_pre).contains(&i128::from(packet.ts)) =>
            {
                &mut counts.post_outside
            }
            PostFate::Unknown => &mut counts.post_unknown,
        };
        *counter += 1;
    }
    matches
}

/// The first and the last time of packets in order; nothing lies between them where there are none.
fn ends(packets: &[Packet]) -> (i128, i128) {
    let ts = |packet: &Packet| i128::from(packet.ts);
    (packets.first().map_or(0, ts), packets.last().map_or(-1, ts))
}

/// The longest latency of the matches that are kept.
fn longest(
    pre: &[Packet],
    post: &[Packet],
    fates: &[PreFate],
    is_kept: impl Fn(u64) -> bool,
    twist: Twist,
) -> Option<u64> {
    let matched = fates.iter().enumerate().filter_map(|(q, fate)| match fate {
        PreFate::Matched(p) => Some((pre[q].ts, post[*p].ts)),
        _ => None,
    });
    let kept = matched
        .filter(|(sent, seen)| is_kept(if twist == Twist::TrimByPre { *sent } else { *seen }));
    kept.map(|(sent, seen)| seen - sent).max()
}
