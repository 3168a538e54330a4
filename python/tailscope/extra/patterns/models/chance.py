"""What happens by chance."""

from __future__ import annotations

import math


def at_most(count: int, expected: float) -> float:
    """Return the probability of so many events or fewer, by Poisson's law.

    >>> round(at_most(0, 3.0), 4)
    0.0498
    """
    if count >= expected:
        return 1.0
    # Chernoff's bound needs no sum of many terms, and is never too small.
    if count == 0:
        return math.exp(-expected)
    return math.exp(count - expected - count * math.log(count / expected))


def on_time_by_chance(count: int, share: float, each: float) -> float:
    """Bound the probability that a share of so many unrelated events is on time (Chernoff).

    `each` is the probability of one of them, less than the share.

    >>> round(on_time_by_chance(3, 1.0, 0.04), 6)
    6.4e-05
    """
    late = 1 - share
    divergence = share * math.log(share / each) if share else 0.0
    if late:
        divergence += late * math.log(late / (1 - each))
    return math.exp(-count * divergence)
