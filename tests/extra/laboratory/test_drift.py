"""Offset and drift of two clocks, against known truth."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.extra.laboratory.models.drift import fit_drift

START_NS = 1_700_000_000 * 10**9
PIECE_NS = 20 * 10**9
"""Duration longer than any piece, in seconds."""


@st.composite
def clocks(draw: st.DrawFn) -> dict[str, int]:
    return {
        "offset_ns": draw(st.integers(-(10**18), 10**18)),
        "drift_ppb": draw(st.integers(-500_000, 500_000)),
        "wander_ppb": draw(st.integers(-20, 20)),
        "readings": draw(st.integers(2, 900)),
        "interval_ns": draw(st.integers(10**6, 5 * 10**8)),
        "error_ns": draw(st.integers(0, 3000)),
        "seed": draw(st.integers(0, 2**32)),
    }


def ahead(known: dict[str, int], passed_ns: int) -> int:
    """Return the lead of the second clock: a parabola."""
    bent = known["wander_ppb"] * passed_ns * passed_ns // (10**9 * 10**11)
    return known["offset_ns"] + known["drift_ppb"] * passed_ns // 10**9 + bent


def bent_ns(known: dict[str, int]) -> float:
    """Return the largest distance of the parabola from a straight piece."""
    length_ns = min(PIECE_NS, known["interval_ns"] * (known["readings"] - 1))
    return abs(known["wander_ppb"]) * (length_ns / 2) ** 2 / (10**9 * 10**11)


def by_knots(knots: tuple[tuple[int, int], ...], time: int) -> Fraction:
    """The line at a time, knots in whole numbers."""
    if len(knots) == 1:
        return Fraction(knots[0][1])
    pieces = list(pairwise(knots))
    (t0, a0), (t1, a1) = next((piece for piece in pieces if time <= piece[1][0]), pieces[-1])
    return a0 + Fraction((time - t0) * (a1 - a0), t1 - t0)


@settings(deadline=None, max_examples=60)
@given(known=clocks())
def test_the_truth_is_within_what_is_said(known: dict[str, int]) -> None:
    chance = random.Random(known["seed"])
    first, second, errors = [], [], []
    for at in range(known["readings"]):
        passed = at * known["interval_ns"]
        # Now and then somebody else had the CPU.
        error = known["error_ns"] * (30 if chance.random() < 0.02 else 1)
        first.append(START_NS + passed)
        second.append(START_NS + passed + ahead(known, passed) + chance.randint(-error, error))
        errors.append(error)
    drift = fit_drift(first, second, errors)
    assert drift.readings + drift.left_out == known["readings"]
    assert drift.residual_ns <= drift.error_ns <= drift.residual_ns + max(errors)
    times = [time for time, _ in drift.knots]
    assert times == sorted(set(times))
    for one, error in zip(first, errors, strict=True):
        if error > known["error_ns"]:
            continue
        true = ahead(known, one - START_NS)
        assert abs(by_knots(drift.knots, one + true) - true) <= drift.error_ns + 1
    if known["error_ns"] > bent_ns(known):
        assert drift.is_even


def test_one_that_lies_far_off_does_not_bend_the_line() -> None:
    first = [START_NS + at * 10**8 for at in range(100)]
    second = [time + 500 for time in first]
    second[50] += 40_000
    drift = fit_drift(first, second, [20] * 100)
    assert [height for _, height in drift.knots] == pytest.approx([500] * len(drift.knots), abs=30)
    # But it was seen.
    assert drift.residual_ns >= 39_000 and not drift.is_even


def test_a_single_reading_is_an_offset() -> None:
    drift = fit_drift([START_NS], [START_NS - 7], [3])
    assert drift.knots == ((START_NS - 7, -7),)
    assert (drift.offset_ns, drift.drift_ppb, drift.error_ns) == (-7, 0.0, 4)


def test_nothing_follows_from_nothing() -> None:
    with pytest.raises(ValueError, match="readings"):
        fit_drift([], [], [])
