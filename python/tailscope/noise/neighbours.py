"""The intervals in which neighbours held a device's CPUs, by the best recording of them.

Kernel events say it exactly. Without them the run delay of the device's threads says how long these
waited, and the stalls of the device's loops say when, where it has such.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.noise.events import TASK, WORKER
from tailscope.noise.held import HeldIntervals, longest_within
from tailscope.noise.intervals import union
from tailscope.noise.timeline import UNNAMED
from tailscope.store.parquet import TableFile
from tailscope.store.records.run import NeighbourProgram, NeighboursRecord
from tailscope.store.tables import NEIGHBOURS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from tailscope.noise.neighbour_sampler import RecordedNeighbours, RunDelay
    from tailscope.noise.timeline import Timeline
    from tailscope.store.records.run import KnownFrom

    Integers = NDArray[np.int64]


_WORKERS = (f"{WORKER}/", f"{WORKER}: ")
"""Prefixes of kernel threads that come and go."""
_PID = re.compile(r"\bpid (\d+)")
_MOST_PROGRAMS = 5


class Held(NamedTuple):
    """The neighbours on a device's CPUs, and the intervals in which they held them."""

    intervals: HeldIntervals
    record: NeighboursRecord


def held_by_neighbours(
    recorded: RecordedNeighbours,
    mark: str,
    cpus: Collection[int],
    *,
    timelines: Sequence[Timeline] | None,
    stalls: tuple[Integers, Integers] | None,
) -> Held:
    """Determine when neighbours held the CPUs of a device."""
    programs = recorded.programs_on(cpus)
    delays = recorded.delays.get(mark, [])
    windows = held_windows(delays, recorded.most_ns(cpus))
    if timelines is not None:
        intervals, tasks = held_by_tasks(timelines, recorded.platform, windows)
        # A program that ran between two scans is known by the names of its threads only.
        return _held("events", intervals, programs or tasks, recorded)
    if not delays:
        return unknown_neighbours("this kernel does not say how long threads wait for a CPU")
    if stalls is None:
        return _held("run delay", windows, programs, recorded)
    start, end = union(*stalls)
    chosen = longest_within(windows, start, end, end - start)
    return _held("stalls", HeldIntervals.whole(start[chosen], end[chosen]), programs, recorded)


def unknown_neighbours(reason: str) -> Held:
    """Return a result that says why neighbours are unknown."""
    record = NeighboursRecord(
        known_from=None,
        unknown_because=reason,
        held_ns=0,
        watched_ns=0,
        programs=(),
        sampling_ns=0,
    )
    return Held(HeldIntervals.none(), record)


def read_held(content: bytes, name: str) -> HeldIntervals:
    """Read ``neighbours.parquet``, which errors call `name`."""
    with TableFile(content, name, NEIGHBOURS) as file:
        columns = file.read(NEIGHBOURS.names)
    return HeldIntervals(
        **{column: columns[column].astype(np.int64) for column in NEIGHBOURS.names}
    )


def held_by_tasks(
    timelines: Sequence[Timeline], platform: Collection[int], windows: HeldIntervals
) -> tuple[HeldIntervals, Counter[str]]:
    """Return the intervals in which neighbours ran on CPUs, and each program's time."""
    programs: Counter[str] = Counter()
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for timeline in timelines:
        code = timeline.cause.astype(np.int64) * len(timeline.details) + timeline.detail
        neighbours = [
            each
            for each in np.unique(code).tolist()
            if _is_neighbour(
                timeline.causes[each // len(timeline.details)],
                timeline.details[each % len(timeline.details)],
                platform,
            )
        ]
        pieces = np.isin(code, neighbours)[timeline.event]
        start, end = timeline.start_ns[pieces], timeline.end_ns[pieces]
        causes = timeline.cause[timeline.event[pieces]]
        for cause in np.unique(causes).tolist():
            of_cause = causes == cause
            name = timeline.causes[cause].removeprefix(TASK)
            programs[name] += int((end[of_cause] - start[of_cause]).sum())
        unnamed = timeline.of([UNNAMED])
        lasted = unnamed.end_ns - unnamed.start_ns
        chosen = longest_within(windows, unnamed.start_ns, unnamed.end_ns, lasted)
        starts += [start, unnamed.start_ns[chosen]]
        ends += [end, unnamed.end_ns[chosen]]
    return HeldIntervals.whole(np.concatenate(starts), np.concatenate(ends)), programs


def _is_neighbour(cause: str, detail: str, platform: Collection[int]) -> bool:
    if not cause.startswith(TASK) or cause.startswith(_WORKERS):
        return False
    pid = _PID.search(detail)
    return pid is None or int(pid[1]) not in platform


def held_windows(delays: Sequence[RunDelay], most_ns: int) -> HeldIntervals:
    """Return the windows between readings in which a device waited for its CPU.

    A wait is counted when it ends: it may have begun before the window did, and last longer. A
    window lasts until its reading is over, and the next one begins before that: whoever reads may
    lose the CPU in between.
    """
    if not delays:
        return HeldIntervals.none()
    begin_ns = np.array([delay.unix_ns for delay in delays], np.int64)
    end_ns = begin_ns + np.array([delay.reading_ns for delay in delays], np.int64)
    total = np.array([delay.waited_ns for delay in delays], np.int64)
    waited_ns: Integers = total[1:] - total[:-1]
    held_ns = waited_ns
    if (total_ns := int(waited_ns.sum())) > most_ns:
        held_ns = np.ceil(waited_ns * (most_ns / total_ns)).astype(np.int64)
    has = held_ns > 0
    return HeldIntervals(begin_ns[:-1][has], end_ns[1:][has], held_ns[has])


def _held(
    known_from: KnownFrom,
    intervals: HeldIntervals,
    programs: Counter[str],
    recorded: RecordedNeighbours,
) -> Held:
    record = NeighboursRecord(
        known_from=known_from,
        unknown_because=None,
        held_ns=int(intervals.held_ns.sum()),
        watched_ns=recorded.watched_ns,
        programs=tuple(
            NeighbourProgram(name=name, run_ns=ns)
            for name, ns in programs.most_common(_MOST_PROGRAMS)
            if ns
        ),
        sampling_ns=recorded.sampling_ns,
    )
    return Held(intervals, record)
