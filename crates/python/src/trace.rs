//! Kernel traces.

use std::collections::HashMap;
use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use trace::event::Kind;
use trace::{CpuTrace, Sender, Source};

use crate::errors;

/// Reads what was recorded on each CPU; all times are in ticks of the trace's clock.
#[pyfunction]
#[pyo3(signature = (formats, sources, senders, *, page_bytes, measured, ticks_per_s))]
pub fn read_trace<'py>(
    py: Python<'py>,
    formats: Vec<(String, String)>,
    sources: Vec<(u32, PathBuf)>,
    senders: Vec<(u32, PathBuf)>,
    page_bytes: usize,
    measured: Vec<i32>,
    ticks_per_s: u64,
) -> PyResult<Bound<'py, PyList>> {
    let named = |files: Vec<(u32, PathBuf)>| -> Vec<Source> {
        files.into_iter().map(|(cpu, path)| Source { cpu, path }).collect()
    };
    let (sources, senders) = (named(sources), named(senders));
    let read = || trace::read(&formats, &sources, &senders, page_bytes, &measured, ticks_per_s);
    let found = py.detach(read).map_err(|error| errors::trace(&error))?;
    let list = PyList::empty(py);
    for cpu in found.cpus {
        list.append(one(py, cpu)?)?;
    }
    Ok(list)
}

/// What spans have in common that are told of in the same words.
type Alike<'a> = (&'a Kind, bool, u64, i64, i64);

fn one<'py>(py: Python<'py>, cpu: CpuTrace) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let mut known: HashMap<Alike<'_>, u32> = HashMap::new();
    let mut kinds: Vec<(Described<'_>, bool, u64, u64, i64, i64)> = Vec::new();
    let of_span: Vec<u32> = cpu
        .spans
        .iter()
        .zip(&cpu.senders)
        .map(|(span, sender)| {
            let (pid, on) = sender.map_or((-1, -1), |by: Sender| (by.pid.into(), by.cpu.into()));
            *known.entry((&span.kind, span.flush, span.function, pid, on)).or_insert_with(|| {
                let work = if let Kind::Task { work, .. } = span.kind { work } else { 0 };
                kinds.push((described(&span.kind), span.flush, span.function, work, pid, on));
                kinds.len() as u32 - 1
            })
        })
        .collect();
    dict.set_item("cpu", cpu.cpu)?;
    dict.set_item("events", cpu.events)?;
    dict.set_item("lost", cpu.lost)?;
    dict.set_item("untold_switches", cpu.untold_switches)?;
    let gaps = |of: fn(&(u64, u64)) -> u64| -> Bound<'py, PyArray1<u64>> {
        cpu.gaps.iter().map(of).collect::<Vec<_>>().into_pyarray(py)
    };
    dict.set_item("gap_start", gaps(|gap| gap.0))?;
    dict.set_item("gap_end", gaps(|gap| gap.1))?;
    dict.set_item("kinds", kinds)?;
    dict.set_item("kind", of_span.into_pyarray(py))?;
    let starts = cpu.spans.iter().map(|span| span.start);
    dict.set_item("start", starts.collect::<Vec<_>>().into_pyarray(py))?;
    let sent = cpu.spans.iter().zip(&cpu.senders);
    let sent = sent.map(|(span, sender)| sender.map_or(span.start, |sender| sender.time));
    dict.set_item("sent", sent.collect::<Vec<_>>().into_pyarray(py))?;
    let segments = |of: fn(&trace::spans::Segment) -> u64| -> Bound<'py, PyArray1<u64>> {
        cpu.segments.iter().map(of).collect::<Vec<_>>().into_pyarray(py)
    };
    dict.set_item("segment_start", segments(|part| part.start))?;
    dict.set_item("segment_end", segments(|part| part.end))?;
    dict.set_item("segment_span", segments(|part| part.span as u64))?;
    Ok(dict)
}

type Described<'a> = (&'a str, i64, &'a str);

fn described(kind: &Kind) -> Described<'_> {
    match kind {
        Kind::Vector(name) => ("vector", 0, name),
        Kind::Irq { number, name } => ("irq", *number as i64, name),
        Kind::Softirq(number) => ("softirq", *number as i64, ""),
        Kind::Task { pid, comm, holds: false, .. } => ("task", (*pid).into(), comm),
        Kind::Task { pid, comm, holds: true, .. } => ("holding task", (*pid).into(), comm),
        Kind::PageFault => ("page fault", 0, ""),
        Kind::Nmi => ("nmi", 0, ""),
    }
}
