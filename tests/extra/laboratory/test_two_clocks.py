"""Clocks whose difference is known: it lies within what bounds say of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tailscope.extra.laboratory.models.two_clocks import (
    Bounds,
    ClockMap,
    ContradictionError,
    UnboundedError,
    between,
    two_clocks,
)

S = 1_000_000_000
UNIX = 1_700_000_000 * S


@dataclass
class Truth:
    """The lead of one clock over the other: a line, with an optional bend."""

    offset_ns: int
    drift: float
    bends_at_ns: int = 0
    bends_by: float = 0.0

    def added(self, at: np.ndarray) -> np.ndarray:
        since = (at - UNIX).astype(float)
        behind = np.maximum(since - self.bends_at_ns, 0) if self.bends_by else 0.0
        return self.offset_ns + np.rint(since * self.drift + behind * self.bends_by).astype(
            np.int64
        )


def seen(
    truth: Truth, rng: np.random.Generator, count: int, ways_ns: tuple[float, float]
) -> tuple[np.ndarray, Bounds]:
    """Packets that came to a machine some time after one stamp and before another."""
    at = UNIX + np.sort(rng.integers(0, 10 * S, count))
    there = at + truth.added(at)
    before, behind = (rng.exponential(way, count).astype(np.int64) for way in ways_ns)
    low = Bounds.at_least(at, there - before)
    return at, low.with_others(Bounds.at_most(at, there + behind))


def holds(clock_map: ClockMap, truth: Truth, at: np.ndarray) -> bool:
    return holds_at(clock_map, truth.added(at), at)


def holds_at(clock_map: ClockMap, added: np.ndarray, at: np.ndarray) -> bool:
    low, high = clock_map.range_ns(at)
    within = (low <= added) & (added <= high)
    return bool(within.all())


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    offset_ns=st.integers(-(10**18), 10**18),
    drift_ppm=st.floats(-900, 900),
    count=st.integers(2, 300),
    ways=st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
)
def test_the_truth_lies_within_the_error(
    seed: int, offset_ns: int, drift_ppm: float, count: int, ways: tuple[float, float]
) -> None:
    """Also before the first packet and behind the last one, and however long either way takes."""
    truth = Truth(offset_ns, drift_ppm * 1e-6)
    at, bounds = seen(truth, np.random.default_rng(seed), count, ways)
    assume(at[-1] > at[0])
    clock_map = two_clocks(bounds, span_ns=(UNIX - 5 * S, UNIX + 20 * S))
    assert holds(clock_map, truth, np.linspace(UNIX - 5 * S, UNIX + 20 * S, 500).astype(np.int64))
    assert holds(clock_map, truth, at)
    assert (np.abs(clock_map.added_ns(at) - truth.added(at)) <= clock_map.worst_error_ns).all()


def test_an_offset_of_5_ms_and_a_drift_of_30_ppm_are_found() -> None:
    truth = Truth(5_000_000, 30e-6)
    at, bounds = seen(truth, np.random.default_rng(7), 2000, (3_000, 40_000))
    clock_map = two_clocks(bounds)
    assert clock_map.worst_error_ns < 2_000
    assert (
        clock_map.drift_error is not None
        and abs(clock_map.drift - 30e-6) < clock_map.drift_error < 1e-6
    )
    off = np.abs(clock_map.added_ns(at) - truth.added(at))
    assert off.max() <= clock_map.worst_error_ns
    assert clock_map.pieces == 1


def test_times_keep_their_order() -> None:
    _, bounds = seen(Truth(-(10**9), -500e-6), np.random.default_rng(3), 200, (1e5, 1e5))
    clock_map = two_clocks(bounds)
    times = UNIX + np.arange(-1000, 1000, dtype=np.int64)
    assert (np.diff(clock_map.to_second(times)) >= 0).all()


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), bends_by_ppm=st.floats(-100, 100))
@example(seed=2_144_944_001, bends_by_ppm=-89.0)
def test_a_drift_that_changes_is_followed_in_pieces(seed: int, bends_by_ppm: float) -> None:
    truth = Truth(1000, 20e-6, 4 * S, bends_by_ppm * 1e-6)
    at, bounds = seen(truth, np.random.default_rng(seed), 2000, (5_000, 5_000))
    clock_map = two_clocks(bounds)
    # What bounds do not tell apart need not be told apart.
    assert clock_map.pieces > 1 or abs(bends_by_ppm) < 10
    assert clock_map.pieces == 1 or holds(clock_map, truth, at)
    assert clock_map.worst_error_ns < 100_000


def test_what_contradicts_each_other_is_said() -> None:
    truth = Truth(0, 0.0)
    at, bounds = seen(truth, np.random.default_rng(1), 500, (5_000, 5_000))
    low = bounds.low_ns.copy()
    low[250] = bounds.high_ns[len(at) + 250] + 50_000
    with pytest.raises(ContradictionError) as error:
        two_clocks(bounds._replace(low_ns=low))
    assert str(error.value).startswith(f"at {at[250] / S:.6f} s ")


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(3, 60),
    wanders_ppm=st.floats(0, 999),
    step_ns=st.sampled_from([1_000, 100_000, 10_000_000, S]),
    way_ns=st.sampled_from([0, 10, 1_000, 100_000]),
    highs=st.floats(0.02, 0.98),
)
def test_no_clock_that_is_possible_contradicts_itself(
    seed: int, count: int, wanders_ppm: float, step_ns: int, way_ns: int, highs: float
) -> None:
    """Its drift may vary within the limit, and be bounded on one side only for some time."""
    rng = np.random.default_rng(seed)
    at = UNIX + np.cumsum(rng.integers(1, step_ns, count))
    drifts = rng.uniform(-wanders_ppm, wanders_ppm, count) * 1e-6
    added = np.rint(np.cumsum(np.diff(at, prepend=at[0]) * drifts)).astype(np.int64)
    is_high = rng.random(count) < highs
    assume(is_high.any() and not is_high.all())
    ways = np.rint(rng.exponential(way_ns, count)).astype(np.int64)
    low = Bounds.at_least(at[~is_high], (at + added - ways)[~is_high])
    clock_map = two_clocks(
        low.with_others(Bounds.at_most(at[is_high], (at + added + ways)[is_high]))
    )
    is_short = at[-1] - at[0] < 20_000_000
    assert not is_short or clock_map.pieces == 1 or holds_at(clock_map, added, at)


def test_a_step_is_no_drift() -> None:
    at = UNIX + np.arange(0, 4 * S, S // 100, dtype=np.int64)
    stepped = np.where(at < UNIX + 2 * S, 0, 3_000_000)
    bounds = Bounds.of_pairs(at, stepped - 1000, stepped + 1000)
    with pytest.raises(ContradictionError):
        two_clocks(bounds)


def test_nothing_is_said_of_what_is_bounded_on_one_side_only() -> None:
    at = np.array([UNIX, UNIX + S])
    for bounds in (Bounds.at_least(at, at), Bounds.at_most(at, at)):
        with pytest.raises(UnboundedError):
            two_clocks(bounds)


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    drifts_ppm=st.tuples(st.floats(-100, 100), st.floats(-100, 100)),
    offsets_ns=st.tuples(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9)),
)
def test_clocks_are_compared_by_a_third_one_that_asks_both(
    seed: int, drifts_ppm: tuple[float, float], offsets_ns: tuple[int, int]
) -> None:
    """Questions take longer than answers, and before the traffic longer than behind it."""
    rng = np.random.default_rng(seed)
    asked = np.sort(
        np.concatenate([rng.integers(0, S // 10, 32), rng.integers(9 * S, 9 * S + S // 10, 32)])
    )
    maps = []
    for offset_ns, drift_ppm in zip(offsets_ns, drifts_ppm, strict=True):
        heard_by_us = asked + rng.exponential(400_000, 64).astype(np.int64)
        said_by_us = heard_by_us + 20_000
        answered = said_by_us + rng.exponential(90_000, 64).astype(np.int64)
        heard, answers = (
            UNIX + offset_ns + each + np.rint(each * drift_ppm * 1e-6).astype(np.int64)
            for each in (heard_by_us, said_by_us)
        )
        bounds = Bounds.of_answers(asked, heard, answers, answered)
        span_ns = (int(heard[0]) - 60 * S, int(heard[-1]) + 60 * S)
        maps.append(two_clocks(bounds, span_ns=span_ns))
    clock_map = between([maps[0]], maps[1], span_ns=(UNIX, UNIX + 10 * S))
    ours = np.linspace(0, 9 * S, 100).astype(np.int64)
    one, other = (
        UNIX + offset_ns + ours + np.rint(ours * drift_ppm * 1e-6).astype(np.int64)
        for offset_ns, drift_ppm in zip(offsets_ns, drifts_ppm, strict=True)
    )
    low, high = clock_map.range_ns(one)
    assert ((low - 2 <= other - one) & (other - one <= high + 2)).all()
    assert clock_map.worst_error_ns < 2_000_000
