//! Simulated captures.

use std::path::PathBuf;

use capture::{Compression, Format};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sim::{Scenario, Stalls, write_pair};

use crate::errors;
use crate::follow::{Follower, interruptible};

/// Simulates what `settings` say (fields of `sim::Scenario`; what is not there keeps its default).
#[pyfunction]
#[pyo3(signature = (out_dir, *, suffix="pcap", progress=None, **settings))]
pub fn simulate<'py>(
    py: Python<'py>,
    out_dir: PathBuf,
    suffix: &str,
    progress: Option<Py<PyAny>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut scenario = Scenario::default();
    for (name, value) in settings.into_iter().flatten() {
        set(&mut scenario, name.cast::<PyString>()?.to_str()?, &value)?;
    }
    let (format, compression) = format_of(suffix)?;
    let follower = Follower { progress, ..Follower::default() };
    let total = Some(scenario.packets);
    let write = move |follower: &mut Follower| {
        let mut report = |packets| follower.report(packets, total);
        write_pair(&scenario, &out_dir, format, compression, &mut report)
    };
    let (written, _) = interruptible(py, follower, write)?;
    let written = written.map_err(|error| errors::simulation(&error))?;
    let found = PyDict::new(py);
    found.set_item("pre", written.pre)?;
    found.set_item("post", written.post)?;
    found.set_item("truth", written.truth)?;
    let totals = written.totals;
    found.set_item("pre_packets", totals.pre_packets)?;
    found.set_item("post_packets", totals.post_packets)?;
    found.set_item("delivered", totals.delivered)?;
    found.set_item("late", totals.late)?;
    found.set_item("lost", totals.lost)?;
    found.set_item("duplicated", totals.duplicated)?;
    found.set_item("foreign", totals.foreign)?;
    found.set_item("repeated", totals.repeated)?;
    found.set_item("latency_ns_min", totals.latency_ns_min)?;
    found.set_item("latency_ns_max", totals.latency_ns_max)?;
    Ok(found)
}

fn set(scenario: &mut Scenario, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let text = || value.extract::<String>();
    match name {
        "seed" => scenario.seed = value.extract()?,
        "packets" => scenario.packets = value.extract()?,
        "rate_pps" => scenario.rate_pps = value.extract()?,
        "pattern" => scenario.pattern = text()?.parse().map_err(errors::probe)?,
        "frame_bytes" => scenario.frame_bytes = value.extract()?,
        "flows" => scenario.flows = value.extract()?,
        "latency" => {
            scenario.latency = text()?.parse().map_err(|error| errors::simulation(&error))?
        }
        "service_ns" => scenario.service_ns = value.extract()?,
        "batch" => scenario.batch = value.extract()?,
        "rewrite" => {
            scenario.rewrite = text()?.parse().map_err(|error| errors::simulation(&error))?
        }
        "loss" => scenario.loss = value.extract()?,
        "duplication" => scenario.duplication = value.extract()?,
        "reordering" => scenario.reordering = value.extract()?,
        "repetition" => scenario.repetition = value.extract()?,
        "foreign" => scenario.foreign = value.extract()?,
        "stalls_ns" => scenario.stalls = stalls(value.extract()?),
        "clock_offset_ns" => scenario.clock.offset_ns = value.extract()?,
        "clock_drift_ppb" => scenario.clock.drift_ppb = value.extract()?,
        "cut_bytes" => scenario.cut_bytes = value.extract()?,
        _ => {
            return Err(errors::argument(
                format!("{name:?} is no setting of the simulator"),
                "setting",
            ));
        }
    }
    Ok(())
}

/// Stalls of one (period, duration); none for a duration of 0.
fn stalls((period_ns, duration_ns): (u64, u64)) -> Option<Stalls> {
    let stalls = Stalls { period_ns, duration_ns, long_every: 0, long_duration_ns: 0 };
    (duration_ns > 0).then_some(stalls)
}

fn format_of(suffix: &str) -> PyResult<(Format, Compression)> {
    match suffix {
        "pcap" => Ok((Format::Pcap, Compression::None)),
        "pcap.zst" => Ok((Format::Pcap, Compression::Zstd)),
        "pcapng" => Ok((Format::PcapNg, Compression::None)),
        "pcapng.zst" => Ok((Format::PcapNg, Compression::Zstd)),
        _ => Err(errors::argument(
            format!("format: got {suffix:?}, expected pcap, pcap.zst, pcapng or pcapng.zst"),
            "format",
        )),
    }
}
