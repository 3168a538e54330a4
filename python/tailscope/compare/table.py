"""A comparison as a table for people: what each run says itself, and what differs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailscope.compare.figures import LOST
from tailscope.compare.words import word_of
from tailscope.units import count_text, duration_text
from tailscope.words.figures import instrument_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.compare.compare import Comparison, FigureChange
    from tailscope.compare.figures import Figure
    from tailscope.compare.measured import RunFigures
    from tailscope.models.differences import Bounds

HEADER = ("figure", "A", "B", "difference", "95 % interval", "verdict")
_MISSING = "†"
_NO_END = "unbounded"
_MANY = 10
"""Times that something grew: from there on a percentage says nothing to anybody."""


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return a row for each figure, as `HEADER` names it."""
    return [_row(comparison, change) for change in comparison.findings]


def _row(comparison: Comparison, change: FigureChange) -> tuple[str, ...]:
    sides = comparison.sides
    name = change.figure.name
    if change.figure == LOST and any(sample.unsent for sample in sides.samples):
        name = "lost, unsent"
    return (
        name,
        _side(change.figure, change.baseline, sides.baseline),
        _side(change.figure, change.candidate, sides.candidate),
        _difference(change),
        _interval(change, _possible(comparison, change)),
        word_of(change),
    )


def _side(figure: Figure, compared: Bounds, runs: Sequence[RunFigures]) -> str:
    """Return a figure as the table of the run itself has it: the mean of several."""
    tables = [run.own[figure.name] for run in runs if figure.name in run.own]
    if len(tables) < len(runs):
        return _text(compared.value, figure.unit)
    least = sum(each.least_ns for each in tables) / len(tables)
    latency = sum(each.latency_ns for each in tables) / len(tables)
    text = instrument_text(least, latency)
    bounds = [each.bound_ns for each in tables if each.bound_ns is not None]
    if bounds:
        text = f"≥ {duration_text(min(bounds))}"
    return f"{text} {_MISSING}" if _counts_missing(figure, compared, runs) else text


def _counts_missing(figure: Figure, compared: Bounds, runs: Sequence[RunFigures]) -> bool:
    """Return whether packets that never came change a figure."""
    if figure.quantile is None or not any(run.never_came or run.unsent for run in runs):
        return False
    own = sum(run.own[figure.name].latency_ns for run in runs) / len(runs)
    return not math.isclose(own, compared.value, rel_tol=1e-3)


def never_came_note(comparison: Comparison) -> str:
    """Say how many packets never came, where they change a figure; else nothing."""
    sides = comparison.sides
    changed = any(
        _counts_missing(change.figure, compared, runs)
        for change in comparison.findings
        for compared, runs in (
            (change.baseline, sides.baseline),
            (change.candidate, sides.candidate),
        )
        if all(change.figure.name in run.own for run in runs)
    )
    if not changed:
        return ""
    counts = ", ".join(
        f"{name} {count_text(sum(run.never_came for run in runs))} never came and"
        f" {count_text(sum(run.unsent for run in runs))} were not sent"
        for name, runs in (("A", sides.baseline), ("B", sides.candidate))
    )
    return f"{_MISSING} of the packets that came; differences count the others as slowest: {counts}"


def lacking(comparison: Comparison) -> Iterator[str]:
    """Say why there is no estimate, or what would not have been noticed."""
    for change in comparison.findings:
        if change.lacks is not None:
            yield f"{change.figure.name}: {word_of(change)}: {change.lacks}"
        elif change.verdict == "no difference" and math.isfinite(change.noticeable or math.inf):
            noticeable = _text(change.noticeable or 0, change.figure.unit)
            yield f"{change.figure.name}: a difference below {noticeable} would not be noticed"


def _difference(change: FigureChange) -> str:
    if change.difference is None:
        return ""
    text = _signed(change.difference.value, change.figure.unit)
    relative = change.relative
    if relative is None or change.figure.unit == "share" or abs(relative) > _MANY:
        return text
    return f"{text} ({100 * relative:+.2g} %)" if abs(relative) < 1 else text


def _possible(comparison: Comparison, change: FigureChange) -> tuple[float, float]:
    """Return between which ends a difference can lie at all.

    No packet is faster than the fastest, no share is more than all, and no rate is below zero.
    """
    baseline, candidate, sides = change.baseline, change.candidate, comparison.sides
    if change.figure.unit == "share":
        return -baseline.high, max(0.0, 1 - baseline.low)
    fastest = min(sample.fastest_ns for sample in sides.samples)
    least = fastest if change.figure.is_time else 0.0
    off = sides.off(change.figure)
    return least - baseline.high - off, candidate.high - least + off


def _interval(change: FigureChange, possible: tuple[float, float]) -> str:
    if change.difference is None:
        return ""
    value, low, high = change.difference
    ends = (max(low, min(value, possible[0])), min(high, max(value, possible[1])))
    if math.isinf(ends[0]) and math.isinf(ends[1]):
        return _NO_END
    return " to ".join(_signed(end, change.figure.unit) for end in ends)


def _signed(value: float, unit: str) -> str:
    if math.isinf(value):
        return _NO_END
    return f"+{_text(value, unit)}" if value > 0 else _text(value, unit)


def _text(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "-"
    if unit == "ns":
        return duration_text(value)
    if unit == "share":
        # Adding 0 takes the sign from a zero.
        return f"{100 * value + 0:.9f}".rstrip("0").rstrip(".") + " %"
    return f"{value:,.2f} packets/s"
