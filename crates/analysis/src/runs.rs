//! Captures that are alike though their traffic is not one: by chance, or because one generator sent the
//! same twice.
//!
//! If times say nothing, because the clocks may be apart by anything, then what is the same in two
//! captures proves little: a generator sends the same payloads whenever it runs. So more is asked for.

use std::collections::BTreeMap;

use probe::headers::{addresses, network};
use units::Nanos;

use crate::error::Error;
use crate::ingest::Ahead;

/// Offsets that no other clock explains are at least so long, in ns.
const UNEXPLAINED_NS: u64 = 1_000_000_000;
/// An offset is that of a known scale if it differs by less, in ns.
const NEAR_NS: u64 = 100_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
/// The differences of TAI, UTC and GPS.
const SCALES_S: [u64; 3] = [37, 18, 19];
/// Fewest matches that prove something, and packets in common for each that chance does not explain.
const PROOF: usize = 3;
const SHARE: usize = 20;
/// Fewest matches that tell that the packets are others, or their gaps.
const FEWEST: usize = 50;
/// The most that gaps may agree, as their rank correlation, and differ, as the ratio of their spreads, if they are
/// those of two runs.
const AGREE: f64 = 0.2;
const SPREADS: u64 = 4;

/// A reason why captures that are alike are not taken for one traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// So few of so many packets are alike that something else explains it.
    Few { matched: usize, of: usize },
    /// Payloads are the same, and numbers of packets (IPv4) are not.
    Numbers,
    /// The gaps between packets have nothing in common, though they are spread as much.
    Gaps,
}

/// Packets of two samples that are alike.
pub(crate) struct Alike<'a> {
    pub matched: usize,
    /// Packets that the samples would have in common.
    pub common: usize,
    /// Those that nothing else is like, before and behind the device, in order.
    pub pairs: Vec<(&'a Ahead, &'a Ahead)>,
    /// True if they are alike by what they carry alone.
    pub by_payload: bool,
}

impl Unproven {
    /// Returns why nothing follows from packets that are alike, if the clock behind the device is `offset_ns` ahead;
    /// `bounded` if packets of both directions agree about that.
    pub fn of(alike: &Alike<'_>, offset_ns: i64, bounded: bool) -> Option<Self> {
        let Alike { matched, common, ref pairs, by_payload } = *alike;
        let far = offset_ns.unsigned_abs() >= UNEXPLAINED_NS && !is_scale(offset_ns);
        if matched * SHARE < common && (far || matched < PROOF) {
            return Some(Self::Few { matched, of: common });
        }
        if !far || pairs.len() < FEWEST {
            return None;
        }
        if by_payload && numbers_differ(pairs) {
            return Some(Self::Numbers);
        }
        (!bounded && have_nothing_in_common(&gaps(pairs))).then_some(Self::Gaps)
    }
}

impl Unproven {
    pub fn error(self, [pre, post]: [String; 2], offset_ns: i64) -> Error {
        let why = match self {
            Self::Few { matched, of } => return Error::FewAlike { pre, post, matched, of },
            Self::Numbers => "have other numbers (IPv4 identification)",
            Self::Gaps => "the gaps between them have nothing in common",
        };
        Error::TwoRuns { pre, post, why, offset: Nanos(offset_ns.unsigned_abs()) }
    }
}

/// Returns true if two clocks that show other scales or zones differ by this.
fn is_scale(offset_ns: i64) -> bool {
    let ns = offset_ns.unsigned_abs();
    let from_hour = (ns % HOUR_NS).min(HOUR_NS - ns % HOUR_NS);
    let scales = SCALES_S.map(|s| ns.abs_diff(s * 1_000_000_000));
    from_hour < NEAR_NS || scales.iter().any(|from| *from < NEAR_NS)
}

/// Returns true if hardly any packet has the number that it had before the device.
fn numbers_differ(pairs: &[(&Ahead, &Ahead)]) -> bool {
    let number = |packet: &Ahead| {
        let header = network(&packet.data)?.offset;
        let ip = packet.data.get(header..header + 6)?;
        (ip[0] >> 4 == 4).then(|| [ip[4], ip[5]])
    };
    let both: Vec<_> =
        pairs.iter().filter_map(|(pre, post)| number(pre).zip(number(post))).collect();
    let same = both.iter().filter(|(one, other)| one == other).count();
    both.len() >= FEWEST && same * SHARE < both.len()
}

/// Returns the gaps between the packets of the busiest flow, on either side: those between flows follow from what
/// answers what.
fn gaps(pairs: &[(&Ahead, &Ahead)]) -> [Vec<u64>; 2] {
    let mut flows: BTreeMap<_, [Vec<u64>; 2]> = BTreeMap::new();
    for (pre, post) in pairs {
        let [before, behind] = flows.entry(addresses(&pre.data)).or_default();
        before.push(pre.ts().0);
        behind.push(post.ts().0);
    }
    let busiest = flows.into_values().max_by_key(|[before, _]| before.len()).unwrap_or_default();
    busiest.map(|ts| ts.windows(2).map(|two| two[1].saturating_sub(two[0])).collect())
}

/// Returns true if the gaps of both sides vary about as much, and those that are long before the device are not so
/// behind it.
fn have_nothing_in_common(gaps: &[Vec<u64>; 2]) -> bool {
    let [pre, post] = [0, 1].map(|side: usize| spread(gaps[side].clone()));
    let alike = gaps[0].len() >= FEWEST
        && pre > 0
        && post > 0
        && pre <= SPREADS * post
        && post <= SPREADS * pre;
    alike && rank_correlation(&gaps[0], &gaps[1]) < AGREE
}

/// Returns the difference of the quartiles.
fn spread(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() * 3 / 4).zip(values.get(values.len() / 4)).map_or(0, |(q3, q1)| q3 - q1)
}

/// Returns Spearman's rank correlation.
fn rank_correlation(one: &[u64], other: &[u64]) -> f64 {
    let (one, other) = (ranks(one), ranks(other));
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (x, y) = (mean(&one), mean(&other));
    let sum = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>();
    let both = sum(&mut one.iter().zip(&other).map(|(a, b)| (a - x) * (b - y)));
    let squares = |of: &[f64], mean: f64| sum(&mut of.iter().map(|a| (a - mean).powi(2)));
    both / (squares(&one, x) * squares(&other, y)).sqrt()
}

/// Returns the rank of each value; equal ones share the mean of theirs.
fn ranks(values: &[u64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|at| values[*at]);
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for alike in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = first as f64 + (alike.len() - 1) as f64 / 2.0;
        alike.iter().for_each(|at| ranks[*at] = rank);
        first += alike.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dice(seed: u64, count: usize) -> Vec<u64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 40
        };
        (0..count).map(|_| next() % 1000).collect()
    }

    #[test]
    fn gaps_of_two_runs_have_nothing_in_common() {
        let sent = dice(1, 400);
        let later = |ns: u64| {
            dice(2, 400).iter().zip(&sent).map(|(a, b)| a * ns / 1000 + b).collect::<Vec<_>>()
        };
        assert!(have_nothing_in_common(&[sent.clone(), dice(3, 400)]));
        assert!(!have_nothing_in_common(&[sent.clone(), later(200)]));
        assert!(!have_nothing_in_common(&[sent.clone(), later(1000)]));
        // A device that sends at a rate of its own, a generator that keeps its schedule.
        assert!(!have_nothing_in_common(&[sent.clone(), vec![500; 400]]));
        assert!(!have_nothing_in_common(&[vec![500; 400], sent]));
    }

    #[test]
    fn scales_are_known() {
        for s in [37, -37, 18, 3600, -7200, 86_400] {
            assert!(is_scale(s * 1_000_000_000 + 90_000_000), "{s}");
            assert!(!is_scale(s * 1_000_000_000 + 110_000_000), "{s}");
        }
        assert!(!is_scale(60_000_000_000));
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[5, 1, 5, 9]), [1.5, 0.0, 1.5, 3.0]);
        assert!((rank_correlation(&[1, 2, 3, 4], &[10, 20, 25, 90]) - 1.0).abs() < 1e-9);
    }
}
