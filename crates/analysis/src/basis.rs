//! Decisions about a pair before its first packet is matched.

use std::collections::BTreeSet;

use capture::Trailer;
use units::Nanos;

/// Parts that a drift is counted in: a part in 10¹² is 1 ps per second.
const PARTS: i128 = 1_000_000_000_000;

/// The difference of the clock behind the device from the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// Lead at `since_ns`, in ns.
    pub offset_ns: i64,
    /// Amount by which it runs faster, in parts per 10¹².
    pub drift_ppt: i64,
    /// A time of the clock behind the device, in ns.
    pub since_ns: u64,
}

impl Skew {
    /// No difference: both clocks are one.
    pub const NONE: Self = Self { offset_ns: 0, drift_ppt: 0, since_ns: 0 };

    /// Returns a time of the clock behind the device by the clock before it, in ns.
    #[inline]
    pub(crate) fn undo(self, ts: u64) -> u64 {
        if self == Self::NONE {
            return ts;
        }
        let passed = i128::from(ts) - i128::from(self.since_ns);
        let ahead = i128::from(self.offset_ns) + passed * i128::from(self.drift_ppt) / PARTS;
        (i128::from(ts) - ahead).clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// The assumption about the two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clocks {
    /// No assumption: if they are apart, there are no figures.
    #[default]
    Detect,
    /// They are one.
    Same,
    /// They differ by this.
    Apart {
        /// Difference of the clock behind the device.
        skew: Skew,
        /// True if latencies are above that of the fastest packet, as where the offset is not
        /// known.
        relative: bool,
        /// Bounds of the error of an estimate.
        bounds: Bounds,
    },
}

/// The offset and drift of two clocks that the packets of their captures prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The least offset, in ns: no packet that travels the other way arrived before it was sent;
    /// `None` where none does.
    pub offset_low_ns: Option<i64>,
    /// The highest offset, in ns: no packet arrived before it was sent.
    pub offset_high_ns: Option<i64>,
    /// Largest error of the drift either way, in parts per 10¹², if the fastest packets take as
    /// long at any time; 0 if somebody knows the drift, `None` if there are too few packets.
    pub drift_error_ppt: Option<i64>,
}

impl Clocks {
    pub(crate) fn skew(self) -> Skew {
        match self {
            Self::Detect | Self::Same => Skew::NONE,
            Self::Apart { skew, .. } => skew,
        }
    }

    /// True if somebody said how far they are apart, and how they drift.
    pub(crate) fn drift_is_known(self) -> bool {
        matches!(self, Self::Apart { bounds, .. } if bounds.drift_error_ppt == Some(0))
    }

    /// True if their offset is known, and whether they drift is not.
    pub(crate) fn drift_is_open(self) -> bool {
        matches!(self, Self::Apart { relative: false, bounds, .. } if bounds.drift_error_ppt.is_none())
    }
}

/// The grid that times lie on: `ticks` of them in `ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// A number of nanoseconds.
    pub ns: u64,
    /// Times in them.
    pub ticks: u64,
}

impl Grid {
    /// Every nanosecond.
    pub const FINEST: Self = Self { ns: 1, ticks: 1 };

    /// Returns the grid of times by a counter: its ticks, or every nanosecond if these are finer.
    pub(crate) fn of_counter(hz: u64) -> Self {
        const S: u64 = 1_000_000_000;
        if hz < S { Self { ns: S, ticks: hz } } else { Self::FINEST }
    }

    /// Returns the distance from one time to the next, in ns.
    #[must_use]
    pub fn step_ns(self) -> f64 {
        self.ns as f64 / self.ticks as f64
    }
}

/// Source and destination of packets: addresses of their outermost packet, else MAC addresses.
pub type Flow = (Vec<u8>, Vec<u8>);

/// The results of a look at the beginning of both captures.
#[derive(Clone, Debug, PartialEq)]
pub struct Basis {
    /// Bytes of each packet, from its network header on, that both captures hold; `None`: enough.
    pub limit_bytes: Option<u32>,
    /// A packet alike that follows so soon before the device is a copy in the capture, in ns; 0:
    /// none is.
    pub copies_ns: u64,
    /// True if packets travel both ways.
    pub two_way: bool,
    /// True if packets lose hops in between, as in a router.
    pub routed: bool,
    /// True if packets of the sample were seen behind the device alone, and hardly any before it alone.
    pub gains: bool,
    /// Flows of the sample that travel the other way, by source and destination.
    pub back: BTreeSet<Flow>,
    /// Flows of the sample that are known to travel forward, where packets travel both ways.
    pub forth: BTreeSet<Flow>,
    /// The flows of `back` as the capture behind the device has them.
    pub back_behind: BTreeSet<Flow>,
    /// Trailers with a time behind the frames of the capture before and of that behind the device.
    pub trailers: [Option<Trailer>; 2],
    /// The grid of the times of both captures.
    pub grid: Grid,
    /// Number of packets of the sample that each key matched, and of how many.
    pub tried: Vec<Tried>,
}

/// A key that was tried on a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its name.
    pub key: String,
    /// Packets before the device that were found behind it.
    pub matched: u64,
    /// Packets before the device from the first of them to the last.
    pub of: u64,
}

impl Basis {
    /// Returns the keys that were tried, and how much each matched; nothing where none was.
    pub(crate) fn in_words(&self) -> String {
        let keys: Vec<_> = self.tried.iter().map(|tried| tried.key.as_str()).collect();
        if keys.is_empty() { String::new() } else { format!(" (tried {})", keys.join(", ")) }
    }
}

impl Default for Basis {
    fn default() -> Self {
        Self {
            limit_bytes: None,
            copies_ns: 0,
            two_way: false,
            routed: false,
            gains: false,
            back: BTreeSet::new(),
            forth: BTreeSet::new(),
            back_behind: BTreeSet::new(),
            trailers: [None; 2],
            grid: Grid::FINEST,
            tried: vec![],
        }
    }
}

/// Returns the coarsest grid that both the times of a clock and the differences of its times lie
/// on, where there are enough of them to prove it.
///
/// A counter of 80 MHz ticks every 12.5 ns, and of the nanoseconds that it can show, modulo 25, there
/// are two, and three that can lie between two of them. So: the period of which the fewest places are in
/// use, for its length.
pub(crate) fn grid_of(times: &[u64], apart: &[i64]) -> Grid {
    const PROOF: usize = 20;
    const LONGEST: u64 = 1000;
    let Some(first) = times.first().filter(|_| times.len() >= PROOF) else { return Grid::FINEST };
    let divisor = times.iter().fold(0, |divisor, ts| gcd(divisor, ts.abs_diff(*first)));
    // Packets on a schedule that all take as long lie on a grid, but not on that of the clock.
    let varied = apart.iter().any(|ns| *ns != apart[0]);
    if !varied {
        return Grid::FINEST;
    }
    if divisor > 1 {
        return Grid { ns: divisor, ticks: 1 };
    }
    // Differences repeat, and refute a period sooner than the times of packets sent on a schedule.
    let mut apart = apart.to_vec();
    apart.sort_unstable();
    apart.dedup();
    let mut best = Grid::FINEST;
    for period in (2..=LONGEST).take_while(|period| times.len() >= PROOF * *period as usize) {
        let most = ((period * best.ticks - 1) / best.ns).min(period / 2);
        // Half a nanosecond is rounded now up and now down; at both ends of a difference.
        let between = apart.iter().map(|ns| ns.rem_euclid(period as i64) as u64);
        let Some(apart) = places(between, period, 4, 2 * most) else { continue };
        // From behind: those behind the device come last, and are on no schedule.
        let at = times.iter().rev().map(|ts| ts % period);
        let Some(ticks) = places(at, period, 2, most) else { continue };
        if ticks <= most && apart < 2 * ticks {
            best = Grid { ns: period, ticks };
        }
    }
    best
}

/// Returns the number of places of a circle of `period` that are in use, if no such place is wider
/// than `widest`; neighbours are one, and nothing is said of more than `most`.
fn places(of: impl Iterator<Item = u64>, period: u64, widest: usize, most: u64) -> Option<u64> {
    let (mut used, mut count) = (vec![false; period as usize], 0);
    for residue in of {
        if std::mem::replace(&mut used[residue as usize], true) {
            continue;
        }
        count += 1;
        if count > widest as u64 * most || width(&used, residue as usize) > widest {
            return None;
        }
    }
    let begins = |at: usize| used[at] && !used[(at + used.len() - 1) % used.len()];
    Some((0..used.len()).filter(|at| begins(*at)).count() as u64)
}

/// Returns how wide the place is that `at` is part of.
fn width(used: &[bool], at: usize) -> usize {
    let len = used.len();
    let behind = (1..len).take_while(|step| used[(at + step) % len]).count();
    let before = (1..len).take_while(|step| used[(at + len - step) % len]).count();
    (1 + behind + before).min(len)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns a span of time in the words of people: hours, minutes or seconds, where it is whole
/// ones.
pub(crate) fn whole(offset: i64) -> Option<String> {
    const SECOND: i64 = 1_000_000_000;
    if offset == 0 || offset % SECOND != 0 {
        return None;
    }
    let seconds = (offset / SECOND).unsigned_abs();
    Some(match seconds {
        37 => "37 s, the difference of TAI and UTC".into(),
        18 => "18 s, the difference of GPS and UTC".into(),
        19 => "19 s, the difference of TAI and GPS".into(),
        _ if seconds % 3600 == 0 => {
            format!("{} h: one of them may show local time", seconds / 3600)
        }
        _ if seconds % 60 == 0 => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    })
}

/// Returns the whole seconds by which both clocks differ, in ns, if they differ by about that.
pub(crate) fn nearest_whole(offset: i64) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    let seconds = (offset as f64 / SECOND as f64).round() as i64;
    let rest = Nanos((offset - seconds * SECOND).unsigned_abs());
    if rest < Nanos(SECOND as u64 / 10) { seconds * SECOND } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(step: f64, count: u64) -> Vec<u64> {
        // Spread so that every residue comes.
        (0..count)
            .map(|i| (i.wrapping_mul(7919) % 1_000_003) as f64 * step)
            .map(|ts| ts as u64)
            .collect()
    }

    #[test]
    fn the_grid_of_a_clock_is_found_in_its_times() {
        for (step, expected) in [
            (12.5, Grid { ns: 25, ticks: 2 }),
            (6.4, Grid { ns: 32, ticks: 5 }),
            (8.0, Grid { ns: 8, ticks: 1 }),
            (1000.0, Grid { ns: 1000, ticks: 1 }),
            (1.0, Grid::FINEST),
        ] {
            let times = times(step, 5000);
            let apart: Vec<i64> =
                times.windows(2).map(|two| two[1] as i64 - two[0] as i64).collect();
            assert_eq!(grid_of(&times, &apart), expected, "{step}");
        }
    }

    #[test]
    fn a_few_times_prove_no_grid() {
        assert_eq!(grid_of(&[], &[]), Grid::FINEST);
        assert_eq!(grid_of(&times(12.5, 30), &[]), Grid::FINEST);
        // Packets on a schedule, each delayed by another number of nanoseconds.
        let schedule = (0..1000).flat_map(|i| [100_000 * i, 100_001 * i + 1001]);
        let apart: Vec<i64> = (1001..2001).collect();
        assert_eq!(grid_of(&schedule.collect::<Vec<_>>(), &apart), Grid::FINEST);
        let steady: Vec<u64> = (0..1000).flat_map(|i| [100_000 * i, 100_000 * i + 500]).collect();
        assert_eq!(grid_of(&steady, &[500; 1000]), Grid::FINEST);
    }

    #[test]
    fn a_skew_is_undone() {
        let skew = Skew { offset_ns: 3_000_000, drift_ppt: 20_000_000, since_ns: 1_000_000_000 };
        assert_eq!(skew.undo(1_000_000_000), 997_000_000);
        assert_eq!(skew.undo(2_000_000_000), 1_997_000_000 - 20_000);
        assert_eq!(Skew { offset_ns: 5, ..Skew::NONE }.undo(3), 0);
    }

    #[test]
    fn whole_differences_have_names() {
        assert_eq!(nearest_whole(-37_000_050_000), -37_000_000_000);
        assert_eq!(nearest_whole(3_000_000), 0);
        assert_eq!(nearest_whole(1_500_000_000), 0);
        assert!(whole(37_000_000_000).unwrap().contains("TAI"));
        assert!(whole(-7_200_000_000_000).unwrap().starts_with("2 h"));
        assert_eq!(whole(120_000_000_000).as_deref(), Some("2 min"));
        assert_eq!(whole(5), None);
    }
}
