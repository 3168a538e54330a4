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
from tailscope.noise.attribution import (
    NEVER,
    SERVICE,
    UNEXPLAINED,
    Blocked,
    blocked_by,
    shared_codes,
)
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
    cpus: Mapping[str, tuple[int, ...]]
    """The device's CPUs in these series, if they were named."""
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
    packets: Packets, latencies: Latencies, recordings: Recordings, quantile: float | None
) -> ExplainedCaptures:
    """Explain the tail of a run that was analysed from captures."""
    if not latencies.distribution.count:
        raise RunError("no packet was matched: there is nothing to explain", code="nothing-matched")
    associated = None
    if recordings.interrupts:
        files = [read_readings(path, name) for name, path in recordings.interrupts.items()]
        slow = slow_packets(packets, latencies, quantile)
        associated = associate(files, slow, recordings.said, recordings.cpus)
    if not recordings.traces:
        assert associated is not None, "there is one recording at least"
        explanation = _nothing_known(packets, latencies, associated.quantile)
        return ExplainedCaptures(replace(explanation, associated=associated), None)
    start = TAIL_QUANTILE if quantile is None else quantile
    read = [_read(name, trace, latencies, recordings) for name, trace in recordings.traces.items()]
    blocked = _joined([trace.blocked for trace in read])
    tail = explain_tail(packets, latencies, blocked, start)
    begin, end = packets.beyond(tail.threshold_ns)
    traces = tuple(
        replace(
            trace.record,
            uncovered_packets=int(
                np.count_nonzero((begin < trace.span_ns[0]) | (end > trace.span_ns[1]))
            ),
        )
        for trace in read
    )
    return ExplainedCaptures(replace(tail, traces=traces, associated=associated), blocked)


class _Read(NamedTuple):
    blocked: Blocked
    record: ExplainingTrace
    span_ns: tuple[int, int]


def _read(name: str, request: TraceRequest, latencies: Latencies, recordings: Recordings) -> _Read:
    trace = open_trace(request.path)
    spans = read_spans(trace.lines(), request.cpus)
    if spans is None:
        raise UsageError(
            f"{request.path}: got a trace without events, expected at least one", code="trace-empty"
        )
    if not spans.used:
        raise UsageError(
            f"{request.path}: no event says what took CPU {', '.join(map(str, request.cpus))}",
            code="trace-lacks-cpu",
            hint="record irq_handler, softirq and irq_vectors events (entry and exit) and"
            " sched_switch, on the CPUs of the device: --cpus",
        )
    captures_ns = (latencies.first_ns, latencies.last_ns)
    alignment = align(
        name, spans.span_ns, captures_ns, recordings.said, to_unix_ns=trace.to_unix_ns
    )
    if alignment.offset_ns is None or alignment.error_ns is None:
        raise UsageError(
            f"{name}: the offset between the clocks of this trace and of the captures is unknown:"
            " neither has Unix time",
            code="offset-unknown",
            hint="pass --offset 0s if they share a clock; otherwise pass what to add to the trace's"
            " times to get those of the captures",
        )
    own = recordings.own_work or _own_tasks(spans)
    blocked = blocked_by(spans.timelines, (), own_work=OwnWork(dut=own, instrument=()))
    error_ns = alignment.error_ns
    record = ExplainingTrace(
        name=name,
        file=trace.path.name,
        reader=trace.reader,
        alignment=alignment,
        cpus=request.cpus,
        own_work=own,
        events=spans.used,
        unused_events=spans.unused,
        lost_events=spans.lost,
        uncovered_packets=0,
    )
    span_ns = (spans.span_ns[0] + alignment.offset_ns, spans.span_ns[1] + alignment.offset_ns)
    return _Read(eroded(blocked, alignment.offset_ns, error_ns), record, span_ns)


def _own_tasks(spans: ReadTrace) -> tuple[str, ...]:
    lasted_ns = spans.span_ns[1] - spans.span_ns[0]
    tasks = (longest_task(timeline, lasted_ns) for timeline in spans.timelines)
    return tuple(dict.fromkeys(task for task in tasks if task is not None))


def _joined(all_blocked: Sequence[Blocked]) -> Blocked:
    """Merge the intervals of several traces; the earlier trace has precedence."""
    from tailscope.noise.intervals import subtract

    whole = all_blocked[0]
    for more in all_blocked[1:]:
        left = subtract(more.start_ns, more.end_ns, whole.start_ns, whole.end_ns)
        start = np.concatenate([whole.start_ns, left.start])
        order = np.argsort(start, kind="stable")
        names, details = [*whole.names], [*whole.details]
        cause = shared_codes(names, more.names, more.cause[left.owner])
        detail = shared_codes(details, more.details, more.detail[left.owner])
        whole = Blocked(
            start[order],
            np.concatenate([whole.end_ns, left.end])[order],
            np.concatenate([whole.cause, cause])[order],
            np.concatenate([whole.detail, detail])[order],
            np.concatenate([whole.is_dut, more.is_dut[left.owner]])[order],
            names,
            details,
        )
    return whole


def _nothing_known(packets: Packets, latencies: Latencies, quantile: float) -> Explanation:
    """Explain a tail by its captures alone."""
    tail = explain_tail(packets, latencies, NEVER, quantile)
    parts = dict.fromkeys(tail.parts_ns, 0)
    parts |= {SERVICE: tail.parts_ns[SERVICE], UNEXPLAINED: tail.excess_ns}
    return replace(tail, evidence=None, parts_ns=parts, causes=())
