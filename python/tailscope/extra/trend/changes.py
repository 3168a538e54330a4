"""Changes in the figures of experiments: where, by how much, and whether that is too much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.trend.points import change_points, fewest_values
from tailscope.models.differences import Bounds, difference
from tailscope.models.estimate import LEVEL
from tailscope.units import counted
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.compare.figures import Figure
    from tailscope.compare.limits import Limit
    from tailscope.extra.trend.series import Experiment, Series

_EACH_END = (1 - LEVEL) / 2
_NOTHING = Bounds(math.nan, -math.inf, math.inf)


@dataclass(frozen=True)
class Change:
    """A change point."""

    at: int
    """The first step of the series that is different, from 0."""
    p: float
    before: float
    after: float
    """The mean of the steps between this change point and its neighbours."""
    difference: Bounds
    """After less before, with the 95 % interval that runs of their own, and the differences from
    step to step, allow; it includes what the instrument's stalls leave open."""
    others: tuple[tuple[str, str, str], ...]
    """Other differences between before and after: name and both values."""

    @property
    def is_clear(self) -> bool:
        """True if the interval does not contain 0."""
        return self.difference.low > 0 or self.difference.high < 0

    def record(self, series: Series) -> dict[str, object]:
        """Return the change as JSON has it."""
        return {
            "step": series.steps[self.at].name,
            "first_run": series.steps[self.at].runs[0],
            "p": self.p,
            "before": self.before,
            "after": self.after,
            **_ends("difference", self.difference),
            "relative": self.difference.value / self.before if self.before else None,
            "is_clear": self.is_clear,
            "others": [
                {"name": name, "before": before, "after": after}
                for name, before, after in self.others
            ],
        }


@dataclass(frozen=True)
class Finding:
    """A judgement of a series against a limit."""

    limit: Limit
    outcome: Outcome
    excess: Bounds | None
    """Distance of the last part of the series beyond the limit; None where there is none."""
    reason: str

    def record(self) -> dict[str, object]:
        """Return the finding as JSON has it."""
        return {
            "limit": self.limit.text,
            "verdict": str(self.outcome),
            **_ends("excess", self.excess or _NOTHING),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Trend:
    """The changes and judgements of a series."""

    experiment: Experiment
    series: Series
    changes: tuple[Change, ...]
    fewest: int
    """The number of steps it takes to see any change."""
    findings: tuple[Finding, ...]
    """One for each limit on this figure."""

    @property
    def is_short(self) -> bool:
        """True if there are too few steps to see any change."""
        return len(self.series.steps) < self.fewest

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The first step of each part, and the one behind its last."""
        ends = [0, *(each.at for each in self.changes), len(self.series.steps)]
        return list(pairwise(ends))

    def record(self) -> dict[str, object]:
        """Return the trend as JSON has it."""
        series = self.series
        return {
            "experiment": self.experiment.title,
            "metric": series.figure.name,
            "unit": series.figure.unit,
            "fewest_steps": self.fewest,
            "steps": [
                {
                    "step": step.name,
                    "written_utc": step.written.isoformat(),
                    "runs": step.runs,
                    **_ends("value", reading.as_is),
                }
                for step, reading in zip(series.steps, series.readings, strict=True)
            ],
            "changes": [each.record(series) for each in self.changes],
            "limits": [each.record() for each in self.findings],
            "left_out": list(series.left_out),
        }


def trends_of(
    experiments: Sequence[Experiment], figures: Sequence[Figure], limits: Sequence[Limit]
) -> list[Trend]:
    """Look for change points in every figure of every experiment.

    All series together show a change in figures that do not change with at most 5 % (Bonferroni);
    all judgements together are wrong with at most as much.
    """
    every = [(each, each.series(figure)) for each in experiments for figure in figures]
    at_most = 1 - LEVEL
    tests = sum(len(series.steps) >= fewest_values(at_most) for _, series in every)
    error = at_most / max(1, tests)
    fewest = fewest_values(error)
    judgements = sum(limit.figure == series.figure for _, series in every for limit in limits)
    return [
        _trend(experiment, series, limits, error, fewest, at_most / max(1, judgements))
        for experiment, series in every
    ]


def _trend(
    experiment: Experiment,
    series: Series,
    limits: Sequence[Limit],
    error: float,
    fewest: int,
    limit_error: float,
) -> Trend:
    values = np.array([each.as_is.value for each in series.readings])
    found = change_points(values, error) if len(values) >= fewest else []
    ends = [0, *(each.at for each in found), len(values)]
    changes = tuple(
        _change(series, each.at, each.p, ends[number], ends[number + 2])
        for number, each in enumerate(found)
    )
    trend = Trend(experiment, series, changes, fewest, ())
    findings = tuple(
        _judge(trend, limit, limit_error) for limit in limits if limit.figure == series.figure
    )
    return Trend(experiment, series, changes, fewest, findings)


def _change(series: Series, at: int, p: float, first: int, end: int) -> Change:
    before, after = slice(first, at), slice(at, end)
    found = _differences(series, before, after, _EACH_END)
    values = [each.as_is.value for each in series.readings]
    whole = Bounds(
        found[0].value, min(each.low for each in found), max(each.high for each in found)
    )
    last, next_one = (series.steps[place].surroundings() for place in (at - 1, at))
    others = tuple(
        (name, value, next_one[name]) for name, value in last.items() if value != next_one[name]
    )
    return Change(at, p, _mean(values[before]), _mean(values[after]), whole, others)


def _differences(
    series: Series, before: slice, after: slice, error: float, factor: float = 1.0
) -> list[Bounds]:
    """After less before: as they are, the least it can be, and the most."""
    return [
        difference(
            [each.least if least[0] else each.as_is for each in series.readings[before]],
            [each.least if least[1] else each.as_is for each in series.readings[after]],
            error,
            factor,
        )
        for least in ((False, False), (False, True), (True, False))
    ]


def _judge(trend: Trend, limit: Limit, error: float) -> Finding:
    """Judge the last change; where there is none, the newer half of the series."""
    series = trend.series
    count = len(series.steps)
    if trend.is_short:
        return Finding(limit, Outcome.INCONCLUSIVE, None, _few(trend))
    first, at = trend.parts[-2][0] if trend.changes else 0, count // 2
    if trend.changes:
        at = trend.changes[-1].at
    found = _differences(series, slice(first, at), slice(at, count), error, 1 + limit.share)
    excess = [Bounds(*(end - limit.added for end in each)) for each in found]
    outcomes = {_outcome(each) for each in excess}
    outcome = outcomes.pop() if len(outcomes) == 1 else Outcome.INCONCLUSIVE
    reason = _reason(trend, outcome)
    if not trend.changes and outcome is Outcome.FAIL:
        outcome = Outcome.INCONCLUSIVE
    newest = trend.experiment.steps[-1]
    if outcome is Outcome.PASS and series.steps[-1] is not newest:
        outcome = Outcome.INCONCLUSIVE
        reason = f"the newest step, {newest.name}, has no such figure"
    whole = Bounds(
        excess[0].value, min(each.low for each in excess), max(each.high for each in excess)
    )
    return Finding(limit, outcome, whole, reason)


def _few(trend: Trend) -> str:
    return f"{counted(len(trend.series.steps), 'step')}; {trend.fewest} are needed to see a change"


def _outcome(excess: Bounds) -> Outcome:
    if excess.low > 0:
        return Outcome.FAIL
    return Outcome.PASS if excess.high <= 0 else Outcome.INCONCLUSIVE


def _reason(trend: Trend, outcome: Outcome) -> str:
    if trend.changes:
        since = f"since {trend.series.steps[trend.changes[-1].at].name}"
        return {
            Outcome.FAIL: f"worse {since}",
            Outcome.PASS: f"within it {since}",
            Outcome.INCONCLUSIVE: f"changed {since}, and steps vary too much to tell how far",
        }[outcome]
    return (
        "no change point; "
        + {
            Outcome.FAIL: "the newer half of the steps is worse, and that may be chance",
            Outcome.PASS: "that is the newer half of the steps, against the older one",
            Outcome.INCONCLUSIVE: "steps vary too much to exclude one",
        }[outcome]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _ends(name: str, found: Bounds) -> dict[str, float | None]:
    names = (name, f"{name}_ci_low", f"{name}_ci_high")
    return {
        each: end if math.isfinite(end) else None for each, end in zip(names, found, strict=True)
    }
