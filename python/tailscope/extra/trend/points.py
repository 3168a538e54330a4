"""Change points of a series of figures: E-divisive means, tested by permutations.

The search is that of apache-otava, which is imported when change points are looked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEED = 0
_RESOLUTION = 20
"""Steps of a p-value up to the largest that is significant."""


class ChangePoint(NamedTuple):
    """A point at which a series changes."""

    at: int
    """Index of the first different value, from 0."""
    p: float
    """Probability that values in random order look at least as different."""


def fewest_values(error: float) -> int:
    """Return how many values it takes for the clearest step to be significant.

    A step in the middle of n values, up or down, is two of the ways in which n values can be
    divided into two halves. These are at most half of the error, because orders are drawn.
    """
    n = 2
    while 2 / math.comb(n, n // 2) > error / 2:
        n += 1
    return n


def change_points(values: NDArray[np.float64], error: float) -> list[ChangePoint]:
    """Divide a series where its parts differ most, as long as that is significant.

    Of all ways to divide, the one with the largest energy statistic is compared with the largest
    ones of the same values in random order. So the choice is part of the test, no law is assumed,
    and values that come in any order show a change with probability `error` or less. The p-value is
    that of B. Phipson and G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9, 2010, which is never 0.

    Source: D. S. Matteson, N. A. James, J. Am. Stat. Assoc. 109, 2014.
    """
    detector = _detector(error)
    if len(values) < fewest_values(error) or not np.ptp(values):
        return []
    points = [
        ChangePoint(int(point.index), _p_value(point.stats))
        for point in detector.get_change_points(np.asarray(values, np.float64))
    ]
    return sorted(points)


def _p_value(stats: Any) -> float:
    return (int(stats.extreme_qhat_perm) + 1) / (int(stats.n_perm) + 1)


def _detector(error: float) -> Any:
    from otava.change_point_divisive.calculator import PairDistanceCalculator
    from otava.change_point_divisive.detector import ChangePointDetector
    from otava.change_point_divisive.significance_test import PermutationsSignificanceTester

    orders = math.ceil(_RESOLUTION / error) - 1
    tester = PermutationsSignificanceTester(
        # The tester counts only permutations that are at least as extreme; the half guards against
        # rounding.
        max_pvalue=error - 0.5 / (orders + 1),
        permutations=orders,
        calculator=PairDistanceCalculator,
        seed=_SEED,
    )
    return ChangePointDetector(significance_tester=tester, calculator=PairDistanceCalculator)
