//! The keys of a capture's packets.

use std::sync::Mutex;

use ::analysis::KeyColumns;
use numpy::{IntoPyArray, PyArray1};
use probe::key::{Keyer, MatchOn, Tap};
use pyo3::prelude::*;

use crate::analysis::{Chosen, open};
use crate::errors;

type Columns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<usize>>,
    Bound<'py, PyArray1<bool>>,
);

#[pyclass(frozen, module = "tailscope._engine")]
pub struct Keys(Mutex<::analysis::Keys>);

#[pymethods]
impl Keys {
    #[new]
    #[pyo3(signature = (capture, match_on, *, behind=false, limit_bytes=None))]
    fn new(
        py: Python<'_>,
        capture: Chosen,
        match_on: &str,
        behind: bool,
        limit_bytes: Option<u32>,
    ) -> PyResult<Self> {
        let match_on = match_on.parse::<MatchOn>().map_err(errors::probe)?;
        let tap = if behind { Tap::Post } else { Tap::Pre };
        let reader = py.detach(|| open(&capture)).map_err(|error| errors::capture(&error))?;
        Ok(Self(Mutex::new(::analysis::Keys::new(reader, Keyer::new(&match_on, tap, limit_bytes)))))
    }

    fn next<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Columns<'py>> {
        let read = || self.0.lock().expect("reading does not panic").next(most);
        let found = py.detach(read).map_err(|error| errors::analysis(&error))?;
        let KeyColumns { ts_ns, bytes, ends, keyed } = found;
        Ok((
            ts_ns.into_pyarray(py),
            bytes.into_pyarray(py),
            ends.into_pyarray(py),
            keyed.into_pyarray(py),
        ))
    }
}
