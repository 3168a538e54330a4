"""How other tools tell whether a benchmark became slower, on the same numbers as a duet.

benchstat (golang.org/x/perf) tests by Mann and Whitney whether two samples differ, at 5 %. critcmp
shows what its point estimates differ by, from a threshold on. github-action-benchmark alerts when a
value exceeds that of the commit before by a factor, 2 by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

ALPHA = 0.05
CRITCMP_THRESHOLD = 0.05
ALERT_THRESHOLD = 2.0
_EXACT_UP_TO = 50
"""Samples of each side up to which benchstat computes the exact law, if no values are tied."""

Values = Sequence[float]


def mann_whitney(a: Values, b: Values) -> float:
    """Return the two-sided p of the U test: exact for small samples without ties, else normal."""
    both = np.concatenate([a, b])
    order = np.argsort(both, kind="stable")
    _, places, counts = np.unique(both[order], return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = np.empty(len(both))
    ranks[order] = (ends - (counts - 1) / 2)[places]
    n, m = len(a), len(b)
    u = float(ranks[:n].sum() - n * (n + 1) / 2)
    if counts.max() == 1 and max(n, m) <= _EXACT_UP_TO:
        return _exact(min(u, n * m - u), n, m)
    ties = float((counts.astype(float) ** 3 - counts).sum())
    spread = math.sqrt(n * m / 12 * ((n + m + 1) - ties / ((n + m) * (n + m - 1))))
    if not spread:
        return 1.0
    away = max(0.0, abs(u - n * m / 2) - 0.5) / spread
    return math.erfc(away / math.sqrt(2))


def _exact(u: float, n: int, m: int) -> float:
    """Return twice the share of orders whose U is at most u, and 1 at most.

    A value of A that stands behind k of B adds k: so U is a sum of n numbers in order up to m.
    """
    ways = np.zeros((n + 1, n * m + 1))
    ways[0, 0] = 1
    for value in range(m + 1):
        for count in range(1, n + 1):
            added = ways[count - 1, : n * m + 1 - value]
            ways[count, value:] += added
    law = ways[n] / ways[n].sum()
    return float(min(1.0, 2 * law[: int(u) + 1].sum()))


def benchstat(a: Values, b: Values) -> bool:
    """Return whether the samples differ by the test, and B's median is the higher one."""
    return mann_whitney(a, b) < ALPHA and float(np.median(b)) > float(np.median(a))


def critcmp(a: Values, b: Values) -> bool:
    """Return whether B's mean lies above A's by the threshold."""
    return float(np.mean(b) / np.mean(a)) - 1 >= CRITCMP_THRESHOLD


def action_benchmark(a: Values, b: Values) -> bool:
    """Return whether B's mean exceeds A's by the factor at which an alert is written."""
    return float(np.mean(b) / np.mean(a)) > ALERT_THRESHOLD


RULES: Mapping[str, Callable[[Values, Values], bool]] = {
    "benchstat": benchstat,
    "critcmp": critcmp,
    "github-action-benchmark": action_benchmark,
}
"""Whether B is called slower, by rule."""
