//! What follows from the kept matches: reordering, delay variation and the slowest packets.

use super::{Match, Twist, Worst};

/// RFC 4737: how many arrived after one that was sent later.
pub fn reordered(matches: &[Match], twist: Twist) -> u64 {
    let mut arrived = matches.to_vec();
    arrived.sort_by_key(|found| found.post_seq);
    let mut largest = 0;
    let mut reordered = 0;
    for found in arrived {
        reordered += u64::from(found.seq < largest);
        largest = match twist {
            Twist::ReorderedAgainstNeighbour => found.seq,
            _ => largest.max(found.seq),
        };
    }
    reordered
}

/// RFC 5481: the change of latency between packets sent one after the other.
pub fn ipdv(matches: &[Match], twist: Twist) -> Vec<i64> {
    matches
        .windows(2)
        .filter(|pair| pair[1].seq == pair[0].seq + 1 || twist == Twist::IpdvAcrossLoss)
        .map(|pair| pair[1].latency() as i64 - pair[0].latency() as i64)
        .collect()
}

/// The largest decrease, at most 0, and the largest increase, at least 0.
pub fn range(changes: &[i64]) -> Option<(i64, i64)> {
    let (min, max) = (changes.iter().min()?, changes.iter().max()?);
    Some(((*min).min(0), (*max).max(0)))
}

/// The slowest packets, slowest first; among equals the one sent first.
pub fn worst(matches: &[Match], keep: usize, twist: Twist) -> Vec<Worst> {
    let mut slowest: Vec<Worst> = matches
        .iter()
        .map(|found| Worst {
            latency: found.latency(),
            pre_ts: found.pre_ts,
            post_ts: found.post_ts,
            seq: found.seq,
        })
        .collect();
    if twist == Twist::WorstTiesLastFirst {
        slowest.reverse();
    }
    slowest.sort_by_key(|packet| std::cmp::Reverse(packet.latency));
    slowest.truncate(keep);
    slowest
}
