//! The keys of a capture's packets.

use std::path::PathBuf;
use std::sync::Mutex;

use ::analysis::KeyColumns;
use capture::Reader;
use numpy::{IntoPyArray, PyArray1};
use probe::key::{MatchOn, Tap};
use pyo3::prelude::*;

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
    #[pyo3(signature = (capture, match_on, *, behind=false))]
    fn new(py: Python<'_>, capture: PathBuf, match_on: &str, behind: bool) -> PyResult<Self> {
        let match_on = match_on.parse::<MatchOn>().map_err(errors::value)?;
        let tap = if behind { Tap::Post } else { Tap::Pre };
        let reader =
            py.detach(|| Reader::open(&capture)).map_err(|error| errors::capture(&error))?;
        Ok(Self(Mutex::new(::analysis::Keys::new(reader, &match_on, tap))))
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
