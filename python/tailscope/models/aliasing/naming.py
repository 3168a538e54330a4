"""Interruptions by name: those that were counted as often as they were found."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.models.aliasing.simulation import Periodic

__all__ = ["counted_as"]

_ALIKE = 0.01


def counted_as(periodic: Periodic, rates_hz: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of what was counted at every tick of a comb, and of what only at the teeth of a source.

    Parameters
    ----------
    periodic : Periodic
    rates_hz : Mapping of str to sequence of float
        How often each counter counted, on each CPU. Of CPUs that are set alike the median says it.

    Returns
    -------
    list of str
        Counters whose rate is that of the comb, then those of the source's own, both within 1 %.
    """
    typical = {name: median(rates) for name, rates in rates_hz.items()}
    of_comb, own = 1e9 / periodic.period_ns, periodic.rate_hz
    every = [name for name, rate in typical.items() if abs(rate - of_comb) < _ALIKE * of_comb]
    here = [name for name, rate in typical.items() if abs(rate - own) < _ALIKE * own]
    return list(dict.fromkeys([*every, *here]))
