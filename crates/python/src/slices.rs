//! The analysis of a pair in slices.

use ::analysis::{Plan, analyze_slice as analyze};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::analysis::{Analysis, Apart, Chosen, config, open};
use crate::errors;
use crate::follow::{Follower, interruptible};

#[pyclass(frozen, module = "tailscope._engine")]
pub struct Slice(::analysis::Slice);

#[pyclass(frozen, module = "tailscope._engine")]
pub struct Part(::analysis::Part);

#[pyfunction]
#[pyo3(signature = (pre, post, *, at_most, match_on, trim_ns, window_ns, worst, clocks=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn split(
    py: Python<'_>,
    pre: Chosen,
    post: Chosen,
    at_most: usize,
    match_on: &str,
    trim_ns: u64,
    window_ns: u64,
    worst: usize,
    clocks: Option<Apart>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Slice>, Option<String>)> {
    let config = config(match_on, trim_ns, window_ns, worst, clocks)?;
    let follower = Follower { progress, ..Follower::default() };
    let run = move |follower: &mut Follower| -> Result<_, ::analysis::Error> {
        let (pre, post) = (open(&pre)?, open(&post)?);
        let plan = Plan::new(pre, post, &config, follower)?;
        let slices = plan.slices(at_most);
        let note = (slices.len() == 1 && at_most > 1).then(|| plan.why_one());
        Ok((slices, note))
    };
    let (found, _) = interruptible(py, follower, run)?;
    let (slices, note) = found.map_err(|error| errors::analysis(&error))?;
    Ok((slices.into_iter().map(Slice).collect(), note))
}

#[pyfunction]
#[pyo3(signature = (pre, post, piece, *, sink=None, progress=None))]
pub fn analyze_slice(
    py: Python<'_>,
    pre: Chosen,
    post: Chosen,
    piece: &Slice,
    sink: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Part> {
    let slice = piece.0.clone();
    let follower = Follower { sink, progress, ..Follower::default() };
    let run = move |follower: &mut Follower| -> Result<_, ::analysis::Error> {
        analyze(open(&pre)?, open(&post)?, &slice, follower)
    };
    let (found, _) = interruptible(py, follower, run)?;
    found.map(Part).map_err(|error| errors::analysis(&error))
}

#[pyfunction]
pub fn merge(py: Python<'_>, first: &Part, others: Vec<Py<Part>>) -> PyResult<Analysis> {
    let found = py.detach(|| {
        let join = |part: ::analysis::Part, other: &Py<Part>| part.join(&other.get().0);
        others.iter().try_fold(first.0.clone(), join)?.finish()
    });
    found.map(Analysis::from).map_err(|error| errors::analysis(&error))
}

#[pymethods]
impl Slice {
    #[getter]
    fn times(&self) -> (u64, u64) {
        let times = self.0.times();
        (times.start, times.end)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    #[staticmethod]
    fn from_bytes(content: &[u8]) -> PyResult<Self> {
        let read = ::analysis::Slice::from_bytes(content);
        read.map(Self).map_err(|error| errors::analysis(&error))
    }
}

#[pymethods]
impl Part {
    fn join(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let joined = py.detach(|| self.0.clone().join(&other.0));
        joined.map(Self).map_err(|error| errors::analysis(&error))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.to_bytes()))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, content: &[u8]) -> PyResult<Self> {
        let read = py.detach(|| ::analysis::Part::from_bytes(content));
        read.map(Self).map_err(|error| errors::analysis(&error))
    }
}
