"""Differences where the law is known: seldom called real without one, and seen where large."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import binom

from tailscope.models.counting import in_stretches
from tailscope.models.differences import (
    Bounds,
    difference,
    mean,
    packets_worth_of,
    quantile_ends,
    ratio_ends,
)
from tailscope.models.samples import SUPPORT, rank_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Law = Callable[[np.random.Generator], Values]

PACKETS, PAIRS, MANY_PAIRS = 20_000, 100, 300
QUANTILES = (0.5, 0.9, 0.99, 0.999)
WRONG = 0.05
ONE = WRONG / 2
ALL = ONE / len(QUANTILES)


def packets_worth(marks: NDArray[np.bool_]) -> float:
    return packets_worth_of(in_stretches(marks), len(marks))


def independent(rng: np.random.Generator) -> Values:
    return rng.exponential(1e4, PACKETS)


def stalled(rng: np.random.Generator) -> Values:
    """Stalls of random length, now and then: each delays dozens of packets in a row."""
    values = 1e3 + rng.exponential(1e3, PACKETS)
    count = rng.poisson(PACKETS / 1000)
    for at, length in zip(
        rng.integers(0, PACKETS, count), rng.exponential(40, count).astype(int), strict=True
    ):
        late = (length - np.arange(length)) * 1e5
        part = values[at : at + length]
        np.maximum(part, late[: len(part)], out=part)
    return values


def two_speeds(rng: np.random.Generator) -> Values:
    """A device that is slow for hundreds of packets, then fast for as long."""
    lengths = rng.geometric(1 / 300, size=PACKETS // 50)
    slow = np.repeat(np.arange(len(lengths)) % 2, lengths)[:PACKETS]
    return rng.exponential(1e3, PACKETS) * (1 + slow)


def remembering(rng: np.random.Generator) -> Values:
    """Latencies that resemble those a hundred packets before."""
    from scipy.signal import lfilter

    keep = math.exp(-1 / 100)
    noise = lfilter([1], [1, -keep], rng.standard_normal(PACKETS + 1000))[1000:]
    return np.exp(noise * math.sqrt(1 - keep * keep)) * 1e4


def found(values: Values, *errors: float, naive: bool = False) -> dict[float, list[Bounds]]:
    """The quantiles that the packets support, as `tailscope compare` has them."""
    ranked, ends = np.sort(values), {}
    for q in QUANTILES:
        rank = rank_of(q, len(values))
        design = 1.0 if naive else packets_worth(values > ranked[rank - 1])
        if (len(values) - rank) / design >= SUPPORT:
            ends[q] = [quantile_ends(ranked, q, design, error) for error in errors]
    return ends


def is_real(a: Bounds, b: Bounds, error: float) -> bool:
    between = difference([a], [b], error)
    return between.low > 0 or between.high < 0


def most_wrong(pairs: int) -> float:
    """The largest share of wrong ones among so many that chance explains."""
    return WRONG + 3 * math.sqrt(WRONG * (1 - WRONG) / pairs)


def false_shares(law: Law, count: int, *, naive: bool = False) -> tuple[float, float]:
    """Return the shares of equal pairs that look different: by any figure, and by one."""
    pairs, single = 0, dict.fromkeys(QUANTILES, 0)
    for seed in range(count):
        rngs = np.random.default_rng((1, seed)), np.random.default_rng((2, seed))
        a, b = (found(law(rng), ALL, ONE, naive=naive) for rng in rngs)
        both = [q for q in a if q in b]
        pairs += any(is_real(a[q][0], b[q][0], ALL) for q in both)
        for q in both:
            single[q] += is_real(a[q][1], b[q][1], ONE)
    return pairs / count, max(single.values()) / count


LAWS = (independent, stalled, two_speeds, remembering)


@pytest.mark.parametrize(
    ("law", "pairs"),
    [
        (independent, PAIRS),
        (remembering, PAIRS),
        *(pytest.param(law, MANY_PAIRS, marks=pytest.mark.long) for law in LAWS),
    ],
)
def test_no_difference_is_seldom_called_one(law: Law, pairs: int) -> None:
    """All quantiles are tested together, and each by itself."""
    together, alone = false_shares(law, pairs)
    assert together <= most_wrong(pairs)
    assert alone <= most_wrong(pairs)


def test_taken_for_independent_bursts_would_deceive() -> None:
    """This canary of the test above shows what the design effect is for."""
    together, _ = false_shares(stalled, PAIRS, naive=True)
    assert together > 0.3


@pytest.mark.parametrize("law", LAWS)
def test_a_large_difference_is_seen(law: Law) -> None:
    seen = 0
    for seed in range(30):
        rngs = np.random.default_rng((1, seed)), np.random.default_rng((2, seed))
        [a], [b] = found(law(rngs[0]), ALL)[0.5], found(2 * law(rngs[1]), ALL)[0.5]
        between = difference([a], [b], ALL)
        seen += between.low > 0
        assert between.low <= between.value <= between.high
    assert seen >= 27


def runs_of(rng: np.random.Generator, count: int, spread: float) -> list[Bounds]:
    """Runs that repeat each other, of which each has a speed of its own."""
    runs = []
    for _ in range(count):
        values = np.sort(rng.exponential(1e4 * math.exp(spread * rng.standard_normal()), 2_000))
        runs.append(quantile_ends(values, 0.9, 1.0, ONE))
    return runs


@pytest.mark.parametrize(("one", "other"), [(3, 3), (2, 5), (5, 1), (1, 5)])
def test_what_differs_from_run_to_run_is_no_difference(one: int, other: int) -> None:
    wrong = 0
    for seed in range(PAIRS):
        rng = np.random.default_rng(seed)
        between = difference(runs_of(rng, one, 0.2), runs_of(rng, other, 0.2), ONE)
        wrong += between.low > 0 or between.high < 0
    assert wrong / PAIRS <= most_wrong(PAIRS)


def test_single_runs_know_nothing_of_others() -> None:
    """Repeated runs show what a single pair cannot."""
    wrong = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        between = difference(runs_of(rng, 1, 0.2), runs_of(rng, 1, 0.2), ONE)
        wrong += between.low > 0 or between.high < 0
    assert wrong > 20


def test_runs_that_are_alike_by_chance_do_not_hide_their_own_width() -> None:
    alike = [Bounds(100.0, 80.0, 120.0)] * 2
    assert mean(alike, ONE) == pytest.approx(
        (100, 100 - 20 / math.sqrt(2), 100 + 20 / math.sqrt(2))
    )
    assert difference(alike, alike, ONE) == pytest.approx((0, -20, 20))


def test_ends_are_those_of_order_statistics() -> None:
    n, q, error = 1_000, 0.9, 0.025
    ranked = np.arange(1.0, n + 1)
    value, low, high = quantile_ends(ranked, q, 1.0, error)
    assert value == rank_of(q, n)
    # P(N < low) and P(N >= high), of a binomial N, are the errors; one rank further they are more.
    assert binom.cdf(low - 1, n, q) <= error < binom.cdf(low, n, q)
    assert binom.sf(high - 1, n, q) <= error < binom.sf(high - 2, n, q)


def test_an_end_that_samples_do_not_give_is_infinite() -> None:
    ends = quantile_ends(np.arange(100.0), 0.999, 1.0, ONE)
    assert ends.high == math.inf and math.isfinite(ends.low)
    between = difference([ends], [Bounds(1.0, 0.0, 2.0)], ONE)
    assert between.low == -math.inf and math.isfinite(between.high)
    assert quantile_ends(np.array([7.0]), 0.5, 1.0, ONE) == (7, -math.inf, math.inf)


@pytest.mark.parametrize("marks", [np.zeros(500, bool), np.ones(500, bool), np.zeros(0, bool)])
def test_packets_that_are_all_alike_stand_alone(marks: NDArray[np.bool_]) -> None:
    assert packets_worth(marks) == 1


def test_packets_are_worth_what_their_bursts_are() -> None:
    rng = np.random.default_rng(3)
    alone = rng.random(200_000) < 0.01
    assert packets_worth(alone) < 2
    in_tens = np.repeat(rng.random(20_000) < 0.01, 10)
    assert 8 < packets_worth(in_tens) < 25


def test_a_rate_varies_as_its_seconds_do() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(MANY_PAIRS):
        came = rng.binomial(1_000, 0.98, 60).astype(float)
        ends = ratio_ends(came, np.full(60, 1_000.0), ONE)
        held += ends.low <= 0.98 <= ends.high
    assert held / MANY_PAIRS >= 1 - most_wrong(MANY_PAIRS)
    assert ratio_ends(came[:4], np.ones(4), ONE).high == math.inf


def test_a_multiple_of_the_baseline_can_be_compared() -> None:
    a, b = [Bounds(100.0, 98.0, 102.0)], [Bounds(115.0, 113.0, 117.0)]
    assert difference(a, b, ONE, 1.1).low > 0
    assert difference(a, b, ONE, 1.2).high < 0
    assert difference(a, b, ONE, 1.15) == pytest.approx(
        (0, -math.hypot(2, 2.3), math.hypot(2, 2.3))
    )
