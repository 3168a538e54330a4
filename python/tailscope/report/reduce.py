"""Fewer marks than were measured, without losing an extreme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIXELS = 1_000
"""Columns of a figure: as many as a wide screen shows of one."""


def extremes(
    x: NDArray[np.float64], y: NDArray[np.float64], *, columns: int = PIXELS, log: bool = False
) -> NDArray[np.int64]:
    """Return which points to keep: lowest and highest of each column of pixels, and both ends."""
    if len(x) <= 2 * columns:
        return np.arange(len(x))
    pixel = _columns(x, columns, log=log)
    up = np.lexsort((y, pixel))
    begins = np.append(True, np.diff(pixel[up]) > 0)
    down = np.lexsort((-y, pixel))
    ends = np.array([0, len(x) - 1])
    return np.unique(np.concatenate([up[begins], down[begins], ends]))


def longest(
    start: NDArray[np.float64],
    length: NDArray[np.float64],
    lane: NDArray[np.int64],
    *,
    columns: int = PIXELS,
) -> NDArray[np.int64]:
    """Return which intervals to keep: the longest to begin in each column of pixels of a lane."""
    if not len(start):
        return np.zeros(0, np.int64)
    place = _columns(start, columns, log=False) + columns * lane
    order = np.lexsort((-length, place))
    return np.unique(order[np.append(True, np.diff(place[order]) > 0)])


def _columns(x: NDArray[np.float64], columns: int, *, log: bool) -> NDArray[np.int64]:
    shown = np.log(np.maximum(x, np.min(x[x > 0], initial=np.inf))) if log else x
    low = shown.min()
    width = (shown.max() - low) / columns
    if width <= 0:
        return np.zeros(len(x), np.int64)
    place: NDArray[np.int64] = ((shown - low) / width).astype(np.int64)
    return np.minimum(place, columns - 1)
