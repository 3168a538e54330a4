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
from tailscope.units import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.compare.compare import Comparison, FigureChange
    from tailscope.compare.figures import Figure

MOST_DIFFERENCES = 12
"""Pairs that are drawn; browsers take a while for more."""

_LOOKS: dict[Verdict, tuple[str, int, Mark]] = {
    Verdict.HIGHER: ("slower", 1, "points"),
    Verdict.LOWER: ("faster", 2, "points"),
    Verdict.NONE: ("no difference can be seen", 0, "crosses"),
    Verdict.UNCLEAR: ("it depends on the instrument", 4, "crosses"),
}
_VERDICTS = {
    Verdict.NONE: "not seen",
    Verdict.UNCLEAR: "unclear: the instrument",
}
_TIMES = {Verdict.HIGHER: "slower", Verdict.LOWER: "faster"}
_SHARES = {Verdict.HIGHER: "more", Verdict.LOWER: "fewer"}
_LARGE_PPS = 1000
"""Rates that need no digits behind the point."""
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
    """For each figure both values, the difference, its interval, and the verdict."""
    notes: Sequence[str]
    """Figures that are in no row."""
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


def difference_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Say of each figure that can be compared how it differs: both values, and the difference."""
    return [
        (
            finding.figure.name,
            _text(finding.baseline.value, finding.figure),
            _text(finding.candidate.value, finding.figure),
            _signed(finding.difference.value, finding.figure),
            " to ".join(_signed(end, finding.figure) for end in finding.difference[1:]),
            _verdict(finding),
        )
        for finding in comparison.findings
        if finding.difference is not None
    ]


def difference_notes(comparison: Comparison) -> list[str]:
    """Name the figures that cannot be compared."""
    names = [each.figure.name for each in comparison.findings if each.difference is None]
    return [f"There is no estimate of {', '.join(names)}."] if names else []


def _verdict(finding: FigureChange) -> str:
    words = _TIMES if finding.figure.is_time else _SHARES
    return {**_VERDICTS, **words}.get(finding.verdict, str(finding.verdict))


def _text(value: float, figure: Figure) -> str:
    if not math.isfinite(value):
        return "unbounded"
    if figure.is_time:
        return duration_text(value)
    if figure.unit == "share":
        return f"{100 * value:.4g} %"
    return f"{value:,.0f} packets/s" if abs(value) >= _LARGE_PPS else f"{value:.4g} packets/s"


def _signed(value: float, figure: Figure) -> str:
    return f"{'+' * (0 < value < math.inf)}{_text(value, figure)}"


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
