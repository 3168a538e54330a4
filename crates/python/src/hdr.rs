//! Histograms of HdrHistogram.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::errors;

type Column<'py> = Bound<'py, PyArray1<u64>>;

/// Returns the lowest value, the highest value and the count of each bucket.
#[pyfunction]
pub fn read_hdr<'py>(
    py: Python<'py>,
    content: &[u8],
    most: usize,
) -> PyResult<(Column<'py>, Column<'py>, Column<'py>)> {
    let buckets = py
        .detach(|| ::analysis::read_hdr(content, most))
        .map_err(|error| errors::analysis(&error))?;
    let column = |of: fn(&::analysis::Bucket) -> u64| {
        buckets.iter().map(of).collect::<Vec<_>>().into_pyarray(py)
    };
    Ok((column(|one| one.low), column(|one| one.high), column(|one| one.count)))
}
