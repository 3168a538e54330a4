"""The figures that runs are compared by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from tailscope.units import percentile_name

if TYPE_CHECKING:
    from collections.abc import Iterable

Unit: TypeAlias = Literal["ns", "share", "pps"]

_QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


@dataclass(frozen=True)
class Figure:
    """A figure of a run."""

    name: str
    unit: Unit
    quantile: float | None = None

    @property
    def is_time(self) -> bool:
        """True if it is a latency."""
        return self.unit == "ns"


MAX = Figure("max", "ns")
LOST = Figure("lost", "share")
TRANSFER = Figure("transfer", "share")
RATE = Figure("rate", "pps")


def quantile_figure(q: float) -> Figure:
    """Return the figure of a quantile of the latency of all packets that were sent."""
    return Figure(percentile_name(q), "ns", q)


def figures_with(others: Iterable[Figure] = ()) -> tuple[Figure, ...]:
    """Return the figures to compare: the usual ones, and the quantiles that are asked for."""
    quantiles = {figure.quantile for figure in others} - {None} | set(_QUANTILES)
    return (
        *(quantile_figure(q) for q in sorted(filter(None, quantiles))),
        MAX,
        LOST,
        TRANSFER,
        RATE,
    )
