"""Excesses out of series and tables, and the bursts in them."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from tailscope.exceptions import ModelError
from tailscope.extra.tail.models.bursts import bursts, intervals_index, usual_run_length_ns
from tailscope.extra.tail.models.excesses import Excesses, of_worst, select

LATENCIES = st.lists(st.integers(0, 40), min_size=1, max_size=200)


@given(latencies=LATENCIES, quantile=st.floats(0, 1), share=st.floats(0.05, 1))
def test_what_lies_beyond_is_what_sorting_finds(
    latencies: list[int], quantile: float, share: float
) -> None:
    latency = np.array(latencies)
    excesses = select(np.arange(len(latency)) * 10, latency, quantile)
    ordered = np.sort(latency)
    rank = next(k for k in range(1, len(latency) + 1) if k / len(latency) >= quantile)
    assert excesses.floor_ns == ordered[rank - 1]
    assert excesses.place.tolist() == np.flatnonzero(latency > excesses.floor_ns).tolist()
    assert (excesses.latency_ns == latency[excesses.place]).all()
    first, rest = excesses.split(share)
    assert first.count + rest.count == len(latency)
    assert (first.place < first.count).all() and (rest.place >= first.count).all()
    known = first.threshold_ns(0.9)
    if known is not None and first.count:
        exact = select(np.arange(first.count) * 10, latency[: first.count], 0.9).floor_ns
        assert known == max(exact, first.floor_ns)


def test_an_unsorted_series_is_put_in_order() -> None:
    excesses = select(np.array([30, 10, 20]), np.array([3, 1, 2]), 0.3)
    assert excesses.sent_ns.tolist() == [20, 30]
    assert excesses.place.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("latencies", "packet", "got"),
    [
        ([5, -3], 1, "-3"),
        ([5.0, np.nan], 1, "nan"),
        ([5.0, np.inf], 1, "inf"),
        ([5.5], 0, "5.5"),
    ],
)
def test_what_are_no_latencies_is_refused(latencies: list[float], packet: int, got: str) -> None:
    with raises(ModelError, "latencies-range") as error:
        select(np.arange(len(latencies)), np.array(latencies), 0.9)
    assert str(error.value).startswith(f"packet {packet}: ")
    assert str(error.value).endswith(f" got {got}")


def test_no_latencies_are_refused() -> None:
    with raises(ModelError, "latencies-empty"):
        select(np.arange(0), np.array([]), 0.9)


def test_times_and_latencies_belong_together() -> None:
    with raises(ModelError, "latencies-shape") as error:
        select(np.arange(3), np.arange(2), 0.9)
    assert "3 and 2" in str(error.value)


def test_the_worst_stand_for_what_lies_beyond() -> None:
    sent_ns, latency_ns = np.array([5000, 1000, 3000]), np.array([900, 800, 700])
    excesses = of_worst(sent_ns, latency_ns, 5)
    assert excesses.sent_ns.tolist() == [1000, 5000]
    assert excesses.latency_ns.tolist() == [800, 900]
    assert excesses.place.tolist() == [0, 4]
    # Others may have taken as long as the last of the worst.
    assert (excesses.floor_ns, excesses.count) == (700, 5)
    assert excesses.threshold_ns(0.6) == 700
    assert excesses.threshold_ns(0.3) is None
    assert of_worst(sent_ns, latency_ns, 3).latency_ns.tolist() == [800, 700, 900]


@pytest.mark.parametrize(("worst", "count"), [(0, 5), (3, 2)])
def test_the_worst_are_some_of_all(worst: int, count: int) -> None:
    with raises(ModelError, "worst-count") as error:
        of_worst(np.arange(worst), np.arange(worst), count)
    assert f"1 to {count} " in str(error.value) and str(error.value).endswith(f" got {worst}")


@given(
    gaps=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    seed=st.integers(0, 100),
    run_length=st.integers(0, 40),
    threshold=st.integers(0, 12),
)
def test_bursts_are_those_of_a_slow_count(
    gaps: list[int], seed: int, run_length: int, threshold: int
) -> None:
    sent = np.cumsum(gaps)
    latency = np.random.default_rng(seed).integers(1, 15, len(gaps))
    grouped = bursts(
        Excesses(sent, latency, np.arange(len(gaps)), 0, len(gaps), 0, int(sent[-1])),
        threshold,
        run_length,
    )
    expected: list[list[tuple[int, int]]] = []
    for when, value in zip(sent.tolist(), latency.tolist(), strict=True):
        if value <= threshold:
            continue
        if not expected or when - expected[-1][-1][0] > run_length:
            expected.append([])
        expected[-1].append((when, value))
    assert grouped.sent_ns.tolist() == [burst[0][0] for burst in expected]
    assert grouped.worst_ns.tolist() == [max(value for _, value in burst) for burst in expected]
    assert grouped.packets.tolist() == [len(burst) for burst in expected]


@pytest.mark.parametrize(("together", "index"), [(1, 1.0), (2, 0.5), (4, 0.25)])
def test_the_extremal_index_of_moving_maxima(together: int, index: float) -> None:
    """The maximum of some successive independent values has 1/some as its extremal index."""
    raw = np.random.default_rng(5).exponential(1e6, 400_000 + together)
    latency = np.rint(np.max([raw[at : at + 400_000] for at in range(together)], axis=0)).astype(
        int
    )
    excesses = select(np.arange(400_000) * 100_000, latency, 0.99)
    threshold = excesses.threshold_ns(0.998)
    assert threshold is not None
    assert bursts(excesses, threshold, 500_000).extremal_index == pytest.approx(index, rel=0.08)
    assert intervals_index(excesses, threshold) == pytest.approx(index, rel=0.12)
    assert intervals_index(excesses.split(0.001)[0], threshold) is None


def test_a_burst_ends_after_a_millisecond_and_ten_packets() -> None:
    assert usual_run_length_ns(1_000) == 1_000_000
    assert usual_run_length_ns(1_000_000) == 10_000_000
