//! The analysis of a pair of captures.

use std::path::PathBuf;

use ::analysis::{
    Bounds, By, Clocks, Config, Doubts, Histogram, Recording, Skew, Value, analyze_files,
    analyze_recording as analyze_slices, estimate_clocks as estimate, worst_keys,
};
use capture::{InterfaceChoice, Reader};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use probe::key::MatchOn;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use units::{Clock, Nanos};

use crate::errors;
use crate::follow::{Attached, Columns, Follower, interruptible};

type Array<'py> = Bound<'py, PyArray1<u64>>;
type Pairs<'py> = (Array<'py>, Array<'py>);
type Series = (Py<PyArray1<u64>>, Py<PyArray1<u64>>, Py<PyArray1<u64>>);
type More = (Py<PyArray1<u64>>, Py<PyArray1<bool>>, Py<PyArray1<u64>>);
type Ticks<'py> = PyReadonlyArray1<'py, u64>;
type Grouped =
    (String, (u64, u64, u64, u64), (Option<u64>, Option<u64>, Option<u64>, Option<u64>, bool));
type Found = (f64, u64, Option<u64>, Option<u64>, u64, bool);

#[pyclass(frozen, module = "tailscope._engine")]
pub struct Analysis {
    found: ::analysis::Analysis,
    series: Option<Series>,
    more: Option<More>,
}

/// The difference of the clocks: offset in ns, drift in parts per 10¹², since when in ns, and
/// whether latencies are relative; then the least and the highest offset, and the error of the
/// drift.
pub(crate) type Apart = (i64, i64, u64, bool, Option<i64>, Option<i64>, Option<i64>);

/// A capture: the path of each file, and the interface of it, with [`STAMPED`] behind it or alone if times are those
/// behind frames.
const STAMPED: &str = "@trailer";

pub(crate) type Chosen = Vec<(PathBuf, Option<String>)>;

pub(crate) fn open(files: &Chosen) -> Result<Reader, capture::Error> {
    let choice = |interface: &Option<String>| match interface {
        None => InterfaceChoice::All,
        Some(name) => match name.parse() {
            Ok(number) => InterfaceChoice::Number(number),
            Err(_) => InterfaceChoice::Name(name.clone()),
        },
    };
    let parted = |name: &Option<String>| match name
        .as_deref()
        .map(|name| (name, name.strip_suffix(STAMPED)))
    {
        Some((_, Some(name))) => ((!name.is_empty()).then(|| name.to_owned()), true),
        Some((name, None)) => (Some(name.to_owned()), false),
        None => (None, false),
    };
    let stamped = files.iter().any(|(_, name)| parted(name).1);
    let files: Vec<_> =
        files.iter().map(|(path, name)| (path.clone(), choice(&parted(name).0))).collect();
    if stamped { Reader::open_all_stamped(&files) } else { Reader::open_all(&files) }
}

/// Times in ns at which the clock of a side is in doubt.
type Doubted = Vec<(u64, u64)>;

/// Returns how a pair of captures is analysed, as Python says it. `clocks`: `None` takes nothing
/// for granted, an offset and a drift of 0 that are known that they are one.
pub(crate) fn config(
    match_on: &str,
    trim_ns: u64,
    window_ns: u64,
    worst: usize,
    clocks: Option<Apart>,
) -> PyResult<Config> {
    let clocks = match clocks {
        None => Clocks::Detect,
        Some((0, 0, _, false, _, _, Some(0))) => Clocks::Same,
        Some((offset_ns, drift_ppt, since_ns, relative, low, high, error)) => Clocks::Apart {
            skew: Skew { offset_ns, drift_ppt, since_ns },
            relative,
            bounds: Bounds { offset_low_ns: low, offset_high_ns: high, drift_error_ppt: error },
        },
    };
    Ok(Config {
        match_on: match_on.parse::<MatchOn>().map_err(errors::probe)?,
        trim: Nanos(trim_ns),
        window: Nanos(window_ns),
        worst,
        clocks,
        ..Config::default()
    })
}

#[pyfunction]
#[pyo3(signature = (
    pre, post, *, match_on, trim_ns, window_ns, worst, joined_by=None, clocks=None, doubts=None, whole=false,
    series=false, sink=None, packets=None, progress=None
))]
#[allow(clippy::too_many_arguments)]
pub fn analyze(
    py: Python<'_>,
    pre: Chosen,
    post: Chosen,
    match_on: &str,
    trim_ns: u64,
    window_ns: u64,
    worst: usize,
    joined_by: Option<&str>,
    clocks: Option<Apart>,
    doubts: Option<[Doubted; 2]>,
    whole: bool,
    series: bool,
    sink: Option<Py<PyAny>>,
    packets: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Analysis> {
    let joined_by = joined_by.map(str::parse).transpose().map_err(errors::probe)?;
    let known = config(match_on, trim_ns, window_ns, worst, clocks)?;
    let doubts = Doubts::new(doubts.unwrap_or_default());
    let config = Config { joined_by, doubts, whole, ..known };
    let series = series.then(Columns::default);
    let follower = Follower { series, sink, packets, progress, ..Follower::default() };
    let run = move |follower: &mut Follower| -> Result<_, ::analysis::Error> {
        let both = || Ok([open(&pre)?, open(&post)?]);
        analyze_files(both, &config, follower)
    };
    let (found, mut follower) = interruptible(py, follower, run)?;
    let found = found.map_err(|error| errors::analysis(&error))?;
    follower.hand_over(py)?;
    let array = |column: Vec<u64>| column.into_pyarray(py).unbind();
    let series = follower
        .series
        .map(|columns| (array(columns.seq), array(columns.pre_ns), array(columns.latency_ns)));
    Ok(Analysis { found, series, more: None })
}

#[pyfunction]
#[pyo3(signature = (pre, post, *, match_on, window_ns, doubts=None, progress=None))]
pub fn estimate_clocks(
    py: Python<'_>,
    pre: Chosen,
    post: Chosen,
    match_on: &str,
    window_ns: u64,
    doubts: Option<[Doubted; 2]>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Apart> {
    let doubts = Doubts::new(doubts.unwrap_or_default());
    let config = Config { doubts, ..config(match_on, 0, window_ns, 0, None)? };
    let follower = Follower { progress, ..Follower::default() };
    let run = move |follower: &mut Follower| -> Result<_, ::analysis::Error> {
        estimate(open(&pre)?, open(&post)?, &config, follower)
    };
    let (found, _) = interruptible(py, follower, run)?;
    let (Skew { offset_ns, drift_ppt, since_ns }, bounds) =
        found.map_err(|error| errors::analysis(&error))?;
    let Bounds { offset_low_ns, offset_high_ns, drift_error_ppt } = bounds;
    Ok((offset_ns, drift_ppt, since_ns, true, offset_low_ns, offset_high_ns, drift_error_ppt))
}

/// Number, name, description, link type, and packets in the beginning of each interface of a capture.
type Listed = (u32, Option<String>, Option<String>, String, u64);

#[pyfunction]
pub fn interfaces(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Listed>> {
    let found =
        py.detach(|| capture::interfaces(&path)).map_err(|error| errors::capture(&error))?;
    let listed = |one: capture::Interface| {
        (one.number, one.name, one.description, one.link_type.to_string(), one.packets)
    };
    Ok(found.into_iter().map(listed).collect())
}

#[pyfunction]
#[pyo3(signature = (
    clock, intended_tsc, departure_tsc, arrival_seq, arrival_tsc, corrupt_seq, stall_start_tsc,
    stall_duration_tsc, *, cut_off, trim_ns, window_ns, worst, series=false, sink=None, progress=None
))]
#[allow(clippy::too_many_arguments)]
pub fn analyze_recording(
    py: Python<'_>,
    clock: (u64, u64, u64),
    intended_tsc: Ticks<'_>,
    departure_tsc: Ticks<'_>,
    arrival_seq: Ticks<'_>,
    arrival_tsc: Ticks<'_>,
    corrupt_seq: Ticks<'_>,
    stall_start_tsc: Ticks<'_>,
    stall_duration_tsc: Ticks<'_>,
    cut_off: bool,
    trim_ns: u64,
    window_ns: u64,
    worst: usize,
    series: bool,
    sink: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Analysis> {
    let (tsc_hz, tsc, unix_ns) = clock;
    let recording = Recording {
        clock: Clock { tsc_hz, tsc, unix_ns },
        intended_tsc: intended_tsc.as_slice()?,
        departure_tsc: departure_tsc.as_slice()?,
        arrival_seq: arrival_seq.as_slice()?,
        arrival_tsc: arrival_tsc.as_slice()?,
        corrupt_seq: corrupt_seq.as_slice()?,
        stall_start_tsc: stall_start_tsc.as_slice()?,
        stall_duration_tsc: stall_duration_tsc.as_slice()?,
        cut_off,
    };
    let (trim, window) = (Nanos(trim_ns), Nanos(window_ns));
    let config = Config { trim, window, worst, ..Config::default() };
    let series = series.then(Columns::default);
    let mut follower = Attached(Follower { series, sink, progress, ..Follower::default() });
    let found = py.detach(|| analyze_slices(&recording, &config, &mut follower));
    let Attached(mut follower) = follower;
    if let Some(raised) = follower.raised.take() {
        return Err(raised);
    }
    let found = found.map_err(|error| errors::analysis(&error))?;
    follower.hand_over(py)?;
    let array = |column: Vec<u64>| column.into_pyarray(py).unbind();
    let more = follower.series.is_some().then(|| {
        let more = follower.more;
        let tainted = more.tainted.into_pyarray(py).unbind();
        (array(more.intended_ns), tainted, array(more.instrument_stall_ns))
    });
    let series = follower
        .series
        .map(|columns| (array(columns.seq), array(columns.pre_ns), array(columns.latency_ns)));
    Ok(Analysis { found, series, more })
}

#[pymethods]
impl Analysis {
    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let summary = PyDict::new(py);
        for (name, value) in self.found.summary() {
            match value {
                Value::Unsigned(value) => summary.set_item(name, value)?,
                Value::Signed(value) => summary.set_item(name, value)?,
                Value::Real(value) => summary.set_item(name, value)?,
                Value::Text(value) => summary.set_item(name, PyString::new(py, &value))?,
                Value::Flag(value) => summary.set_item(name, value)?,
                Value::Missing => summary.set_item(name, py.None())?,
            }
        }
        Ok(summary)
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.found.warnings()
    }

    #[getter]
    fn deserves_second_look(&self) -> bool {
        self.found.deserves_second_look()
    }

    fn quantiles(&self, qs: Vec<f64>) -> PyResult<Vec<Found>> {
        if let Some(wrong) = qs.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(errors::argument(
                format!("quantile: got {wrong}, expected 0 to 1"),
                "quantile",
            ));
        }
        let found = self.found.quantiles(&qs);
        Ok(found
            .into_iter()
            .map(|q| (q.q, q.value_ns, q.ci_low_ns, q.ci_high_ns, q.beyond, q.supported))
            .collect())
    }

    fn histogram<'py>(&self, py: Python<'py>, bucket_ns: u64) -> PyResult<Pairs<'py>> {
        buckets(py, &self.found.latency, bucket_ns)
    }

    fn least_histogram<'py>(
        &self,
        py: Python<'py>,
        bucket_ns: u64,
    ) -> PyResult<Option<Pairs<'py>>> {
        let instrument = self.found.instrument.as_ref();
        instrument.map(|of| buckets(py, &of.least_latency, bucket_ns)).transpose()
    }

    fn gap_histogram<'py>(
        &self,
        py: Python<'py>,
        side: &str,
        bucket_ns: u64,
    ) -> PyResult<Pairs<'py>> {
        buckets(py, &self.side(side)?.gaps, bucket_ns)
    }

    fn rate_per_second<'py>(&self, py: Python<'py>, side: &str) -> PyResult<Pairs<'py>> {
        Ok(columns(py, self.side(side)?.rate.clone()))
    }

    #[getter]
    fn worst<'py>(&self, py: Python<'py>) -> (Array<'py>, Array<'py>, Array<'py>, Array<'py>) {
        let worst = &self.found.worst;
        let column = |of: fn(&::analysis::Worst) -> u64| -> Array<'py> {
            worst.iter().map(of).collect::<Vec<_>>().into_pyarray(py)
        };
        (
            column(|packet| packet.latency_ns),
            column(|packet| packet.pre_ns),
            column(|packet| packet.pre_ns + packet.latency_ns),
            column(|packet| packet.seq),
        )
    }

    #[getter]
    fn worst_flows(&self) -> Option<(Vec<String>, Vec<u64>)> {
        self.found.worst_flows().map(|of| of.into_iter().unzip())
    }

    #[getter]
    fn resegmented_ns<'py>(&self, py: Python<'py>) -> Array<'py> {
        self.found.resegmented_ns.clone().into_pyarray(py)
    }

    fn groups(&self, by: &str) -> PyResult<Vec<Grouped>> {
        let by: By = by.parse().map_err(|error: ::analysis::Error| {
            errors::argument(error.to_string(), error.code())
        })?;
        let groups = self.found.groups(by).into_iter().map(|group| {
            let counts = (group.sent, group.matched, group.lost, group.unseen);
            let [p50, p99] = group.quantiles_ns;
            (group.name, counts, (p50, p99, group.worst_ns, group.tail, group.exact))
        });
        Ok(groups.collect())
    }

    #[getter]
    fn loss_runs(&self) -> Vec<(Option<String>, u64, u64, u64)> {
        let runs = self.found.loss_runs().into_iter();
        runs.map(|run| (run.flow, run.start_ns, run.end_ns, run.lost)).collect()
    }

    /// Times before and behind the device, flow, size, and the first byte that differs, bytes and bits of each.
    #[getter]
    fn corruptions(&self) -> Vec<(u64, u64, String, u32, u32, u32, u32)> {
        let all = self.found.corruptions.iter().map(|of| {
            let damage = of.damage;
            let differs = (damage.offset_bytes, damage.bytes, damage.bits);
            let flow = of.flow.to_string();
            (of.pre_ns, of.post_ns, flow, of.size_bytes, differs.0, differs.1, differs.2)
        });
        all.collect()
    }

    fn worst_keys(&self, py: Python<'_>, pre: Chosen) -> PyResult<Vec<String>> {
        let by = (&self.found.config.match_on, &self.found.basis);
        let keys = py.detach(|| {
            open(&pre).map_err(Into::into).and_then(|r| worst_keys(r, by, &self.found.worst))
        });
        let hex = |key: Vec<u8>| key.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(keys.map_err(|error| errors::analysis(&error))?.into_iter().map(hex).collect())
    }

    #[getter]
    fn series(&self, py: Python<'_>) -> Option<Series> {
        let (seq, pre_ns, latency_ns) = self.series.as_ref()?;
        Some((seq.clone_ref(py), pre_ns.clone_ref(py), latency_ns.clone_ref(py)))
    }

    #[getter]
    fn more(&self, py: Python<'_>) -> Option<More> {
        let (intended_ns, tainted, stall_ns) = self.more.as_ref()?;
        Some((intended_ns.clone_ref(py), tainted.clone_ref(py), stall_ns.clone_ref(py)))
    }

    fn hlog(&self, py: Python<'_>) -> String {
        py.detach(|| self.found.hlog())
    }
}

impl From<::analysis::Analysis> for Analysis {
    fn from(found: ::analysis::Analysis) -> Self {
        Self { found, series: None, more: None }
    }
}

impl Analysis {
    fn side(&self, name: &str) -> PyResult<&::analysis::Side> {
        match name {
            "pre" => Ok(&self.found.pre.side),
            "post" => Ok(&self.found.post.side),
            _ => Err(errors::argument(
                format!("side: got {name:?}, expected \"pre\" or \"post\""),
                "side",
            )),
        }
    }
}

fn buckets<'py>(py: Python<'py>, histogram: &Histogram, bucket_ns: u64) -> PyResult<Pairs<'py>> {
    if bucket_ns == 0 {
        return Err(errors::argument("bucket: got 0 ns, expected at least 1 ns", "bucket-size"));
    }
    Ok(columns(py, histogram.buckets(bucket_ns)))
}

fn columns(py: Python<'_>, pairs: Vec<(u64, u64)>) -> Pairs<'_> {
    let (left, right): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
    (left.into_pyarray(py), right.into_pyarray(py))
}
