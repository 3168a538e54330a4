"""How far apart stalls are that can be told one by one, and whether they come at a fixed period."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.chance import on_time_by_chance

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Floats, Numbers

FEWEST = 5
"""Stalls of which a period can be told."""
_OFF = 0.02
"""Distances differ by at most this share of a period from it, or from a multiple."""
_LEAST_ON_TIME = 0.8
_LEAST_SINGLE = 0.5
"""Share of the distances that must be of one period: the others missed a stall."""
_BY_CHANCE = 1e-4
_ROUNDS = 5


class Distances(NamedTuple):
    """Times between stalls, from the end of each to the end of the next."""

    distance_ns_mean: int
    distance_ns_p25: int
    distance_ns_p50: int
    distance_ns_p75: int
    period_ns: int | None
    """The fixed period; None if they come at none."""
    on_time: int
    """Number of distances that are whole periods; 0 without one."""
    off_share: float | None
    """The most by which one of these differs, as a share of the period; None without one."""


def distances(end_ns: Numbers, arrival_ns: Numbers) -> Distances | None:
    """Measure the distances between stalls, in order of time; None for fewer than two.

    Packets that themselves come in so long a rhythm cannot tell a period.
    """
    if len(end_ns) < 2:
        return None
    gaps_ns = np.diff(end_ns).astype(float)
    low, middle, high = (round(float(each)) for each in np.quantile(gaps_ns, (0.25, 0.5, 0.75)))
    mean = round(float(gaps_ns.mean()))
    period_ns, on_time, off_share = _period(gaps_ns) if len(end_ns) >= FEWEST else (0.0, 0, 0.0)
    pauses = int(np.count_nonzero(np.diff(arrival_ns) > period_ns / 2)) if on_time else 0
    if not on_time or pauses > len(gaps_ns) / 2:
        return Distances(mean, low, middle, high, None, 0, None)
    return Distances(mean, low, middle, high, round(period_ns), on_time, off_share)


def _period(gaps_ns: Floats) -> tuple[float, int, float]:
    """Return the period, how many gaps keep it, and the most that one of these is off; or 0s."""
    period_ns = float(np.median(gaps_ns))
    for _ in range(_ROUNDS):
        turns = np.maximum(np.round(gaps_ns / period_ns), 1)
        off = np.abs(gaps_ns / period_ns - turns)
        on_time = off <= _OFF
        if np.count_nonzero(on_time & (turns == 1)) <= _LEAST_SINGLE * len(gaps_ns):
            return 0.0, 0, 0.0
        period_ns = float(gaps_ns[on_time].sum() / turns[on_time].sum())
    share = float(on_time.mean())
    # One of the distances has given the period.
    chance = on_time_by_chance(len(gaps_ns) - 1, share, 2 * _OFF)
    if share < _LEAST_ON_TIME or chance > _BY_CHANCE:
        return 0.0, 0, 0.0
    return period_ns, int(np.count_nonzero(on_time)), float(off[on_time].max())
