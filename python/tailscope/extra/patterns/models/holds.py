"""Stalls of a device that have no name: how many, for how long, and whether they recur."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.distances import distances

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Marks
    from tailscope.extra.patterns.models.distances import Distances
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System

BEYOND_A_CLOCK = 2
"""Stalls that last more than so many times as long as those of a clock are not its own."""
_LONG = 10
"""A device stalls if nothing leaves for so many times as long as a packet usually takes."""
_PART = 0.2
"""Part of a busy period that a stall makes up, or the others waited for more than it."""
_LEAST_SHARE = 0.2
"""Share of the slow packets that stalls must have held to be worth telling."""
_ALIKE = 0.2
"""Stalls make the tail if they last so much of the one that held the median slow packet."""


class Holds(NamedTuple):
    """Stalls in which packets were held and nothing left."""

    stalls: int
    packets: int
    """Packets that were held."""
    slow_share: float
    """Share of the slow packets that are among them."""
    duration_ns_min: int
    duration_ns_p50: int
    duration_ns_max: int
    observed_s: float
    """Time in which they were seen."""
    distances: Distances | None
    """How far apart they are; None for one."""


def long_gaps(system: System, paced_ns: float) -> Marks:
    """Mark the busy periods in which nothing left for long, though two packets or more waited.

    `paced_ns` is what a packet takes where they leave at a constant rate, and else 0.
    """
    gap_ns = system.longest_gap_ns
    least_ns = _LONG * max(int(system.base_ns.min()), paced_ns, 1)
    is_part = gap_ns >= _PART * (system.end_ns - system.start_ns)
    return (gap_ns > least_ns) & is_part & (system.count > 1)


def find_holds(series: Series, system: System, stalls: Marks, slow: Marks) -> Holds | None:
    """Sum up the stalls that make the tail; None if hardly a slow packet was held by one."""
    stalls = _of_the_tail(series, system, stalls, slow)
    held = system.within(series, stalls)
    share = float(held[slow].mean()) if slow.any() else 0.0
    if not stalls.any() or share < _LEAST_SHARE:
        return None
    lasted_ns = system.longest_gap_ns[stalls]
    return Holds(
        len(lasted_ns),
        int(np.count_nonzero(held)),
        share,
        int(lasted_ns.min()),
        int(np.median(lasted_ns)),
        int(lasted_ns.max()),
        float(series.arrival_ns[-1] - series.arrival_ns[0]) / 1e9,
        distances(system.end_ns[stalls], series.arrival_ns),
    )


def _of_the_tail(series: Series, system: System, stalls: Marks, slow: Marks) -> Marks:
    """Mark the stalls about as long, or longer, as the one that held the median slow packet."""
    number = system.period_of[slow[series.order]]
    number = number[number >= 0]
    holding = number[stalls[number]]
    if not len(holding):
        return np.zeros(len(stalls), bool)
    return stalls & (system.longest_gap_ns >= _ALIKE * np.median(system.longest_gap_ns[holding]))
