"""Readings of a measurement have one time base, even if the machine's clock is set."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tailscope.noise.counters import CounterSampler
from tailscope.noise.recorder import RecordedNoise
from tailscope.testbed.steady import SteadyClock, largest_step_ns

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_NS = 3600 * 10**9


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the wall clock of this process."""
    real, offset_ns = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + offset_ns[0])

    def step(by_ns: int) -> None:
        offset_ns[0] += by_ns

    return step


@pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS, 20_000_000])
def test_a_clock_that_is_set_moves_nothing(step: Callable[[int], None], by_ns: int) -> None:
    clock = SteadyClock()
    before_ns = clock.now_ns()
    assert abs(before_ns - time.time_ns()) < HOUR_NS / 2 and clock.set_by_ns() == 0
    step(by_ns)
    assert before_ns <= clock.now_ns() < before_ns + HOUR_NS / 2
    assert clock.set_by_ns() == pytest.approx(by_ns, abs=10_000_000)


def test_counters_of_interrupts_are_in_their_order(step: Callable[[int], None]) -> None:
    with CounterSampler() as sampler:
        step(-HOUR_NS)
    first, last = (sample.unix_ns for sample in sampler.samples)
    assert first <= last < first + HOUR_NS / 2
    assert sampler.clock_set_by_ns == pytest.approx(-HOUR_NS, abs=10_000_000)


@pytest.mark.parametrize(
    ("by_ns", "steps"),
    [(0, []), (HOUR_NS + 17, ["forward by 3600.000 s"]), (-(10**7), ["back by 0.010 s"])],
)
def test_a_run_says_that_the_clock_was_set(by_ns: int, steps: list[str]) -> None:
    nothing: Any = []
    warnings = RecordedNoise(None, None, nothing, {}, (), nothing, {}, by_ns).warnings()
    assert len(warnings) == len(steps)
    for warning, text in zip(warnings, steps, strict=True):
        assert text in warning


@pytest.mark.parametrize(
    ("added_ns", "expected_ns"),
    [
        ([], 0),
        ([7], 0),
        ([0, 400_000, 800_000, 1_200_000], 0),
        ([5, 5, 5 + HOUR_NS, 5 + HOUR_NS], HOUR_NS),
        # A clock that is set back again has no step in the end.
        ([5, 5 - HOUR_NS, 5], -HOUR_NS),
        ([0, 20_000_000, 20_000_000], 20_000_000),
    ],
)
def test_a_clock_that_is_set_between_readings_is_noticed(
    added_ns: list[int], expected_ns: int
) -> None:
    added, error = np.array(added_ns, np.int64), 1_000
    when = np.arange(len(added), dtype=np.int64) * 10**9
    assert largest_step_ns(when, added - error, added + error) == expected_ns
