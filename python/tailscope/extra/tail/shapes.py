"""Models of the tails of many runs: Figures 15 to 18 of containers2024."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.report.figures.common import NS_PER_US
from tailscope.report.formats import COLOURS
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.units import percentile_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.report.picture import Dash

_SHARE = Axis("share of runs", "share", limits=(0.0, 1.0))
_NAMES = ("Equation 1", "tailscope", "p99.5", "p99.9", "p99.95", "p99.99", "p99.999", "ADF", "KPSS")
_LINES: dict[str, tuple[int, Dash]] = {
    name: (at % len(COLOURS), "dashed" if at >= len(COLOURS) else "solid")
    for at, name in enumerate(_NAMES)
}
"""A colour and a dash for each name: all figures stand beside one legend."""


class PaperThreshold(NamedTuple):
    """A threshold of the paper's method, in one run."""

    quantile: float
    threshold_ns: float
    js_divergence_bits: float


class TailShapes(NamedTuple):
    """Results of fitting the tails of some runs: a value for each run that has it."""

    adf_p_values: Sequence[float]
    kpss_p_values: Sequence[float]
    """Of the bursts that tailscope's law is fitted to."""
    xi: Sequence[float]
    """Of tailscope's laws."""
    equation_1_xi: Sequence[float]
    """Of the paper's."""
    thresholds: Sequence[PaperThreshold]
    """All that the paper's method tried."""


def shape_pictures(label: str, shapes: TailShapes) -> list[Picture]:
    """Draw them as shares of runs up to each value."""
    by_quantile = {
        percentile_name(quantile): [each for each in shapes.thresholds if each.quantile == quantile]
        for quantile in sorted({each.quantile for each in shapes.thresholds})
    }
    return [
        _cumulated(
            label,
            ("tails-stationarity", "Is the part that is fitted stationary?"),
            "Figure 15: ADF should reject a unit root (p below 0.05), KPSS should not reject"
            " stationarity (p above 0.05; tabulated from 0.01 to 0.1).",
            Axis("p value", "p_value", limits=(0.0, 1.0)),
            {"ADF": shapes.adf_p_values, "KPSS": shapes.kpss_p_values},
        ),
        _cumulated(
            label,
            ("tails-divergence", "Equation 1's laws against what was measured"),
            "Figure 16: Jensen-Shannon divergence by threshold.",
            Axis("divergence [bits]", "js_divergence_bits", starts_at_zero=True),
            {
                name: [each.js_divergence_bits for each in found]
                for name, found in by_quantile.items()
            },
        ),
        _cumulated(
            label,
            ("tails-thresholds", "The thresholds of Equation 1's laws"),
            "Figure 17: the latency at each threshold.",
            Axis("latency [µs]", "latency_us", "auto"),
            {
                name: [each.threshold_ns / NS_PER_US for each in found]
                for name, found in by_quantile.items()
            },
        ),
        _cumulated(
            label,
            ("tails-shapes", "Bounded or not: the shape ξ"),
            "Figure 18: a law with ξ below 0 has a largest latency. tailscope's laws have ξ of -0.5"
            " at least.",
            Axis("ξ", "xi"),
            {"Equation 1": shapes.equation_1_xi, "tailscope": shapes.xi},
        ),
    ]


def _cumulated(
    label: str,
    named: tuple[str, str],
    note: str,
    axis: Axis,
    series: Mapping[str, Sequence[float]],
) -> Picture:
    """Draw the share of runs up to each value, for each series."""
    layers = []
    for name, values in series.items():
        x = np.sort(np.asarray(values, float))
        share = np.arange(1, len(x) + 1) / max(len(x), 1)
        layers.append(Layer("steps", label, name, {"x": x, "y": share}, name, *_LINES[name]))
    return Picture(*named, note, axis, _SHARE, tuple(layers))
