"""Differences between runs, as `compare` finds them: by percentile, each with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tailscope.compare.compare import Verdict
from tailscope.report.figures.common import NS_PER_US
from tailscope.report.figures.latency import ODDS
from tailscope.report.picture import Axis, Layer, Mark, Picture, sharing_axes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.compare.compare import Comparison, FigureChange

MOST_DIFFERENCES = 12
"""Pairs that are drawn; browsers take a while for more."""

_LOOKS: dict[Verdict, tuple[str, int, Mark]] = {
    Verdict.HIGHER: ("slower", 1, "points"),
    Verdict.LOWER: ("faster", 2, "points"),
    Verdict.NONE: ("no difference can be seen", 0, "crosses"),
    Verdict.UNCLEAR: ("cannot be told", 4, "crosses"),
}
_WIDE = 30
_ROOM = 3.0
_RESOLUTION_NS = 1.0


@dataclass(frozen=True)
class Difference:
    """The content of a page about runs that were compared."""

    title: str
    """Runs that were compared."""
    headline: str
    """Difference, in a sentence."""
    rows: Sequence[tuple[str, ...]]
    """A row for each figure, as `tailscope.compare.table` makes it."""
    notes: Sequence[str]
    """What a mark in a row means."""
    all_lines: Sequence[str]
    """A sentence for every figure."""
    judgements: Sequence[tuple[str, str]]
    """Outcome of each limit, and a sentence."""
    baseline: str
    candidate: str
    """Names of the runs."""
    others: Sequence[tuple[str, str, str]]
    """Other facts that differ, with both values."""
    warnings: Sequence[str]
    picture: Picture | None
    """None where no quantile can be compared, or many pairs are drawn already."""


def difference_pictures(titles: Mapping[str, Comparison]) -> dict[str, Picture]:
    """Draw the differences of all quantiles of each pair, all pairs on the same axes."""
    shown = {
        title: found
        for title, each in titles.items()
        if (found := [finding for finding in each.findings if _is_shown(finding)])
    }
    drawn = dict(list(shown.items())[:MOST_DIFFERENCES])
    findings = [finding for each in drawn.values() for finding in each]
    if not findings:
        return {}
    y = _difference_axis(findings)
    last = max(map(_odds, findings))
    pictures = [
        Picture(
            f"difference-{number}",
            "Difference of each quantile" if len(drawn) == 1 else title,
            "",
            ODDS,
            y,
            _layers(title, each),
        )
        for number, (title, each) in enumerate(drawn.items(), 1)
    ]
    shared = sharing_axes(pictures, ODDS, y)
    x = replace(ODDS, limits=(1.0, _ROOM * last))
    return {title: replace(picture, x=x) for title, picture in zip(drawn, shared, strict=True)}


def _is_shown(finding: FigureChange) -> bool:
    return finding.figure.quantile is not None and finding.difference is not None


def _odds(finding: FigureChange) -> float:
    assert finding.figure.quantile is not None
    return 1 / (1 - finding.figure.quantile)


def _difference_axis(findings: Sequence[FigureChange]) -> Axis:
    """Make an axis: logarithmic if distances from zero differ much, linear where not noticeable."""
    noticeable = [each.noticeable for each in findings if each.noticeable]
    least_ns = min((each for each in noticeable if math.isfinite(each)), default=_RESOLUTION_NS)
    ends = [abs(end) for each in findings for end in each.difference or () if math.isfinite(end)]
    return Axis(
        "difference [µs]",
        "difference_us",
        "log" if max(ends) >= _WIDE * least_ns else "linear",
        linear_up_to=10.0 ** math.floor(math.log10(max(least_ns, _RESOLUTION_NS) / NS_PER_US)),
    )


def _layers(title: str, findings: Sequence[FigureChange]) -> tuple[Layer, ...]:
    layers = []
    for verdict, (label, colour, mark) in _LOOKS.items():
        which = [each for each in findings if each.verdict == verdict]
        if which:
            ends = np.array([each.difference for each in which], np.float64) / NS_PER_US
            value, low, high = ends.T
            x = np.array([_odds(each) for each in which])
            columns = {"x": x, "y": value, "low": low, "high": high}
            layers.append(Layer(mark, title, label, columns, label, colour))
    return tuple(layers)
