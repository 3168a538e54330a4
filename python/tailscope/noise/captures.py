"""Explanation of analysed captures by traces and counters that were recorded with them.

A trace whose clock is that of the captures tells what *caused* delays. Counters that were polled
tell what they are *associated* with. The two are kept apart, from here to the last table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from tailscope.exceptions import RunError, UsageError
from tailscope.noise.association import associate, slow_packets
from tailscope.noise.attribution import SERVICE, UNEXPLAINED, Blocked, blocked_by
from tailscope.noise.clocks import align
from tailscope.noise.counters import read_readings
from tailscope.noise.explanation import TAIL_QUANTILE, explain_tail
from tailscope.noise.spans import eroded, longest_task, read_spans
from tailscope.noise.traces import open_trace
from tailscope.store.records.explanation import ExplainingTrace, Explanation
from tailscope.store.records.run import OwnWork

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope.noise.clocks import Offsets
    from tailscope.noise.spans import ReadTrace
    from tailscope.store.packets import Latencies, Packets


@dataclass(frozen=True)
class TraceRequest:
    """A trace and the CPUs of the device in it."""

    path: Path
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Recordings:
    """The recordings that belong to captures."""

    interrupts: Mapping[str, Path]
    """Series of interrupt counters by name."""
    traces: Mapping[str, TraceRequest]
    said: Offsets
    """Offsets of their clocks that the user gave."""
    own_work: tuple[str, ...]
    """Prefixes of causes that are the device's own work. Without any, the task that has a CPU
    for more than half of the time is its own work."""


class ExplainedCaptures(NamedTuple):
    """An explanation and its evidence."""

    explanation: Explanation
    blocked: Blocked | None
    """Intervals in which the device's CPUs were blocked; None without a trace."""


def explain_captures(
    packets: Packets, known: Latencies, recordings: Recordings, quantile: float | None
) -> ExplainedCaptures:
    """Explain the tail of a run that was analysed from captures."""
    if not known.distribution.count:
        raise RunError("no packet was matched: there is nothing to explain", code="nothing-matched")
    associated = None
    if recordings.interrupts:
        files = [read_readings(path, name) for name, path in recordings.interrupts.items()]
        associated = associate(files, slow_packets(packets, known, quantile), recordings.said)
    if not recordings.traces:
        assert associated is not None, "there is one recording at least"
        found = _nothing_known(packets, known, associated.quantile)
        return ExplainedCaptures(replace(found, associated=associated), None)
    start = TAIL_QUANTILE if quantile is None else quantile
    read = [_read(name, trace, known, recordings) for name, trace in recordings.traces.items()]
    blocked = _joined([each.blocked for each in read])
    tail = explain_tail(packets, known, blocked, start)
    begin, end = packets.beyond(tail.threshold_ns)
    traces = tuple(
        replace(
            each.record,
            uncovered_packets=int(
                np.count_nonzero((begin < each.span_ns[0]) | (end > each.span_ns[1]))
            ),
        )
        for each in read
    )
    return ExplainedCaptures(replace(tail, traces=traces, associated=associated), blocked)


class _Read(NamedTuple):
    blocked: Blocked
    record: ExplainingTrace
    span_ns: tuple[int, int]


def _read(name: str, asked: TraceRequest, known: Latencies, recordings: Recordings) -> _Read:
    trace = open_trace(asked.path)
    found = read_spans(trace.lines(), asked.cpus)
    if found is None:
        raise UsageError(
            f"{asked.path}: got a trace without events, expected at least one", code="trace-empty"
        )
    if not found.used:
        raise UsageError(
            f"{asked.path}: no event says what took CPU {', '.join(map(str, asked.cpus))}",
            code="trace-lacks-cpu",
            hint="record irq_handler, softirq and irq_vectors events (entry and exit) and"
            " sched_switch, on the CPUs of the device: --cpus",
        )
    captures_ns = (known.first_ns, known.last_ns)
    alignment = align(
        name, found.span_ns, captures_ns, recordings.said, to_unix_ns=trace.to_unix_ns
    )
    if alignment.offset_ns is None or alignment.error_ns is None:
        raise UsageError(
            f"{name}: nothing says that the clock of this trace is that of the captures: neither"
            " has Unix time",
            code="offset-unknown",
            hint="if they share a clock, pass --offset 0s; otherwise what to add to the trace's"
            " times to get those of the captures",
        )
    own = recordings.own_work or _own_tasks(found)
    blocked = blocked_by(found.timelines, (), own_work=OwnWork(dut=own, instrument=()))
    error_ns = alignment.error_ns
    record = ExplainingTrace(
        name=name,
        file=trace.path.name,
        reader=trace.reader,
        alignment=alignment,
        cpus=asked.cpus,
        own_work=own,
        events=found.used,
        unused_events=found.unused,
        lost_events=found.lost,
        uncovered_packets=0,
    )
    span_ns = (found.span_ns[0] + alignment.offset_ns, found.span_ns[1] + alignment.offset_ns)
    return _Read(eroded(blocked, alignment.offset_ns, error_ns), record, span_ns)


def _own_tasks(found: ReadTrace) -> tuple[str, ...]:
    lasted_ns = found.span_ns[1] - found.span_ns[0]
    tasks = (longest_task(timeline, lasted_ns) for timeline in found.timelines)
    return tuple(dict.fromkeys(task for task in tasks if task is not None))


def _joined(each: Sequence[Blocked]) -> Blocked:
    """Merge the intervals of several traces; the earlier trace has precedence."""
    from tailscope.noise.intervals import subtract

    whole = each[0]
    for more in each[1:]:
        left = subtract(more.start_ns, more.end_ns, whole.start_ns, whole.end_ns)
        start = np.concatenate([whole.start_ns, left.start])
        order = np.argsort(start, kind="stable")
        causes, details = len(whole.names), len(whole.details)
        whole = Blocked(
            start[order],
            np.concatenate([whole.end_ns, left.end])[order],
            np.concatenate([whole.cause, more.cause[left.owner] + causes])[order],
            np.concatenate([whole.detail, more.detail[left.owner] + details])[order],
            np.concatenate([whole.is_dut, more.is_dut[left.owner]])[order],
            [*whole.names, *more.names],
            [*whole.details, *more.details],
        )
    return whole


def _nothing_known(packets: Packets, known: Latencies, quantile: float) -> Explanation:
    """Explain a tail by its captures alone."""
    nothing = np.zeros(0, np.int64)
    empty = Blocked(nothing, nothing, nothing, nothing, nothing.astype(bool), [], [])
    tail = explain_tail(packets, known, empty, quantile)
    parts = dict.fromkeys(tail.parts_ns, 0)
    parts |= {SERVICE: tail.parts_ns[SERVICE], UNEXPLAINED: tail.excess_ns}
    return replace(tail, evidence=None, parts_ns=parts, causes=())
