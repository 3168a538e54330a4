"""What packets took by rank and by stretch, against all of them in memory."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from tailscope.engine.analysis import Distribution
from tailscope.exceptions import UsageError
from tailscope.models.counting import in_stretches, stretches_of
from tailscope.verdict.taken import Taken

PACKETS = st.lists(
    st.one_of(st.integers(0, 30), st.just(None), st.integers(0, 5000)), min_size=1, max_size=260
)
"""What each took in the order of sending; None for one that is missing."""


def slowly(packets: list[int | None], failed: int) -> list[float]:
    """All packets in order, of which so many failed: at the first gaps, and behind the last."""
    there = [at for at, took in enumerate(packets) if took is not None]
    gaps = [at for at in range(there[0], there[-1]) if packets[at] is None] if there else []
    counted = {*gaps[:failed]}
    values = [
        float("inf") if took is None else float(took)
        for at, took in enumerate(packets)
        if took is not None or at in counted
    ]
    return values + [float("inf")] * (failed - len(counted))


def taken(packets: list[int | None], failed: int, pieces: int) -> Taken:
    seq = np.array([at for at, took in enumerate(packets) if took is not None], np.uint64)
    ns = np.array([took for took in packets if took is not None], np.uint64)
    came = Distribution()
    came.record(ns)
    parts = [*zip(np.array_split(seq, pieces), np.array_split(ns, pieces), strict=True)]
    return Taken(came, failed, lambda: iter(parts), int(seq[0]) if len(seq) else 0)


@given(PACKETS, st.integers(0, 300), st.integers(1, 7), st.lists(st.integers(0, 5001), max_size=4))
def test_ranks_and_stretches_are_those_of_all_packets(
    packets: list[int | None], failed: int, pieces: int, limits: list[int]
) -> None:
    expected = np.array(slowly(packets, failed))
    found = taken(packets, failed, pieces)
    assert len(found) == len(expected)
    ordered = np.sort(expected)
    assert [found.at_rank(rank) for rank in range(1, len(found) + 1)] == ordered.tolist()
    found.look_for(limits)
    for limit in (*limits, found.never_ns):
        marks = expected >= limit
        assert found.at_least(limit) == np.count_nonzero(marks)
        assert found.in_stretches(limit).tolist() == in_stretches(marks).tolist()
        assert len(found.in_stretches(limit)) == stretches_of(len(expected))


def test_instant_packets_have_the_first_ranks() -> None:
    some = taken([5, None, 7], 1, 1)
    found = Taken(some.came, 1, lambda: iter([(np.array([0, 2]), np.array([5, 7]))]), instant=2)
    assert [found.at_rank(rank) for rank in range(1, 6)] == [0, 0, 5, 7, np.inf]
    assert [found.at_least(ns) for ns in (0, 1, 6, 8)] == [5, 3, 2, 1]
    assert found.in_stretches(6).sum() == 2
    none = Taken(Distribution(), 0, lambda: iter([]), instant=3)
    assert (len(none), none.longest_ns, none.at_least(1)) == (3, 0, 0)


def test_values_in_memory_are_rounded_up() -> None:
    found = Taken.of(np.array([0.5, np.inf, 1000.2]))
    assert [found.at_rank(rank) for rank in (1, 2, 3)] == [1, 1001, np.inf]
    assert (found.longest_ns, found.never_ns, found.at_least(1001)) == (1001, 1002, 2)
    assert (found.at_least(2**70), found.in_stretches(2**70).sum()) == (1, 1)


@pytest.mark.parametrize(("value", "code"), [(np.nan, "latency-nan"), (-1.0, "latency-negative")])
def test_what_is_no_latency_is_refused(value: float, code: str) -> None:
    with raises(UsageError, code):
        Taken.of(np.array([1.0, value]))
