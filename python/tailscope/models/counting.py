"""Probabilities of rare events from their counts, also if they come in bursts.

A count is binomial where events are independent. Delays are not: one stall delays many packets.
Then k of n say what k/D of n/D independent ones would, where D is the design effect (L. Kish,
*Survey Sampling*, 1965, §8.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.models.estimate import LEVEL, Estimate
from tailscope.models.special import betaincinv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Marks = NDArray[np.bool_]
    Values = NDArray[np.float64]

_STRETCHES = 100
_WORST = (10, 20, 50)
_DOUBT = 2.0
_MOST = 10**15
_CLOSE = 1e-3


def stretches_of(packets: int) -> int:
    """Return the number of stretches of equally many packets that a run is cut into."""
    return min(_STRETCHES, packets)


def in_stretches(marks: Marks) -> Counts:
    """Count the marked packets of each stretch."""
    stretches = stretches_of(len(marks))
    at = np.flatnonzero(marks) * stretches // max(1, len(marks))
    return np.bincount(at, minlength=stretches)


def worst_beside(beyond: int, packets: int) -> list[int]:
    """Return how many of the worst packets a design effect uses, besides those beyond a limit."""
    return [worst for worst in _WORST if beyond < worst < packets]


def design_effect(values: Values, is_beyond: Marks) -> float:
    """Return the number of packets in a burst that count as one independent packet; at least 1.

    As `design_effect_of`, of packets in memory.
    """
    n, counts = len(values), [in_stretches(is_beyond)]
    for worst in worst_beside(int(np.count_nonzero(is_beyond)), n):
        counts.append(in_stretches(values >= np.partition(values, n - worst)[n - worst]))
    return design_effect_of(counts)


def design_effect_of(counts: Sequence[Counts]) -> float:
    """Return the number of packets in a burst that count as one independent packet; at least 1.

    The run is cut into 100 stretches of equally many packets. Counts of independent events have a
    variance as large as their mean. That of bursts is larger, by the mean squared size of a burst
    over its mean size: the index of dispersion of a compound Poisson process. It is taken of the
    packets beyond the limit and of the worst 10, 20 and 50, so that bursts that stayed below
    the limit count too; the largest one decides. Its excess over 1 is doubled, because a few bursts
    tell their size badly, and too small where they were small by chance.
    """
    return 1 + _DOUBT * (max(map(_dispersion_of, counts), default=1.0) - 1)


def _dispersion_of(counts: Counts) -> float:
    """Return the variance of the marks in each stretch over their mean; at least 1."""
    if len(counts) < 2 or not counts.any():
        return 1.0
    return max(1.0, float(counts.var(ddof=1) / counts.mean()))


def closest(marked: Counts, some: int) -> Counts:
    """Count some of the marked packets in each stretch, as close together as they can be."""
    largest = np.sort(marked)[::-1]
    taken: Counts = np.clip(some - (np.cumsum(largest) - largest), 0, largest)
    return taken


def design_effect_in_time(
    sent_ns: NDArray[np.integer], beyond: int, failed: int, span_ns: int = 0
) -> float:
    """Return the `design_effect` if only the worst packets and their times are known.

    Stretches are of equal length within `span_ns`, for which packets were sent; where that is not
    known, between the first and the last of the worst. Packets that never came are put together,
    as the worst burst would be.
    """
    dispersion = 1.0
    for marked in (beyond, *(worst for worst in _WORST if worst > beyond)):
        counts = counts_in_time(sent_ns, marked, failed, _STRETCHES, span_ns)
        dispersion = max(dispersion, _dispersion_of(counts))
    return 1 + _DOUBT * (dispersion - 1)


def counts_in_time(
    sent_ns: NDArray[np.integer], marked: int, failed: int, stretches: int, span_ns: int = 0
) -> NDArray[np.int64]:
    """Count the worst packets that were sent in each stretch of time."""
    times = sent_ns.astype(np.int64) - int(sent_ns.min())
    lasted_ns = max(span_ns, int(times.max()) + 1)
    at = times[: max(0, marked - failed)] * stretches // lasted_ns
    counts = np.bincount(at, minlength=stretches)
    counts[0] += min(marked, failed)
    return counts


def share_beyond(
    beyond: float, packets: float, *, design: float = 1.0, error: float = 1 - LEVEL
) -> Estimate:
    """Estimate the share of packets beyond a limit, with an exact bound on each side."""
    k, n = beyond / design, packets / design
    return Estimate(
        estimate=beyond / packets,
        ci_low=betaincinv(k, n - k + 1, error) if beyond else 0.0,
        ci_high=betaincinv(k + 1, n - k, 1 - error) if beyond < packets else 1.0,
        level=1 - 2 * error,
        n=int(packets),
        method="Clopper-Pearson, of packets over their design effect",
    )


def packets_to_settle(
    beyond: int, packets: int, limit: float, *, design: float = 1.0, error: float = 1 - LEVEL
) -> int | None:
    """Return how many packets would tell the share from the limit, if it stays the same."""
    share = beyond / packets

    def tells(total: float) -> bool:
        estimate = share_beyond(share * total, total, design=design, error=error)
        return estimate.ci_high < limit if share < limit else estimate.ci_low > limit

    return first_enough(tells, at_least=packets)


def tolerated_design_effect(
    beyond: int, packets: int, limit: float, *, error: float = 1 - LEVEL
) -> float:
    """Return the largest design effect with which a share is still below its limit."""
    low, high = 1.0, float(packets)
    while high - low > _CLOSE * low:
        middle = (low + high) / 2
        estimate = share_beyond(beyond, packets, design=middle, error=error)
        low, high = (middle, high) if estimate.ci_high < limit else (low, middle)
    return low


def first_enough(is_enough: Callable[[float], bool], *, at_least: int = 1) -> int | None:
    """Return the smallest number of packets that is enough; None if it is above 10^15."""
    few, many = at_least - 1, at_least
    while not is_enough(float(many)):
        few, many = many, 2 * many
        if many > _MOST:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if is_enough(float(middle)) else (middle, many)
    return many
