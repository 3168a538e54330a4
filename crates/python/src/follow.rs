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
    fn extend<'a>(&mut self, batch: impl IntoIterator<Item = &'a Match> + Clone) {
        self.seq.extend(batch.clone().into_iter().map(|found| found.seq));
        self.pre_ns.extend(batch.clone().into_iter().map(|found| found.pre_ns));
        self.latency_ns.extend(batch.into_iter().map(|found| found.latency_ns));
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

/// Rows that are handed to Python at once: a group of a table, which then takes them as they are.
const ROWS_AT_ONCE: usize = 1 << 20;

/// Packets that wait until there are enough to be handed on.
#[derive(Default)]
pub struct Waiting {
    matches: Columns,
    more: MoreColumns,
    of_matches: [Vec<u32>; 2],
    flows: Vec<String>,
    lost: [Vec<u64>; 2],
    of_lost: [Vec<u32>; 2],
}

/// Takes the first rows of a column, at most as many as are handed on at once.
fn taken<T: Copy>(column: &mut Vec<T>) -> Vec<T> {
    let rows = column.len().min(ROWS_AT_ONCE);
    let mut rest = Vec::new();
    if column.len() > rows {
        rest.reserve(ROWS_AT_ONCE);
        rest.extend_from_slice(&column[rows..]);
    }
    column.truncate(rows);
    std::mem::replace(column, rest)
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
    pub waiting: Waiting,
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

impl Follower {
    /// Hands the rest on, once nothing follows.
    pub fn hand_over(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(to) = &self.packets {
            self.waiting.hand_packets(to.bind(py))?;
        }
        if let Some(to) = &self.sink {
            self.waiting.hand_matches(to.bind(py))?;
        }
        Ok(())
    }

    fn hand_over_if_full(&mut self) -> ControlFlow<()> {
        if self.waiting.matches.seq.len().max(self.waiting.lost[0].len()) < ROWS_AT_ONCE {
            return ControlFlow::Continue(());
        }
        match Python::attach(|py| self.hand_over(py)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl Waiting {
    fn hand_packets(&mut self, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = to.py();
        if !self.flows.is_empty() {
            to.call_method1("flows", (std::mem::take(&mut self.flows),))?;
        }
        if !self.matches.seq.is_empty() {
            let Columns { seq, pre_ns, latency_ns } = &mut self.matches;
            let [flow, size_bytes] = &mut self.of_matches;
            let columns = (
                taken(seq).into_pyarray(py),
                taken(pre_ns).into_pyarray(py),
                taken(latency_ns).into_pyarray(py),
                taken(flow).into_pyarray(py),
                taken(size_bytes).into_pyarray(py),
            );
            to.call_method1("matches", columns)?;
        }
        if !self.lost[0].is_empty() {
            let ([seq, pre_ns], [flow, size_bytes]) = (&mut self.lost, &mut self.of_lost);
            let columns = (
                taken(seq).into_pyarray(py),
                taken(pre_ns).into_pyarray(py),
                taken(flow).into_pyarray(py),
                taken(size_bytes).into_pyarray(py),
            );
            to.call_method1("lost", columns)?;
        }
        Ok(())
    }

    fn hand_matches(&mut self, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = to.py();
        // Only recordings wait here.
        if self.more.tainted.is_empty() {
            return Ok(());
        }
        let (Columns { seq, pre_ns, latency_ns }, more) = (&mut self.matches, &mut self.more);
        let columns = (
            taken(seq).into_pyarray(py),
            taken(pre_ns).into_pyarray(py),
            taken(latency_ns).into_pyarray(py),
            taken(&mut more.intended_ns).into_pyarray(py),
            taken(&mut more.tainted).into_pyarray(py),
            taken(&mut more.instrument_stall_ns).into_pyarray(py),
        );
        to.call1(columns).map(drop)
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
        let waiting = &mut self.waiting;
        waiting.matches.extend(packets.matches);
        waiting.flows.extend_from_slice(&packets.flows);
        for (column, new) in waiting.of_matches.iter_mut().zip(&packets.of_matches) {
            column.extend_from_slice(new);
        }
        waiting.lost[0].extend(packets.lost.iter().map(|lost| lost.seq));
        waiting.lost[1].extend(packets.lost.iter().map(|lost| lost.pre_ns));
        for (column, new) in waiting.of_lost.iter_mut().zip(&packets.of_lost) {
            column.extend_from_slice(new);
        }
        self.hand_over_if_full()
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
        let found = batch.iter().map(|recorded| &recorded.found);
        if let Some(series) = &mut self.series {
            series.extend(found.clone());
            self.more.extend(batch);
        }
        if self.sink.is_none() {
            return ControlFlow::Continue(());
        }
        self.waiting.matches.extend(found);
        self.waiting.more.extend(batch);
        self.hand_over_if_full()
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
