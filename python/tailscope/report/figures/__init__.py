"""The figures of runs, each a function from runs to what it shows, or to nothing without data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.registry import offered
from tailscope.report.figures.conclusions import overload
from tailscope.report.figures.flows import by_flow
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

    Figure = Callable[[Sequence[Material]], Picture | None]

_CAUSES: tuple[Figure, ...] = (
    percentiles,
    worst,
    by_flow,
    made_of,
    stages,
    heat_map,
    stalls,
    events,
    interrupt_counts,
    interrupt_rates,
)
_REST: tuple[Figure, ...] = (
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


def figures() -> list[Figure]:
    """List what can be drawn, in the order of a page: the tail, why, then what else there is."""
    return [*_CAUSES, *(each for added in offered("figures") for each in added), *_REST]


def pictures(runs: Sequence[Material]) -> list[Picture]:
    """Every figure that has anything to show."""
    found = (figure(runs) for figure in figures())
    return [picture for picture in found if picture is not None]
