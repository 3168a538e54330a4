"""Ordered lists of disjoint intervals, as pairs of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import tailscope._engine as _engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


class Pieces(NamedTuple):
    """The pieces that are left of intervals."""

    owner: Integers
    """Index of the interval that each piece was cut from."""
    start: Integers
    end: Integers
    before: Integers
    after: Integers
    """Indices of the cutting intervals right before and right after the piece; -1 at the owner's
    own ends."""


class Overlaps(NamedTuple):
    """The overlaps of two lists of intervals."""

    owner: Integers
    """Index in the first list, ascending."""
    other: Integers
    """Index in the second list, ascending for each owner."""
    start: Integers
    end: Integers
    """Start and end of the overlap, which is never empty."""


def subtract(start: Integers, end: Integers, cut_start: Integers, cut_end: Integers) -> Pieces:
    """Cut the intervals of the second list out of those of the first."""
    first, count = _met(start, end, cut_start, cut_end)
    owner, at = _expanded(count + 1)
    cut = first[owner] + at
    is_first, is_last = at == 0, at == count[owner]
    from_ns = np.where(is_first, start[owner], _take(cut_end, cut - 1))
    to_ns = np.where(is_last, end[owner], _take(cut_start, cut))
    before = np.where(is_first, -1, cut - 1)
    after = np.where(is_last, -1, cut)
    is_piece = to_ns > from_ns
    return Pieces(*(column[is_piece] for column in (owner, from_ns, to_ns, before, after)))


def overlaps(
    start: Integers, end: Integers, other_start: Integers, other_end: Integers
) -> Overlaps:
    """Find the overlaps of intervals, which may overlap each other, with a second list."""
    first, count = _met(start, end, other_start, other_end)
    owner, at = _expanded(count)
    other = first[owner] + at
    from_ns = np.maximum(start[owner], _take(other_start, other))
    to_ns = np.minimum(end[owner], _take(other_end, other))
    is_overlap = to_ns > from_ns
    return Overlaps(*(column[is_overlap] for column in (owner, other, from_ns, to_ns)))


def union(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Merge intervals that may overlap each other."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.ones(len(start), bool)
    begins[1:] = start[1:] >= end[:-1]
    lasts = np.roll(begins, -1)
    return start[begins], end[lasts]


class Coverage:
    """The coverage of other intervals by a list, for many queries."""

    def __init__(self, start: Integers, end: Integers) -> None:
        self._start = start
        self._total = np.concatenate([[0], np.cumsum(end - start)])
        self._engine = _engine.Coverage(_contiguous(start), _contiguous(end))

    def within(self, start: Integers, end: Integers) -> Integers:
        """Return the covered part of each interval, in nanoseconds, shape (n,)."""
        if not len(self._start):
            return np.zeros(len(start), np.int64)
        return self._until(end) - self._until(start)

    def since(self, end: Integers, covered_ns: Integers) -> Integers:
        """Return the time from which a given amount is covered before `end`, or all that is."""
        if not len(self._start):
            return end
        left = self._until(end) - covered_ns
        at = np.searchsorted(self._total, left, "right") - 1
        inside = at < len(self._start)
        at = np.where(inside, at, 0)
        # Nothing is covered after the last interval.
        return np.where(inside, self._start[at] + left - self._total[at], end)

    def _until(self, when: Integers) -> Integers:
        return self._engine.until(_contiguous(when))


def _contiguous(times: Integers) -> Integers:
    return np.ascontiguousarray(times, np.int64)


def covered(start: Integers, end: Integers, other_start: Integers, other_end: Integers) -> Integers:
    """Return the part of each interval that the second list covers."""
    return Coverage(other_start, other_end).within(start, end)


def _met(
    start: Integers, end: Integers, other_start: Integers, other_end: Integers
) -> tuple[Integers, Integers]:
    """Return the first of the others that each interval meets, and their number."""
    first = np.searchsorted(other_end, start, "right")
    last = np.searchsorted(other_start, end, "left")
    return first, np.maximum(last - first, 0)


def _expanded(count: Integers) -> tuple[Integers, Integers]:
    """Repeat each index by its count, and number the repetitions."""
    owner = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return owner, np.arange(len(owner)) - begins[owner]


def _take(values: Integers, at: Integers) -> Integers:
    """Take values by index; 0 if there are none, where the result is unused."""
    if not len(values):
        return np.zeros(len(at), np.int64)
    return values[np.clip(at, 0, len(values) - 1)]
