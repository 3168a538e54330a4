//! Quantiles by sorting, intervals by trying every pair of order statistics.

/// A quantile as people mean it: 0.9 is nine tenths, not the nearest binary fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub over: u64,
    pub under: u64,
}

impl Decimal {
    /// `over / 10^digits`.
    pub const fn new(over: u64, digits: u32) -> Self {
        Self { over, under: 10u64.pow(digits) }
    }

    /// The nearest floating-point number.
    pub fn as_f64(self) -> f64 {
        self.over as f64 / self.under as f64
    }

    /// The smallest number of samples that is at least this share of `n`, and at least one.
    pub fn rank(self, n: u64) -> u64 {
        let share = u128::from(n) * u128::from(self.over);
        (share.div_ceil(u128::from(self.under)) as u64).max(1)
    }
}

/// The smallest value with at least `q · n` samples at or below it; `sorted` is not empty.
pub fn quantile(sorted: &[u64], q: Decimal) -> u64 {
    sorted[q.rank(sorted.len() as u64) as usize - 1]
}

/// The share of samples of size `n` whose order statistics `low` and `high` enclose the quantile.
pub fn coverage(pmf: &[f64], low: usize, high: usize) -> f64 {
    pmf[low..high].iter().sum()
}

/// The probability of each number of successes, 0 to `n`.
pub fn binomial(n: usize, q: f64) -> Vec<f64> {
    let ln_factorial: Vec<f64> = std::iter::once(0.0)
        .chain((1..=n).scan(0.0, |sum, k| {
            *sum += (k as f64).ln();
            Some(*sum)
        }))
        .collect();
    (0..=n)
        .map(|k| {
            let ways = ln_factorial[n] - ln_factorial[k] - ln_factorial[n - k];
            (ways + k as f64 * q.ln() + (n - k) as f64 * (-q).ln_1p()).exp()
        })
        .collect()
}

/// The smallest distance between two order statistics that enclose the quantile with probability
/// 0.95, by trying every pair.
pub fn narrowest(pmf: &[f64]) -> Option<usize> {
    let n = pmf.len() - 1;
    let mut best = None;
    for low in 1..n {
        let mut sum = 0.0;
        for high in low + 1..=n {
            sum += pmf[high - 1];
            if sum >= 0.95 && best.is_none_or(|width| high - low < width) {
                best = Some(high - low);
            }
        }
    }
    best
}
