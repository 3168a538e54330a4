"""The figures of runs, each a function from runs to what it shows, or to nothing without data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.report.figures.conclusions import (
    overload,
    tail_levels,
    tail_mean_excess,
    tail_quantiles,
    tail_shape,
)
from tailscope.report.figures.latency import ccdf, cdf, histogram, percentiles
from tailscope.report.figures.noise import (
    events,
    interrupt_counts,
    interrupt_rates,
    made_of,
    stages,
    stalls,
)
from tailscope.report.figures.power import power
from tailscope.report.figures.traffic import departure_error, gaps, loss, rate
from tailscope.report.figures.worst import heat_map, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope.report.material import Material
    from tailscope.report.picture import Picture

__all__ = ["FIGURES", "pictures"]

FIGURES: tuple[Callable[[Sequence[Material]], Picture | None], ...] = (
    percentiles,
    worst,
    made_of,
    stages,
    heat_map,
    stalls,
    events,
    interrupt_counts,
    interrupt_rates,
    tail_levels,
    tail_quantiles,
    tail_shape,
    tail_mean_excess,
    overload,
    rate,
    loss,
    power,
    cdf,
    ccdf,
    histogram,
    gaps,
    departure_error,
)
"""In the order of a page: first what the tail is, then why, then what else there is."""


def pictures(runs: Sequence[Material]) -> list[Picture]:
    """Every figure that has anything to show."""
    found = (figure(runs) for figure in FIGURES)
    return [picture for picture in found if picture is not None]
