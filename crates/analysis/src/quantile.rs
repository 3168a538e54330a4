//! Quantiles that say what they are worth: rank, support and an exact interval.

use crate::histogram::Histogram;

/// Samples that must lie beyond a quantile before it is more than a bound.
pub const SUPPORT: u64 = 10;

/// Confidence level of the intervals.
pub const LEVEL: f64 = 0.95;

/// The quantiles of the summary and the ends of their names.
pub const QUANTILES: [(f64, &str); 7] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p999"),
    (0.9999, "p9999"),
    (0.999_99, "p99999"),
    (0.999_999, "p999999"),
];

/// A quantile of a sample, with its uncertainty.
///
/// The interval assumes independent samples. Packets that wait in one queue are not independent:
/// with clustered delays the true interval is wider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// The quantile, in [0, 1].
    pub q: f64,
    /// The smallest value with at least `q·n` samples at or below it.
    pub value_ns: u64,
    /// Lower end of the interval; where no two-sided interval exists, the one-sided lower bound.
    pub ci_low_ns: Option<u64>,
    /// Upper end of the interval; `None` where the samples give none.
    pub ci_high_ns: Option<u64>,
    /// Samples ranked above the value.
    pub beyond: u64,
    /// True if at least [`SUPPORT`] samples lie beyond.
    pub supported: bool,
}

/// Returns the rank (1 is the smallest) of quantile `q` among `n` samples: the smallest k with k/n
/// ≥ q.
///
/// Compared as the correctly rounded quotient, so that 0.999 of 1000 is rank 999 although 0.999 is
/// no binary fraction.
///
/// # Panics
/// When `n` is 0 or `q` lies outside of [0, 1].
#[must_use]
pub fn rank(q: f64, n: u64) -> u64 {
    assert!(n > 0 && (0.0..=1.0).contains(&q), "quantile {q} of {n} samples");
    let reaches = |k: u64| k as f64 / n as f64 >= q;
    let mut k = ((q * n as f64) as u64).clamp(1, n);
    while k > 1 && reaches(k - 1) {
        k -= 1;
    }
    while k < n && !reaches(k) {
        k += 1;
    }
    k
}

/// Ranks (lower, upper) of the narrowest pair of order statistics that encloses quantile `q` of the
/// law behind `n` independent samples with probability `level`: the smallest `upper − lower` with
/// `P(lower ≤ N < upper) ≥ level`, N ~ Binomial(n, q). `None` where no pair does.
///
/// Source: H. A. David, H. N. Nagaraja, *Order Statistics*, §7.1.
#[must_use]
pub fn interval_ranks(q: f64, n: u64, level: f64) -> Option<(u64, u64)> {
    let binomial = Binomial::new(n, q)?;
    let wanted = level * binomial.total;
    let start = binomial.mode.clamp(1, (n - 1).max(1));
    let (mut low, mut high) = (start, start);
    let mut mass = if start < n { binomial.weight(start) } else { 0.0 };
    while mass < wanted {
        let left = if low > 1 { binomial.weight(low - 1) } else { 0.0 };
        let right = if high + 1 < n { binomial.weight(high + 1) } else { 0.0 };
        if left <= 0.0 && right <= 0.0 {
            return None;
        }
        if left >= right {
            low -= 1;
            mass += left;
        } else {
            high += 1;
            mass += right;
        }
    }
    Some((low, high + 1))
}

/// Returns the largest rank whose value lies at or below quantile `q` with probability `level`.
#[must_use]
pub fn lower_bound_rank(q: f64, n: u64, level: f64) -> Option<u64> {
    let binomial = Binomial::new(n, q)?;
    let wanted = level * binomial.total;
    let mut mass = 0.0;
    for k in (1..=n).rev() {
        mass += binomial.weight(k);
        if mass >= wanted {
            return Some(k);
        }
        if k < binomial.first {
            break;
        }
    }
    None
}

/// Weights of Binomial(n, q) around its mode, up to the common factor `total`.
struct Binomial {
    mode: u64,
    first: u64,
    weights: Vec<f64>,
    total: f64,
}

impl Binomial {
    /// Weights below this share of the mode's are left out; their sum is far below the rounding.
    const NEGLIGIBLE: f64 = 1e-22;

    fn new(n: u64, q: f64) -> Option<Self> {
        if n == 0 || q <= 0.0 || q >= 1.0 {
            return None;
        }
        let odds = q / (1.0 - q);
        let mode = (((n as f64 + 1.0) * q) as u64).min(n);
        let mut below = Vec::new();
        let mut weight = 1.0;
        for k in (1..=mode).rev() {
            weight *= k as f64 / ((n - k + 1) as f64 * odds);
            if weight < Self::NEGLIGIBLE {
                break;
            }
            below.push(weight);
        }
        let first = mode - below.len() as u64;
        let mut weights: Vec<f64> = below.into_iter().rev().collect();
        weights.push(1.0);
        weight = 1.0;
        for k in mode..n {
            weight *= (n - k) as f64 * odds / (k + 1) as f64;
            if weight < Self::NEGLIGIBLE {
                break;
            }
            weights.push(weight);
        }
        let total = weights.iter().sum();
        Some(Self { mode, first, weights, total })
    }

    fn weight(&self, k: u64) -> f64 {
        k.checked_sub(self.first)
            .and_then(|index| self.weights.get(index as usize))
            .copied()
            .unwrap_or(0.0)
    }
}

impl Histogram {
    /// Returns the quantiles `qs` of what was counted, each with its interval at [`LEVEL`]; empty
    /// without samples.
    ///
    /// # Panics
    /// When a quantile lies outside of [0, 1].
    #[must_use]
    pub fn quantiles(&self, qs: &[f64]) -> Vec<Quantile> {
        let n = self.count();
        if n == 0 {
            return Vec::new();
        }
        let ranks: Vec<_> = qs.iter().map(|&q| Ranks::new(q, n)).collect();
        let mut wanted: Vec<u64> = ranks.iter().flat_map(Ranks::all).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let values = self.values_at(&wanted);
        let value = |rank: u64| values[wanted.binary_search(&rank).expect("asked for above")];
        let quantile = |(&q, ranks): (&f64, &Ranks)| Quantile {
            q,
            value_ns: value(ranks.estimate),
            ci_low_ns: ranks.low.map(value),
            ci_high_ns: ranks.high.map(value),
            beyond: n - ranks.estimate,
            supported: n - ranks.estimate >= SUPPORT,
        };
        qs.iter().zip(&ranks).map(quantile).collect()
    }
}

struct Ranks {
    estimate: u64,
    low: Option<u64>,
    high: Option<u64>,
}

impl Ranks {
    fn new(q: f64, n: u64) -> Self {
        let (low, high) = match interval_ranks(q, n, LEVEL) {
            Some((low, high)) => (Some(low), Some(high)),
            None => (lower_bound_rank(q, n, LEVEL), None),
        };
        let estimate = rank(q, n);
        assert!((1..=n).contains(&estimate), "a rank is that of a sample");
        if let (Some(low), Some(high)) = (low, high) {
            assert!(1 <= low && low < high && high <= n, "an interval lies among the samples");
        }
        Self { estimate, low, high }
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        [Some(self.estimate), self.low, self.high].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_what_the_decimal_says() {
        for exponent in 1..=8 {
            let n = 10u64.pow(exponent);
            for digits in 1..=exponent {
                let q: f64 = format!("0.{}", "9".repeat(digits as usize)).parse().unwrap();
                assert_eq!(rank(q, n), n - n / 10u64.pow(digits), "{q} of {n}");
            }
        }
        assert_eq!(rank(0.0, 7), 1);
        assert_eq!(rank(0.5, 7), 4);
        assert_eq!(rank(1.0, 7), 7);
        assert_eq!(rank(0.1 + 0.2, 10), 4, "0.30000000000000004 is more than 3 of 10");
    }

    #[test]
    fn textbook_intervals_are_found() {
        // David & Nagaraja, §7.1: P(X(2) < median < X(9)) = 0.9785 for n = 10; no narrower pair
        // reaches 95 %.
        assert_eq!(interval_ranks(0.5, 10, 0.95), Some((2, 9)));
        assert_eq!(interval_ranks(0.5, 5, 0.95), None, "X(1)..X(5) encloses with 0.9375");
        assert_eq!(interval_ranks(0.5, 6, 0.95), Some((1, 6)));
    }

    #[test]
    fn a_tail_without_samples_has_only_a_lower_bound() {
        assert_eq!(interval_ranks(0.999_99, 1000, 0.95), None);
        assert_eq!(lower_bound_rank(0.999_99, 1000, 0.95), Some(1000));
        assert_eq!(lower_bound_rank(0.5, 4, 0.95), None);
        assert_eq!(lower_bound_rank(0.5, 5, 0.95), Some(1));
    }

    #[test]
    fn support_needs_ten_samples_beyond() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ns| histogram.record(ns));
        let found = histogram.quantiles(&[0.99, 0.991]);
        assert_eq!((found[0].value_ns, found[0].beyond, found[0].supported), (990, 10, true));
        assert_eq!((found[1].value_ns, found[1].beyond, found[1].supported), (991, 9, false));
    }
}
