//! One side on its own: how many packets, how far apart, how many a second.

use std::collections::BTreeMap;

use super::{Packet, Side, Twist};

const SECOND: u64 = 1_000_000_000;

/// The side `own`, in order of time.
pub fn side(own: &[Packet], other: &[Packet], trim: u64, twist: Twist) -> Side {
    let deciding = if twist == Twist::SidesShareTheFirst { other } else { own };
    let first = deciding.first().map_or(0, |packet| packet.ts);
    let cut = i128::from(first) + i128::from(trim);
    let kept: Vec<u64> = own
        .iter()
        .map(|packet| packet.ts)
        .filter(|&ts| trim == 0 || i128::from(ts) > cut)
        .collect();
    let all: Vec<u64> = own.iter().map(|packet| packet.ts).collect();
    let spaced = if twist == Twist::GapsIgnoreTrim { &all } else { &kept };
    let mut gaps: Vec<u64> = spaced.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let mut per_second = BTreeMap::new();
    for ts in &kept {
        *per_second.entry(kept[0] + (ts - kept[0]) / SECOND * SECOND).or_insert(0) += 1;
    }
    Side {
        received: own.len() as u64,
        received_trimmed: kept.len() as u64,
        gaps,
        per_second: per_second.into_iter().collect(),
    }
}
