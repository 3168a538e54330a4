"""The figures of a run that trends are of, with their intervals, from its summary."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.compare.figures import LOST, MAX, quantile_figure
from tailscope.models.counting import share_beyond
from tailscope.models.differences import Bounds
from tailscope.models.estimate import LEVEL
from tailscope.units import QUANTILES, count_text, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.compare.figures import Figure

_KEYS = {written: name for name, written in QUANTILES.items()}
METRICS: Mapping[str, Figure] = {
    **{name: quantile_figure(round(float(name[1:]) / 100, 12)) for name in _KEYS},
    MAX.name: MAX,
    LOST.name: LOST,
}
"""Figures that every summary has, by their names."""

_EACH_END = (1 - LEVEL) / 2


class Reading(NamedTuple):
    """A figure of a run, or of the runs of a step."""

    as_is: Bounds
    """The figure with its 95 % interval."""
    least: Bounds
    """The figure without what the instrument stalled meanwhile."""


def metric_named(name: str, option: str) -> Figure:
    """The figure of a name."""
    refuse_unknown(f"{option}", name, METRICS, "metric")
    return METRICS[name]


def reading_of(summary: Mapping[str, Any], figure: Figure) -> Reading | str:
    """A figure of a run, or why it is no estimate of anything."""
    if figure == LOST:
        return _lost(summary)
    name = "max" if figure == MAX else _KEYS[figure.name]
    value = summary[f"latency_ns_{name}"]
    if value is None:
        return "no packet came back"
    if figure != MAX and not summary[f"latency_ns_{name}_supported"]:
        beyond = summary[f"latency_ns_{name}_beyond"] or 0
        return f"{count_text(beyond)} packets lie beyond it; 10 are needed"
    as_is = _bounds(summary, f"latency_ns_{name}", value)
    least = summary.get(f"least_latency_ns_{name}")
    return Reading(
        as_is, as_is if least is None else _bounds(summary, f"least_latency_ns_{name}", least)
    )


def _bounds(summary: Mapping[str, Any], name: str, value: float) -> Bounds:
    """A figure with its interval; a maximum is a single packet, and has none."""
    if name.endswith("_max"):
        return Bounds(value, value, value)
    low, high = summary.get(f"{name}_ci_low"), summary.get(f"{name}_ci_high")
    return Bounds(value, -math.inf if low is None else low, math.inf if high is None else high)


def _lost(summary: Mapping[str, Any]) -> Reading | str:
    sent, lost = summary["sent"], summary["lost"]
    if not sent or lost is None:
        return "it is not known how many packets were lost"
    share = share_beyond(lost, sent, error=_EACH_END)
    bounds = Bounds(share.estimate, share.ci_low, share.ci_high)
    return Reading(bounds, bounds)
