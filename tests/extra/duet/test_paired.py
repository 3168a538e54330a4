"""Pairs of measurements: how often a difference is seen that is not there, and one that is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tailscope.extra.duet.paired import error_of_look, pairs_of_look, pairs_to_settle, shift
from tailscope.models.differences import Bounds

LAWS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(2, n),
    "bursts": lambda rng, n: rng.normal(size=n) + 20 * (rng.random(n) < 0.1),
    "skewed": lambda rng, n: rng.lognormal(0, 1.5, n),
}
"""Variation of blocks apart from the difference."""


def pairs(law: str, seed: int, count: int, shifted: float = 0.0) -> np.ndarray:
    """Differences of pairs in random order, where the second block suffers from the first."""
    rng = np.random.default_rng(seed)
    a, b = LAWS[law](rng, count), LAWS[law](rng, count) + shifted
    second_is_b = rng.random(count) < 0.5
    drift = 0.3 * np.abs(rng.normal(size=count))
    return b - a + np.where(second_is_b, drift, -drift)


def seen(law: str, seed: int, looks: int, shifted: float = 0.0) -> bool:
    """Return True if repeated looks show a difference."""
    every = pairs(law, seed, pairs_of_look(looks), shifted)
    for look in range(1, looks + 1):
        bounds = shift(every[: pairs_of_look(look)], error_of_look(look, 0.05))
        if bounds.low > 0 or bounds.high < 0:
            return True
    return False


@pytest.mark.parametrize("law", LAWS)
def test_who_looks_again_and_again_is_rarely_wrong(law: str) -> None:
    wrong = sum(seen(law, seed, looks=10) for seed in range(400))
    assert wrong <= stats.binom.ppf(0.999, 400, 0.05)


def test_a_difference_that_is_there_is_seen() -> None:
    assert sum(seen("normal", seed, looks=10, shifted=2.0) for seed in range(50)) >= 48
    assert sum(seen("bursts", seed, looks=10, shifted=2.0) for seed in range(50)) >= 40


@pytest.mark.parametrize("count", [8, 20, 60])
def test_the_interval_is_what_the_test_does_not_reject(count: int) -> None:
    differences = pairs("normal", 1, count, 0.5)
    bounds = shift(differences, 0.05)
    for end, inside, outside in ((bounds.low, 1e-9, -1e-9), (bounds.high, -1e-9, 1e-9)):
        kept = stats.wilcoxon(differences - end - inside, method="exact").pvalue
        rejected = stats.wilcoxon(differences - end - outside, method="exact").pvalue
        assert rejected <= 0.05 < kept
    assert bounds.low < bounds.value < bounds.high


def test_too_few_pairs_have_no_interval() -> None:
    assert shift(np.array([1.0, 2.0, 3.0]), 0.05) == Bounds(2.0, -math.inf, math.inf)


def test_all_looks_together_have_the_error() -> None:
    assert sum(error_of_look(look, 0.05) for look in range(1, 100_000)) <= 0.05
    assert [pairs_of_look(look) for look in (1, 2, 3, 4)] == [8, 10, 13, 16]


def test_how_many_pairs_settle_it() -> None:
    assert pairs_to_settle(Bounds(0.0, -0.1, 0.1), 0.05, 10) == 40
    assert pairs_to_settle(Bounds(0.2, 0.0, 0.4), 0.1, 10) == 40
    assert pairs_to_settle(Bounds(0.1, 0.0, 0.2), 0.1, 10) is None
    assert pairs_to_settle(Bounds(0.0, -math.inf, math.inf), 0.1, 5) is None
