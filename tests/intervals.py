"""Intervals in tests: in order, and as the nanoseconds that they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def disjoint(lengths: list[tuple[int, int]]) -> tuple[Integers, Integers]:
    """Intervals in order, with gaps that may be empty."""
    start, end, now = [], [], 0
    for gap, length in lengths:
        start.append(now + gap)
        now += gap + length
        end.append(now)
    return np.array(start, np.int64), np.array(end, np.int64)


def points(start: Integers, end: Integers) -> set[int]:
    return {
        at
        for low, high in zip(start.tolist(), end.tolist(), strict=True)
        for at in range(low, high)
    }
