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
from tailscope.noise.intervals import union

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.duet.others import OthersHeld

    Integers = NDArray[np.int64]

_FIRST = 8
"""Pairs at the first look: the fewest that can reject at all with its part of 5 %."""
_GROWTH = 1.25
_FEWEST = 10
"""Packets whose quantile is taken, at least one of them beyond it."""
_LESS = 0.9
"""Share of the time before, up to which what a device holds gets less."""
NEVER = np.iinfo(np.int64).max
"""Time until another program holds a CPU, where none does."""
_WITHIN_NS = [round(1000 * 2 ** (step / 4)) for step in range(96)]
"""Times from 1 µs to 14 s, each a fifth longer than the one before."""


@dataclass(frozen=True)
class Block:
    """The latencies of a block of packets."""

    latency_ns: Integers
    least_ns: Integers
    """Latencies of all packets that were sent, as measured, and without the instrument's stalls;
    of those that never came, the window in which they were awaited.
    """
    free_ns: Integers
    """Time from when each packet left until another program held a CPU of the block; 0 where one
    did, or had just done, and the largest number where none would.
    """
    lost: int
    """Number of packets that never came."""
    stalled_share: float
    """Share of the time that the generator stood still."""
    others: OthersHeld
    """When other programs held the CPUs."""

    @property
    def lost_share(self) -> float:
        """Return the share of the sent packets that never came."""
        return self.lost / len(self.latency_ns)

    def left_free(self, within_ns: int) -> NDArray[np.bool_]:
        """Mark the packets that left so long before another program held a CPU."""
        return self.free_ns >= within_ns

    def quantile(self, q: float, *, least: bool, within_ns: int = 0) -> int:
        """Return a quantile of packets that left free, in ns; at least 1, as a ratio requires."""
        values = (self.least_ns if least else self.latency_ns)[self.left_free(within_ns)]
        rank = rank_of(q, len(values))
        return max(1, int(np.partition(values, rank - 1)[rank - 1]))

    def tells(self, q: float, within_ns: int) -> bool:
        """Return whether a quantile of packets that left free is known: no higher than that."""
        values = self.latency_ns[self.left_free(within_ns)]
        if len(values) < _FEWEST or len(values) * (1 - q) < 1:
            return False
        return int(np.count_nonzero(values <= within_ns)) >= rank_of(q, len(values))


class Pair(NamedTuple):
    """Two blocks, one right after the other."""

    a: Block
    b: Block
    b_was_first: bool

    @property
    def met_others(self) -> bool:
        """Return True if another program held a CPU, as far as that is known."""
        return any((block.free_ns != NEVER).any() for block in (self.a, self.b))

    def within_ns(self, q: float) -> int:
        """Return for how long packets must have left free, so that both blocks tell a quantile.

        It is the shortest such time, for both alike, so that neither is favoured. 0, which is all
        packets, where no program held a CPU, or the blocks tell the quantile at no time.
        """
        if not self.met_others:
            return 0
        times = (ns for ns in _WITHIN_NS if self.a.tells(q, ns) and self.b.tells(q, ns))
        return next(times, 0)


def free_ns(
    meant_ns: Integers, left_ns: Integers, back_ns: Integers, start_ns: Integers, end_ns: Integers
) -> Integers:
    """Return the time from each packet's departure until a CPU is held; 0 where it is, or just was.

    Packets were meant to leave, left and came back at these times; one that was meant to leave
    while the generator's CPU was held leaves in a burst. A CPU counts as held until the device has
    caught up. Of packets that never came back, that time is 0.
    """
    if not len(start_ns):
        return np.full(len(left_ns), NEVER)
    start_ns, end_ns = union(start_ns, _caught_up_ns(meant_ns, back_ns, end_ns))
    is_held = np.concatenate([[0], end_ns])[np.searchsorted(start_ns, meant_ns, "right")] > meant_ns
    at = np.searchsorted(start_ns, left_ns, "right")
    is_held |= np.concatenate([[0], end_ns])[at] > left_ns
    until_ns = np.append(start_ns, NEVER)[at]
    return np.where(is_held, 0, np.where(until_ns == NEVER, NEVER, until_ns - left_ns))


def _caught_up_ns(meant_ns: Integers, back_ns: Integers, end_ns: Integers) -> Integers:
    """Return when a device has caught up with what waited until each of these times.

    All that were meant to leave by then have waited; what left until they were back has waited
    behind them, and so on. A backlog takes less long each time. What does not is no backlog, but
    what the device always holds.
    """
    order = np.argsort(meant_ns, kind="stable")
    meant_ns, last_ns = meant_ns[order], np.append(0, np.maximum.accumulate(back_ns[order]))
    took_ns = np.full(len(end_ns), NEVER)
    while True:
        until_ns = last_ns[np.searchsorted(meant_ns, end_ns)] - end_ns
        is_backlog = (until_ns > 0) & (until_ns < _LESS * took_ns)
        if not is_backlog.any():
            return end_ns
        took_ns = np.where(is_backlog, until_ns, 0)
        end_ns = end_ns + took_ns


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
