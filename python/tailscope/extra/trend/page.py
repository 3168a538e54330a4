"""The page of trends: each series with its change points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.trend.words import HEADER, change_rows, finding_text, headline, notes, span
from tailscope.report.figures.common import NS_PER_US
from tailscope.report.page import environment, scripts
from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.extra.trend.changes import Trend

MOST_PICTURES = 24
"""Series that are drawn; browsers take a while for more."""

_STEPS = Axis("step, the oldest first", "step")


def trend_page(trends: Sequence[Trend], left_out: Sequence[str]) -> str:
    """Draw series as one HTML page: those that changed, or were judged, first."""
    pictures = trend_pictures(trends)
    experiments: dict[str, list[Trend]] = {}
    for trend in trends:
        experiments.setdefault(trend.experiment.title, []).append(trend)
    sections = [
        {
            "title": title,
            "span": span(own[0]),
            "lines": [headline(trend) for trend in own],
            "rows": [row for trend in own for row in change_rows(trend)],
            "notes": list(notes(own)),
            "judgements": [
                (str(each.outcome), f"{each.limit.text}: {finding_text(each)}")
                for trend in own
                for each in trend.findings
            ],
            "pictures": [pictures[id(trend)] for trend in own if id(trend) in pictures],
            "steps": list(_step_rows(own[0])),
        }
        for title, own in experiments.items()
    ]
    return (
        environment("tailscope.extra.trend")
        .get_template("trend.html.j2")
        .render(
            sections=sections,
            header=HEADER,
            changed=[
                f"{trend.experiment.title}: {headline(trend)}" for trend in trends if trend.changes
            ],
            not_drawn=sum(bool(trend.series.steps) for trend in trends) - len(pictures),
            left_out=left_out,
            scripts=scripts(list(pictures.values())),
        )
    )


def trend_pictures(trends: Sequence[Trend]) -> dict[int, Picture]:
    """Draw series, `MOST_PICTURES` at most: those that changed or were judged, and then others."""
    shown = [trend for trend in trends if trend.series.steps]
    chosen = sorted(shown, key=lambda trend: not (trend.changes or trend.findings))[:MOST_PICTURES]
    return {
        id(trend): Picture(
            f"trend-{number}", headline(trend), "", _STEPS, _axis(trend), tuple(_layers(trend))
        )
        for number, trend in enumerate(chosen, 1)
    }


def _axis(trend: Trend) -> Axis:
    name = trend.series.figure.name
    if trend.series.figure.is_time:
        return Axis(f"{name} [µs]", "latency_us")
    return Axis(f"{name} [% of the packets]", "lost_percent", starts_at_zero=True)


def _layers(trend: Trend) -> Iterator[Layer]:
    """Steps with their intervals, the levels between change points, and these points."""
    title, series = trend.experiment.title, trend.series
    scale = 1 / NS_PER_US if series.figure.is_time else 100.0
    ends = np.array([each.as_is for each in series.readings], np.float64) * scale
    value, low, high = ends.T
    number = np.arange(1, len(value) + 1, dtype=np.float64)
    is_known = np.isfinite(low) & np.isfinite(high)
    columns = {
        "x": number,
        "y": value,
        "low": np.where(is_known, low, np.nan),
        "high": np.where(is_known, high, np.nan),
    }
    yield Layer("points", title, "step", columns, "step, with its 95 % interval", 0)
    levels = [float(value[first:end].mean()) for first, end in trend.parts]
    x = [number[first] for first, _ in trend.parts] + [number[-1]]
    y = [*levels, levels[-1]]
    yield Layer(
        "steps",
        title,
        "level",
        {"x": np.array(x), "y": np.array(y)},
        "mean until the next change",
        2,
    )
    if trend.changes:
        at = [change.at for change in trend.changes]
        found = {"x": number[at], "y": np.array(levels[1:])}
        yield Layer("crosses", title, "change", found, "change point", 1)


def _step_rows(trend: Trend) -> Iterator[tuple[str, ...]]:
    for step in trend.experiment.steps:
        others = ", ".join(value for value in step.surroundings().values() if value != "-")
        yield step.name, ", ".join(step.runs), others
