"""Delays of a stream as RFC 2544 and RFC 8219 ask for them, and what repetitions say together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.standards.records import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Integers = NDArray[np.int64]

_MERGE = 1 << 20
"""Values that wait to be counted together."""


@dataclass
class Counted:
    """Whole numbers, each with how often it came: streams have many packets and few values."""

    _values: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    _counts: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    _waiting: list[Integers] = field(default_factory=list)

    def add(self, values: Integers) -> None:
        """Count more of them."""
        if len(values):
            self._waiting.append(values)
        if sum(map(len, self._waiting)) >= _MERGE:
            self._merge()

    @property
    def count(self) -> int:
        """The number of values."""
        self._merge()
        return int(self._counts.sum())

    @property
    def least(self) -> int:
        """The smallest."""
        self._merge()
        return int(self._values[0])

    @property
    def most(self) -> int:
        """The largest."""
        self._merge()
        return int(self._values[-1])

    def quantile(self, q: float) -> int:
        """The smallest value with at least that share of all at or below it (RFC 2330, 11.3)."""
        rank = max(1, math.ceil(round(q * self.count, 6)))
        return int(self._values[np.searchsorted(np.cumsum(self._counts), rank)])

    @property
    def median(self) -> float:
        """The middle one, or the mean of the two in the middle (RFC 2330, 11.3)."""
        count = self.count
        ends = np.cumsum(self._counts)
        ranks = ((count + 1) // 2, count // 2 + 1)
        low, high = (int(self._values[np.searchsorted(ends, rank)]) for rank in ranks)
        return (low + high) / 2

    def _merge(self) -> None:
        if not self._waiting:
            return
        values, at = np.unique(np.concatenate([self._values, *self._waiting]), return_inverse=True)
        ones = np.ones(len(at) - len(self._counts), np.int64)
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, at, np.concatenate([self._counts, ones]))
        self._values, self._counts, self._waiting = values.astype(np.int64), counts, []


@dataclass(frozen=True)
class Tagged:
    """The frame whose latency a stream of RFC 2544, section 26.2, is for."""

    latency_ns: int
    tainted: bool
    """True if the instrument stalled while the frame was on its way."""


class Delays:
    """Delays of a stream: receives its matches as `analyze_recording` hands them to a sink."""

    def __init__(self, half_ns: int) -> None:
        self._half_ns = half_ns
        self._first_ns: int | None = None
        self._last_ns = 0
        self.every, self.second_half, self.differences = Counted(), Counted(), Counted()
        self.tagged: Tagged | None = None
        self.tainted = 0
        self.last_gap: int | None = None
        self.last: int | None = None

    def __call__(self, *columns: ArrayLike) -> None:
        """Take matches in the order of departure: the columns of `Series`."""
        seq, pre_ns, latency_ns = (np.asarray(each, np.int64) for each in columns[:3])
        if not len(seq):
            return
        tainted = np.asarray(columns[4], bool)
        if self._first_ns is None:
            self._first_ns = int(pre_ns[0])
        before = -1 if self.last is None else self.last
        steps = np.diff(seq, prepend=before)
        gaps = np.flatnonzero(steps > 1)
        if len(gaps):
            self.last_gap = int(seq[gaps[-1]]) - 1
        changes = np.diff(latency_ns, prepend=self._last_ns)
        is_next = steps == 1
        if self.last is None:
            is_next[0] = False
        self.differences.add(changes[is_next])
        late = pre_ns >= self._first_ns + self._half_ns
        if self.tagged is None and late.any():
            at = int(np.argmax(late))
            self.tagged = Tagged(int(latency_ns[at]), bool(tainted[at]))
        self.every.add(latency_ns)
        self.second_half.add(latency_ns[late])
        self.tainted += int(tainted.sum())
        self.last, self._last_ns = int(seq[-1]), int(latency_ns[-1])

    @property
    def pdv_ns(self) -> int:
        """D99.9thPercentile - Dmin (RFC 8219, section 7.3.1)."""
        return self.every.quantile(0.999) - self.every.least

    def last_lost(self, sent: int) -> int | None:
        """The last frame, by its number, of so many that did not come back; None if all did."""
        if self.last is None or self.last < sent - 1:
            return sent - 1
        return self.last_gap


def spread_of(found: Sequence[float]) -> Spread:
    """Summarise what repetitions found: median, 1st and 99th percentile (RFC 8219)."""
    counted = Counted()
    counted.add(np.asarray(np.floor(found), np.int64))
    ordered = sorted(found)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return Spread(median_ns=middle, p1_ns=counted.quantile(0.01), p99_ns=counted.quantile(0.99))
