"""Departures folded over one period: their concentration, and its evidence against chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.simulation import Times

    Floats: TypeAlias = NDArray[np.float64]
    Numbers: TypeAlias = NDArray[np.int64]

LEAST_EVENTS = 20
"""Smallest number of delayed packets that shows a clock."""

FINEST_NS = 1.0
"""Finest resolution in time."""

_PHASES = 64
_NEXT = np.arange(1, _PHASES + 1) % _PHASES
_RATES = 41
_ENOUGH = 500
_KEPT = 0.9
_STEPS = 3
_NARROWER = 0.8


class Line(NamedTuple):
    """The assumed end of all teeth, and the window around it."""

    period_ns: float
    phase_ns: float
    window_ns: float

    def evidence(self, leave_ns: Floats) -> float:
        """Return the log likelihood ratio of these departures: the line against chance."""
        _, away_ns = folded(leave_ns, self.period_ns, self.phase_ns)
        caught = np.count_nonzero(np.abs(away_ns) <= self.window_ns)
        return evidence(int(caught), len(leave_ns), 2 * self.window_ns / self.period_ns)

    def is_of_departures(self, leave_ns: Floats, wait_ns: Floats) -> bool:
        """Return True if departures near the line keep to it better than arrivals do.

        Teeth may end in more than one way, so that departures have some width.
        """
        _, away_ns = folded(leave_ns, self.period_ns, self.phase_ns)
        near = np.abs(away_ns) <= self.window_ns
        departed_ns, came_ns = away_ns[near], (away_ns - wait_ns)[near]
        return _scatter(departed_ns) < _NARROWER * _scatter(came_ns)


def _scatter(times_ns: Floats) -> float:
    """Return the mean distance from the median."""
    return float(np.mean(np.abs(times_ns - np.median(times_ns))))


def evidence(caught: int, total: int, chance: float) -> float:
    """Return the log likelihood ratio of such a share against chance; 0 if chance is likelier."""
    share = caught / total
    if share <= chance:
        return 0.0
    missed = 0.0 if caught == total else (total - caught) * math.log((1 - share) / (1 - chance))
    return caught * math.log(share / chance) + missed


def folded(leave_ns: Floats | Times, period_ns: float, phase_ns: float) -> tuple[Numbers, Floats]:
    """Say for each time which tooth it is next to, and how far behind it."""
    tooth = np.rint((leave_ns - phase_ns) / period_ns).astype(np.int64)
    return tooth, leave_ns - phase_ns - tooth * period_ns


def _densest(period_ns: float, leave_ns: Floats) -> Line:
    """Find where most departures are when they are laid over a period, or one near to it.

    A spectrum tells a rate within half of what would be one turn more in all the time.
    """
    span_ns = float(np.ptp(leave_ns))
    leave_ns = leave_ns[:: max(1, len(leave_ns) // _ENOUGH)]
    tried_ns = 1 / (1 / period_ns + np.linspace(-0.5, 0.5, _RATES) / span_ns)
    place = np.outer(_PHASES / tried_ns, leave_ns).astype(np.int64) % _PHASES
    place += _PHASES * np.arange(_RATES)[:, None]
    count = np.bincount(place.ravel(), minlength=_RATES * _PHASES).reshape(_RATES, _PHASES)
    rate, phase = divmod(int(np.argmax(count + count[:, _NEXT])), _PHASES)
    best_ns = float(tried_ns[rate])
    return Line(best_ns, (phase + 1) / _PHASES * best_ns, 2 * best_ns / _PHASES)


def narrowed(rate_hz: float, leave_ns: Floats) -> Line | None:
    """Find where most departures are, in a window that shrinks as long as it keeps them."""
    period_ns = 1e9 / rate_hz
    if len(leave_ns) < LEAST_EVENTS or np.ptp(leave_ns) < period_ns:
        return None
    period_ns, phase_ns, window_ns = _densest(period_ns, leave_ns)
    while True:
        for _ in range(_STEPS):
            tooth, away_ns = folded(leave_ns, period_ns, phase_ns)
            near = np.abs(away_ns) <= window_ns
            if np.count_nonzero(near) < LEAST_EVENTS or np.ptp(tooth[near]) == 0:
                return None
            slope, level = _straight(tooth[near], away_ns[near])
            period_ns, phase_ns = period_ns + slope, phase_ns + level
        away_ns = np.abs(folded(leave_ns, period_ns, phase_ns)[1])
        wide, half = (
            np.count_nonzero(near) - by_chance(near, width / period_ns)
            for width in (window_ns, window_ns / 2)
            for near in [away_ns <= width]
        )
        if half < _KEPT * wide or window_ns < 2 * FINEST_NS:
            return Line(period_ns, phase_ns, window_ns)
        window_ns /= 2


def _straight(tooth: Numbers, away_ns: Floats) -> tuple[float, float]:
    """Return slope and level at tooth 0 of a straight line, by least squares."""
    middle = tooth.mean()
    x = tooth - middle
    slope = float(x @ away_ns / (x @ x))
    return slope, float(away_ns.mean() - slope * middle)


def by_chance(near: NDArray[np.bool_], window: float) -> float:
    """Return how many departures near a tooth chance explains, by those elsewhere."""
    return float(np.count_nonzero(~near)) * 2 * window / (1 - 2 * window)
