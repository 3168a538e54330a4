//! Python callbacks that follow the engine, and Ctrl-C.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ::analysis::{Match, Observer, Packets, Progress, Recorded};
use numpy::IntoPyArray;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Interval at which Ctrl-C is looked for.
const PULSE: Duration = Duration::from_millis(50);

/// Time that an interrupted thread has to take back what it began to write.
const GRACE: Duration = Duration::from_millis(500);

/// Matches as columns.
#[derive(Default)]
pub struct Columns {
    pub seq: Vec<u64>,
    pub pre_ns: Vec<u64>,
    pub latency_ns: Vec<u64>,
}

impl Columns {
    fn extend(&mut self, batch: &[Match]) {
        self.seq.extend(batch.iter().map(|found| found.seq));
        self.pre_ns.extend(batch.iter().map(|found| found.pre_ns));
        self.latency_ns.extend(batch.iter().map(|found| found.latency_ns));
    }
}

/// The columns that only a recording has of its matches.
#[derive(Default)]
pub struct MoreColumns {
    pub intended_ns: Vec<u64>,
    pub tainted: Vec<bool>,
    pub instrument_stall_ns: Vec<u64>,
}

impl MoreColumns {
    fn extend(&mut self, batch: &[Recorded]) {
        self.intended_ns.extend(batch.iter().map(|recorded| recorded.intended_ns));
        self.tainted.extend(batch.iter().map(Recorded::tainted));
        self.instrument_stall_ns.extend(batch.iter().map(|recorded| recorded.instrument_stall_ns));
    }
}

/// Hands what happens to Python; what Python raises stops the engine.
#[derive(Default)]
pub struct Follower {
    pub series: Option<Columns>,
    pub more: MoreColumns,
    pub sink: Option<Py<PyAny>>,
    pub packets: Option<Py<PyAny>>,
    pub progress: Option<Py<PyAny>>,
    pub raised: Option<PyErr>,
    pub stopped: Arc<AtomicBool>,
}

impl Follower {
    fn call(&mut self, act: impl FnOnce(Python<'_>, &Self) -> PyResult<()>) -> ControlFlow<()> {
        match Python::attach(|py| act(py, self)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    pub fn report(&mut self, done: u64, total: Option<u64>) -> ControlFlow<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        if self.progress.is_none() {
            return ControlFlow::Continue(());
        }
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
        if self.sink.is_none() || self.stopped.load(Ordering::Relaxed) {
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

    fn wants_packets(&self) -> bool {
        self.packets.is_some() && !self.stopped.load(Ordering::Relaxed)
    }

    fn packets(&mut self, packets: &Packets<'_>) -> ControlFlow<()> {
        let mut chunk = Columns::default();
        chunk.extend(packets.matches);
        let [flow, size_bytes] = packets.of_matches.clone();
        let lost_seq: Vec<u64> = packets.lost.iter().map(|lost| lost.seq).collect();
        let lost_ns: Vec<u64> = packets.lost.iter().map(|lost| lost.pre_ns).collect();
        let [lost_flow, lost_bytes] = packets.of_lost.clone();
        self.call(|py, follower| {
            let Some(to) = follower.packets.as_ref().map(|to| to.bind(py)) else { return Ok(()) };
            if !packets.flows.is_empty() {
                to.call_method1("flows", (packets.flows.clone(),))?;
            }
            if !chunk.seq.is_empty() {
                let columns = (
                    chunk.seq.into_pyarray(py),
                    chunk.pre_ns.into_pyarray(py),
                    chunk.latency_ns.into_pyarray(py),
                    flow.into_pyarray(py),
                    size_bytes.into_pyarray(py),
                );
                to.call_method1("matches", columns)?;
            }
            if !lost_seq.is_empty() {
                let columns = (
                    lost_seq.into_pyarray(py),
                    lost_ns.into_pyarray(py),
                    lost_flow.into_pyarray(py),
                    lost_bytes.into_pyarray(py),
                );
                to.call_method1("lost", columns)?;
            }
            Ok(())
        })
    }

    fn untimed(&mut self, batch: &[Match]) -> ControlFlow<()> {
        if !self.wants_packets() {
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
            let to = follower.packets.as_ref();
            to.map_or(Ok(()), |to| to.call_method1(py, "untimed", columns).map(drop))
        })
    }

    fn recorded(&mut self, batch: &[Recorded]) -> ControlFlow<()> {
        let matches: Vec<Match> = batch.iter().map(|recorded| recorded.found).collect();
        if let Some(series) = &mut self.series {
            series.extend(&matches);
            self.more.extend(batch);
        }
        if self.sink.is_none() {
            return ControlFlow::Continue(());
        }
        let (mut chunk, mut more) = (Columns::default(), MoreColumns::default());
        chunk.extend(&matches);
        more.extend(batch);
        self.call(|py, follower| {
            let columns = (
                chunk.seq.into_pyarray(py),
                chunk.pre_ns.into_pyarray(py),
                chunk.latency_ns.into_pyarray(py),
                more.intended_ns.into_pyarray(py),
                more.tainted.into_pyarray(py),
                more.instrument_stall_ns.into_pyarray(py),
            );
            follower.sink.as_ref().map_or(Ok(()), |sink| sink.call1(py, columns).map(drop))
        })
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self.report(progress.done_bytes, progress.total_bytes)
    }
}

/// A follower on the thread of Python itself, which also hears Ctrl-C.
pub struct Attached(pub Follower);

impl Observer for Attached {
    fn recorded(&mut self, batch: &[Recorded]) -> ControlFlow<()> {
        self.0.recorded(batch)
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self.0.call(|py, _| py.check_signals())?;
        self.0.progress(progress)
    }
}

/// Does `work` with `follower` in a thread of its own, so that Ctrl-C is heard even while the engine
/// waits for a pipe. An interrupted thread stops at its next report; one that waits for a pipe has
/// nothing to take back, and ends with the process.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    mut follower: Follower,
    work: impl FnOnce(&mut Follower) -> T + Send + 'static,
) -> PyResult<(T, Follower)> {
    let stopped = follower.stopped.clone();
    let (done, finished) = sync_channel(1);
    thread::spawn(move || {
        let found = work(&mut follower);
        let _ = done.send((found, follower));
    });
    let finished = Mutex::new(finished);
    let wait = |most| finished.lock().expect("only this thread waits").recv_timeout(most);
    let (found, mut follower) = loop {
        match py.detach(|| wait(PULSE)) {
            Ok(found) => break found,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupt) = py.check_signals() {
                    stopped.store(true, Ordering::Relaxed);
                    let _ = py.detach(|| wait(GRACE));
                    return Err(interrupt);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the engine broke off: this is a bug"));
            }
        }
    };
    follower.raised.take().map_or(Ok((found, follower)), Err)
}
