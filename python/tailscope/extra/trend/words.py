"""The findings on trends, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailscope.units import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from tailscope.compare.figures import Figure
    from tailscope.extra.trend.changes import Change, Finding, Trend
    from tailscope.extra.trend.series import Step

HEADER = ("metric", "since", "before", "after", "change, 95 % interval", "p")
_LONGEST_NAME = 16
_DIGITS = 4


def span(trend: Trend) -> str:
    """Say of how many steps an experiment consists, from when to when."""
    steps = trend.experiment.steps
    runs = sum(len(step.rows) for step in steps)
    of_runs = "" if runs == len(steps) else f" of {counted(runs, 'run')}"
    return f"{counted(len(steps), 'step')}{of_runs}, {steps[0].name} to {steps[-1].name}"


def headline(trend: Trend) -> str:
    """Say in a sentence what became of a figure."""
    name, series = trend.series.figure.name, trend.series
    if trend.is_short:
        few = counted(len(series.steps), "step")
        return f"{name}: {few}; {trend.fewest} are needed to see a change"
    if not trend.changes:
        return f"{name}: no change in {len(series.steps)} steps"
    last = trend.changes[-1]
    return f"{name}: {_change_text(last)} since {series.steps[last.at].name}"


def change_rows(trend: Trend) -> Iterator[tuple[str, ...]]:
    """Rows of a table below `HEADER`: change points, or one that there is none."""
    series = trend.series
    name = series.figure.name
    if not trend.changes:
        said = f"{len(series.steps)} of {trend.fewest} steps" if trend.is_short else "no change"
        last = [value_text(each.as_is.value, series.figure) for each in series.readings[-1:]]
        yield name, said, "-", *(last or "-"), "-", "-"
    for change in trend.changes:
        yield (
            name,
            _cut(series.steps[change.at].name),
            value_text(change.before, series.figure),
            value_text(change.after, series.figure),
            _change_text(change),
            f"{change.p:.2g}",
        )


def notes(trends: Sequence[Trend]) -> Iterator[str]:
    """Yield what a reader must know of the change points of an experiment."""
    found = [
        (trend.series.steps[change.at], change) for trend in trends for change in trend.changes
    ]
    for step in sorted({step.runs[0]: step for step, _ in found}.values(), key=_written):
        others = dict.fromkeys(
            other for one, change in found if one is step for other in change.others
        )
        said = [
            f"{name.replace('_', ' ')} changed, too: {before} → {after}"
            for name, before, after in others
        ]
        yield "; ".join([f"since {step.name}: {step.runs[0]} is the first run", *said])
    for trend in trends:
        series = trend.series
        for change in trend.changes:
            if not change.is_clear:
                yield (
                    f"{series.figure.name} since {series.steps[change.at].name}: no more than the"
                    " intervals of the runs, or the instrument, allow"
                )
        if series.left_out:
            left_out = counted(len(series.left_out), "run")
            yield f"{series.figure.name}: left out: {left_out}, such as {series.left_out[0]}"
    if not trends[0].experiment.is_told:
        yield (
            "nothing tells by which device and on which machine these captures were made: steps may"
            " be of different ones; `tailscope analyze --about FILE` tells them apart"
        )


def finding_text(finding: Finding) -> str:
    """Say in a sentence what became of a limit."""
    if finding.excess is None or not math.isfinite(finding.excess.value):
        return finding.reason
    value, low, high = finding.excess
    side = "beyond" if value > 0 else "below"
    figure = finding.limit.figure
    ends = " to ".join(_signed(end, figure) for end in (low, high))
    return f"{value_text(abs(value), figure)} {side} the limit ({ends}); {finding.reason}"


def value_text(value: float, figure: Figure) -> str:
    """A figure with four digits, and its unit."""
    if not math.isfinite(value):
        return "unbounded"
    if figure.unit == "share":
        return f"{value:.3%}"
    rounded = value if not value else round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    number, _, unit = duration_text(rounded).partition(" ")
    return f"{number[: _DIGITS + 1 + number.startswith('-')].rstrip('.')} {unit}"


def _signed(value: float, figure: Figure) -> str:
    return ("+" if value > 0 else "") + value_text(value, figure)


def _change_text(change: Change) -> str:
    """Say how much larger a figure is in percent, with the 95 % interval."""
    if not change.before:
        return "from nothing"
    value, low, high = (
        f"{each / change.before:+.1%}" if math.isfinite(each) else "unbounded"
        for each in change.difference
    )
    return f"{value} ({low} to {high})"


def _written(step: Step) -> datetime:
    return step.written


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
