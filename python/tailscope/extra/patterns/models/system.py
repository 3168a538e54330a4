"""When a device held packets: its busy periods, from times of arrival and departure alone.

A packet that took longer than an undelayed one waited in the device from the time at which it
would have left otherwise until it left. A *busy period* lasts as long as at least one packet waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.answer import Floats, Marks, Numbers
    from tailscope.extra.patterns.models.series import Series

_UNDELAYED = 0.005
"""Quantile of the latency that an undelayed packet has."""
_FEWEST_ALONE = 20
"""Packets that find the device empty, of which the fastest is undelayed."""
_NOISE = 4
"""Delays of less than so many times the usual difference between neighbours are noise."""
_HELD = 0.5
"""A device is held if so much of a busy period passes without a departure."""


@dataclass(frozen=True)
class System:
    """The busy periods of a device, in order of time."""

    base_ns: Numbers
    """Latency of each packet if it were not delayed."""
    noise_ns: float
    """Smallest delay that counts."""
    start_ns: Numbers
    end_ns: Numbers
    first: Numbers
    """The first departure within each period, as a place in the order of departure."""
    count: Numbers
    """Number of departures within each period."""
    longest_gap_ns: Numbers
    """Longest time without a departure in each period, its beginning included."""
    period_of: NDArray[np.int32]
    """The period in which each packet left, -1 for none; in the order of departure."""

    @property
    def held(self) -> Marks:
        """Periods of which most passed without a departure."""
        return self.longest_gap_ns >= _HELD * (self.end_ns - self.start_ns)

    def within(self, series: Series, periods: Marks) -> Marks:
        """The packets that left within some periods."""
        left = (self.period_of >= 0) & np.append(periods, False)[self.period_of]
        chosen = np.zeros(len(left), bool)
        chosen[series.order] = left
        return chosen & self.delayed(series)

    def holding(self, series: Series, packets: Marks) -> Marks:
        """The periods in which some of these packets left."""
        number = self.period_of[packets[series.order]]
        held = np.zeros(len(self.start_ns), bool)
        held[number[number >= 0]] = True
        return held

    def delayed(self, series: Series) -> Marks:
        """The packets that were delayed by more than noise."""
        return series.latency_ns - self.base_ns > self.noise_ns


def is_idle_at_times(series: Series) -> bool:
    """Say whether the device was seen empty: else packets may all have waited for others."""
    return int(np.count_nonzero(series.alone)) >= _FEWEST_ALONE


def undelayed_ns(series: Series) -> int:
    """Return the latency of a packet that nothing delays, or of the fastest if all may wait."""
    latency_ns = series.latency_ns
    if is_idle_at_times(series):
        latency_ns = latency_ns[series.alone]
    return int(np.quantile(latency_ns, _UNDELAYED)) if len(latency_ns) else 0


def find_system(series: Series, base_ns: Numbers) -> System:
    """Find the busy periods, given the undelayed latency of each packet."""
    excess_ns = series.latency_ns - base_ns
    noise_ns = _noise_ns(excess_ns)
    late = excess_ns > noise_ns
    del excess_ns
    came_ns = series.arrival_ns[late]
    came_ns += base_ns[late]
    came_ns.sort()
    left_ns = series.depart_ns[late]
    left_ns.sort()
    ends = np.flatnonzero(
        np.searchsorted(came_ns, left_ns, "right") == np.arange(1, len(left_ns) + 1)
    )
    begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    start_ns, end_ns = came_ns[begins], left_ns[ends]
    del came_ns, left_ns, ends, begins, late
    first = np.searchsorted(series.left_ns, start_ns, "left")
    last = np.searchsorted(series.left_ns, end_ns, "right")
    period_of = _numbered(first, last, len(series.left_ns))
    return System(
        base_ns,
        noise_ns,
        start_ns,
        end_ns,
        first,
        last - first,
        _longest_gaps(series.left_ns, start_ns, first, last),
        period_of,
    )


def _noise_ns(excess_ns: Numbers) -> float:
    """Return how much delays differ without a cause that lasts.

    Neighbours in a queue differ little, and so does what a capture's clock adds.
    """
    if len(excess_ns) < 2:
        return 0.0
    steps_ns = np.diff(excess_ns)
    step_ns = np.median(np.abs(steps_ns, out=steps_ns), overwrite_input=True)
    del steps_ns
    low_ns = excess_ns[excess_ns <= np.quantile(excess_ns, 0.5)]
    return _NOISE * float(min(step_ns, max(np.ptp(low_ns), 1)))


def _numbered(first: Numbers, last: Numbers, packets: int) -> NDArray[np.int32]:
    """Give each departure the number of the period that it lies in; periods do not overlap."""
    edges = np.zeros(packets + 1, np.int8)
    np.add.at(edges, first, 1)
    np.add.at(edges, last, -1)
    inside = np.cumsum(edges[:-1], dtype=np.int8) > 0
    number = np.full(packets, -1, np.int32)
    number[inside] = np.repeat(np.arange(len(first), dtype=np.int32), last - first)
    return number


def _longest_gaps(left_ns: Numbers, start_ns: Numbers, first: Numbers, last: Numbers) -> Numbers:
    bounds = np.column_stack([first, last]).ravel()
    if not len(bounds):
        return np.zeros(0, np.int64)
    # One more, because the last period may end with the last departure.
    gaps_ns = np.zeros(len(left_ns) + 1, np.int64)
    np.subtract(left_ns[1:], left_ns[:-1], out=gaps_ns[1:-1])
    gaps_ns[first] = left_ns[first] - start_ns
    longest: Numbers = np.maximum.reduceat(gaps_ns, bounds)[::2]
    return longest


def occupancy(time_ns: Numbers, size: Floats, rate: float) -> Floats:
    """Return the fill of a bucket that leaks at a rate, in ns, behind each packet put into it."""
    total = np.cumsum(size)
    least = np.minimum.accumulate(total - size - rate * time_ns)
    filled: Floats = total - rate * time_ns - least
    return filled
