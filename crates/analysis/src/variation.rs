//! Delay variation (RFC 5481).

use crate::histogram::Histogram;
use crate::matcher::Match;

/// Inter-packet delay variation: the latency of a packet less that of the packet sent before it.
///
/// Defined for two packets that are neighbours in pre and both have a match (RFC 5481 §4.1).
#[derive(Clone, Debug, Default)]
pub struct Variation {
    last: Option<(u64, u64)>,
    magnitude: Histogram,
    min_ns: i64,
    max_ns: i64,
}

impl Variation {
    #[inline]
    pub(crate) fn push(&mut self, found: &Match) {
        if let Some((_, latency)) = self.last.filter(|(index, _)| index + 1 == found.pre_index) {
            self.magnitude.record(found.latency_ns.abs_diff(latency));
            let signed = found.latency_ns.wrapping_sub(latency) as i64;
            self.min_ns = self.min_ns.min(signed);
            self.max_ns = self.max_ns.max(signed);
        }
        self.last = Some((found.pre_index, found.latency_ns));
    }

    /// The absolute values.
    #[must_use]
    pub fn magnitude(&self) -> &Histogram {
        &self.magnitude
    }

    /// The largest decrease (at most 0) and the largest increase (at least 0), in ns; `None` where
    /// no two neighbours were matched.
    #[must_use]
    pub fn range_ns(&self) -> Option<(i64, i64)> {
        (self.magnitude.count() > 0).then_some((self.min_ns, self.max_ns))
    }
}
