"""The law of excesses: against SciPy, against itself, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import genpareto

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.excesses import Excesses
from tailscope.extra.tail.models.fit import FEWEST_BURSTS, fit
from tailscope.extra.tail.models.laws import plausible, resampled
from tailscope.extra.tail.models.pareto import LOWEST_XI, Likelihood, Pareto, refit

SHAPES = (-0.3, 0.0, 0.3)
SIGMA_NS = 10_000.0
THRESHOLD_NS = 1_000
SECONDS = 1_000
RUNS, MANY_RUNS = 120, 500
LEVEL = 0.95


def series(rng: np.random.Generator, law: Pareto, expected: int) -> Excesses:
    """Excesses that come as a Poisson process does, among a million packets."""
    count = int(rng.poisson(expected))
    sent = np.sort(rng.integers(0, SECONDS * 10**9, count))
    latency = np.rint(THRESHOLD_NS + law.draw(count, rng)).astype(np.int64) + 1
    return Excesses(sent, latency, sent // 10**6, THRESHOLD_NS, 10**6, 0, SECONDS * 10**9)


@given(
    xi=st.floats(-0.5, 2) | st.just(0.0),
    sigma=st.floats(0.1, 1e6),
    share=st.floats(1e-9, 1),
)
def test_the_law_is_that_of_scipy(xi: float, sigma: float, share: float) -> None:
    law = Pareto(xi, sigma)
    excess = float(law.quantile(share))
    assert excess == pytest.approx(genpareto.isf(share, xi, scale=sigma), rel=1e-6)
    if excess < -sigma / xi * (1 - 1e-9) if xi < 0 else True:
        assert float(law.survival(excess)) == pytest.approx(share, rel=1e-4)


@given(seed=st.integers(0, 1000), xi=st.floats(-0.45, 1))
@example(seed=3, xi=-0.25)
@settings(max_examples=25, deadline=None)
def test_no_law_is_more_likely_than_the_best(seed: int, xi: float) -> None:
    sample = Pareto(xi, SIGMA_NS).draw(200, np.random.default_rng(seed))
    likelihood = Likelihood(sample)
    best = likelihood.best
    assert likelihood.at(*best) == pytest.approx(
        genpareto.logpdf(sample, best.xi, scale=best.sigma).sum(), rel=1e-6
    )
    shape, _, scale = genpareto.fit(sample, floc=0)
    assert likelihood.at(*best) >= likelihood.at(shape, scale) - 1e-3
    if best.xi > LOWEST_XI + 0.1:
        again = refit(sample[None, :], Pareto(best.xi + 0.02, best.sigma * 1.1))
        assert again.xi[0] == pytest.approx(best.xi, abs=1e-3)
        assert again.sigma[0] == pytest.approx(best.sigma, rel=1e-3)


@given(seed=st.integers(0, 1000), xi=st.floats(-0.4, 1), count=st.sampled_from([30, 300, 3000]))
@settings(max_examples=15, deadline=None)
def test_the_grid_is_the_likelihood(seed: int, xi: float, count: int) -> None:
    sample = Pareto(xi, SIGMA_NS).draw(count, np.random.default_rng(seed))
    likelihood = Likelihood(sample)
    laws = plausible(sample, likelihood.best)
    assert laws.weight.sum() == pytest.approx(1)
    assert laws.mean(laws.rate) == pytest.approx(1, abs=0.01)
    central = np.flatnonzero(laws.rate == 1)
    most = max(likelihood.at(laws.law.xi[at], laws.law.sigma[at]) for at in central[::37])
    for at in central[::997]:
        expected = likelihood.at(laws.law.xi[at], laws.law.sigma[at]) - likelihood.at(
            *likelihood.best
        )
        assert laws.log_likelihood[at] == pytest.approx(expected, abs=0.05)
    assert most <= likelihood.at(*likelihood.best) + 1e-6


@pytest.mark.parametrize(
    ("xi", "runs"),
    [(0.0, RUNS), *(pytest.param(xi, MANY_RUNS, marks=pytest.mark.long) for xi in SHAPES)],
)
def test_intervals_hold_the_truth_as_often_as_they_say(xi: float, runs: int) -> None:
    """Shape, scale and return level over a four-fold horizon, and what exceeds it on average.

    `python -m bench --only coverage` does it for other sizes and methods.
    """
    law, expected = Pareto(xi, SIGMA_NS), 350
    level_ns = THRESHOLD_NS + float(law.quantile(1 / (4 * expected)))
    held = np.zeros(3, int)
    exceeding = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        fitted = fit(series(rng, law, expected), THRESHOLD_NS, 1)
        packets = 4 * fitted.packets
        laws = fitted.laws
        for at, (values, truth) in enumerate(
            (
                (laws.law.xi, xi),
                (laws.law.sigma, SIGMA_NS),
                (fitted.levels_ns(packets), level_ns),
            )
        ):
            low, high = laws.central(values, LEVEL)
            held[at] += low <= truth <= high
        excess = fitted.level_ns(packets) - THRESHOLD_NS
        exceeding.append(4 * expected * float(law.survival(excess)))
    chance = np.sqrt(LEVEL * (1 - LEVEL) / runs)
    held_share = held / runs
    assert (LEVEL - 3 * chance <= held_share).all() and (held_share <= LEVEL + 2 * chance).all()
    error = float(np.std(exceeding)) / np.sqrt(runs)
    assert abs(np.mean(exceeding) - 1) < 0.15 + 3 * error


def test_every_method_brackets_the_best_law() -> None:
    rng = np.random.default_rng(7)
    fitted = fit(series(rng, Pareto(0.1, SIGMA_NS), 400), THRESHOLD_NS, 1)
    every = fitted.intervals(4e6, LEVEL, fitted.resample(300, rng))
    assert set(every) == {"integrated", "profile", "bootstrap"}
    for each in every.values():
        assert each.xi[0] < fitted.best.xi < each.xi[1]
        assert each.sigma_ns[0] < fitted.best.sigma < each.sigma_ns[1]
        assert each.level_ns[0] < fitted.best_level_ns(4e6) < each.level_ns[1]
    again = resampled(fitted.excess_ns, fitted.best, 300, np.random.default_rng(1))
    same = resampled(fitted.excess_ns, fitted.best, 300, np.random.default_rng(1))
    assert (again.law.xi == same.law.xi).all()


def test_equation_1_of_containers2024() -> None:
    """x = mu + sigma/xi ((m D_u/D)^xi - 1), where each excess is a burst of its own."""
    fitted = fit(series(np.random.default_rng(1), Pareto(0.2, SIGMA_NS), 500), THRESHOLD_NS, 1)
    packets = 4e6
    xi, sigma = fitted.best
    above = len(fitted.bursts) / fitted.packets
    expected = fitted.threshold_ns + sigma / xi * ((packets * above) ** xi - 1)
    assert fitted.best_level_ns(packets) == pytest.approx(expected, rel=1e-9)
    assert fitted.limit_ns is None
    assert fitted.bursts_in(packets) == pytest.approx(4 * len(fitted.bursts))


def test_a_bounded_law_has_a_limit() -> None:
    fitted = fit(series(np.random.default_rng(1), Pareto(-0.3, SIGMA_NS), 500), THRESHOLD_NS, 1)
    assert fitted.best.xi < 0
    assert fitted.limit_ns == pytest.approx(
        fitted.threshold_ns - fitted.best.sigma / fitted.best.xi
    )
    assert fitted.limit_ns > fitted.bursts.worst_ns.max()


def test_beyond_what_was_measured_nothing_is_expected_below_the_threshold() -> None:
    fitted = fit(series(np.random.default_rng(1), Pareto(0.0, SIGMA_NS), 100), THRESHOLD_NS, 1)
    assert fitted.level_ns(fitted.packets / 1000) == fitted.threshold_ns


def test_too_few_and_too_alike_are_refused() -> None:
    few = series(np.random.default_rng(3), Pareto(0.0, SIGMA_NS), FEWEST_BURSTS // 2)
    with raises(EvidenceError, "bursts-few") as error:
        fit(few, THRESHOLD_NS, 1)
    assert f" {FEWEST_BURSTS} " in str(error.value) and "1000 ns" in str(error.value)
    sent = np.arange(100) * 10**9
    alike = Excesses(sent, np.full(100, 5_000), sent // 10**6, 1_000, 10**6, 0, 10**11)
    with raises(EvidenceError, "latencies-constant") as error:
        fit(alike, THRESHOLD_NS, 1)
    assert "100 bursts of 5000 ns" in str(error.value)
