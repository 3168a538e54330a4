"""Stretches of marked windows, and every other place where they could be."""

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

__all__ = ["arranged", "arrangement_count", "runs"]

_MOST = 20_000


def runs(marks: Marks) -> list[int]:
    """The lengths of stretches of marked windows, in order."""
    edges = np.diff(np.concatenate([[0], marks.astype(np.int8), [0]]))
    lengths: list[int] = (np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)).tolist()
    return lengths


def arrangement_count(n: int, lengths: list[int]) -> int:
    """How many arrangements of stretches there are that do not touch each other."""
    free = n - sum(lengths)
    orders = math.factorial(len(lengths))
    for length in set(lengths):
        orders //= math.factorial(lengths.count(length))
    return math.comb(free + 1, len(lengths)) * orders


def arranged(n: int, lengths: list[int], most: int = _MOST) -> Marks:
    """All arrangements if they are few, else a sample, which is the same each time.

    Parameters
    ----------
    n : int
        Windows.
    lengths : list of int
        Of the stretches.
    most : int
        What is few.

    Returns
    -------
    ndarray of bool, shape (n_arrangements, n)
    """
    if arrangement_count(n, lengths) <= most:
        return np.array([_marks(n, *each) for each in _all(n, lengths)])
    random = np.random.default_rng(0)
    free = n - sum(lengths)
    return np.array(
        [
            _marks(
                n,
                np.sort(random.choice(free + 1, len(lengths), replace=False)),
                random.permutation(lengths),
            )
            for _ in range(most)
        ]
    )


def _all(n: int, lengths: list[int]) -> Iterator[tuple[Integers, Integers]]:
    free = n - sum(lengths)
    orders = [np.array(order) for order in _orders(lengths)]
    for gaps in combinations(range(free + 1), len(lengths)):
        for order in orders:
            yield np.array(gaps), order


def _orders(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The different orders of some lengths."""
    if not lengths:
        yield ()
    for first in sorted(set(lengths)):
        rest = list(lengths)
        rest.remove(first)
        yield from ((first, *order) for order in _orders(rest))


def _marks(n: int, gaps: Integers, lengths: Integers) -> Marks:
    """Stretches of these lengths, each behind so many free windows."""
    found = np.zeros(n, bool)
    start = gaps + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    for first, length in zip(start.tolist(), lengths.tolist(), strict=True):
        found[first : first + length] = True
    return found
