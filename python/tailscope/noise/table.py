"""``noise.parquet``: what kept CPUs from their work, on the clock of the packets.

A row is an interval. ``kind`` says who saw it:

- ``stall``: a polling loop did not run, in full;
- ``cause``: a piece of time with its cause; of one side and CPU they do not overlap;
- ``injected``: made on purpose, by a device of known truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.analysis import load_ticks
from tailscope.exceptions import RunCorruptError, RunError
from tailscope.noise.attribution import blocked_by
from tailscope.noise.timeline import Timeline, make_timeline
from tailscope.store import layout
from tailscope.store.reader import read_table, verified

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.analysis import Clock
    from tailscope.noise.attribution import Blocked
    from tailscope.noise.events import Events
    from tailscope.store.records.run import RunInfo

    Integers = NDArray[np.int64]
    Texts = NDArray[np.object_]

__all__ = ["DISTURBANCES", "SideNoise", "columns", "read_blocked", "read_timelines", "side_noise"]

DISTURBANCES = ("tlb", "call", "reschedule", "busy", "fault")
"""What ``--disturb`` can do, in the order of the data plane's numbers."""

_STALL, _CAUSE, _INJECTED = "stall", "cause", "injected"


_TEXTS = ("source", "kind", "cause", "detail")
_NUMBERS = ("cpu", "event", "start_ns", "duration_ns")
_COLUMNS = ("source", "cpu", "kind", "cause", "detail", "event", "start_ns", "duration_ns")


def _empty_texts() -> dict[str, list[Texts]]:
    return {name: [] for name in _TEXTS}


def _empty_numbers() -> dict[str, list[Integers]]:
    return {name: [] for name in _NUMBERS}


@dataclass(frozen=True)
class NoiseRows:
    """Rows of ``noise.parquet``, as pieces of columns.

    Attributes
    ----------
    texts : dict of str to list of ndarray of object
    numbers : dict of str to list of ndarray of int64
    """

    texts: dict[str, list[Texts]] = field(default_factory=_empty_texts)
    numbers: dict[str, list[Integers]] = field(default_factory=_empty_numbers)

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
        """Add a row for each interval; what is no array is the same in all of them."""
        texts = {"source": source, "kind": kind, "cause": cause, "detail": detail}
        numbers = {"cpu": cpu, "event": event, "start_ns": start, "duration_ns": end - start}
        for name, text in texts.items():
            self.texts[name].append(np.broadcast_to(np.asarray(text, object), len(start)))
        for name, number in numbers.items():
            self.numbers[name].append(np.broadcast_to(np.asarray(number, np.int64), len(start)))

    def add_timeline(self, source: str, timeline: Timeline) -> None:
        """Add a row for each piece of a CPU's time that has a cause."""
        causes = np.array([*timeline.causes, ""], object)
        details = np.array([*timeline.details, ""], object)
        self.add(
            source,
            timeline.cpu,
            _CAUSE,
            timeline.start_ns,
            timeline.end_ns,
            cause=causes[timeline.cause[timeline.event]],
            detail=details[timeline.detail[timeline.event]],
            event=timeline.event,
        )


@dataclass(frozen=True)
class SideNoise:
    """What kept one side from its work.

    Attributes
    ----------
    source : str
        ``dut`` or ``instrument``.
    timelines : list of Timeline
        One for each CPU.
    rows : NoiseRows
        But for those of the timelines.
    untold_switches : dict of int to int
        For each CPU whose events were recorded, switches that its kernel did not tell.
    """

    source: str
    timelines: list[Timeline]
    rows: NoiseRows
    untold_switches: dict[int, int]

    def stalls_ns(self) -> tuple[Integers, Integers]:
        """Start and duration of each stall of its loops."""
        stalls = np.concatenate(self.rows.texts["kind"]) == _STALL
        start, lasted = (
            np.concatenate(self.rows.numbers[name]) for name in ("start_ns", "duration_ns")
        )
        return start[stalls], lasted[stalls]


def side_noise(
    source: str,
    cpus: Sequence[int],
    clock: Clock,
    folder: Path | None,
    events: Sequence[Events] | None,
    *,
    within_ns: tuple[int, int] | None = None,
) -> SideNoise:
    """Join what the loops of a side saw with what the kernel told.

    Parameters
    ----------
    source : str
    cpus : sequence of int
    clock : Clock
    folder : Path or None
        Where its loops wrote down their stalls; None for a side without.
    events : sequence of Events or None
        For each CPU; None where they were not recorded.
    within_ns : tuple of int, optional
        Only what began between these two times.
    """
    rows = NoiseRows()
    *stalls, on_cpu = _intervals(folder, "stall", "stall_lcore", clock, within_ns)
    *injected, _ = _intervals(folder, "injected", None, clock, within_ns)
    *disturbed, kinds = _intervals(folder, "disturbed", "disturbed_kind", clock, within_ns)
    first = cpus[0] if cpus else 0
    rows.add(source, on_cpu, _STALL, *stalls)
    rows.add(source, first, _INJECTED, *injected, cause="stall")
    names = np.array(DISTURBANCES, object)[kinds] if len(kinds) else np.zeros(0, object)
    rows.add(source, first, _INJECTED, *disturbed, cause=names)
    timelines = []
    for at, cpu in enumerate(dict.fromkeys(cpus)):
        here = on_cpu == cpu
        none = np.zeros(0, np.int64)
        own = (injected[0], injected[1]) if cpu == first else (none, none)
        told = None if events is None else events[at]
        timeline = make_timeline(cpu, (stalls[0][here], stalls[1][here]), own, told)
        timelines.append(timeline)
    untold = {of_cpu.cpu: of_cpu.untold_switches for of_cpu in events or ()}
    return SideNoise(source, timelines, rows, untold)


def columns(sides: Sequence[SideNoise]) -> dict[str, pa.Array | Integers]:
    """All rows in order of time, as Arrow takes them.

    Parameters
    ----------
    sides : sequence of SideNoise
    """
    from tailscope.arrow import strings

    rows = NoiseRows()
    for side in sides:
        for name, texts in side.rows.texts.items():
            rows.texts[name] += texts
        for name, numbers in side.rows.numbers.items():
            rows.numbers[name] += numbers
        for timeline in side.timelines:
            rows.add_timeline(side.source, timeline)
    none = np.zeros(0, np.int64)
    order = np.argsort(np.concatenate([none, *rows.numbers["start_ns"]]), kind="stable")
    made: dict[str, pa.Array | Integers] = {}
    for name in _COLUMNS:
        if name in _TEXTS:
            text = np.concatenate([none.astype(object), *rows.texts[name]])
            made[name] = strings(text[order].tolist()).dictionary_encode()
        else:
            made[name] = np.concatenate([none, *rows.numbers[name]])[order]
    return made


def read_blocked(run: Path, info: RunInfo) -> Blocked:
    """Read back when the CPUs of both sides of a run could not work.

    Parameters
    ----------
    run : Path
        A run directory.
    info : RunInfo
        Its ``run.json``.

    Raises
    ------
    RunError
        If nobody has recorded that.
    """
    if info.noise is None or layout.NOISE not in info.files:
        raise RunError(
            f"{run}: no {layout.NOISE}: no noise was recorded in this run",
            hint="captures show when packets were delayed, not why: measure with `tailscope run`,"
            " or pass what was recorded beside them: --interrupts, --trace",
        )
    sides = read_timelines(verified(run, info, layout.NOISE), str(run / layout.NOISE))
    return blocked_by(
        sides.get("dut", []), sides.get("instrument", []), own_work=info.noise.own_work
    )


def read_timelines(content: bytes, name: str) -> dict[str, list[Timeline]]:
    """Read the timelines of both sides back, by source.

    Parameters
    ----------
    content : bytes
        Of ``noise.parquet``.
    name : str
        What it is called in errors.

    Raises
    ------
    RunCorruptError
        If the file has other columns.
    """
    from tailscope.arrow import values

    table = read_table(content)
    if missing := [name for name in _COLUMNS if name not in table.column_names]:
        raise RunCorruptError(
            f"{name}: expected columns {', '.join(_COLUMNS)}, got no {missing[0]}"
        )
    texts = {name: _coded(table[name]) for name in _TEXTS}
    numbers = {name: values(table[name]) for name in _NUMBERS}
    found: dict[str, list[Timeline]] = {}
    for code, source in enumerate(texts["source"].names):
        own = (texts["source"].codes == code) & texts["kind"].are(_CAUSE)
        for cpu in np.unique(numbers["cpu"][own]).tolist():
            rows = np.flatnonzero(own & (numbers["cpu"] == cpu))
            found.setdefault(source, []).append(_read_timeline(cpu, rows, texts, numbers))
    return found


class _Coded(NamedTuple):
    """A column of texts: the code of each row, and the text of each code."""

    codes: Integers
    names: list[str]

    def are(self, name: str) -> NDArray[np.bool_]:
        """Which rows have a text."""
        place = self.names.index(name) if name in self.names else -1
        found: NDArray[np.bool_] = self.codes == place
        return found


def _coded(column: pa.ChunkedArray) -> _Coded:
    import pyarrow as pa

    from tailscope.arrow import values

    array = column.combine_chunks()
    if not isinstance(array, pa.DictionaryArray):
        array = array.dictionary_encode()
    return _Coded(values(array.indices).astype(np.int64), array.dictionary.to_pylist())


def _read_timeline(
    cpu: int, rows: Integers, texts: Mapping[str, _Coded], numbers: Mapping[str, Integers]
) -> Timeline:
    start = numbers["start_ns"][rows].astype(np.int64)
    # Events that have no piece left have no row: number the others anew.
    _, first, event = np.unique(numbers["event"][rows], return_index=True, return_inverse=True)
    causes, details = texts["cause"], texts["detail"]
    return Timeline(
        cpu,
        start,
        start + numbers["duration_ns"][rows].astype(np.int64),
        event.reshape(-1),
        causes.codes[rows[first]],
        details.codes[rows[first]],
        causes.names,
        details.names,
    )


def _intervals(
    folder: Path | None,
    name: str,
    more: str | None,
    clock: Clock,
    within_ns: tuple[int, int] | None,
) -> tuple[Integers, Integers, Integers]:
    """Starts and ends in ns, both converted from ticks: what touches in ticks touches in ns.

    And one more array of the same length.
    """
    ticks = _load(folder, f"{name}_start_tsc")
    start = clock.all_at_ns(ticks)
    end = clock.all_at_ns(ticks + _load(folder, f"{name}_duration_tsc"))
    kept = np.ones(len(start), bool)
    if within_ns is not None:
        kept = (start >= within_ns[0]) & (start < within_ns[1])
    others = np.zeros(len(start), np.int64) if more is None else _load(folder, more)
    return start[kept], end[kept], others[kept]


def _load(folder: Path | None, name: str) -> Integers:
    """An array of a recording; empty where there is none."""
    if folder is None or not (folder / f"{name}.npy").exists():
        return np.zeros(0, np.int64)
    return np.asarray(load_ticks(folder, name), np.int64)
