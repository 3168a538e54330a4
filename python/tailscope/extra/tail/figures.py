"""Figures of a kept model of the tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.tail.records import TailRecord
from tailscope.report.figures.common import NS_PER_US, unless_empty
from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msgspec import Struct
    from numpy.typing import NDArray

    from tailscope.report.material import Material

_THRESHOLD = Axis("threshold [µs]", "threshold_us")


def tail_pictures(label: str, record: TailRecord) -> list[Picture]:
    """The diagnostics of a model of the tail."""
    return [draw(label, record) for draw in (_quantiles, _levels, _shape, _mean_excess)]


def tail_quantiles(runs: Sequence[Material]) -> Picture | None:
    """Bursts against the law."""
    return _of_tail(runs, _quantiles)


def tail_levels(runs: Sequence[Material]) -> Picture | None:
    """Return levels."""
    return _of_tail(runs, _levels)


def tail_shape(runs: Sequence[Material]) -> Picture | None:
    """The shape by threshold."""
    return _of_tail(runs, _shape)


def tail_mean_excess(runs: Sequence[Material]) -> Picture | None:
    """The mean excess by threshold."""
    return _of_tail(runs, _mean_excess)


FIGURES = (tail_levels, tail_quantiles, tail_shape, tail_mean_excess)


def _of_tail(
    runs: Sequence[Material], draw: Callable[[str, TailRecord], Picture]
) -> Picture | None:
    record = runs[0].run.kept.of(TailRecord) if len(runs) == 1 else None
    return None if record is None else unless_empty(draw(runs[0].label, record))


def _quantiles(label: str, record: TailRecord) -> Picture:
    pairs = record.quantile_pairs
    law, measured = (_column(pairs, name) / NS_PER_US for name in ("law_ns", "measured_ns"))
    ends = np.array([law.min(), max(law.max(), measured.max())]) if len(law) else law
    return Picture(
        "tail-quantiles",
        "Bursts against the law of the tail",
        "Where the law holds, points lie on the line (QQ plot).",
        Axis("law [µs]", "law_us"),
        Axis("measured [µs]", "measured_us"),
        (
            Layer("points", label, "bursts", {"x": law, "y": measured}, "bursts"),
            Layer(
                "line",
                label,
                "the law",
                {"x": ends, "y": ends},
                "the law",
                1,
            ),
        ),
        is_predicted=True,
    )


def _levels(label: str, record: TailRecord) -> Picture:
    ahead = record.levels_ahead
    level, low, high = (
        _column(ahead, f"return_level_ns{end}") / NS_PER_US for end in ("", "_ci_low", "_ci_high")
    )
    levels = {"x": _column(ahead, "packets"), "y": level, "low": low, "high": high}
    worst = {
        "x": np.array([float(record.count)]),
        "y": np.array([record.latency_ns_max / NS_PER_US]),
    }
    return Picture(
        "tail-levels",
        "Return levels: what the largest of so many packets is as likely above as below",
        "Shaded: interval of the largest. It holds as long as nothing changes.",
        Axis("packets", "packets", "log"),
        Axis("latency [µs]", "latency_us", "auto"),
        (
            Layer("line", label, "return level", levels, "return level"),
            Layer("points", label, "worst of the run", worst, "worst of the run", 1),
        ),
        is_predicted=True,
    )


def _shape(label: str, record: TailRecord) -> Picture:
    return Picture(
        "tail-shape",
        "Shape of the tail by threshold",
        "It is constant above a high enough threshold. Below zero, the tail is bounded.",
        _THRESHOLD,
        Axis("shape ξ", "xi"),
        _by_threshold(label, record, "xi", 1.0),
        is_predicted=True,
    )


def _mean_excess(label: str, record: TailRecord) -> Picture:
    return Picture(
        "tail-mean-excess",
        "Mean excess by threshold",
        "It is a line above a high enough threshold.",
        _THRESHOLD,
        Axis("mean excess [µs]", "mean_excess_us"),
        _by_threshold(label, record, "mean_excess_ns", NS_PER_US),
        is_predicted=True,
    )


def _by_threshold(label: str, record: TailRecord, name: str, unit: float) -> tuple[Layer, ...]:
    at = _column(record.stability, "threshold_ns") / NS_PER_US
    found = (
        np.array([getattr(each, name) for each in record.stability], float).reshape(-1, 3) / unit
    )
    estimate, low, high = found.T
    chosen_us = record.threshold_ns / NS_PER_US
    height = np.array([low.min(), high.max()]) if len(low) else np.zeros(0)
    return (
        Layer(
            "points",
            label,
            "by threshold",
            {"x": at, "y": estimate, "low": low, "high": high},
            "by threshold",
        ),
        Layer(
            "line",
            label,
            "chosen threshold",
            {"x": np.full(len(height), chosen_us), "y": height},
            "chosen threshold",
            1,
        ),
    )


def _column(rows: Sequence[Struct], name: str) -> NDArray[np.float64]:
    return np.array([getattr(row, name) for row in rows], np.float64)
