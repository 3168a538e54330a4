"""CPU time taken over time: from a run's device, or from CPUs watched without packets."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.noise.causes import causes_of
from tailscope.noise.intervals import covered
from tailscope.noise.table import read_timelines
from tailscope.store import layout
from tailscope.store.files import MOST_NOISE_BYTES, MOST_RECORD_BYTES, is_there, read_file
from tailscope.store.reader import open_packets, read_run, verified
from tailscope.store.records.base import read_record
from tailscope.store.records.watched import WATCHED_FORMAT, WatchedRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.noise.causes import Cause
    from tailscope.noise.timeline import Timeline
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run

    Integers = NDArray[np.int64]

_SLICES = 20


@dataclass(frozen=True)
class TimeTaken:
    """The time that was taken from CPUs."""

    cpus: tuple[str, ...]
    """CPUs that were watched."""
    duration_ns: int
    """Duration of the observation, in nanoseconds."""
    ns_per_s: NDArray[np.float64]
    """Time taken in each slice of that time, averaged over the CPUs."""
    causes: list[Cause]
    """Causes, the largest total first."""


def taken_by(path: Path) -> TimeTaken | None:
    """Read the time taken from the device's CPUs in a run, or from watched CPUs."""
    if is_there(path, layout.WATCHED):
        return _of_watched(path)
    return of_run(path, read_run(path))


def of_run(path: Path, run: Run) -> TimeTaken | None:
    """Return the time taken in a run that is already open."""
    timelines = _device_timelines(path, run.info)
    if timelines is None:
        return None
    begin_ns, end_ns = _departed(path, run.info)
    if end_ns < begin_ns:
        raise RunError(
            f"{path}: no packet came back: the time of the traffic is unknown",
            code="nothing-matched",
        )
    cpus = _device_cpus(run.info)
    return _taken(timelines, cpus, begin_ns, end_ns)


def _departed(path: Path, info: RunInfo) -> tuple[int, int]:
    """Return the departures of the first and the last packet that came back."""
    begin_ns, end_ns = sys.maxsize, 0
    with open_packets(path, info) as packets:
        for (pre_ns,) in packets.batches("pre_ns"):
            begin_ns, end_ns = min(begin_ns, int(pre_ns.min())), max(end_ns, int(pre_ns.max()))
    return begin_ns, end_ns


def taken_within(
    path: Path, run: Run, begin_ns: Integers, end_ns: Integers
) -> NDArray[np.float64] | None:
    """Return the time taken from a device in stretches of a run, in ns, averaged over its CPUs."""
    timelines = _device_timelines(path, run.info)
    if timelines is None:
        return None
    return _covered(timelines, begin_ns, end_ns) / len(set(_device_cpus(run.info)))


def taken_from_instrument(
    path: Path, run: Run, begin_ns: Integers, end_ns: Integers
) -> NDArray[np.float64]:
    """Return the time taken from the instrument in stretches of a run, in ns; 0 for captures."""
    if layout.NOISE not in run.info.files:
        return np.zeros(len(begin_ns))
    content = verified(path, run.info, layout.NOISE)
    timelines = read_timelines(content, str(path / layout.NOISE)).get("instrument", [])
    return _covered(timelines, begin_ns, end_ns)


def _covered(
    timelines: Sequence[Timeline], begin_ns: Integers, end_ns: Integers
) -> NDArray[np.float64]:
    """Return how much of each stretch of time all timelines cover together, in nanoseconds."""
    total = np.zeros(len(begin_ns))
    for timeline in timelines:
        total += covered(begin_ns, end_ns, timeline.start_ns, timeline.end_ns)
    return total


def _device_timelines(path: Path, info: RunInfo) -> list[Timeline] | None:
    """Return what kept the device's CPUs from its work; None if nothing was recorded."""
    noise, instrument = info.noise, info.instrument
    if noise is None or instrument is None or layout.NOISE not in info.files:
        return None
    if noise.events is None and instrument.stalls.dut is None:
        return None
    content = verified(path, info, layout.NOISE)
    timelines = read_timelines(content, str(path / layout.NOISE)).get("dut", [])
    return [timeline.without(noise.own_work.dut) for timeline in timelines]


def _device_cpus(info: RunInfo) -> list[str]:
    cpus = {} if info.instrument is None else info.instrument.cpus
    return cpus.get("DuT", "").split(",")


def _of_watched(path: Path) -> TimeTaken:
    file, table = path / layout.WATCHED, path / layout.NOISE
    record = read_record(
        read_file(path, layout.WATCHED, most_bytes=MOST_RECORD_BYTES),
        WatchedRecord,
        file,
        newest=WATCHED_FORMAT,
    )
    cpus, duration_ns = [str(cpu) for cpu in record.cpus], round(record.duration_s * 1e9)
    if not cpus or duration_ns <= 0:
        raise RunCorruptError(
            f"{file}: expected CPUs and a duration, got {len(cpus)} CPUs, {duration_ns} ns",
            code="interrupts-empty",
        )
    try:
        content = read_file(path, layout.NOISE, most_bytes=MOST_NOISE_BYTES)
        timelines = read_timelines(content, str(table)).get("watch", [])
    except FileNotFoundError:
        raise RunCorruptError(f"{table}: missing", code="interrupts-missing") from None
    begin_ns = min((int(each.start_ns[0]) for each in timelines if len(each.start_ns)), default=0)
    return _taken(timelines, cpus, begin_ns, begin_ns + duration_ns)


def _taken(
    timelines: Sequence[Timeline], cpus: Sequence[str], begin_ns: int, end_ns: int
) -> TimeTaken:
    watched = tuple(dict.fromkeys(cpus))
    inside = [timeline.between(begin_ns, end_ns) for timeline in timelines]
    # CPUs on which nothing happened have no timeline, and count.
    edges = np.linspace(begin_ns, end_ns, _SLICES + 1).astype(np.int64)
    total = _covered(inside, edges[:-1], edges[1:])
    seconds = max(1, end_ns - begin_ns) / _SLICES / 1e9
    whole_ns = (end_ns - begin_ns) * len(watched) // max(1, len(inside))
    return TimeTaken(
        watched, end_ns - begin_ns, total / seconds / len(watched), causes_of(inside, whole_ns)
    )
