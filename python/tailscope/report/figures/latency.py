"""The distribution of the latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.figures.common import LATENCY, NS_PER_US, dash_of, unless_empty
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.report.reduce import extremes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Quantile
    from tailscope.report.material import Material
    from tailscope.report.picture import Dash
    from tailscope.store.run import Run

ODDS = Axis("percentile", "one_over_one_minus_q", "log", is_odds=True)
DOTTED = (
    "Dotted: fewer than 10 samples lie beyond, so the samples show what happened, not what to"
    " expect."
)

SUPPORTED = "supported"
UNSUPPORTED = "fewer than 10 samples beyond"


def percentiles(runs: Sequence[Material]) -> Picture | None:
    """Latency by percentile: the HDR plot of the papers."""
    layers = [
        layer
        for at, each in enumerate(runs)
        for layer in quantile_layers(each.run, each.label, at, dash_of(at))
    ]
    return unless_empty(
        Picture(
            "percentiles",
            "Latency by percentile",
            f"Shaded: 95 % interval. {DOTTED}",
            ODDS,
            LATENCY,
            tuple(layers),
        )
    )


def quantile_layers(run: Run, label: str, colour: int, dash: Dash) -> list[Layer]:
    """The line of a run in a plot of percentiles."""
    return [
        Layer(
            "quantiles",
            run.label,
            part,
            {
                "x": _odds(found),
                "y": _us([one.value_ns for one in found]),
                "low": _us([one.ci_low_ns for one in found]),
                "high": _us([one.ci_high_ns for one in found]),
            },
            label,
            colour,
            "dotted" if part == UNSUPPORTED else dash,
        )
        for part, found in _parts(run)
    ]


def cdf(runs: Sequence[Material]) -> Picture | None:
    """The cumulative distribution."""
    layers = _shares(runs, above=False)
    return unless_empty(
        Picture(
            "cdf",
            "Cumulative distribution of the latency",
            "",
            LATENCY,
            Axis("share of packets at or below", "share_at_or_below"),
            layers,
        )
    )


def ccdf(runs: Sequence[Material]) -> Picture | None:
    """The complementary distribution, where tails show."""
    layers = _shares(runs, above=True)
    return unless_empty(
        Picture(
            "ccdf",
            "Complementary distribution of the latency",
            "Dotted: fewer than 10 samples lie beyond.",
            Axis("latency [µs]", "latency_us", "log"),
            Axis("share of packets above", "share_above", "log"),
            layers,
        )
    )


def histogram(runs: Sequence[Material]) -> Picture | None:
    """Packets in buckets of latency."""
    layers = []
    for at, each in enumerate(runs):
        found = each.run.latency
        middle_ns = found.bucket_ns + (each.run.info.plan.bucket_ns or 0) / 2
        x, y = middle_ns.astype(np.float64) / NS_PER_US, found.counts.astype(np.float64)
        kept = extremes(x, y, log=True)
        columns = {"x": x[kept], "y": y[kept]}
        layers.append(Layer("points", each.label, "", columns, each.label, at))
    return unless_empty(
        Picture(
            "histogram",
            "Histogram of the latency",
            "Non-empty buckets, drawn at their centres; at their lower edges where widths differ.",
            LATENCY,
            Axis("packets per bucket", "packets", "log"),
            tuple(layers),
        )
    )


def _shares(runs: Sequence[Material], *, above: bool) -> tuple[Layer, ...]:
    return tuple(
        Layer(
            "steps",
            each.label,
            part,
            {
                "x": _us([one.value_ns for one in found]),
                "y": np.array([1 - one.q if above else one.q for one in found]),
            },
            each.label,
            at,
            "dotted" if part == UNSUPPORTED else dash_of(at),
        )
        for at, each in enumerate(runs)
        for part, found in _parts(each.run)
    )


def _parts(run: Run) -> list[tuple[str, list[Quantile]]]:
    """Quantiles up to where the samples support them, and from there on."""
    supported = [found for found in run.percentiles if found.supported]
    rest = [found for found in run.percentiles if not found.supported]
    if rest:
        rest = supported[-1:] + rest
    return [(part, found) for part, found in ((SUPPORTED, supported), (UNSUPPORTED, rest)) if found]


def _odds(found: list[Quantile]) -> NDArray[np.float64]:
    return np.array([1 / (1 - each.q) for each in found])


def _us(values: Sequence[int | None]) -> NDArray[np.float64]:
    ns = np.array([np.nan if value is None else value for value in values], np.float64)
    return ns / NS_PER_US
