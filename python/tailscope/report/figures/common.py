"""Axes, units and helpers that figures of all kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.report.picture import Axis

if TYPE_CHECKING:
    from tailscope.report.picture import Dash, Picture

NS_PER_US = 1e3
NS_PER_S = 1e9

LATENCY = Axis("latency [µs]", "latency_us", "auto")
TIME = Axis("time [s]", "time_s", starts_at_zero=True, is_time=True)

_DASHES: tuple[Dash, ...] = ("solid", "dashed", "dashdot")
_COLOURS = 6


def dash_of(index: int) -> Dash:
    """Return the dashes for the line of a run; they tell apart lines that share a colour."""
    return _DASHES[index // _COLOURS % len(_DASHES)]


def unless_empty(picture: Picture) -> Picture | None:
    """The figure, if there is anything in it to see."""
    return picture if any(len(layer.columns["x"]) for layer in picture.layers) else None
