//! The difference of two captures' clocks.

use std::ops::ControlFlow;

use capture::Reader;
use units::Nanos;

use crate::basis::{Bounds, Clocks, Skew};
use crate::config::Config;
use crate::error::Error;
use crate::floor::{DRIFTS_PPT, Drift, Hull};
use crate::matcher::Match;
use crate::pair::{Analysis, Observer, Progress, analyze_on};
use crate::survey::{Relation, Survey, survey};
use crate::tcp::is_asked;

/// Packets may be this much earlier than the beginning of the captures lets expect, in ns.
const HEADROOM_NS: u64 = 1_000_000_000;

/// Estimates by how much the clock behind the device differs, by its fastest packets: their latency is
/// taken for 0, as the offset of two clocks cannot be told from it. With it comes what the packets prove
/// of both.
///
/// # Errors
/// As [`analyze_pair`](crate::analyze_pair), and when no packet tells.
pub fn estimate_clocks(
    mut pre: Reader,
    mut post: Reader,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<(Skew, Bounds), Error> {
    config.check()?;
    if is_asked(config) {
        return Err(Error::StreamClocksApart { why: "they are to be estimated".into() });
    }
    let Survey { match_on, basis, relation, backward, ahead, .. } =
        survey(&mut pre, &mut post, config)?;
    let Some(relation) = relation else {
        let [pre, post] = [pre.info().name, post.info().name];
        return Err(Error::DifferentTraffic { pre, post, tried: basis.in_words() });
    };
    let headroom = HEADROOM_NS.min(config.window.0 / 2) as i64;
    if let Relation::Stepped { at, by_ns } = relation {
        return Err(Error::clock_steps(at, by_ns));
    }
    let guess = Skew { offset_ns: relation.offset_ns() - headroom, ..Skew::NONE };
    let clocks = Clocks::Apart { skew: guess, relative: true, bounds: Bounds::default() };
    let config = Config { match_on, clocks, worst: 0, trim: Nanos(0), ..config.clone() };
    let mut below = Below { hull: Hull::default(), observer };
    let found = analyze_on((pre, post), ahead, &config, basis, &mut below)?;
    found.skew_above(&below.hull, guess.offset_ns, &backward)
}

/// Keeps what lies below all matches.
struct Below<'a> {
    hull: Hull,
    observer: &'a mut dyn Observer,
}

impl Observer for Below<'_> {
    fn matches(&mut self, batch: &[Match]) -> ControlFlow<()> {
        batch.iter().for_each(|found| self.hull.push(found.pre_ns, found.latency_ns as i64));
        ControlFlow::Continue(())
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self.observer.progress(progress)
    }
}

impl Analysis {
    /// Returns the skew of which all of `hull`, measured with an offset of `guess_ns`, lies above,
    /// and what is proven of it by that, and by `backward`.
    fn skew_above(
        &self,
        hull: &Hull,
        guess_ns: i64,
        backward: &Hull,
    ) -> Result<(Skew, Bounds), Error> {
        let (Some(fastest), Some(first_ns)) = (hull.least_ns(), hull.first_ns()) else {
            return Err(Error::ClocksUnknown { got: "0 matches".into() });
        };
        let drift = self.drift();
        let told = drift.is_some_and(|drift| drift.is_told());
        let line = hull.line(first_ns).filter(|_| told);
        let slope = line.map_or(0.0, |(_, slope)| slope);
        // What was not taken out may be there.
        let left_out = |drift: Drift| if line.is_some() { 0.0 } else { drift.ppt.abs() };
        let most = DRIFTS_PPT.end() + slope.abs() * 1e12;
        let error_ppt = drift.map(|drift| (drift.error_ppt + left_out(drift)).min(most));
        let bounds = bounds(hull, guess_ns, backward, slope, error_ppt);
        // Below all of them, in spite of what is rounded.
        let lowest = line.map_or(fastest, |(height, _)| height.floor() as i64 - 1);
        let offset_ns = guess_ns + lowest;
        let since_ns = (first_ns as i64).saturating_add(offset_ns).max(0) as u64;
        // The line rises over the time before the device; the skew does over that behind it.
        let drift_ppt = (slope / (1.0 + slope) * 1e12).round() as i64;
        Ok((Skew { offset_ns, drift_ppt, since_ns }, bounds))
    }
}

/// Returns the height, at the first packet, of lines between `hull` and `backward` whose slope is
/// within `error_ppt` of `slope`; if that is not known, of any slope that a clock may have.
fn bounds(
    hull: &Hull,
    guess_ns: i64,
    backward: &Hull,
    slope: f64,
    error_ppt: Option<f64>,
) -> Bounds {
    let first_ns = hull.first_ns().unwrap_or(0);
    let error = error_ppt.unwrap_or(*DRIFTS_PPT.end()) / 1e12;
    let (least, most) = (slope - error, slope + error);
    let above = hull.most_ns(first_ns, least..=most);
    let below = backward.most_ns(first_ns, -most..=-least);
    let offset_high_ns = above.map(|ns| guess_ns + ns.ceil() as i64);
    let offset_low_ns = below.map(|ns| -ns.ceil() as i64);
    Bounds {
        offset_low_ns: offset_low_ns.filter(|low| offset_high_ns.is_some_and(|high| *low <= high)),
        offset_high_ns,
        drift_error_ppt: error_ppt.map(|ppt| ppt.ceil() as i64),
    }
}
