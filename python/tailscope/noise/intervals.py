"""Lists of intervals that are in order and do not overlap, as pairs of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


class Pieces(NamedTuple):
    """What is left of intervals."""

    owner: Integers
    """The interval that each piece was cut from."""
    start: Integers
    end: Integers
    before: Integers
    after: Integers
    """The cutting interval right before and right after the piece; -1 at the owner's own ends."""


class Overlaps(NamedTuple):
    """Where intervals of one list meet those of another."""

    owner: Integers
    """The interval of the first list, ascending."""
    other: Integers
    """The interval of the second one, ascending for each owner."""
    start: Integers
    end: Integers
    """What they share, never empty."""


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
    kept = to_ns > from_ns
    return Pieces(*(each[kept] for each in (owner, from_ns, to_ns, before, after)))


def overlaps(
    start: Integers, end: Integers, other_start: Integers, other_end: Integers
) -> Overlaps:
    """Find where intervals, which may overlap each other, meet those of a second list."""
    first, count = _met(start, end, other_start, other_end)
    owner, at = _expanded(count)
    other = first[owner] + at
    from_ns = np.maximum(start[owner], _take(other_start, other))
    to_ns = np.minimum(end[owner], _take(other_end, other))
    kept = to_ns > from_ns
    return Overlaps(*(each[kept] for each in (owner, other, from_ns, to_ns)))


def union(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """What intervals cover together, which may overlap each other."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.ones(len(start), bool)
    begins[1:] = start[1:] >= end[:-1]
    lasts = np.roll(begins, -1)
    return start[begins], end[lasts]


class Coverage:
    """How much of other intervals a list covers, which is asked many times."""

    def __init__(self, start: Integers, end: Integers) -> None:
        self._start, self._end = start, end
        self._total = np.concatenate([[0], np.cumsum(end - start)])

    def within(self, start: Integers, end: Integers) -> Integers:
        """How much of each interval it covers, in ns, shape (n,)."""
        if not len(self._start):
            return np.zeros(len(start), np.int64)
        return self._until(end) - self._until(start)

    def since(self, end: Integers, covered_ns: Integers) -> Integers:
        """From when on it covers so much of what lies before `end`; no more than it does."""
        if not len(self._start):
            return end
        left = self._until(end) - covered_ns
        at = np.searchsorted(self._total, left, "right") - 1
        inside = at < len(self._start)
        at = np.where(inside, at, 0)
        # Nothing is covered behind the last one.
        return np.where(inside, self._start[at] + left - self._total[at], end)

    def _until(self, when: Integers) -> Integers:
        begun = np.searchsorted(self._start, when, "left")
        rest = np.where(begun > 0, self._end[begun - 1] - when, 0)
        before: Integers = self._total[begun] - np.maximum(rest, 0)
        return before


def covered(start: Integers, end: Integers, other_start: Integers, other_end: Integers) -> Integers:
    """How much of each interval the second list covers."""
    return Coverage(other_start, other_end).within(start, end)


def _met(
    start: Integers, end: Integers, other_start: Integers, other_end: Integers
) -> tuple[Integers, Integers]:
    """The first of the others that each interval meets, and how many it does."""
    first = np.searchsorted(other_end, start, "right")
    last = np.searchsorted(other_start, end, "left")
    return first, np.maximum(last - first, 0)


def _expanded(count: Integers) -> tuple[Integers, Integers]:
    """Each number so often as its count says, and which time it is."""
    owner = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return owner, np.arange(len(owner)) - begins[owner]


def _take(values: Integers, at: Integers) -> Integers:
    """Values by place; 0 where there is none, which is never looked at."""
    if not len(values):
        return np.zeros(len(at), np.int64)
    return values[np.clip(at, 0, len(values) - 1)]
