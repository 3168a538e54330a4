"""Latencies in buckets against the latencies themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailscope.models.buckets import Buckets, Ranks
from tailscope.models.differences import quantile_ends, ranks_around

LATENCIES = st.lists(st.integers(0, 2_000), min_size=1, max_size=300)
WIDTHS = st.integers(1, 700)


def in_buckets(values: list[int], width: int) -> Buckets:
    low, counts = np.unique(np.array(values) // width * width, return_counts=True)
    return Buckets(low, low + width, counts)


@given(LATENCIES, WIDTHS)
def test_a_rank_lies_in_its_bucket(values: list[int], width: int) -> None:
    buckets = in_buckets(values, width)
    assert buckets.count == len(values)
    for rank, value in enumerate(sorted(values), 1):
        found = buckets.at(rank)
        assert found.low <= value < found.high
        assert found.high - found.low == width


@given(LATENCIES, WIDTHS, st.integers(0, 2_500), st.booleans())
def test_a_limit_divides_them(values: list[int], width: int, limit: int, is_strict: bool) -> None:
    found = in_buckets(values, width).beyond(limit, is_strict=is_strict)
    true = sum(value > limit if is_strict else value >= limit for value in values)
    assert found.low <= true <= found.high


@given(LATENCIES, WIDTHS)
def test_the_mean_is_within_its_error(values: list[int], width: int) -> None:
    mean, off = in_buckets(values, width).mean_ns()
    assert abs(mean - np.mean(values)) <= off + 1e-9


@given(LATENCIES, WIDTHS, st.integers(1, 50), st.integers(0, 2_500))
def test_the_longest_are_exact(values: list[int], width: int, longest: int, limit: int) -> None:
    ordered = np.sort(values)[::-1]
    ranks = Ranks(len(values), in_buckets(values, width), ordered[:longest])
    assert ranks.at(len(values)) == (ordered[0], ordered[0])
    found = ranks.beyond(limit, is_strict=True)
    assert found is not None
    assert found.low <= int(np.sum(ordered > limit)) <= found.high
    if ranks.is_among_longest(limit):
        assert found.low == found.high


@given(LATENCIES, st.sampled_from([0.5, 0.9, 0.99]), st.floats(1, 20))
def test_intervals_are_those_of_order_statistics(
    values: list[int], q: float, design: float
) -> None:
    ranked = np.sort(np.array(values, float))
    rank, low, high = ranks_around(q, len(values), design, 0.025)
    found = quantile_ends(ranked, q, design, 0.025)
    assert found.value == ranked[rank - 1]
    assert found.low == (ranked[low - 1] if low else -np.inf)
    assert found.high == (ranked[high - 1] if high else np.inf)
    assert low <= rank <= (high or rank)
