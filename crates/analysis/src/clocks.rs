//! How far the clocks of two captures are apart.

use std::ops::ControlFlow;

use capture::Reader;
use units::Nanos;

use crate::basis::{Clocks, Skew};
use crate::config::Config;
use crate::error::Error;
use crate::floor::Hull;
use crate::matcher::Match;
use crate::pair::{Analysis, Observer, Progress, analyze_on};
use crate::survey::{Relation, Survey, survey};

/// Packets may be this much earlier than the beginning of the captures lets expect, in ns.
const HEADROOM_NS: u64 = 1_000_000_000;

/// Estimates by how much the clock behind the device differs, by its fastest packets: their latency is
/// taken for 0, as the offset of two clocks cannot be told from it.
///
/// # Errors
/// As [`analyze_pair`](crate::analyze_pair), and when no packet tells.
pub fn estimate_clocks(
    mut pre: Reader,
    mut post: Reader,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<Skew, Error> {
    config.check()?;
    let Survey { match_on, basis, relation, ahead } = survey(&mut pre, &mut post, config)?;
    let Some(relation) = relation else {
        let [pre, post] = [pre.info().name, post.info().name];
        return Err(Error::DifferentTraffic { pre, post, tried: basis.in_words() });
    };
    let headroom = HEADROOM_NS.min(config.window.0 / 2) as i64;
    if let Relation::Stepped { at, by_ns } = relation {
        return Err(Error::clock_steps(at, by_ns));
    }
    let guess = Skew { offset_ns: relation.offset_ns() - headroom, ..Skew::NONE };
    let clocks = Clocks::Apart { skew: guess, relative: true };
    let config = Config { match_on, clocks, worst: 0, trim: Nanos(0), ..config.clone() };
    let mut below = Below { hull: Hull::default(), observer };
    let found = analyze_on((pre, post), ahead, &config, basis, &mut below)?;
    found.skew_above(&below.hull, guess.offset_ns)
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
    /// The skew of which all of `hull`, measured with an offset of `guess_ns`, lies above.
    fn skew_above(&self, hull: &Hull, guess_ns: i64) -> Result<Skew, Error> {
        let (Some(fastest), Some(first_ns)) = (hull.least_ns(), hull.first_ns()) else {
            return Err(Error::ClocksUnknown { got: "0 matches".into() });
        };
        let drifts = self.floor.drift_ppt(self.basis.grid.step_ns()).is_some();
        let Some((height, slope)) = hull.line(first_ns).filter(|_| drifts) else {
            return Ok(Skew { offset_ns: guess_ns + fastest, ..Skew::NONE });
        };
        // Below all of them, in spite of what is rounded.
        let offset_ns = guess_ns + height.floor() as i64 - 1;
        let since_ns = (first_ns as i64).saturating_add(offset_ns).max(0) as u64;
        // The line rises over the time before the device; the skew does over that behind it.
        let drift_ppt = (slope / (1.0 + slope) * 1e12).round() as i64;
        Ok(Skew { offset_ns, drift_ppt, since_ns })
    }
}
