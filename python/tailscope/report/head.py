"""The top of a page about a run: its name and date, its answer, and what that is worth."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

from tailscope.store.info import about_of, foreign_text, neighbours_of
from tailscope.store.records.plan import AnalysisPlan, ImportPlan, MeasurementPlan
from tailscope.units import counted, percentile_name, share_text
from tailscope.verdict.trust import stalls_from
from tailscope.words.figures import (
    conclusion_doubts,
    device_text,
    heading,
    platform_text,
    provenance,
)
from tailscope.words.levels import note_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.store.run import Run

Level = Literal["note", "warning", "error"]

_LEVELS: tuple[Level, ...] = ("error", "warning", "note")
_SETTING = ("wire", "traffic", "direction")
_MOST_ROWS = 4
"""Rows of the provenance that say what was measured in a line."""
_CLOCKED_NS = 946_684_800 * 10**9
"""The year 2000: earlier stamps do not say when captures were made."""
_STALLS_SHOW = "the instrument's own stalls show"
"""What the line below a tainted figure says as well."""


class Remark(NamedTuple):
    """A sentence that a reader of the figures must know, and the runs of which it is true."""

    level: Level
    text: str
    runs: str = ""
    """Names of these runs; empty where there is one only."""


def title_of(run: Run) -> str:
    """Return the name of a run, and what was measured."""
    plan = run.info.plan
    if isinstance(plan, MeasurementPlan):
        return f"{run.label}: {device_text(plan)} on {platform_text(plan)}"
    what = about_of(run.info).dut or foreign_text(run.info) or "captures"
    return f"{run.label}: {what}"


def date_of(run: Run) -> str:
    """Say when a run was measured or captured; of imports, when they were written."""
    info, seconds = run.info, run.rate["pre"].start_ns
    word, unix_ns = "measured", info.clock.unix_ns
    if isinstance(info.plan, ImportPlan):
        word, unix_ns = "imported", None
    elif isinstance(info.plan, AnalysisPlan):
        if not len(seconds) or int(seconds[0]) < _CLOCKED_NS:
            return "captured at an unknown time"
        word, unix_ns = "captured", int(seconds[0])
    return f"{word} {date_text(unix_ns or info.written_unix_ns)}"


def date_text(unix_ns: int) -> str:
    """Write a moment to the minute."""
    return f"{datetime.fromtimestamp(unix_ns // 10**9, UTC):%Y-%m-%d %H:%M} UTC"


def setting_of(run: Run) -> str:
    """Say in a line what was measured; of captures the names of the files without their folders."""
    rows = provenance(run.summary, run.info)
    plan = run.info.plan
    if isinstance(plan, AnalysisPlan):
        files = " and ".join(PurePath(rows.pop(side)).name for side in ("pre", "post"))
        return " · ".join((files, f"matched {rows['matching']}"))
    if isinstance(plan, MeasurementPlan):
        rows = {name: rows[name] for name in _SETTING if name in rows}
    return " · ".join(f"{name} {value}" for name, value in islice(rows.items(), _MOST_ROWS))


def answer_of(run: Run) -> str:
    """Say the median and the tail, and first for what they cannot be used."""
    neighbours = neighbours_of(run.info)
    unusable = () if neighbours is None else neighbours.unusable
    doubt = f"Not usable for {', '.join(unusable)}: the machine was busy. " if unusable else ""
    return doubt + heading(run.summary)


def taint_of(run: Run) -> str:
    """Say how many samples stalls of the instrument have spoilt, and from where on that shows."""
    tainted, matched = (int(run.summary.get(name) or 0) for name in ("tainted", "count"))
    if not tainted:
        return ""
    start = stalls_from(run.summary)
    effect = (
        "they change no percentile noticeably"
        if start is None
        else f"they show from {percentile_name(start)} on, where the truth lies between both ends"
    )
    share = share_text(tainted / matched)
    samples = f"{counted(tainted, 'sample')} ({share})"
    return f"{samples} may be delayed by stalls of the instrument: {effect}."


def remarks_on(runs: Sequence[Run]) -> list[Remark]:
    """Return what a reader of several runs must know, the gravest first, and each sentence once."""
    labels: dict[Remark, list[str]] = {}
    for run in runs:
        for remark in _remarks_of(run):
            labels.setdefault(remark, []).append(run.label)
    named = [
        remark._replace(runs=", ".join(names) if len(runs) > 1 else "")
        for remark, names in labels.items()
    ]
    return sorted(named, key=lambda remark: _LEVELS.index(remark.level))


def _remarks_of(run: Run) -> list[Remark]:
    doubts = (*run.info.warnings, *run.warnings, *conclusion_doubts(run.kept))
    remarks = [Remark("error", f"Partial result: {why}") for why in run.info.partial]
    return remarks + [
        Remark("warning", text) if (note := note_of(text)) is None else Remark("note", note)
        for text in doubts
        if _STALLS_SHOW not in text
    ]


def counts_of(remarks: Sequence[Remark]) -> str:
    """Count remarks by their level."""
    counts = Counter(remark.level for remark in remarks)
    return ", ".join(counted(counts[level], level) for level in _LEVELS if counts[level])
