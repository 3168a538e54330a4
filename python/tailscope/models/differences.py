"""Differences between a figure of two groups of runs, with intervals.

Packets are not independent, and runs are not alike. Within a run, a quantile has the interval of
order statistics of as many independent packets as its packets are worth: packets over their design
effect (L. Kish, *Survey Sampling*, 1965, §8.2). From run to run, Student's interval of the runs'
figures. Of both, the wider one counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tailscope.models.counting import counts_in_time
from tailscope.models.estimate import LEVEL
from tailscope.models.samples import rank_of
from tailscope.models.special import betainc, stdtrit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Marks = NDArray[np.bool_]
    Values = NDArray[np.float64]

_STRETCHES = (100, 20)
_DOUBT = 1.5
_BATCHES, _FEWEST_BATCHES = 10, 5


class Bounds(NamedTuple):
    """A figure, and the ends of its interval."""

    value: float
    low: float
    high: float
    """Ends of the interval; infinite if there is none."""


def packets_worth_of(counts: NDArray[np.int64], packets: int) -> float:
    """Return how many packets count as one independent packet: the design effect of marks.

    The run is cut into 100 and into 20 stretches. The variance of the shares of marks in them is
    that of independent packets, or larger by what neighbours have in common. The larger finding
    counts, and its excess over 1 half as much again, because a few bursts tell their size badly.
    """
    share = float(counts.sum()) / max(1, packets)
    if not 0 < share < 1:
        return 1.0
    effect = 1.0
    for stretches in _STRETCHES:
        if packets < 2 * stretches:
            continue
        which = np.arange(len(counts)) * stretches // len(counts)
        sizes = np.diff(-(-np.arange(stretches + 1) * packets // stretches))
        shares = np.bincount(which, weights=counts, minlength=stretches) / sizes
        variance = float(shares.var(ddof=1))
        effect = max(effect, variance * packets / stretches / (share * (1 - share)))
    return 1 + _DOUBT * (effect - 1)


def packets_worth_in_time(
    sent_ns: NDArray[np.integer], beyond: int, failed: int, packets: int, span_ns: int = 0
) -> float:
    """Return the design effect if only the worst packets and their times are known.

    `span_ns` is how long packets were sent, and 0 where that is not known.
    """
    share = beyond / packets
    if not 0 < share < 1:
        return 1.0
    effect = 1.0
    for stretches in _STRETCHES:
        counts = counts_in_time(sent_ns, beyond, failed, stretches, span_ns)
        variance = float((counts * (stretches / packets)).var(ddof=1))
        effect = max(effect, variance * packets / stretches / (share * (1 - share)))
    return 1 + _DOUBT * (effect - 1)


class Ranked(Protocol):
    """Samples in ascending order, such as an array."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, place: int, /) -> float:
        """Return the sample at an index, from 0."""
        ...


def quantile_ends(ranked: Ranked, q: float, design: float, error: float) -> Bounds:
    """Return a quantile, and the samples between which the true one lies.

    Source: H. A. David, H. N. Nagaraja, *Order Statistics*, §7.1; ranks over the design effect.
    """
    rank, low, high = ranks_around(q, len(ranked), design, error)
    return Bounds(
        float(ranked[rank - 1]),
        float(ranked[low - 1]) if low else -math.inf,
        float(ranked[high - 1]) if high else math.inf,
    )


def ranks_around(
    q: float, n: int, design: float = 1.0, error: float = (1 - LEVEL) / 2
) -> tuple[int, int, int]:
    """Return the rank of a quantile among samples, and the ranks of the ends of its interval.

    Source: H. A. David, H. N. Nagaraja, *Order Statistics*, §7.1; ranks over the design effect.
    """
    rank = rank_of(q, n)

    def is_below(low: int) -> bool:
        return betainc((n - low) / design + 1, low / design, 1 - q) <= error

    def is_above(from_end: int) -> bool:
        high = n + 1 - from_end
        return betainc(high / design, (n - high) / design + 1, q) <= error

    low, from_end = _last(is_below, rank), _last(is_above, n + 1 - rank)
    return rank, low, n + 1 - from_end if from_end else 0


def ratio_ends(over: Values, under: Values, error: float) -> Bounds:
    """Return a ratio of sums over time, with Student's interval of ten batches of neighbours."""
    ratio = float(over.sum() / under.sum())
    batches = min(_BATCHES, len(over))
    if batches < _FEWEST_BATCHES:
        return Bounds(ratio, -math.inf, math.inf)
    at = np.arange(batches) * len(over) // batches
    rest = np.add.reduceat(over - ratio * under, at)
    reach = _student(batches - 1, error) * float(rest.std(ddof=1)) * math.sqrt(batches)
    return Bounds(ratio, ratio - reach / float(under.sum()), ratio + reach / float(under.sum()))


def mean(runs: Sequence[Bounds], error: float) -> Bounds:
    """Return the mean figure of runs that repeat each other."""
    value, below, above = _within(runs)
    between = 0.0
    if len(runs) > 1:
        between = _student(len(runs) - 1, error) * math.sqrt(_variance(runs) / len(runs))
    return Bounds(value, value - max(below, between), value + max(above, between))


def difference(
    baseline: Sequence[Bounds], candidate: Sequence[Bounds], error: float, factor: float = 1.0
) -> Bounds:
    """Return the mean of runs less that of others, or less a multiple of it.

    Within runs, distances to the ends add as squares do (MOVER: G. Y. Zou, A. Donner, Statistics in
    Medicine 27, 2008). From run to run it is Student's interval, or Welch's; a single run is taken
    to vary as the others do.
    """
    base, base_below, base_above = _within(baseline)
    other, other_below, other_above = _within(candidate)
    value = other - factor * base
    below = math.hypot(other_below, factor * base_above)
    above = math.hypot(other_above, factor * base_below)
    between = _between(baseline, candidate, error, factor)
    return Bounds(value, value - max(below, between), value + max(above, between))


def _within(runs: Sequence[Bounds]) -> tuple[float, float, float]:
    """Return the mean, and the distances to its ends by the runs' own intervals."""
    n = len(runs)
    below = math.hypot(*(run.value - run.low for run in runs)) / n
    above = math.hypot(*(run.high - run.value for run in runs)) / n
    return sum(run.value for run in runs) / n, below, above


def _between(
    baseline: Sequence[Bounds], candidate: Sequence[Bounds], error: float, factor: float
) -> float:
    """Return the distances to a difference's ends by what varies between runs; 0 of single runs.

    Student's interval takes both sides to vary alike, Welch's does not, but trusts two runs too
    much: the wider one counts.
    """
    sides = (baseline, candidate)
    weights = (factor**2 / len(baseline), 1 / len(candidate))
    freedoms = [len(runs) - 1 for runs in sides]
    if not any(freedoms):
        return 0.0
    variances = [_variance(runs) if len(runs) > 1 else 0.0 for runs in sides]
    pooled = float(np.average(variances, weights=freedoms))
    reach = _student(sum(freedoms), error) * math.sqrt(pooled * sum(weights))
    parts = [weight * variance for weight, variance in zip(weights, variances, strict=True)]
    if not all(freedoms) or not sum(parts):
        return reach
    freedom = sum(parts) ** 2 / sum(
        part**2 / each for part, each in zip(parts, freedoms, strict=True)
    )
    return max(reach, _student(freedom, error) * math.sqrt(sum(parts)))


def _variance(runs: Sequence[Bounds]) -> float:
    return float(np.var([each.value for each in runs], ddof=1))


def _student(freedom: float, error: float) -> float:
    return -stdtrit(freedom, error)


def _last(holds: Callable[[int], bool], most: int) -> int:
    """Return the last number that satisfies a condition, if all from 1 to there do; 0 if none."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
