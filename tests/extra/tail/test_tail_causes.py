"""Causes of their own: what starts a run, what is rare, what comes by a clock; and the fit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tailscope.extra.tail.models.bursts import Bursts
from tailscope.extra.tail.models.causes import Rare, on_schedule, rare_sizes, schedule, start_up
from tailscope.extra.tail.models.goodness import goodness
from tailscope.extra.tail.models.pareto import Likelihood, Pareto
from tailscope.extra.tail.models.stationarity import stationarity

SECOND = 10**9


def burst_list(times_s: list[float], worst_ns: list[int]) -> Bursts:
    sent = (np.array(times_s) * SECOND).astype(np.int64)
    return Bursts(sent, np.array(worst_ns), np.ones(len(sent), np.int64))


def test_bursts_of_the_start_are_named() -> None:
    rest = list(np.linspace(1, 30, 60))
    early = burst_list([0.05, 0.3, *rest], [900, 700, *range(100, 160)])
    found = start_up(early, 0, 30 * SECOND)
    assert found is not None
    assert (found.bursts, found.worst_ns) == (2, 900)
    late = burst_list([0.05, 0.3, *rest], [100, 101, *range(102, 161), 900])
    assert start_up(late, 0, 30 * SECOND) is None


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([900, 850, *range(140, 100, -1)], 2), (list(range(140, 100, -1)), 0), ([9, 1], 0)],
)
def test_rare_bursts_are_behind_a_gap(sizes: list[int], expected: int) -> None:
    assert rare_sizes(np.array(sizes)) == expected


def test_the_rate_of_rare_bursts_has_the_exact_interval() -> None:
    rate, low, high = Rare(np.array([9, 8, 7]), 100 * SECOND).rate_per_s(0.95)
    assert (rate, low, high) == pytest.approx((0.03, 0.00619, 0.08767), rel=1e-3)


def test_a_schedule_is_found_across_runs() -> None:
    """The gaps of container/vanilla/optimized of containers2024."""
    times = np.array([2.0, 15.9, 55.7, 84.0, 120.7])
    runs = [((times + shift) * SECOND).astype(np.int64) for shift in (0, 0.6, -1.5)]
    sizes = [np.full(5, 490_000)] * 3
    found = schedule(runs, sizes, 160 * SECOND)
    assert found is not None
    assert found.period_ns is None
    assert found.runs == 3
    assert [each / SECOND for each in found.offsets_ns] == pytest.approx([0, 13.9, 53.7, 82, 118.7])
    assert all(on_schedule(found, at, run).all() for at, run in enumerate(runs))


def test_a_period_is_found_within_a_run_and_chance_is_not() -> None:
    period = [(np.arange(8) * 5.0 * SECOND + 2e9).astype(np.int64)]
    found = schedule(period, [np.full(8, 5)], 50 * SECOND)
    assert found is not None
    assert found.period_ns == pytest.approx(5 * SECOND)
    by_chance = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        runs = [np.sort(rng.integers(0, 160 * SECOND, 8)) for _ in range(3)]
        by_chance += schedule(runs, [np.full(8, 5)] * 3, 160 * SECOND) is not None
    assert by_chance <= 4


def test_a_law_that_fits_is_refused_as_seldom_as_it_says() -> None:
    refused = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        sample = Pareto(0.1, 100.0).draw(60, rng)
        refused += goodness(sample, Likelihood(sample).best, rng, 99) < 0.1
    assert 8 <= refused <= 36
    rng = np.random.default_rng(1)
    mixed = np.concatenate([rng.normal(10, 1, 50), rng.normal(1000, 10, 10)])
    assert goodness(mixed, Likelihood(mixed).best, rng) < 0.05


@pytest.mark.parametrize("seed", range(6))
def test_stationarity_is_that_of_statsmodels(seed: int) -> None:
    tools = pytest.importorskip("statsmodels.tsa.stattools")
    rng = np.random.default_rng(seed)
    series = rng.exponential(1, 40 * (seed + 1))
    if seed % 2:
        series = np.cumsum(series - 1)
    found = stationarity(series)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unit = tools.adfuller(series, autolag="AIC")
        level = tools.kpss(series, nlags="auto")
    assert found.adf == pytest.approx((unit[0], unit[4]["5%"], unit[1], unit[2]))
    assert found.kpss == pytest.approx((level[0], level[3]["5%"], level[1], level[2]))
