//! The fastest packets over time, and what they tell of two clocks.
//!
//! Whatever a device does to the others, its fastest packets take about as long at any time. So the
//! lower convex hull of latency over time follows the difference of the two clocks, and the line below
//! all of it that is nearest to it is their drift (Moon, Skelly and Towsley, "Estimation and Removal
//! of Clock Skew from Network Delay Measurements", INFOCOM 1999; Zhang, Liu and Xia, "Clock
//! Synchronization Algorithms for Network Measurements", INFOCOM 2002).

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::matcher::Match;

/// Spans of time whose fastest packet is kept.
const SPANS: usize = 1024;
/// Spans are this power of two long at first, in ns.
const FIRST_SPAN_BITS: u32 = 20;
/// A drift is bounded and suspected by at least so many spans, and told in at least so much time in ns: in
/// less, a device that becomes slower looks the same.
const LEAST_SPANS: usize = 16;
const LEAST_NS: u64 = 5_000_000_000;
/// The drifts that prove two clocks, in parts per 10¹²: 0.5 ppm, below which a device that slowly warms up
/// looks the same, to 1000 ppm, which no clock of a computer reaches.
pub(crate) const DRIFTS_PPT: RangeInclusive<f64> = 5e5..=1e9;
/// A drift is clear if it is so many times its error.
const CLEAR: f64 = 5.0;

/// A step is at least so long, in ns, and so many times what the fastest packets differ on either side
/// of it: those of a device that becomes slower do so over time.
const STEP_NS: i64 = 100_000_000;
const STEP_SPREADS: i64 = 10;
/// A slip is at least so long, in ns, and so many times what half of the fastest packets differ by.
const SLIP_NS: i64 = 1_000_000;
const SLIP_SPREADS: i64 = 10;
/// Fewest spans of a slip, and fewest spans that tell one.
const SLIP_LASTS: usize = 2;
const SLIP_SPANS: usize = 16;

/// Spans on either side that a step is told by.
const STEP_SPANS: usize = 3;

/// The fastest packet of each span of time. Spans begin at multiples of their length, which doubles
/// until there are few enough: so the same packets, in whatever order, leave the same floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Spans are this power of two long, in ns.
    span_bits: u32,
    /// The number of the first span, counted from time 0.
    first: u64,
    /// Time and latency of the fastest packet of each span, in ns.
    fastest: VecDeque<Option<(u64, i64)>>,
}

impl Floor {
    /// Adds the next match.
    #[inline]
    pub fn push(&mut self, pre_ns: u64, latency_ns: i64) {
        if self.fastest.is_empty() {
            self.span_bits = self.span_bits.max(FIRST_SPAN_BITS);
            self.first = pre_ns >> self.span_bits;
        }
        let place = (pre_ns >> self.span_bits).wrapping_sub(self.first) as usize;
        match self.fastest.get_mut(place) {
            Some(Some((ts, least))) if (*least, *ts) <= (latency_ns, pre_ns) => {}
            Some(fastest) => *fastest = Some((pre_ns, latency_ns)),
            None => self.push_outside(pre_ns, latency_ns),
        }
    }

    /// Adds the next matches, which are in order of time.
    pub fn push_all(&mut self, matches: &[Match]) {
        let (Some(first), Some(last)) = (matches.first(), matches.last()) else { return };
        if first.pre_ns >> self.span_bits == last.pre_ns >> self.span_bits {
            let fastest = matches.iter().min_by_key(|found| found.latency_ns as i64);
            fastest.into_iter().for_each(|found| self.push(found.pre_ns, found.latency_ns as i64));
        } else {
            matches.iter().for_each(|found| self.push(found.pre_ns, found.latency_ns as i64));
        }
    }

    /// Adds a match in none of the spans so far.
    #[cold]
    fn push_outside(&mut self, pre_ns: u64, latency_ns: i64) {
        loop {
            let span = pre_ns >> self.span_bits;
            let last = self.first + self.fastest.len() as u64;
            if span.max(last) - span.min(self.first) < SPANS as u64 {
                break;
            }
            self.widen();
        }
        let span = pre_ns >> self.span_bits;
        while span < self.first {
            self.first -= 1;
            self.fastest.push_front(None);
        }
        while span - self.first >= self.fastest.len() as u64 {
            self.fastest.push_back(None);
        }
        self.push(pre_ns, latency_ns);
    }

    /// Adds the matches of another stretch of the same pair.
    pub fn add(&mut self, other: &Self) {
        other.fastest().into_iter().for_each(|(ts, ns)| self.push(ts, ns));
    }

    /// Returns time and latency of the fastest packet of each span, in ns, in order of time.
    pub fn fastest(&self) -> Vec<(u64, i64)> {
        self.fastest.iter().flatten().copied().collect()
    }

    fn widen(&mut self) {
        let points = self.fastest();
        *self = Self { span_bits: self.span_bits + 1, ..Self::default() };
        points.into_iter().for_each(|(ts, ns)| self.push(ts, ns));
    }

    /// Returns the slope of the line below all latencies, and how far the fastest packets lie from
    /// it; `None` where they are too few.
    pub fn drift(&self, step_ns: f64) -> Option<Drift> {
        let points: Vec<Point> = self.fastest().iter().map(|point| self.point(*point)).collect();
        let lasts_ns = (self.fastest.len() as u64) << self.span_bits;
        if points.len() < LEAST_SPANS {
            return None;
        }
        let mut hull = Hull::default();
        self.fastest().into_iter().for_each(|(ts, ns)| hull.push(ts, ns));
        let (offset, slope) = hull.line(self.since_ns())?;
        // How far the fastest packets of one half say something else than those of the other.
        let height = |point: &Point| point.1 - offset - slope * point.0;
        let (begin, end) = points.split_at(points.len() / 2);
        let lowest = |half: &[Point]| half.iter().map(height).fold(f64::MAX, f64::min);
        let typical = median(points.iter().map(height).collect());
        let reach = (end[end.len() / 2].0 - begin[begin.len() / 2].0).max(1.0);
        let error = ((lowest(begin) - lowest(end)).abs() + typical) / reach;
        let ppt = slope * 1e12;
        let lasts = lasts_ns as f64;
        let strays_ns = (error * lasts).max(2.0 * step_ns);
        let error_ppt = strays_ns / lasts * 1e12;
        let (is_steady, is_long) = (self.is_monotone(slope), lasts_ns >= LEAST_NS);
        Some(Drift { ppt, error_ppt, change_ns: slope * lasts, is_steady, is_long })
    }

    /// Returns a step of one of the clocks: from one time on, in ns, all of the fastest packets
    /// take another time than all of those before, and by how much, in ns.
    pub fn step(&self) -> Option<(u64, i64)> {
        let points = self.fastest();
        let ends = |(low, high): (i64, i64), ns: i64| (low.min(ns), high.max(ns));
        let ranges = |points: &mut dyn Iterator<Item = &(u64, i64)>| {
            let widened = points.scan((i64::MAX, i64::MIN), |range, (_, ns)| {
                *range = ends(*range, *ns);
                Some(*range)
            });
            widened.collect::<Vec<_>>()
        };
        let before = ranges(&mut points.iter());
        let behind = ranges(&mut points.iter().rev());
        (STEP_SPANS..(points.len() + 1).saturating_sub(STEP_SPANS)).find_map(|at| {
            let ((low, high), (next_low, next_high)) =
                (before[at - 1], behind[points.len() - 1 - at]);
            let gap = (next_low - high).max(low - next_high);
            let spread = (high - low).max(next_high - next_low);
            let by_ns = (next_low + next_high) / 2 - (low + high) / 2;
            (gap >= STEP_NS && gap >= STEP_SPREADS * spread).then_some((points[at].0, by_ns))
        })
    }

    /// Returns when the fastest packets took another time, all of them about the same, between spans in which they
    /// took what they usually take.
    pub fn slips(&self) -> Vec<Slip> {
        let points = self.fastest();
        if points.len() < SLIP_SPANS {
            return Vec::new();
        }
        let usual = median_ns(points.iter().map(|(_, ns)| *ns).collect());
        let spread = median_ns(points.iter().map(|(_, ns)| (ns - usual).abs()).collect());
        let far = SLIP_NS.max(SLIP_SPREADS * spread);
        let side = |ns: i64| if (ns - usual).abs() < far { 0 } else { (ns - usual).signum() };
        let mut slips = Vec::new();
        let mut first = 0;
        for run in points.chunk_by(|a, b| side(a.1) == side(b.1)) {
            let last = first + run.len();
            let between = first > 0 && last < points.len();
            let returns = between && side(points[first - 1].1) == 0 && side(points[last].1) == 0;
            if side(run[0].1) != 0 && returns && run.len() >= SLIP_LASTS {
                let least = run.iter().map(|(_, ns)| *ns).min().unwrap_or(0);
                let most = run.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
                let by_ns = least + (most - least) / 2 - usual;
                if most - least <= by_ns.abs() / SLIP_SPREADS {
                    slips.push(Slip { start_ns: run[0].0, end_ns: run[run.len() - 1].0, by_ns });
                }
            }
            first = last;
        }
        slips
    }

    fn since_ns(&self) -> u64 {
        self.first << self.span_bits
    }

    fn point(&self, (ts, ns): (u64, i64)) -> Point {
        ((ts - self.since_ns()) as f64, ns as f64)
    }

    /// Returns true if the fastest packets of each eighth of the time follow the slope.
    fn is_monotone(&self, slope: f64) -> bool {
        let eighth = self.fastest.len().div_ceil(8);
        let spans: Vec<_> = self.fastest.iter().copied().collect();
        let least = |part: &[Option<(u64, i64)>]| part.iter().flatten().map(|(_, ns)| *ns).min();
        let floors: Vec<i64> = spans.chunks(eighth).filter_map(least).collect();
        let follows =
            |pair: &[i64]| if slope > 0.0 { pair[0] < pair[1] } else { pair[0] > pair[1] };
        floors.len() >= 6 && floors.windows(2).all(follows)
    }
}

/// A time at which all of the fastest packets took another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slip {
    pub start_ns: u64,
    pub end_ns: u64,
    pub by_ns: i64,
}

impl Slip {
    pub fn lasts_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// The drift of two clocks, as the fastest packets tell it, in parts per 10¹².
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drift {
    pub ppt: f64,
    /// Largest disagreement of the fastest packets in the two halves of the time.
    pub error_ppt: f64,
    /// What the fastest packets take longer at the end, in ns.
    pub change_ns: f64,
    /// True if the fastest packets follow the line all of the time.
    is_steady: bool,
    /// True if they do for long enough to be taken for a drift.
    is_long: bool,
}

impl Drift {
    /// True if the fastest packets change steadily by more than they stray, and by no more than clocks may drift.
    pub fn is_told(&self) -> bool {
        self.is_long && self.exceeds(1.0)
    }

    /// True if the fastest packets change far more than they stray, by a clock or by the device.
    pub fn is_clear(&self) -> bool {
        self.exceeds(CLEAR)
    }

    /// True if it proves that there are two clocks.
    pub fn is_proof(&self) -> bool {
        self.is_long && self.is_clear() && DRIFTS_PPT.contains(&self.ppt.abs())
    }

    fn exceeds(&self, errors: f64) -> bool {
        let ppt = self.ppt.abs();
        self.is_steady && ppt > errors * self.error_ppt && ppt <= *DRIFTS_PPT.end()
    }
}

/// The lower convex hull of latencies over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hull {
    points: Vec<(u64, i64)>,
    last_ns: u64,
}

impl Hull {
    /// Adds the next match in order of pre.
    pub fn push(&mut self, pre_ns: u64, latency_ns: i64) {
        self.last_ns = pre_ns;
        let point = (pre_ns, latency_ns);
        if let Some(last) = self.points.last_mut().filter(|last| last.0 == pre_ns) {
            last.1 = last.1.min(latency_ns);
            return;
        }
        while let [.., a, b] = self.points[..] {
            if rises(a, b, point) {
                break;
            }
            self.points.pop();
        }
        self.points.push(point);
    }

    /// Returns the line below all points that is nearest to them: its height at `since_ns`, in ns,
    /// and its slope. It is the edge of the hull above the middle of the time.
    pub fn line(&self, since_ns: u64) -> Option<(f64, f64)> {
        let first = self.points.first()?.0;
        let middle = first + (self.last_ns - first) / 2;
        let edge = self.points.windows(2).find(|edge| edge[1].0 >= middle)?;
        let ((from, low), (to, high)) = (edge[0], edge[1]);
        let slope = (high - low) as f64 / (to - from) as f64;
        Some((low as f64 - slope * (from as f64 - since_ns as f64), slope))
    }

    /// Returns the largest height at `at_ns`, in ns, of a line below all points with one of
    /// `slopes`.
    pub fn most_ns(&self, at_ns: u64, slopes: RangeInclusive<f64>) -> Option<f64> {
        let ends = [*slopes.start(), *slopes.end()];
        let edges = self
            .points
            .windows(2)
            .map(|edge| (edge[1].1 - edge[0].1) as f64 / (edge[1].0 - edge[0].0) as f64);
        let touching = edges.filter(|slope| slopes.contains(slope)).chain(ends);
        let height = |slope: f64| {
            let below = |&(ts, ns): &(u64, i64)| ns as f64 - slope * (ts as f64 - at_ns as f64);
            self.points.iter().map(below).reduce(f64::min)
        };
        touching.filter_map(height).reduce(f64::max)
    }

    /// Returns the least latency, in ns.
    pub fn least_ns(&self) -> Option<i64> {
        self.points.iter().map(|(_, ns)| *ns).min()
    }

    /// Returns when the first packet was sent, in ns.
    pub fn first_ns(&self) -> Option<u64> {
        self.points.first().map(|(ts, _)| *ts)
    }
}

/// Returns true if the way from `a` over `b` to `c` turns up.
fn rises(a: (u64, i64), b: (u64, i64), c: (u64, i64)) -> bool {
    let run = |from: (u64, i64), to: (u64, i64)| i128::from(to.0 - from.0);
    let rise = |from: (u64, i64), to: (u64, i64)| i128::from(to.1) - i128::from(from.1);
    rise(a, b) * run(b, c) < rise(b, c) * run(a, b)
}

/// Time and latency, in ns.
type Point = (f64, f64);

fn median_ns(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets every 100 µs whose latency beyond 20 µs is spread by `jitter`.
    fn floor(seconds: u64, drift: f64, latency: impl Fn(u64, u64) -> f64) -> Floor {
        let mut floor = Floor::default();
        let mut seed = 1u64;
        for i in 0..seconds * 10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ts = i * 100_000;
            let ns = 20_000.0 + latency(i, seed >> 33) + drift * ts as f64;
            floor.push(ts, ns as i64);
        }
        floor
    }

    fn jitter(_: u64, dice: u64) -> f64 {
        -5000.0 * ((dice as f64 + 1.0) / f64::from(1u32 << 31)).ln()
    }

    #[test]
    fn a_drift_is_found_in_the_fastest_packets() {
        for ppm in [-100.0, -20.0, 3.0, 20.0] {
            let drift = floor(40, ppm * 1e-6, jitter).drift(1.0).expect("a drift");
            assert!(drift.is_proof() && (drift.ppt * 1e-6 - ppm).abs() < 0.1, "{ppm}: {drift:?}");
        }
    }

    #[test]
    fn a_small_drift_is_clear_but_proves_no_second_clock() {
        for ppm in [-0.3, 0.2] {
            let drift = floor(40, ppm * 1e-6, jitter).drift(1.0).expect("spans enough");
            assert!(drift.is_clear() && drift.is_told() && !drift.is_proof(), "{ppm}: {drift:?}");
            assert!((drift.change_ns / (40e3 * ppm) - 1.0).abs() < 0.05, "{ppm}: {drift:?}");
        }
    }

    #[test]
    fn the_error_of_a_drift_holds_the_truth_and_shrinks_with_time() {
        for ppm in [-100.0, -20.0, 0.0, 3.0] {
            let [short, long] = [10, 80].map(|seconds| {
                let drift = floor(seconds, ppm * 1e-6, jitter).drift(1.0).expect("spans enough");
                assert!((drift.ppt - ppm * 1e6).abs() <= drift.error_ppt, "{ppm}: {drift:?}");
                drift.error_ppt
            });
            assert!(long < short / 2.0, "{ppm}: {short} {long}");
        }
    }

    #[test]
    fn of_a_short_time_a_drift_is_bounded_and_not_told() {
        for ppm in [-500.0, -20.0, 0.0, 50.0] {
            let drift = floor(1, ppm * 1e-6, jitter).drift(1.0).expect("spans enough");
            assert!((drift.ppt - ppm * 1e6).abs() <= drift.error_ppt, "{ppm}: {drift:?}");
            assert!(drift.error_ppt < 10e6 && !drift.is_told(), "{ppm}: {drift:?}");
        }
    }

    #[test]
    fn no_line_below_the_points_is_higher() {
        let mut hull = Hull::default();
        for (ts, ns) in [(10, 7), (20, 4), (30, 5), (40, 3), (60, 6)] {
            hull.push(ts, ns);
        }
        assert_eq!(hull.most_ns(10, 0.0..=0.0), Some(3.0));
        assert_eq!(hull.most_ns(10, -0.3..=0.1), Some(7.0));
        assert_eq!(hull.most_ns(10, -0.1..=0.0), Some(5.0));
        assert_eq!(Hull::default().most_ns(10, 0.0..=0.0), None);
    }

    #[test]
    fn none_is_where_none_is() {
        let is_told = |floor: &Floor| floor.drift(1.0).is_some_and(|drift| drift.is_told());
        assert!(!is_told(&floor(40, 0.0, jitter)));
        assert!(!is_told(&floor(1, 0.0, |_, _| 0.0)));
        // A device that becomes slower once is no clock, but if at once by a tenth of a second.
        let step = |i: u64, dice: u64| if i > 200_000 { 30_000.0 } else { 0.0 } + jitter(i, dice);
        assert!(!is_told(&floor(40, 0.0, step)));
        assert_eq!(floor(40, 0.0, step).step(), None);
    }

    #[test]
    fn a_step_is_a_jump_of_all_that_follow() {
        let step = |i: u64, dice: u64| if i >= 200_000 { 2e9 } else { 0.0 } + jitter(i, dice);
        let (at_ns, by_ns) = floor(40, 0.0, step).step().expect("a step");
        // Within the span that it lies in.
        assert!(at_ns.abs_diff(20_000_000_000) < 1_000_000_000, "{at_ns}");
        assert!((by_ns - 2_000_000_000).abs() < 10_000, "{by_ns}");
        let outage = |i: u64, dice: u64| {
            let held = 2e9 - (i as f64 - 200_000.0) * 1e5;
            jitter(i, dice) + if i >= 200_000 { held.max(0.0) } else { 0.0 }
        };
        assert_eq!(floor(40, 0.0, outage).step(), None);
        let filling = |i: u64, dice: u64| i as f64 * 1e4 + jitter(i, dice);
        assert_eq!(floor(40, 0.0, filling).step(), None);
    }

    #[test]
    fn a_slip_is_a_plateau_and_a_stall_is_none() {
        for by_ns in [30e6, -30e6] {
            let slip = |i: u64, dice: u64| {
                jitter(i, dice) + if (50_000..70_000).contains(&i) { by_ns } else { 0.0 }
            };
            let slips = floor(20, 0.0, slip).slips();
            let [Slip { start_ns, end_ns, by_ns: found }] = slips[..] else { panic!("{slips:?}") };
            assert!(start_ns.abs_diff(5_000_000_000) < 50_000_000, "{start_ns}");
            assert!(end_ns.abs_diff(7_000_000_000) < 50_000_000, "{end_ns}");
            assert!((found - by_ns as i64).abs() < 100_000, "{found}");
        }
        for held_ns in [30e6, 300e6] {
            let stall = |i: u64, dice: u64| {
                let left = held_ns - (i as f64 - 50_000.0) * 1e5;
                jitter(i, dice) + if i >= 50_000 { left.max(0.0) } else { 0.0 }
            };
            assert_eq!(floor(20, 0.0, stall).slips(), []);
        }
        assert_eq!(floor(20, 0.0, jitter).slips(), []);
    }
}
