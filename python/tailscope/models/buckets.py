"""Ranks and counts of latencies that are known by a histogram only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


class Between(NamedTuple):
    """The least and the greatest possible value."""

    low: int
    high: int


@dataclass(frozen=True)
class Buckets:
    """Latencies in buckets, which may differ in width and overlap."""

    low_ns: Integers
    high_ns: Integers
    """Edges: a latency in a bucket is at least `low_ns` and at most `high_ns`."""
    counts: Integers
    """Counts, at least 1 each."""

    @property
    def count(self) -> int:
        """Count all latencies."""
        return int(self.counts.sum())

    def at(self, rank: int) -> Between:
        """Bound the latency of a rank."""
        ends = []
        for edges, ranks in (self._by_low, self._by_high):
            ends.append(int(edges[np.searchsorted(ranks, rank)]))
        return Between(*ends)

    def mean_ns(self) -> tuple[float, float]:
        """Return the mean of the buckets' centres, and its largest error."""
        middle = (self.low_ns + self.high_ns) / 2
        half = (self.high_ns - self.low_ns) / 2
        mean, error = (float(np.average(values, weights=self.counts)) for values in (middle, half))
        return mean, error

    def beyond(self, limit_ns: float, *, is_strict: bool) -> Between:
        """Bound the number of latencies beyond a limit."""
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


@dataclass(frozen=True)
class Ranks:
    """Latencies by rank, as far as a histogram and the longest latencies show them."""

    count: int
    """Number of all latencies."""
    buckets: Buckets | None
    longest_ns: NDArray[np.integer]
    """Longest latencies, the longest first; empty if they are unknown."""

    def at(self, rank: int) -> Between | None:
        """Bound the latency of a rank; return None if it is unknown.

        The longest of all is exact if it is known; others lie in a bucket if there are buckets.
        """
        place = self.count - rank
        is_known = place < len(self.longest_ns)
        if is_known and (self.buckets is None or not place):
            value = int(self.longest_ns[place])
            return Between(value, value)
        return None if self.buckets is None else self.buckets.at(rank)

    def beyond(self, limit_ns: float, *, is_strict: bool) -> Between | None:
        """Count latencies beyond a limit, at least and at most; None where nothing tells."""
        if self.is_among_longest(limit_ns):
            longest = self.longest_ns
            number = int(np.sum(longest > limit_ns if is_strict else longest >= limit_ns))
            return Between(number, number)
        return None if self.buckets is None else self.buckets.beyond(limit_ns, is_strict=is_strict)

    def is_among_longest(self, limit_ns: float) -> bool:
        """Return True if all latencies beyond a limit are among the longest, known one by one."""
        return bool(len(self.longest_ns)) and limit_ns > int(self.longest_ns[-1])


def _ranked(edges: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Sort edges, and count the latencies at or below each."""
    order = np.argsort(edges, kind="stable")
    return edges[order], np.cumsum(counts[order])
