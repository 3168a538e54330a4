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
