"""What each figure shows, as numbers: the same numbers are drawn and written as CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tailscope.store.run import SIDES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tailscope.analysis import Quantile, Rate
    from tailscope.store.run import Run

__all__ = ["FIGURES", "Curve", "Figure"]

SUPPORTED = "supported"
UNSUPPORTED = "fewer than 10 samples beyond"
UNEXPLAINED = "unexplained"
OTHERS = "other causes"
_MOST_CAUSES = 5
_NS_PER_US = 1e3
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes
    ----------
    part : str
        Which part of the run: a side, or whether the samples support it.
    x, y : ndarray, shape (n,)
    low, high : ndarray, shape (n,), optional
        95 % interval of `y`; nan where the samples do not bound it.
    """

    part: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Figure:
    """How one figure looks, whatever runs it shows.

    Attributes
    ----------
    name : str
        Name of its files.
    title : str
    x_label, y_label : str
        Axes with their units.
    columns : tuple of str
        Names of x and y in the CSV, with their units.
    curves : callable
        The curves of one run.
    x_scale, y_scale : {"linear", "log", "auto"}
        "auto" is log where the values span a factor of 30 or more.
    style : {"quantiles", "steps", "points"}
        How values hold: up to their x, from their x on, or at their x alone.
    note : str
        What a reader must know.
    coloured_by_part : bool
        Whether the parts of a run that is alone have colours and names of their own.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    columns: tuple[str, str]
    curves: Callable[[Run], list[Curve]]
    x_scale: Literal["linear", "log", "auto"]
    y_scale: Literal["linear", "log", "auto"]
    style: Literal["quantiles", "steps", "points"]
    note: str
    coloured_by_part: bool = False


def _split(run: Run, curve: Callable[[str, list[Quantile]], Curve]) -> list[Curve]:
    """Make one curve up to where the samples support it, and one from there on."""
    supported = [found for found in run.percentiles if found.supported]
    rest = [found for found in run.percentiles if not found.supported]
    if rest:
        rest = supported[-1:] + rest
    parts = ((SUPPORTED, supported), (UNSUPPORTED, rest))
    return [curve(part, found) for part, found in parts if found]


def _array(values: list[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _hdr(run: Run) -> list[Curve]:
    def curve(part: str, found: list[Quantile]) -> Curve:
        return Curve(
            part,
            _array([1 / (1 - each.q) for each in found]),
            _array([each.value_ns for each in found]) / _NS_PER_US,
            _array([each.ci_low_ns for each in found]) / _NS_PER_US,
            _array([each.ci_high_ns for each in found]) / _NS_PER_US,
        )

    return _split(run, curve)


def _cdf(run: Run) -> list[Curve]:
    def curve(part: str, found: list[Quantile]) -> Curve:
        latency = _array([each.value_ns for each in found]) / _NS_PER_US
        return Curve(part, latency, _array([each.q for each in found]))

    return _split(run, curve)


def _ccdf(run: Run) -> list[Curve]:
    return [Curve(curve.part, curve.x, 1 - curve.y) for curve in _cdf(run)]


def _worst(run: Run) -> list[Curve]:
    begin = run.rate["pre"].start_ns
    order = np.argsort(run.worst.pre_ns, kind="stable")
    pre_ns = run.worst.pre_ns[order]
    since = (pre_ns - begin[0] if len(begin) else pre_ns) / _NS_PER_S
    latency = run.worst.latency_ns[order] / _NS_PER_US
    return [
        Curve(cause, since[which], latency[which]) for cause, which in _by_cause(run, order).items()
    ]


def _by_cause(run: Run, order: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    """Which of the worst packets waited longest for each of the most frequent causes."""
    if "cause" not in run.worst_explained:
        return {"worst": np.ones(len(order), bool)}
    causes = np.array([cause or UNEXPLAINED for cause in run.worst_explained["cause"]])[order]
    names, counts = np.unique(causes, return_counts=True)
    often = names[np.argsort(-counts, kind="stable")][:_MOST_CAUSES]
    found = {str(cause): causes == cause for cause in often}
    rest = ~np.isin(causes, often)
    return {**found, OTHERS: rest} if rest.any() else found


def _gaps(run: Run) -> list[Curve]:
    middle_ns = run.info["plan"]["bucket_ns"] / 2
    return [
        Curve(side, (gaps.bucket_ns + middle_ns) / _NS_PER_US, gaps.counts.astype(np.float64))
        for side, gaps in run.gaps.items()
    ]


def _rate(run: Run) -> list[Curve]:
    return [Curve(side, *_with_silence(run.rate[side])) for side in SIDES]


def _with_silence(rate: Rate) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add a zero where seconds without packets begin, and one at the end."""
    second = ((rate.start_ns - rate.start_ns[:1]) // np.uint64(_NS_PER_S)).astype(np.float64)
    last = np.append(np.diff(second) > 1, np.ones(min(len(second), 1), bool))
    silent = np.flatnonzero(last)
    return (
        np.insert(second, silent + 1, second[silent] + 1),
        np.insert(rate.counts.astype(np.float64), silent + 1, 0.0),
    )


FIGURES = (
    Figure(
        name="percentiles",
        title="Latency by percentile",
        x_label="1 / (1 − q), with the percentile",
        y_label="latency [µs]",
        columns=("one_over_one_minus_q", "latency_us"),
        curves=_hdr,
        x_scale="log",
        y_scale="auto",
        style="quantiles",
        note="Shaded: 95 % interval. Dotted: fewer than 10 samples lie beyond, so the samples "
        "say what happened and not what to expect.",
    ),
    Figure(
        name="cdf",
        title="Cumulative distribution of the latency",
        x_label="latency [µs]",
        y_label="share of packets at or below",
        columns=("latency_us", "share_at_or_below"),
        curves=_cdf,
        x_scale="auto",
        y_scale="linear",
        style="steps",
        note="",
    ),
    Figure(
        name="ccdf",
        title="Complementary distribution of the latency",
        x_label="latency [µs]",
        y_label="share of packets above",
        columns=("latency_us", "share_above"),
        curves=_ccdf,
        x_scale="log",
        y_scale="log",
        style="steps",
        note="Dotted: fewer than 10 samples lie beyond.",
    ),
    Figure(
        name="worst",
        title="Worst packets over time",
        x_label="time since the first packet [s]",
        y_label="latency [µs]",
        columns=("time_s", "latency_us"),
        curves=_worst,
        x_scale="linear",
        y_scale="auto",
        style="points",
        note="Where it is known: by what each waited for the longest.",
        coloured_by_part=True,
    ),
    Figure(
        name="gaps",
        title="Gaps between packets, before and after the device",
        x_label="gap [µs]",
        y_label="packets per bucket",
        columns=("gap_us", "packets"),
        curves=_gaps,
        x_scale="auto",
        y_scale="log",
        style="points",
        note="Buckets that hold a packet, drawn in their middle. Dots: before; crosses: after.",
    ),
    Figure(
        name="rate",
        title="Packet rate, before and after the device",
        x_label="time since the first packet [s]",
        y_label="packets per second",
        columns=("time_s", "packets_per_s"),
        curves=_rate,
        x_scale="linear",
        y_scale="linear",
        style="steps",
        note="The last second is rarely a whole one. Solid: before; dashed: after.",
    ),
)
