"""Differences between two things from pairs of measurements, with repeated looks.

The two members of a pair are taken one right after the other, in random order: whatever the machine
does for longer than that is in both, and whatever it does to one of them could as well have met the
other. So, if the two things are alike, each difference is as likely as its negative, which is all
that the signed-rank test asks for (F. Wilcoxon, *Biometrics Bulletin* 1, 1945). The values of a
shift that it does not reject are its interval (J. L. Hodges and E. L. Lehmann, *Annals of
Mathematical Statistics* 34, 1963).

Who looks after each pair, and stops when something is seen, sees something in the end. Here a look
costs a part of the error, of which all looks together have no more than was given: the k-th has
6/(π²k²) of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.models.differences import Bounds
from tailscope.models.samples import rank_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_FIRST = 8
"""Pairs at the first look: the fewest that can reject at all with its part of 5 %."""
_GROWTH = 1.25


@dataclass(frozen=True)
class Block:
    """The latencies of a block of packets."""

    latency_ns: Integers
    least_ns: Integers
    """Latencies, ascending: as measured, and without the instrument's stalls."""
    sent: int
    """Number of packets sent; those that never came count as `window_ns`."""
    window_ns: int

    @property
    def lost_share(self) -> float:
        """Return the share of the sent packets that never came."""
        return 1 - len(self.latency_ns) / self.sent

    def quantile(self, q: float, *, least: bool) -> int:
        """Return a quantile of all sent packets, in ns; at least 1, as a ratio requires."""
        values, rank = self.least_ns if least else self.latency_ns, rank_of(q, self.sent)
        return max(1, int(values[rank - 1])) if rank <= len(values) else self.window_ns


class Pair(NamedTuple):
    """Two blocks, one right after the other."""

    a: Block
    b: Block
    b_was_first: bool


def pairs_of_look(look: int) -> int:
    """Return the number of pairs at a look, counted from 1: a quarter more each time."""
    return math.ceil(_FIRST * _GROWTH ** (look - 1))


def error_of_look(look: int, error: float) -> float:
    """Return the part of an error that a look, counted from 1, may take."""
    return error * 6 / (math.pi * look) ** 2


def shift(differences: NDArray[np.float64], error: float) -> Bounds:
    """Return the shift between two things, with an interval that assumes no law."""
    first, second = np.triu_indices(len(differences))
    means = np.sort((differences[first] + differences[second]) / 2)
    left_out = _left_out(len(differences), error / 2)
    value = float(np.median(means))
    if left_out < 0:
        return Bounds(value, -math.inf, math.inf)
    return Bounds(value, float(means[left_out]), float(means[-1 - left_out]))


def pairs_to_settle(bounds: Bounds, limit: float, pairs: int) -> int | None:
    """Return how many pairs would place a difference on one side of a limit, if it stays.

    Intervals become narrower with the root of the number of pairs.
    """
    away = abs(limit - bounds.value)
    reach = bounds.value - bounds.low if bounds.value > limit else bounds.high - bounds.value
    if not away or not math.isfinite(reach):
        return None
    return max(pairs, math.ceil(pairs * (reach / away) ** 2))


def _left_out(pairs: int, error: float) -> int:
    """Return how many means lie outside at each end; negative if all do not suffice."""
    return int(np.searchsorted(_law(pairs), error, side="right")) - 1


@cache
def _law(pairs: int) -> NDArray[np.float64]:
    """Return by k the probability that the ranks of positive differences sum to at most k."""
    ways = np.ones(1)
    for rank in range(1, pairs + 1):
        longer = np.zeros(len(ways) + rank)
        longer[: len(ways)] += ways
        longer[rank:] += ways
        ways = longer / 2
    return np.cumsum(ways)
