"""Lists of intervals that are in order and do not overlap, as pairs of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

__all__ = ["Overlaps", "Pieces", "covered", "overlaps", "subtract"]


class Pieces(NamedTuple):
    """What is left of intervals.

    Attributes
    ----------
    owner : ndarray of int64, shape (n,)
        The interval that each piece was cut from.
    start, end : ndarray of int64, shape (n,)
    before, after : ndarray of int64, shape (n,)
        The cutting interval right before and right after the piece; -1 at the owner's own ends.
    """

    owner: Integers
    start: Integers
    end: Integers
    before: Integers
    after: Integers


class Overlaps(NamedTuple):
    """Where intervals of one list meet those of another.

    Attributes
    ----------
    owner : ndarray of int64, shape (n,)
        The interval of the first list, ascending.
    other : ndarray of int64, shape (n,)
        The interval of the second one, ascending for each owner.
    start, end : ndarray of int64, shape (n,)
        What they share, never empty.
    """

    owner: Integers
    other: Integers
    start: Integers
    end: Integers


def subtract(start: Integers, end: Integers, cut_start: Integers, cut_end: Integers) -> Pieces:
    """Cut the intervals of the second list out of those of the first.

    Parameters
    ----------
    start, end : ndarray of int64, shape (n,)
    cut_start, cut_end : ndarray of int64, shape (m,)
    """
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
    """Find where intervals, which may overlap each other, meet those of a second list.

    Parameters
    ----------
    start, end : ndarray of int64, shape (n,)
        In any order.
    other_start, other_end : ndarray of int64, shape (m,)
    """
    first, count = _met(start, end, other_start, other_end)
    owner, at = _expanded(count)
    other = first[owner] + at
    from_ns = np.maximum(start[owner], _take(other_start, other))
    to_ns = np.minimum(end[owner], _take(other_end, other))
    kept = to_ns > from_ns
    return Overlaps(*(each[kept] for each in (owner, other, from_ns, to_ns)))


def union(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """What intervals cover together, which may overlap each other.

    Parameters
    ----------
    start, end : ndarray of int64, shape (n,)
        In any order.

    Returns
    -------
    tuple of two ndarray of int64, shape (m,)
        Starts and ends, in order, disjoint; what touches stays apart.
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.ones(len(start), bool)
    begins[1:] = start[1:] >= end[:-1]
    lasts = np.roll(begins, -1)
    return start[begins], end[lasts]


def covered(start: Integers, end: Integers, other_start: Integers, other_end: Integers) -> Integers:
    """How much of each interval the second list covers.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    if not len(other_start):
        return np.zeros(len(start), np.int64)
    whole = np.concatenate([[0], np.cumsum(other_end - other_start)])

    def covered_until(when: Integers) -> Integers:
        begun = np.searchsorted(other_start, when, "left")
        rest = np.where(begun > 0, other_end[begun - 1] - when, 0)
        before: Integers = whole[begun] - np.maximum(rest, 0)
        return before

    return covered_until(end) - covered_until(start)


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
