//! What lies beyond high quantiles, for models of the tail.

use crate::quantile::rank;

/// The samples beyond some quantiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excesses {
    /// The value of each quantile, in the order in which they were asked for.
    pub thresholds: Vec<u64>,
    /// Places of the values above the lowest of them, ascending.
    pub places: Vec<usize>,
}

/// Finds the quantiles of `values`, and what lies beyond the lowest of them, in one pass.
///
/// Only as many values are kept as the lowest quantile leaves beyond it: memory follows the tail.
///
/// # Panics
/// When there are no values, no quantiles, or one of those lies outside of [0, 1].
#[must_use]
pub fn excesses(values: &[u64], quantiles: &[f64]) -> Excesses {
    let n = values.len() as u64;
    // Of the k-th largest value k counts from 0.
    let from_top = |q: f64| (n - rank(q, n)) as usize;
    let keep = quantiles.iter().copied().map(from_top).max().expect("quantiles") + 1;
    let mut tail: Vec<(u64, usize)> = Vec::new();
    let mut least = None;
    for (place, &value) in values.iter().enumerate() {
        if least.is_some_and(|least| value <= least) {
            continue;
        }
        tail.push((value, place));
        if tail.len() >= 2 * keep {
            tail.select_nth_unstable_by(keep - 1, |a, b| b.cmp(a));
            tail.truncate(keep);
            least = Some(tail[keep - 1].0);
        }
    }
    tail.sort_unstable_by(|a, b| b.cmp(a));
    let thresholds: Vec<u64> = quantiles.iter().map(|&q| tail[from_top(q)].0).collect();
    let lowest = tail[keep - 1].0;
    let mut places: Vec<usize> =
        tail.iter().take_while(|each| each.0 > lowest).map(|each| each.1).collect();
    places.sort_unstable();
    Excesses { thresholds, places }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_values_are_not_beyond() {
        let found = excesses(&[5, 9, 5, 9, 1], &[0.6, 1.0]);
        assert_eq!(found, Excesses { thresholds: vec![5, 9], places: vec![1, 3] });
        assert_eq!(excesses(&[7], &[0.0]), Excesses { thresholds: vec![7], places: vec![] });
    }

    proptest! {
        #[test]
        fn as_by_sorting(
            values in prop::collection::vec(0..40_u64, 1..400),
            quantiles in prop::collection::vec(0.0..=1.0_f64, 1..4),
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let value = |q: &f64| sorted[rank(*q, values.len() as u64) as usize - 1];
            let thresholds: Vec<u64> = quantiles.iter().map(value).collect();
            let lowest = *thresholds.iter().min().unwrap();
            let places = (0..values.len()).filter(|&at| values[at] > lowest).collect();
            prop_assert_eq!(excesses(&values, &quantiles), Excesses { thresholds, places });
        }
    }
}
