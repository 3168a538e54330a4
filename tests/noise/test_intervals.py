"""Lists of intervals, against every nanosecond counted by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from intervals import disjoint, points

from tailscope.noise.intervals import covered, overlaps, subtract, union

LENGTHS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), max_size=8)


@given(LENGTHS, LENGTHS)
def test_what_is_left_is_what_the_others_do_not_cover(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    (start, end), (low, high) = disjoint(some), disjoint(others)
    left = subtract(start, end, low, high)
    assert points(left.start, left.end) == points(start, end) - points(low, high)
    assert (left.end > left.start).all()
    assert (start[left.owner] <= left.start).all()
    assert (left.end <= end[left.owner]).all()
    assert all(a <= b for a, b in pairwise(left.start.tolist()))
    for before, at in zip(left.before.tolist(), left.start.tolist(), strict=True):
        assert before == -1 or high[before] == at
    for after, at in zip(left.after.tolist(), left.end.tolist(), strict=True):
        assert after == -1 or low[after] == at


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=8), LENGTHS)
def test_overlaps_are_what_both_cover(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    start = np.array([low for low, _ in some], np.int64)
    end = start + np.array([length for _, length in some], np.int64)
    low, high = disjoint(others)
    met = overlaps(start, end, low, high)
    whole = points(low, high)
    total = covered(start, end, low, high)
    for at in range(len(some)):
        own = points(start[at : at + 1], end[at : at + 1])
        mine = met.owner == at
        assert points(met.start[mine], met.end[mine]) == own & whole
        assert total[at] == len(own & whole)
    assert (met.end > met.start).all()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=8))
def test_a_union_covers_what_any_covers(some: list[tuple[int, int]]) -> None:
    low = np.array([low for low, _ in some], np.int64)
    high = low + np.array([length for _, length in some], np.int64)
    start, end = union(low, high)
    assert points(start, end) == points(low, high)
    assert (end > start).all() and (start[1:] >= end[:-1]).all()
    # What only touches stays as it is.
    again = union(start, end)
    assert (again[0].tolist(), again[1].tolist()) == (start.tolist(), end.tolist())
