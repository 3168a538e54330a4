"""Number of packets that a statement requires, before or after a first measurement."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.models.counting import first_enough
from tailscope.models.estimate import LEVEL
from tailscope.models.special import bdtr

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SUPPORT = 10
"""Smallest number of samples beyond a quantile that makes it more than a bound."""


class SampleSize(NamedTuple):
    """A number of packets, or the reason for none."""

    packets: int | None
    reason: str | None = None


def rank_of(q: float, n: int) -> int:
    """Return the rank of a quantile among n samples, from 1, by its decimal digits."""
    return max(1, math.ceil(Fraction(str(q)) * n))


def quantile_of(values: NDArray[np.float64], q: float) -> float:
    """Return the smallest of the values with at least ``q n`` of them at or below it."""
    rank = rank_of(q, len(values))
    return float(np.partition(values, rank - 1)[rank - 1])


def packets_for_support(q: float) -> int:
    """Return the fewest packets of which 10 lie beyond a quantile, counted by rank."""
    return math.ceil(SUPPORT / _beyond(q))


def packets_for_interval(q: float) -> int:
    """Return the fewest packets whose least and largest enclose a quantile with 95 %."""
    return _fewest(lambda n: (1 - q) ** n + q**n <= 1 - LEVEL)


def packets_for_bound(q: float, beyond: int = 0) -> int:
    """Return the fewest packets for "at least this quantile, with 95 %", with so many beyond.

    The largest but `beyond` of them is an upper bound of the quantile then, whatever the law (S. S.
    Wilks, Annals of Mathematical Statistics 12, 1941). It is what a limit takes to be kept with
    95 %.
    """
    rare = float(_beyond(q))
    return _fewest(lambda n: n > beyond and bdtr(beyond, int(n), rare) <= 1 - LEVEL)


def packets_for_share(q: float, relative_error: float) -> int:
    """Return the packets that tell the share beyond a quantile within a relative error."""
    return math.ceil((_z() / relative_error) ** 2 * q / float(_beyond(q)))


def packets_for_latency(
    latency_ns: NDArray[np.float64], q: float, relative_error: float
) -> SampleSize:
    """Return the packets that tell a quantile of the latency within a relative error.

    Of a sample the share at or below the true quantile has the standard error
    ``sqrt(q (1 - q) / n)``. The quantile stays within the error as long as that share moves
    by no more than lies between: counted in a run, on both sides, nothing extrapolated.
    """
    n, rank = len(latency_ns), rank_of(q, len(latency_ns))
    if n - rank < SUPPORT:
        return SampleSize(
            None,
            f"{max(0, n - rank)} of the run's {n:,} packets lie beyond the quantile, expected at"
            f" least {SUPPORT}: their density there is unknown",
        )
    value = quantile_of(latency_ns, q)
    below = q * n - np.count_nonzero(latency_ns < value * (1 - relative_error))
    above = np.count_nonzero(latency_ns <= value * (1 + relative_error)) - q * n
    between = min(below, above)
    if between < SUPPORT:
        side = "above" if above < below else "below"
        return SampleSize(
            None,
            f"{max(0, between):.0f} of the run's packets lie within that error {side} the quantile,"
            f" expected at least {SUPPORT}: their density there is unknown",
        )
    return SampleSize(math.ceil(q * (1 - q) * (_z() * n / between) ** 2))


def _z() -> float:
    return NormalDist().inv_cdf((1 + LEVEL) / 2)


def _beyond(q: float) -> Fraction:
    """Return the share beyond a quantile, by its decimal digits."""
    return 1 - Fraction(str(q))


def _fewest(is_enough: Callable[[float], bool]) -> int:
    packets = first_enough(is_enough)
    assert packets is not None, "a quantile below 1 is reached"
    return packets
