"""Readings of a measurement have one time base, even if the machine's clock is set."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from measurements import Place, quick

from tailscope.cli.status import UNDECIDED
from tailscope.noise.counters import CounterSampler
from tailscope.noise.recorder import RecordedNoise
from tailscope.testbed.steady import SteadyClock, largest_step_ns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


_CLOCK_OF_ITS_OWN = f"""
import sys, time
real = time.time_ns
time.time_ns = lambda: real() - {HOUR_NS}
from tailscope.__main__ import main
sys.exit(main())
"""


@pytest.mark.usefixtures("dataplane")
def test_all_tables_of_a_run_have_one_clock(tmp_path: Path) -> None:
    """Its supervisor reads another time of day than its generator, as if it was set in between."""
    out, place = tmp_path / "out", Place.in_folder(tmp_path)
    words = quick("--dut", "l2fwd", "--noise", "auto", "--power", "command:echo 1")
    command = [sys.executable, "-c", _CLOCK_OF_ITS_OWN, "run", *words, "--out", out]
    ended = subprocess.run(command, env=place.environment, capture_output=True)
    assert ended.returncode in {0, UNDECIDED}, ended.stderr
    sent_ns = int(pq.read_table(out / "latency.parquet")["pre_ns"].to_numpy()[0])
    assert sent_ns == pytest.approx(time.time_ns() - HOUR_NS, abs=HOUR_NS / 2)
    columns = {"noise": "start_ns", "interrupts": "unix_ns", "power": "start_ns"}
    for table, column in columns.items():
        times_ns = pq.read_table(out / f"{table}.parquet")[column].to_numpy()
        assert abs(times_ns - sent_ns).max(initial=0) < HOUR_NS / 2, table


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
