//! Delay variation (RFC 5481).

use crate::histogram::Histogram;
use crate::matcher::Match;

/// Inter-packet delay variation: the latency of a packet less that of the packet sent before it.
///
/// Defined for two packets that are neighbours in pre and both have a match (RFC 5481 §4.1).
#[derive(Clone, Debug, Default)]
pub struct Variation {
    /// Place in pre and latency of the first match and of the last.
    pub(crate) ends: Option<(Place, Place)>,
    pub(crate) magnitude: Histogram,
    pub(crate) min_ns: i64,
    pub(crate) max_ns: i64,
}

/// A match: its place in pre, its latency.
pub(crate) type Place = (u64, u64);

/// Steps that are counted at once.
pub(crate) const AT_ONCE: usize = 64;

impl Variation {
    /// Adds the next matches in order of pre.
    pub(crate) fn push_all(&mut self, matches: &[Match]) {
        for matches in matches.chunks(AT_ONCE) {
            if self.are_next(matches) {
                self.push_neighbours(matches);
            } else {
                matches.iter().for_each(|found| self.push(found));
            }
        }
    }

    /// Returns true if nothing lies between these matches, nor between the last one and them.
    fn are_next(&self, matches: &[Match]) -> bool {
        let (Some(first), Some(last)) = (matches.first(), matches.last()) else { return false };
        let follows = |(_, (seq, _)): (Place, Place)| seq + 1 == first.seq;
        self.ends.is_some_and(follows) && last.seq - first.seq == matches.len() as u64 - 1
    }

    fn push_neighbours(&mut self, matches: &[Match]) {
        let Some((_, (seq, former))) = &mut self.ends else { return };
        let mut steps = [0; AT_ONCE];
        for (step, found) in steps.iter_mut().zip(matches) {
            let later = found.latency_ns;
            let signed = later.wrapping_sub(*former) as i64;
            *step = later.abs_diff(*former);
            self.min_ns = self.min_ns.min(signed);
            self.max_ns = self.max_ns.max(signed);
            (*seq, *former) = (found.seq, later);
        }
        self.magnitude.record_all(&steps[..matches.len()]);
    }

    #[inline]
    pub(crate) fn push(&mut self, found: &Match) {
        let place = (found.seq, found.latency_ns);
        let Some((_, last)) = &mut self.ends else {
            self.ends = Some((place, place));
            return;
        };
        let former = std::mem::replace(last, place);
        self.record(former, place);
    }

    /// Records what two matches tell, one behind the other, if nothing lies between them.
    #[inline]
    pub(crate) fn record(&mut self, (index, latency): Place, (next, later): Place) {
        if index + 1 == next {
            self.magnitude.record(later.abs_diff(latency));
            let signed = later.wrapping_sub(latency) as i64;
            self.min_ns = self.min_ns.min(signed);
            self.max_ns = self.max_ns.max(signed);
        }
    }

    /// Adds another stretch of the same pair, but for the step between the two.
    pub(crate) fn add(&mut self, other: &Self) {
        self.magnitude.add(&other.magnitude);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the absolute values.
    #[must_use]
    pub fn magnitude(&self) -> &Histogram {
        &self.magnitude
    }

    /// Returns the largest decrease (at most 0) and the largest increase (at least 0), in ns;
    /// `None` where no two neighbours were matched.
    #[must_use]
    pub fn range_ns(&self) -> Option<(i64, i64)> {
        (self.magnitude.count() > 0).then_some((self.min_ns, self.max_ns))
    }
}
