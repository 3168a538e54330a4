"""``noise.parquet``: the intervals that kept CPUs from their work, on the clock of the packets.

A row is an interval. ``kind`` says who saw it:

- ``stall``: a polling loop did not run, in full;
- ``cause``: a piece of time with its cause; of one side and CPU they do not overlap;
- ``injected``: made on purpose, by a device of known truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import load_ticks
from tailscope.engine.columns import Texts, values
from tailscope.exceptions import RunError
from tailscope.noise.attribution import blocked_by
from tailscope.noise.timeline import Timeline, make_timeline
from tailscope.store import layout
from tailscope.store.files import MOST_NOISE_BYTES, is_there, read_file
from tailscope.store.parquet import TableFile
from tailscope.store.reader import verified
from tailscope.store.tables import NOISE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Clock
    from tailscope.engine.columns import Column
    from tailscope.noise.attribution import Blocked
    from tailscope.noise.events import Events
    from tailscope.store.records.run import RunInfo

    Integers = NDArray[np.int64]

DISTURBANCES = ("tlb", "call", "reschedule", "busy", "fault")
"""Disturbances of ``--disturb``, in the order of the data plane's numbers."""

_STALL, _CAUSE, _INJECTED = "stall", "cause", "injected"


_TEXTS = ("source", "kind", "cause", "detail")
_NUMBERS = ("cpu", "event", "start_ns", "duration_ns")
_COLUMNS = ("source", "cpu", "kind", "cause", "detail", "event", "start_ns", "duration_ns")


class _Places:
    """Texts that several columns share by index."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """Return the texts by index."""
        return [*self._places]

    def codes(self, texts: Texts) -> NDArray[np.int32]:
        """Return the index of each row's text."""
        names = [name or "" for name in texts.names]
        own = [self._places.setdefault(name, len(self._places)) for name in names]
        codes: NDArray[np.int32] = np.array(own, np.int32)[texts.places]
        return codes


class _Texts:
    """A column of texts that grows piece by piece, with few different texts."""

    def __init__(self) -> None:
        self._places = _Places()
        self._pieces = [np.zeros(0, np.int32)]

    def add(self, texts: str | Texts, rows: int) -> None:
        """Add rows; a text that is no column is the same in all of them."""
        if isinstance(texts, str):
            texts = Texts(np.zeros(rows, np.int32), [texts])
        self._pieces.append(self._places.codes(texts))

    def extend(self, other: _Texts) -> None:
        """Add the rows of another column."""
        self._pieces.append(self._places.codes(other.coded()))

    def coded(self) -> Texts:
        """Return the whole column."""
        return Texts(np.concatenate(self._pieces), self._places.names)


class _Numbers:
    """A column of numbers that grows piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[Integers] = [np.zeros(0, np.int64)]

    def add(self, numbers: int | Integers, rows: int) -> None:
        """Add rows; a number that is no column is the same in all of them."""
        self._pieces.append(np.broadcast_to(np.asarray(numbers, np.int64), rows))

    def extend(self, other: _Numbers) -> None:
        """Add the rows of another column."""
        self._pieces += other._pieces

    def whole(self) -> Integers:
        """Return the whole column."""
        return np.concatenate(self._pieces)


class NoiseRows:
    """The rows of ``noise.parquet``."""

    def __init__(self) -> None:
        self._texts = {name: _Texts() for name in _TEXTS}
        self._numbers = {name: _Numbers() for name in _NUMBERS}

    def add(
        self,
        source: str,
        cpu: int | Integers,
        kind: str,
        start: Integers,
        end: Integers,
        *,
        cause: str | Texts = "",
        detail: str | Texts = "",
        event: int | Integers = -1,
    ) -> None:
        """Add a row for each interval; a scalar value applies to all of them."""
        texts = {"source": source, "kind": kind, "cause": cause, "detail": detail}
        numbers = {"cpu": cpu, "event": event, "start_ns": start, "duration_ns": end - start}
        for name, text in texts.items():
            self._texts[name].add(text, len(start))
        for name, number in numbers.items():
            self._numbers[name].add(number, len(start))

    def add_timeline(self, source: str, timeline: Timeline) -> None:
        """Add a row for each piece of a CPU's time that has a cause."""
        self.add(
            source,
            timeline.cpu,
            _CAUSE,
            timeline.start_ns,
            timeline.end_ns,
            cause=Texts(timeline.cause[timeline.event], timeline.causes),
            detail=Texts(timeline.detail[timeline.event], timeline.details),
            event=timeline.event,
        )

    def extend(self, other: NoiseRows) -> None:
        """Add all rows of another."""
        for name, texts in self._texts.items():
            texts.extend(other._texts[name])
        for name, numbers in self._numbers.items():
            numbers.extend(other._numbers[name])

    def text(self, name: str) -> Texts:
        """Return a column of texts."""
        return self._texts[name].coded()

    def number(self, name: str) -> Integers:
        """Return a column of numbers."""
        return self._numbers[name].whole()


@dataclass(frozen=True)
class SideNoise:
    """The disturbances of one side."""

    source: str
    """One of ``dut`` and ``instrument``."""
    timelines: list[Timeline]
    """Timelines, one for each CPU."""
    rows: NoiseRows
    """Rows other than those of the timelines."""
    untold_switches: dict[int, int]
    """For each recorded CPU, the number of switches that its kernel did not report."""

    def stalls_ns(self) -> tuple[Integers, Integers]:
        """Start and duration of each stall of its loops."""
        stalls = self.rows.text("kind").are(_STALL)
        return self.rows.number("start_ns")[stalls], self.rows.number("duration_ns")[stalls]


def side_noise(
    source: str,
    cpus: Sequence[int],
    clock: Clock,
    folder: Path | None,
    events: Sequence[Events] | None,
    *,
    within_ns: tuple[int, int] | None = None,
    sends_over_links: bool = False,
) -> SideNoise:
    """Join the stalls of a side's loops with the kernel's events.

    Where loops send over kernel links, softirqs of packets in their stalls are named as that.
    """
    rows = NoiseRows()
    *stalls, on_cpu = _intervals(folder, "stall", "stall_lcore", clock, within_ns)
    *injected, _ = _intervals(folder, "injected", None, clock, within_ns)
    *disturbed, kinds = _intervals(folder, "disturbed", "disturbed_kind", clock, within_ns)
    first = cpus[0] if cpus else 0
    rows.add(source, on_cpu, _STALL, *stalls)
    rows.add(source, first, _INJECTED, *injected, cause="stall")
    rows.add(source, first, _INJECTED, *disturbed, cause=Texts(kinds, [*DISTURBANCES]))
    timelines = []
    for at, cpu in enumerate(dict.fromkeys(cpus)):
        is_on_cpu = on_cpu == cpu
        none = np.zeros(0, np.int64)
        own = (injected[0], injected[1]) if cpu == first else (none, none)
        recorded_events = None if events is None else events[at]
        seen = (
            (stalls[0][is_on_cpu], stalls[1][is_on_cpu])
            if _has(folder, "stall_start_tsc")
            else None
        )
        timeline = make_timeline(cpu, seen, own, recorded_events)
        if sends_over_links and seen is not None:
            timeline = timeline.handing_on(*seen)
        timelines.append(timeline)
    untold = {of_cpu.cpu: of_cpu.untold_switches for of_cpu in events or ()}
    return SideNoise(source, timelines, rows, untold)


def columns(sides: Sequence[SideNoise]) -> dict[str, Column]:
    """Return all rows in order of time."""
    rows = NoiseRows()
    for side in sides:
        rows.extend(side.rows)
        for timeline in side.timelines:
            rows.add_timeline(side.source, timeline)
    order = np.argsort(rows.number("start_ns"), kind="stable")
    return {
        name: rows.text(name)[order] if name in _TEXTS else rows.number(name)[order]
        for name in _COLUMNS
    }


def read_blocked(run: Path, info: RunInfo) -> Blocked:
    """Read back when the CPUs of both sides of a run could not work."""
    if info.noise is None or layout.NOISE not in info.files:
        raise RunError(
            f"{run}: no {layout.NOISE}: no noise was recorded in this run",
            code="no-noise",
            hint="captures show when packets were delayed, not why: measure with `tailscope run`,"
            " or pass what was recorded beside them: --interrupts, --trace",
        )
    clock = info.device_clock
    if clock is not None and (problem := clock.problem("the device")) is not None:
        raise RunError(
            f"{run}: causes cannot be told: {problem}",
            code="causes-unreadable",
            hint=f"{layout.NOISE} has what happened on the device, by its own clock",
        )
    return _blocked(verified(run, info, layout.NOISE), run, info)


def read_recorded(run: Path, info: RunInfo) -> Blocked | None:
    """Read the blocked intervals of an unfinished run; return None if they are unknown."""
    clock = info.device_clock
    if info.noise is None or not is_there(run, layout.NOISE):
        return None
    if clock is not None and clock.method is None:
        return None
    return _blocked(read_file(run, layout.NOISE, most_bytes=MOST_NOISE_BYTES), run, info)


def _blocked(content: bytes, run: Path, info: RunInfo) -> Blocked:
    assert info.noise is not None, "it was recorded"
    sides = read_timelines(content, str(run / layout.NOISE))
    return blocked_by(
        sides.get("dut", []),
        sides.get("instrument", []),
        own_work=info.noise.own_work,
        error_ns=info.clock_error_ns,
    )


def read_timelines(content: bytes, name: str) -> dict[str, list[Timeline]]:
    """Read the timelines of both sides back, by source."""
    causes, details = _Places(), _Places()
    pieces_of: dict[tuple[str, int], list[tuple[NDArray[np.generic], ...]]] = {}
    with TableFile(content, name, NOISE) as file:
        for rows in file.batches(_COLUMNS):
            texts = {name: cells for name, cells in rows.items() if isinstance(cells, Texts)}
            cause, detail = causes.codes(texts["cause"]), details.codes(texts["detail"])
            start, lasted, event, cpus = (
                values(rows[column]) for column in ("start_ns", "duration_ns", "event", "cpu")
            )
            is_cause = texts["kind"].are(_CAUSE)
            for code, source in enumerate(map(str, texts["source"].names)):
                own = is_cause & (texts["source"].places == code)
                for cpu in np.unique(cpus[own]).tolist():
                    at = np.flatnonzero(own & (cpus == cpu))
                    pieces = start[at], start[at] + lasted[at], event[at], cause[at], detail[at]
                    pieces_of.setdefault((source, cpu), []).append(pieces)
    timelines: dict[str, list[Timeline]] = {}
    for source, cpu in sorted(pieces_of):
        whole = map(np.concatenate, zip(*pieces_of.pop((source, cpu)), strict=True))
        made = _timeline(cpu, *whole, causes=causes.names, details=details.names)
        timelines.setdefault(source, []).append(made)
    return timelines


def _timeline(
    cpu: int,
    start_ns: Integers,
    end_ns: Integers,
    numbers: Integers,
    cause: NDArray[np.int32],
    detail: NDArray[np.int32],
    *,
    causes: list[str],
    details: list[str],
) -> Timeline:
    # Events without a remaining piece have no row: renumber the others.
    _, first, event = np.unique(numbers, return_index=True, return_inverse=True)
    return Timeline(
        cpu, start_ns, end_ns, event.reshape(-1), cause[first], detail[first], causes, details
    )


def _intervals(
    folder: Path | None,
    name: str,
    more: str | None,
    clock: Clock,
    within_ns: tuple[int, int] | None,
) -> tuple[Integers, Integers, Integers]:
    """Return starts, ends and one more array; ticks that touch stay in touch in nanoseconds.

    And one more array of the same length.
    """
    columns = [_load(folder, f"{name}_{column}_tsc") for column in ("start", "duration")]
    columns += [] if more is None else [_load(folder, more)]
    # What was cut off may have more of one than of another.
    shortest = min(map(len, columns))
    ticks, lasted, *rest = (column[:shortest] for column in columns)
    start, end = clock.all_at_ns(ticks), clock.all_at_ns(ticks + lasted)
    is_within = np.ones(len(start), bool)
    if within_ns is not None:
        is_within = (start >= within_ns[0]) & (start < within_ns[1])
    [others] = rest or [np.zeros(len(start), np.int64)]
    return start[is_within], end[is_within], others[is_within]


def _has(folder: Path | None, name: str) -> bool:
    return folder is not None and (folder / f"{name}.npy").exists()


def _load(folder: Path | None, name: str) -> Integers:
    """Load an array of a recording; empty if there is none."""
    if folder is None or not _has(folder, name):
        return np.zeros(0, np.int64)
    return np.asarray(load_ticks(folder, name), np.int64)
