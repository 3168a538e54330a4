"""The figures of one pair for a person: a table, or one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.cli.view import View
from tailscope.store.records.plan import AnalysisPlan
from tailscope.units import counted
from tailscope.words.figures import (
    BOUND_NOTE,
    NOTHING,
    count_rows,
    energy_rows,
    heading,
    instrument_rows,
    latency_rows,
    latency_word,
    of_several,
    provenance,
)
from tailscope.words.flows import (
    GROUP_HEADER,
    group_notes,
    group_rows,
    loss_run_text,
    tail_of,
)
from tailscope.words.levels import note_of, stop_text
from tailscope.words.neighbours import unusable_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tailscope.engine.analysis import Analysis, Group
    from tailscope.experiment.run.pair import Figures
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run
    from tailscope.words.figures import Row

_MOST_GROUPS = 20
_MOST_RUNS = 3
_USUAL = View()
_HEADER = ("value", "95 % interval", "beyond")
_ALWAYS = ("sent", "matched", "lost")
"""Counts that are shown even where they are zero."""
_DETAILS = (
    *("packets before", "packets behind", "transfer rate", "mean ", "gap in", "burst to"),
    *("floor", "departure error", "stalls of"),
)
"""Beginnings of rows that are shown with `-v` only."""
_ORIGIN_DETAILS = ("cores", "matching", "clock", "floor", "span", "buckets", "power")


def print_table(
    analysis: Analysis | Figures | Run,
    about: RunInfo | AnalysisPlan,
    written: Iterable[Path | None] = (),
    view: View = _USUAL,
    protocols: Sequence[Group] = (),
) -> None:
    """Print the figures of one pair on standard output: the answer, then a table.

    Packets of several `protocols` are not one median.
    """
    summary = analysis.summary
    info = None if isinstance(about, AnalysisPlan) else about
    if info is not None and (doubt := unusable_text(info)):
        view.say(f"{doubt}.", "warning")
    view.say(heading(summary, protocols))
    print()
    latencies = latency_rows(summary) if summary["count"] else []
    counts = count_rows(summary)
    instrument = [] if info is None else [*instrument_rows(summary, info), *energy_rows(info)]
    if not view.verbose:
        latencies, counts = _without_bounds(latencies), _important(counts)
        instrument = _important(instrument)
    has_bounds = any(row.label.endswith("*") for row in latencies)
    notes = [BOUND_NOTE] if has_bounds else []
    if apart := of_several(protocols):
        notes.append(f"quantiles of {', '.join(group.name for group, _ in apart)} together")
    header = (f"{latency_word(summary)}, packets", *_HEADER)
    view.print_table(header, [latencies, counts, instrument], ("beyond",), notes)
    for name, value in provenance(summary, about).items():
        if view.verbose or name not in _ORIGIN_DETAILS:
            view.say_named(name, value)
    if info is not None:
        from tailscope.verdict.trust import trust_of

        if trust := trust_of(summary, info).text:
            view.say_named("trust", trust)
    for folder in filter(None, written):
        view.say_named("written", str(folder))
    for warning in [*(() if info is None else info.warnings), *analysis.warnings]:
        note = note_of(warning)
        if note is None:
            view.say_named("warning", warning)
        else:
            view.say_named("note", warning if view.verbose else note)
    if info is not None and (stop := stop_text(info)):
        view.say_named("warning", stop)
    for reason in () if info is None else info.partial:
        view.say_named("partial", reason)


def print_groups(figures: Figures, asked: Sequence[str], view: View) -> None:
    """Print the figures of groups of packets, and runs of lost ones.

    What nobody asked for is printed if there are several groups: they may not be one median.
    """
    for by, groups in figures.groups.items():
        if by not in asked and len(groups) < 2:
            continue
        print()
        shown = groups if view.verbose else groups[:_MOST_GROUPS]
        rows = group_rows(shown, tail_of(groups))
        notes = group_notes(groups, len(shown))
        view.print_table((by, *GROUP_HEADER), [rows], ("share of the tail",), notes)
    for run in figures.loss_runs[: None if view.verbose else _MOST_RUNS]:
        view.say_named("lost in a row", loss_run_text(run, figures.first_ns))


def _without_bounds(rows: Sequence[Row]) -> list[Row]:
    """Leave out all bounds but the first: packets beyond them are the same few."""
    bounds = [row for row in rows if row.label.endswith("*")]
    return [row for row in rows if row not in bounds[1:]]


def _important(rows: Iterable[Row]) -> list[Row]:
    """Leave out details, and what there is none of."""
    return [
        row
        for row in rows
        if row.label in _ALWAYS
        or (row.value not in ("0", NOTHING) and not row.label.startswith(_DETAILS))
    ]


def one_line(name: str, analysis: Analysis | Figures | Run, protocols: Sequence[Group] = ()) -> str:
    """Say the most important figures of one pair on one line, and whether there are warnings."""
    warnings = [warning for warning in analysis.warnings if note_of(warning) is None]
    said = f" {counted(len(warnings), 'warning')} (in --json)." if warnings else ""
    return f"{name}: {heading(analysis.summary, protocols)}{said}"
