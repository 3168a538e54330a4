//! Captures in the time of another clock.

use std::path::PathBuf;

use capture::Reader;
use pyo3::prelude::*;
use units::{Ahead, Nanos};

use crate::errors;

#[pyfunction]
pub fn retime(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    knots: Vec<(u64, i64)>,
) -> PyResult<u64> {
    let knots = knots.into_iter().map(|(time_ns, ahead_ns)| (Nanos(time_ns), ahead_ns));
    let clock = Ahead::new(knots.collect()).ok_or_else(|| {
        errors::argument("knots: expected at least one, in order of time", "knots")
    })?;
    let mut raised = None;
    let go_on = || {
        raised = Python::attach(|py| py.check_signals()).err();
        raised.is_none()
    };
    let written = py.detach(|| capture::retime(Reader::open(&source)?, &target, &clock, go_on));
    match (raised, written) {
        (Some(error), _) => Err(error),
        (None, written) => Ok(written.map_err(|error| errors::capture(&error))?.unwrap_or(0)),
    }
}
