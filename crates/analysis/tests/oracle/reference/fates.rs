//! The fate of every packet, rule by rule.

use std::collections::HashMap;

use super::keys::{Keyed, key};
use super::{Counts, Match, Packet, Question, Twist};

/// What became of a packet before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreFate {
    Unkeyed,
    Ambiguous,
    Matched(usize),
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

/// Both sides' fates; packets in order of time.
pub fn fates(
    pre: &[Packet],
    post: &[Packet],
    ask: &Question,
    twist: Twist,
) -> (Vec<PreFate>, Vec<PostFate>) {
    let mut same_key: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
    let mut fates = vec![PreFate::Unkeyed; pre.len()];
    for (index, packet) in pre.iter().enumerate() {
        if let Some(key) = key_of(packet, ask, twist) {
            same_key.entry(key).or_default().push(index);
            fates[index] = PreFate::Lost;
        }
    }
    for alike in same_key.values() {
        for &index in alike {
            if is_ambiguous(pre, alike, index, ask.window, twist) {
                fates[index] = PreFate::Ambiguous;
            }
        }
    }
    let post_fates = (0..post.len())
        .map(|index| match key_of(&post[index], ask, twist) {
            None => PostFate::Unkeyed,
            Some(key) => {
                let alike = same_key.get(&key).map_or(&[][..], Vec::as_slice);
                fate(pre, alike, &mut fates, (index, post[index].ts), ask.window, twist)
            }
        })
        .collect();
    (fates, post_fates)
}

fn key_of(packet: &Packet, ask: &Question, twist: Twist) -> Option<Vec<u8>> {
    match key(&ask.match_on, &packet.data, packet.orig_len as usize, twist) {
        Keyed::Key(bytes) => Some(bytes),
        Keyed::None => None,
        Keyed::Short => panic!("the generator made a packet shorter than its key"),
    }
}

/// Rule 2.
fn is_ambiguous(pre: &[Packet], alike: &[usize], index: usize, w: u64, twist: Twist) -> bool {
    alike.iter().any(|&other| {
        let apart = pre[other].ts.abs_diff(pre[index].ts);
        let near = if twist == Twist::AmbiguityHoldsTheWindow { apart <= w } else { apart < w };
        let counts = match twist {
            Twist::AmbiguityIgnored => false,
            Twist::AmbiguityLooksBackOnly => other < index,
            _ => other != index,
        };
        near && counts
    })
}

/// Rules 3 a to d, for the packet `at` = (index in post, time).
fn fate(
    pre: &[Packet],
    alike: &[usize],
    fates: &mut [PreFate],
    at: (usize, u64),
    window: u64,
    twist: Twist,
) -> PostFate {
    let (index, p) = (at.0, i128::from(at.1));
    let w = i128::from(window);
    let ts = |seq: usize| i128::from(pre[seq].ts);
    let is_active = |q: usize| match twist {
        Twist::ZeroLatencyMatches => ts(q) <= p && p < ts(q) + w,
        Twist::WindowHoldsItsEnd => ts(q) < p && p <= ts(q) + w,
        _ => ts(q) < p && p < ts(q) + w,
    };
    let active: Vec<usize> = alike.iter().copied().filter(|&q| is_active(q)).collect();
    if active.iter().any(|&q| fates[q] == PreFate::Ambiguous) {
        return PostFate::Ambiguous;
    }
    if let Some(&q) = active.first() {
        if matches!(fates[q], PreFate::Matched(_)) && twist != Twist::LastPostWins {
            return PostFate::Duplicated;
        }
        fates[q] = PreFate::Matched(index);
        return PostFate::Match(q);
    }

    let is_ahead = |q: usize| match twist {
        Twist::NegativeHoldsTheWindow => p <= ts(q) && ts(q) <= p + w,
        _ => p <= ts(q) && ts(q) < p + w,
    };
    let is_behind = |q: usize| match twist {
        Twist::LateForever => ts(q) + w <= p,
        Twist::LateEndsLater => ts(q) + w <= p && p <= ts(q) + 2 * w,
        _ => ts(q) + w <= p && p < ts(q) + 2 * w,
    };
    let can_be_late = |fate: PreFate| match twist {
        Twist::LateEvenWhenMatched => fate != PreFate::Ambiguous,
        _ => matches!(fate, PreFate::Lost | PreFate::Late),
    };
    let ahead = alike.iter().copied().find(|&q| is_ahead(q));
    let late = alike.iter().copied().rev().find(|&q| is_behind(q) && can_be_late(fates[q]));
    match (ahead, late) {
        (Some(q), None) => negative(fates[q], twist),
        (Some(q), Some(_)) if twist != Twist::LateBeforeNegative => negative(fates[q], twist),
        (_, Some(q)) => {
            if fates[q] == PreFate::Lost {
                fates[q] = PreFate::Late;
            }
            PostFate::Late
        }
        (None, None) => PostFate::Unknown,
    }
}

fn negative(ahead: PreFate, twist: Twist) -> PostFate {
    match ahead {
        PreFate::Ambiguous if twist != Twist::NegativeIgnoresAmbiguity => PostFate::Ambiguous,
        _ => PostFate::Negative,
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
            PreFate::Ambiguous => counts.ambiguous += 1,
            PreFate::Lost => counts.lost += 1,
            PreFate::Late => counts.late += 1,
            PreFate::Matched(post_seq) => matches.push(Match {
                seq: seq as u64,
                post_seq: post_seq as u64,
                pre_ts: packet.ts,
                post_ts: post[post_seq].ts,
            }),
        }
    }
    counts.count = matches.len() as u64;
    counts.sent = counts.count + counts.lost + counts.late;
    for (packet, &fate) in post.iter().zip(fates.1) {
        let counter = match fate {
            _ if !is_kept(packet.ts) => &mut counts.post_trimmed,
            PostFate::Unkeyed => &mut counts.post_unkeyed,
            PostFate::Match(_) => continue,
            PostFate::Duplicated => &mut counts.duplicated,
            PostFate::Negative => &mut counts.negative,
            PostFate::Ambiguous => &mut counts.post_ambiguous,
            PostFate::Late => &mut counts.post_late,
            PostFate::Unknown => &mut counts.post_unknown,
        };
        *counter += 1;
    }
    matches
}
