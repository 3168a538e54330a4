"""How many latencies lie where: all that a histogram of others says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

__all__ = ["Between", "Buckets"]


class Between(NamedTuple):
    """Where a latency lies: from one edge to the other, ns."""

    low_ns: int
    high_ns: int


@dataclass(frozen=True)
class Buckets:
    """Latencies in buckets, which may differ in width and overlap.

    Attributes
    ----------
    low_ns, high_ns : ndarray of int64, shape (n_buckets,)
        Edges: a latency in a bucket is at least `low_ns` and at most `high_ns`.
    counts : ndarray of int64, shape (n_buckets,)
        At least 1 each.
    """

    low_ns: Integers
    high_ns: Integers
    counts: Integers

    @property
    def count(self) -> int:
        """All latencies."""
        return int(self.counts.sum())

    def at(self, rank: int) -> Between:
        """Where the latency of a rank lies.

        Parameters
        ----------
        rank : int
            From 1, the shortest.
        """
        ends = []
        for edges, ranks in (self._by_low, self._by_high):
            ends.append(int(edges[np.searchsorted(ranks, rank)]))
        return Between(*ends)

    def mean_ns(self) -> tuple[float, float]:
        """The mean of the buckets' centres, and how far it may be off."""
        middle = (self.low_ns + self.high_ns) / 2
        half = (self.high_ns - self.low_ns) / 2
        found, off = (float(np.average(each, weights=self.counts)) for each in (middle, half))
        return found, off

    def beyond(self, limit_ns: float, *, is_strict: bool) -> Between:
        """How many latencies lie beyond a limit, at least and at most.

        Parameters
        ----------
        limit_ns : float
        is_strict : bool
            Whether one that equals the limit is not beyond it.
        """
        if is_strict:
            surely, perhaps = self.low_ns > limit_ns, self.high_ns > limit_ns
        else:
            surely, perhaps = self.low_ns >= limit_ns, self.high_ns >= limit_ns
        return Between(int(self.counts[surely].sum()), int(self.counts[perhaps].sum()))

    @cached_property
    def _by_low(self) -> tuple[Integers, Integers]:
        return _ranked(self.low_ns, self.counts)

    @cached_property
    def _by_high(self) -> tuple[Integers, Integers]:
        return _ranked(self.high_ns, self.counts)


def _ranked(edges: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Edges in order, and how many latencies are at or below each."""
    order = np.argsort(edges, kind="stable")
    return edges[order], np.cumsum(counts[order])
