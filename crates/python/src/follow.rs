//! Python callbacks that follow the engine, and Ctrl-C.

use std::ops::ControlFlow;

use ::analysis::{Match, Observer, Progress};
use numpy::IntoPyArray;
use pyo3::prelude::*;

/// Matches as columns.
#[derive(Default)]
pub struct Columns {
    pub seq: Vec<u64>,
    pub pre_ns: Vec<u64>,
    pub latency_ns: Vec<u64>,
}

impl Columns {
    fn extend(&mut self, batch: &[Match]) {
        self.seq.extend(batch.iter().map(|found| found.pre_index));
        self.pre_ns.extend(batch.iter().map(|found| found.pre_ns));
        self.latency_ns.extend(batch.iter().map(|found| found.latency_ns));
    }
}

/// Hands what happens to Python; what Python raises stops the engine.
#[derive(Default)]
pub struct Follower {
    pub series: Option<Columns>,
    pub sink: Option<Py<PyAny>>,
    pub progress: Option<Py<PyAny>>,
    pub raised: Option<PyErr>,
}

impl Follower {
    /// Calls Python with the GIL held; a pending Ctrl-C is raised first.
    pub fn call(&mut self, act: impl FnOnce(Python<'_>, &Self) -> PyResult<()>) -> ControlFlow<()> {
        match Python::attach(|py| py.check_signals().and_then(|()| act(py, self))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    pub fn report(&mut self, done: u64, total: Option<u64>) -> ControlFlow<()> {
        self.call(|py, follower| {
            follower
                .progress
                .as_ref()
                .map_or(Ok(()), |call| call.call1(py, (done, total)).map(drop))
        })
    }
}

impl Observer for Follower {
    fn matches(&mut self, batch: &[Match]) -> ControlFlow<()> {
        if let Some(series) = &mut self.series {
            series.extend(batch);
        }
        if self.sink.is_none() {
            return ControlFlow::Continue(());
        }
        let mut chunk = Columns::default();
        chunk.extend(batch);
        self.call(|py, follower| {
            let columns = (
                chunk.seq.into_pyarray(py),
                chunk.pre_ns.into_pyarray(py),
                chunk.latency_ns.into_pyarray(py),
            );
            follower.sink.as_ref().map_or(Ok(()), |sink| sink.call1(py, columns).map(drop))
        })
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self.report(progress.done_bytes, progress.total_bytes)
    }
}
