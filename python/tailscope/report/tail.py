"""The diagnostics of a model of the tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter

from tailscope.models.tail.diagnostics import levels_ahead, quantile_pairs
from tailscope.report.drawing import COLOURS, POINT, SETTINGS, WIDTH_IN, save
from tailscope.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.models.tail.diagnostics import At
    from tailscope.models.tail.model import TailModel

__all__ = ["write_tail"]

_HEIGHT_IN = 6.4
_NS_PER_US = 1e3


def write_tail(
    path: Path, kind: str, label: str, found: TailModel, thresholds: Sequence[At]
) -> None:
    """Draw how well the law fits, how it depends on the threshold, and what it promises.

    Parameters
    ----------
    path : Path
        Where the figure shall be.
    kind : {"png", "svg", "pdf"}
    label : str
        What the run is called.
    found : TailModel
    thresholds : sequence of At
    """
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_IN, _HEIGHT_IN), layout="constrained")
        (quantiles, levels), (shape, mean) = figure.subplots(2, 2)
        _draw_quantiles(quantiles, found)
        _draw_levels(levels, found)
        _draw_thresholds(shape, thresholds, "xi", 1, "shape ξ")
        _draw_thresholds(mean, thresholds, "mean_excess_ns", _NS_PER_US, "mean excess [µs]")
        for axes in (shape, mean):
            axes.axvline(found.fit.threshold_ns / _NS_PER_US, color=COLOURS[1], linewidth=1)
            axes.set_xlabel("threshold [µs]")
        for axes in figure.axes:
            axes.grid(visible=True)
            axes.set_axisbelow(True)
        figure.suptitle(printable(label), x=0.01, ha="left", fontsize="medium")
        save(figure, path, kind)


def _draw_quantiles(axes: Any, found: TailModel) -> None:
    modelled, measured = (each / _NS_PER_US for each in quantile_pairs(found.fit))
    ends = (modelled.min(), max(modelled.max(), measured.max()))
    axes.plot(ends, ends, color=COLOURS[1], linewidth=1)
    axes.plot(modelled, measured, ".", color=COLOURS[0], **POINT)
    axes.set_title("bursts against the law (QQ)", loc="left")
    axes.set_xlabel("law [µs]")
    axes.set_ylabel("measured [µs]")


def _draw_levels(axes: Any, found: TailModel) -> None:
    ahead = levels_ahead(found.fit, found.settings.level)
    low, high = ahead.low_ns / _NS_PER_US, ahead.high_ns / _NS_PER_US
    axes.fill_between(ahead.packets, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(ahead.packets, ahead.level_ns / _NS_PER_US, color=COLOURS[0])
    worst = found.excesses.latency_ns.max() / _NS_PER_US
    axes.plot(found.excesses.count, worst, "o", color=COLOURS[1])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("exceeded by one burst; the worst", loc="left")
    axes.set_xlabel("packets")
    axes.set_ylabel("latency [µs]")


def _draw_thresholds(
    axes: Any, thresholds: Sequence[At], name: str, unit: float, label: str
) -> None:
    at = np.array([each.threshold_ns for each in thresholds]) / _NS_PER_US
    estimate, low, high = np.array([getattr(each, name) for each in thresholds]).T / unit
    axes.errorbar(
        at, estimate, (estimate - low, high - estimate), fmt=".", color=COLOURS[0], capsize=2
    )
    axes.set_title(f"{label} by threshold", loc="left")
    axes.set_ylabel(label)
