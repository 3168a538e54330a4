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

impl Variation {
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
