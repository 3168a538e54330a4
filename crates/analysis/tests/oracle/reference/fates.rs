//! The fate of every packet, rule by rule.

use std::collections::{HashMap, HashSet};

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

/// What happened to the packets of one key, in order of time.
#[derive(Default)]
struct Story {
    /// Packets before the device that may be found behind it.
    sent: Vec<usize>,
    /// Of these, those that went in while another one waited for an answer.
    crowded: HashSet<usize>,
    /// The post that answers a packet.
    answers: HashMap<usize, usize>,
    /// Posts that came while none waited, and the newest packet then.
    surplus: Vec<(usize, usize)>,
    /// Posts that came while no window was open.
    strays: Vec<usize>,
    /// Packets that travel the other way, and the post of each.
    back: Vec<(usize, usize)>,
    repeated: Vec<usize>,
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
    let of_key = |[sent, seen]: &[Vec<usize>; 2]| story((pre, sent), (post, seen), ask, twist);
    let stories: Vec<Story> = same_key.values().map(of_key).collect();
    let mut anchors = vec![None; pre.len()];
    for story in &stories {
        for &q in &story.sent {
            anchors[q] = anchor(q, story, (pre, post), ask, twist);
        }
    }
    for story in stories {
        of_one_key(story, &anchors, (pre, post), (&mut fates, &mut post_fates), ask, twist);
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

/// What happened to the packets of one key.
fn story(
    (pre, all_sent): (&[Packet], &[usize]),
    (post, seen): (&[Packet], &[usize]),
    ask: &Question,
    twist: Twist,
) -> Story {
    let w = i128::from(ask.window);
    let sent_at = |q: usize| i128::from(pre[q].ts);
    let copies = if twist == Twist::CopiesCount { 0 } else { ask.copies.min(ask.window - 1) };
    let mut coming = all_sent.iter().copied().peekable();
    let mut take_sent = |until: Option<u64>, told: &mut Story| {
        while let Some(q) = coming.next_if(|&q| until.is_none_or(|until| pre[q].ts <= until)) {
            let is_copy = |last: &usize| pre[q].ts - pre[*last].ts <= copies;
            if copies > 0 && told.sent.last().is_some_and(is_copy) {
                told.repeated.push(q);
                continue;
            }
            let is_before = |p: &&usize| {
                let at = i128::from(post[**p].ts);
                let taken = told.back.iter().any(|(_, taken)| taken == *p);
                at < sent_at(q) && sent_at(q) < at + w && !taken
            };
            if let Some(&p) = told.strays.iter().find(is_before).filter(|_| ask.two_way) {
                told.back.push((q, p));
                continue;
            }
            let waits = |a: &usize| sent_at(q) < sent_at(*a) + w && !told.answers.contains_key(a);
            if told.sent.iter().any(waits) {
                told.crowded.insert(q);
            }
            told.sent.push(q);
        }
    };
    let mut told = Story::default();
    for &p in seen {
        take_sent(Some(post[p].ts), &mut told);
        let now = i128::from(post[p].ts);
        let is_open = |q: usize| match twist {
            Twist::ZeroLatencyIsNegative => sent_at(q) < now && now < sent_at(q) + w,
            Twist::WindowHoldsItsEnd => sent_at(q) <= now && now <= sent_at(q) + w,
            _ => sent_at(q) <= now && now < sent_at(q) + w,
        };
        let open: Vec<usize> = told.sent.iter().copied().filter(|&q| is_open(q)).collect();
        let waiting: Vec<usize> =
            open.iter().copied().filter(|q| !told.answers.contains_key(q)).collect();
        match (&open[..], &waiting[..]) {
            ([], _) => told.strays.push(p),
            ([.., newest], []) if twist == Twist::LastPostWins => {
                told.answers.insert(*newest, p);
            }
            ([.., newest], []) => told.surplus.push((p, *newest)),
            (_, [oldest, ..]) => {
                told.answers.insert(*oldest, p);
            }
        }
    }
    take_sent(None, &mut told);
    told
}

/// The post of a packet that can be told apart: no other one of its key is near before the device,
/// and exactly one behind it.
fn anchor(
    q: usize,
    told: &Story,
    (pre, post): (&[Packet], &[Packet]),
    ask: &Question,
    twist: Twist,
) -> Option<usize> {
    let &p = told.answers.get(&q)?;
    let is_alike = |a: &&usize| **a != q && pre[**a].ts.abs_diff(pre[q].ts) < ask.window;
    let alone = told.sent.iter().find(is_alike).is_none();
    let once = told.surplus.iter().all(|(_, of)| *of != q);
    let local = is_local(&ask.match_on, &pre[q].data);
    let apart = alone && once && !local && !is_behind_a_stray(q, told, (pre, post), ask);
    (apart || twist == Twist::AnyPacketAnchors).then_some(p)
}

/// Whether a post of its key came shortly before a packet, and belongs to none before.
fn is_behind_a_stray(
    q: usize,
    told: &Story,
    (pre, post): (&[Packet], &[Packet]),
    ask: &Question,
) -> bool {
    let is_near = |p: &usize| post[*p].ts < pre[q].ts && pre[q].ts - post[*p].ts < ask.window;
    !ask.two_way && told.strays.iter().any(is_near)
}

/// Which packets of a key are matched with their answer, as order proves it.
fn proven(
    told: &Story,
    anchors: &[Option<usize>],
    (pre, post): (&[Packet], &[Packet]),
    ask: &Question,
    twist: Twist,
) -> HashSet<usize> {
    let w = i128::from(ask.window);
    let sent_at = |q: usize| i128::from(pre[q].ts);
    let mut proven = HashSet::new();
    for train in told.sent.chunk_by(|&a, &b| sent_at(b) - sent_at(a) < w) {
        let answered = |q: &&usize| told.answers.contains_key(q);
        if train.len() == 1 || twist == Twist::OrderProvesAll {
            proven.extend(train.iter().filter(answered));
            continue;
        }
        let first = train[0];
        let looked = post.first().is_some_and(|seen| seen.ts <= pre[first].ts);
        let silent = looked && i128::from(pre[0].ts) <= sent_at(first) - w;
        let behind = first.checked_sub(1).and_then(|before| anchors[before]);
        let answer = told.answers.get(&first).copied();
        let follows = behind.is_some_and(|p| answer == Some(p + 1));
        let anchored = match twist {
            Twist::AnchorIgnored => true,
            Twist::SilenceAloneAnchors => silent,
            Twist::SilenceIsNoAnchor => follows,
            _ => silent || follows,
        };
        let strays = is_behind_a_stray(first, told, (pre, post), ask);
        if !anchored || (strays && twist != Twist::StraysForgiven) {
            continue;
        }
        for q in train.iter().filter(answered) {
            let (from, until) = (sent_at(first), sent_at(*q) + w);
            let answered_at = i128::from(post[told.answers[q]].ts);
            let crowd = train.iter().any(|c| told.crowded.contains(c) && sent_at(*c) < until);
            let copied = told.surplus.iter().any(|(p, _)| {
                let at = i128::from(post[*p].ts);
                from <= at && at < until
            });
            let went_on = pre[q + 1..].iter().any(|packet| {
                let at = i128::from(packet.ts);
                answered_at <= at && at < until
            });
            let holds = [
                (!crowd, Twist::CrowdForgiven),
                (!copied, Twist::SurplusForgiven),
                (went_on, Twist::EndIgnored),
            ];
            if holds.into_iter().all(|(holds, without)| holds || twist == without) {
                proven.insert(*q);
            }
        }
    }
    proven
}

/// The fates of the packets of one key.
fn of_one_key(
    told: Story,
    anchors: &[Option<usize>],
    (pre, post): (&[Packet], &[Packet]),
    (fates, post_fates): (&mut [PreFate], &mut [PostFate]),
    ask: &Question,
    twist: Twist,
) {
    let w = i128::from(ask.window);
    let sent_at = |q: usize| i128::from(pre[q].ts);
    let proven = proven(&told, anchors, (pre, post), ask, twist);
    let Story { sent, answers, surplus, strays, back, repeated, .. } = told;
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
            Some(post) if proven.contains(&q) => PreFate::Matched(*post),
            Some(_) => PreFate::Ambiguous,
            None if answered_before && twist != Twist::CopiesAreLost => PreFate::Ambiguous,
            None => PreFate::Lost,
        };
        if let Some(post) = answers.get(&q) {
            post_fates[*post] = match fates[q] {
                PreFate::Matched(_) => PostFate::Match(q),
                _ => PostFate::Ambiguous,
            };
        }
    }
    for (p, of) in surplus {
        post_fates[p] = match fates[of] {
            PreFate::Ambiguous => PostFate::Ambiguous,
            _ => PostFate::Duplicated,
        };
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
) -> (Vec<Match>, Vec<u64>) {
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
    let (mut matches, mut lost) = (Vec::new(), Vec::new());
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
            PreFate::Lost => lost.push(seq as u64),
            PreFate::Matched(post_seq) => matches.push(Match {
                seq: seq as u64,
                post_seq: post_seq as u64,
                pre_ts: packet.ts,
                post_ts: post[post_seq].ts,
            }),
        }
    }
    counts.count = matches.len() as u64;
    counts.lost = lost.len() as u64;
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
    (matches, lost)
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
