"""Drift of one clock against another, from simultaneous readings of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    _Floats = NDArray[np.float64]

_PIECE_NS = 10 * 10**9
_READINGS_A_PIECE = 20
_MOST_PIECES = 256
_ROUNDS = 10
_HUBER = 1.345 * 1.4826
"""Distance in standard deviations, by the median, from which readings weigh less."""


@dataclass(frozen=True)
class Drift:
    """The second of two clocks relative to the first."""

    knots: tuple[tuple[int, int], ...]
    """Times of the second clock, and its lead in nanoseconds; linear in between."""
    readings: int
    left_out: int
    """Number of readings used, and of readings omitted because they took too long."""
    offset_ns: int
    """Lead at the first reading, in nanoseconds."""
    drift_ppb: float
    """Mean difference of the rates, in parts per 10⁹."""
    residual_ns: int
    """Largest distance of a reading, in nanoseconds."""
    error_ns: int
    """Largest distance, including that reading's own uncertainty."""
    is_even: bool
    """True if every reading is about as close as it is exact; otherwise a clock was set or
    adjusted."""


def fit_drift(first_ns: Sequence[int], second_ns: Sequence[int], error_ns: Sequence[int]) -> Drift:
    """Fit a line of pieces to readings of two clocks.

    The pieces are about 10 s long. Readings that took more than twice as long as usual are left
    out, and one that lies far off weighs little.
    """
    first, second, error = (
        np.asarray(column, dtype=np.int64) for column in (first_ns, second_ns, error_ns)
    )
    if not first.size:
        raise ValueError("no readings of the clocks")
    used = error <= 2 * np.median(error)
    left_out = int(np.count_nonzero(~used))
    first, second, error = first[used], second[used], error[used]
    # Differences are small, so that floating point holds them to a part of a nanosecond.
    ahead = second - first
    time, rise = (second - second[0]).astype(float), (ahead - ahead[0]).astype(float)
    at, heights = _line(time, rise, error.astype(float))
    distance = np.abs(rise - np.interp(time, at, heights))
    knots = [
        (int(second[0]) + round(t), int(ahead[0]) + round(height))
        for t, height in zip(at.tolist(), heights.tolist(), strict=True)
    ]
    passed_ns = float(first[-1] - first[0])
    return Drift(
        knots=tuple(knots),
        readings=int(first.size),
        left_out=left_out,
        offset_ns=knots[0][1],
        drift_ppb=float(1e9 * (heights[-1] - heights[0]) / passed_ns) if passed_ns > 0 else 0.0,
        # A knot was rounded to a nanosecond, as packets' times are.
        residual_ns=math.ceil(distance.max()) + 1,
        error_ns=math.ceil((distance + error).max()) + 1,
        is_even=bool((distance <= 2 * error + 1).all()),
    )


def _line(time: _Floats, rise: _Floats, error: _Floats) -> tuple[_Floats, _Floats]:
    """Return times and heights of the knots of a piecewise line."""
    if time[-1] <= 0:
        return np.zeros(1), np.array([np.median(rise)])
    pieces = min(int(time[-1] / _PIECE_NS), time.size // _READINGS_A_PIECE, _MOST_PIECES)
    # As many readings in each piece, wherever some are missing.
    at = np.unique(time[np.linspace(0, time.size - 1, max(1, pieces) + 1).astype(int)])
    exact = 1 / (error + 1) ** 2
    heights: _Floats = _least_squares(time, rise, exact, at)
    for _ in range(_ROUNDS):
        distance = np.abs(rise - np.interp(time, at, heights)) / (error + 1)
        usual = float(_HUBER * np.median(distance))
        if usual <= 0:
            break
        heights = _least_squares(time, rise, exact * usual / np.maximum(distance, usual), at)
    return at, heights


def _least_squares(time: _Floats, rise: _Floats, weights: _Floats, at: _Floats) -> _Floats:
    """Fit the heights at the knots: each reading depends on the two beside it."""
    left = np.clip(np.searchsorted(at, time, side="right") - 1, 0, at.size - 2)
    right = left + 1
    part = (time - at[left]) / (at[right] - at[left])
    known, wanted = np.zeros((at.size, at.size)), np.zeros(at.size)
    sides = ((left, 1 - part), (right, part))
    for row, own in sides:
        np.add.at(wanted, row, weights * own * rise)
        for column, other in sides:
            np.add.at(known, (row, column), weights * own * other)
    return np.asarray(np.linalg.lstsq(known, wanted, rcond=None)[0], dtype=np.float64)
