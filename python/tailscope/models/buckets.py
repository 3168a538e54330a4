"""How many latencies lie where: all that a histogram of others says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


class Between(NamedTuple):
    """Where something lies: at least, and at most."""

    low: int
    high: int


@dataclass(frozen=True)
class Buckets:
    """Latencies in buckets, which may differ in width and overlap."""

    low_ns: Integers
    high_ns: Integers
    """Edges: a latency in a bucket is at least `low_ns` and at most `high_ns`."""
    counts: Integers
    """At least 1 each."""

    @property
    def count(self) -> int:
        """All latencies."""
        return int(self.counts.sum())

    def at(self, rank: int) -> Between:
        """Where the latency of a rank lies."""
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
        """How many latencies lie beyond a limit, at least and at most."""
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
    """Latencies by rank, as far as a histogram and the longest of them tell."""

    count: int
    """All latencies."""
    buckets: Buckets | None
    longest_ns: NDArray[np.integer]
    """The longest latencies, longest first; empty where they are not known."""

    def at(self, rank: int) -> Between | None:
        """Where the latency of a rank lies; None where nothing tells it.

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
        """Whether all latencies beyond a limit are among the longest, known one by one."""
        return bool(len(self.longest_ns)) and limit_ns > int(self.longest_ns[-1])


def _ranked(edges: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Edges in order, and how many latencies are at or below each."""
    order = np.argsort(edges, kind="stable")
    return edges[order], np.cumsum(counts[order])
