"""Stretches of marked windows, and their other possible arrangements."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Marks = NDArray[np.bool_]

_MOST = 10_000


def runs(marks: Marks) -> list[int]:
    """Return the lengths of stretches of marked windows, in order."""
    edges = np.diff(np.concatenate([[0], marks.astype(np.int8), [0]]))
    lengths: list[int] = (np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)).tolist()
    return lengths


def arrangement_count(n: int, lengths: list[int]) -> int:
    """Count the arrangements of stretches that do not touch each other."""
    free = n - sum(lengths)
    orders = math.factorial(len(lengths))
    for length in set(lengths):
        orders //= math.factorial(lengths.count(length))
    return math.comb(free + 1, len(lengths)) * orders


def arranged(n: int, lengths: list[int], most: int = _MOST) -> Marks:
    """Return all arrangements if they are few, otherwise a sample that is the same each time."""
    if arrangement_count(n, lengths) <= most:
        gaps, lasted = (
            np.array(column, np.int64) for column in zip(*_all(n, lengths), strict=True)
        )
        return _marks(n, gaps, lasted)
    gaps, order = sampled(n, lengths, most)
    return _marks(n, gaps, np.array(lengths)[order])


def sampled(n: int, lengths: list[int], count: int) -> tuple[Integers, Integers]:
    """Choose arrangements at random, the same each time."""
    random = np.random.default_rng(0)
    places = n - sum(lengths) + 1
    gaps = np.argsort(random.random((count, places)), axis=1)[:, : len(lengths)]
    order = np.argsort(random.random((count, len(lengths))), axis=1)
    return np.sort(gaps, axis=1), order


def _all(n: int, lengths: list[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    free = n - sum(lengths)
    orders = [*_orders(lengths)]
    for gaps in combinations(range(free + 1), len(lengths)):
        for order in orders:
            yield gaps, order


def _orders(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """List the different orders of some lengths."""
    if not lengths:
        yield ()
    for first in sorted(set(lengths)):
        rest = list(lengths)
        rest.remove(first)
        yield from ((first, *order) for order in _orders(rest))


def starts_of(gaps: Integers, lengths: Integers) -> Integers:
    """Return where stretches begin: each follows its free windows and the earlier stretches."""
    starts: Integers = gaps + np.cumsum(lengths, axis=1) - lengths
    return starts


def _marks(n: int, gaps: Integers, lengths: Integers) -> Marks:
    """Mark the windows of each arrangement."""
    start = starts_of(gaps, lengths)
    rows = np.broadcast_to(np.arange(len(gaps))[:, None], start.shape)
    change = np.zeros((len(gaps), n + 1), np.int8)
    np.add.at(change, (rows, start), 1)
    np.add.at(change, (rows, start + lengths), -1)
    return np.asarray(np.cumsum(change, axis=1)[:, :-1] > 0, bool)
