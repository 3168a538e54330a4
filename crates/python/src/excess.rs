//! Tails of arrays.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors;

/// The values of quantiles, and the places of what lies beyond the lowest of them.
#[pyfunction]
pub fn excesses<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, u64>,
    quantiles: Vec<f64>,
) -> PyResult<(Vec<u64>, Bound<'py, PyArray1<u64>>)> {
    let slice = values.as_slice()?;
    if slice.is_empty() {
        return Err(errors::value("expected at least one value, got none"));
    }
    if quantiles.is_empty() || quantiles.iter().any(|q| !(0.0..=1.0).contains(q)) {
        return Err(errors::value(format!("expected quantiles in [0, 1], got {quantiles:?}")));
    }
    let found = py.detach(|| analysis::excesses(slice, &quantiles));
    let places: Vec<u64> = found.places.into_iter().map(|place| place as u64).collect();
    Ok((found.thresholds, places.into_pyarray(py)))
}
