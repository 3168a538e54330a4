//! How much of the time intervals cover, asked for by whoever looks at packets a piece at a time.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors;

#[pyclass(module = "tailscope._engine", frozen)]
pub struct Coverage(::analysis::Coverage);

#[pymethods]
impl Coverage {
    #[new]
    fn new(
        start_ns: PyReadonlyArray1<'_, i64>,
        end_ns: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Self> {
        let (start, end) = (start_ns.as_slice()?.to_vec(), end_ns.as_slice()?.to_vec());
        let (starts, ends) = (start.len(), end.len());
        ::analysis::Coverage::new(start, end).map(Self).ok_or_else(|| {
            errors::argument(format!("end_ns: got {ends}, expected {starts}"), "intervals")
        })
    }

    fn until<'py>(
        &self,
        py: Python<'py>,
        moments_ns: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let moments = moments_ns.as_slice()?;
        Ok(py.detach(|| self.0.until(moments)).into_pyarray(py))
    }
}
