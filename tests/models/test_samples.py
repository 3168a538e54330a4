"""How many packets a statement takes, against what is known and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tailscope.models.samples import (
    packets_for_bound,
    packets_for_interval,
    packets_for_latency,
    packets_for_share,
    packets_for_support,
    quantile_of,
    rank_of,
)

QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


@pytest.mark.parametrize("q", QUANTILES)
def test_support_is_the_rule_of_the_tool(q: float) -> None:
    n = packets_for_support(q)
    assert n - rank_of(q, n) == 10
    assert n - 1 - rank_of(q, n - 1) == 9
    assert n == round(10 / (1 - q))


@pytest.mark.parametrize("q", QUANTILES)
def test_an_interval_exists_from_there_on(q: float) -> None:
    n = packets_for_interval(q)
    assert 1 - (1 - q) ** n - q**n >= 0.95
    assert 1 - (1 - q) ** (n - 1) - q ** (n - 1) < 0.95


@pytest.mark.parametrize("q", QUANTILES)
def test_the_bound_is_that_of_wilks(q: float) -> None:
    n = packets_for_bound(q)
    assert n == math.ceil(math.log(0.05) / math.log(q))
    more = packets_for_bound(q, 1)
    assert q**more + more * (1 - q) * q ** (more - 1) <= 0.05
    more -= 1
    assert q**more + more * (1 - q) * q ** (more - 1) > 0.05


def test_the_share_is_known_within_its_error() -> None:
    q, error = 0.99, 0.1
    n = packets_for_share(q, error)
    counts = np.random.default_rng(1).binomial(n, 1 - q, 20_000)
    within = np.mean(np.abs(counts / n / (1 - q) - 1) <= error)
    assert within == pytest.approx(0.95, abs=0.01)


def test_the_latency_is_known_within_its_error() -> None:
    rng = np.random.default_rng(2)
    q, error = 0.99, 0.03
    answer = packets_for_latency(rng.exponential(1_000, 1_000_000), q, error)
    assert answer.packets is not None
    true = -1_000 * math.log(1 - q)
    found = [quantile_of(rng.exponential(1_000, answer.packets), q) for _ in range(1_000)]
    within = np.mean(np.abs(np.array(found) / true - 1) <= error)
    assert 0.94 <= within <= 0.985


@pytest.mark.parametrize("size", [1, 9, 100])
def test_a_run_that_does_not_reach_that_far_says_so(size: int) -> None:
    answer = packets_for_latency(np.ones(size), 0.99, 0.1)
    assert answer.packets is None
    assert "beyond the quantile" in (answer.reason or "")


def test_a_gap_beside_the_quantile_is_a_reason() -> None:
    values = np.concatenate([np.full(9_890, 1.0), np.full(110, 1_000.0)])
    answer = packets_for_latency(values, 0.989, 0.1)
    assert answer.packets is None
    assert "above the quantile" in (answer.reason or "")


def test_constant_latencies_are_known_at_once() -> None:
    answer = packets_for_latency(np.full(10_000, 5.0), 0.5, 0.1)
    assert answer.packets is not None
    assert answer.packets <= 4


def test_ranks_are_of_the_decimal_that_was_written() -> None:
    assert rank_of(0.999, 1_000) == 999
    assert rank_of(0.57, 100) == 57
    assert rank_of(1e-9, 5) == 1
    assert quantile_of(np.array([3.0, 1.0, 2.0]), 0.5) == 2
