"""The instrument against a device that knows when it stalled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tailscope.engine.analysis import Clock, Recording, load_ticks
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute
from tailscope.experiment.search.calibration import STALLS, check_stalls
from tailscope.experiment.search.truth import Queue, StallRecovery, find_injected, find_queues
from tailscope.testbed.cores import pick_cores, read_topology

if TYPE_CHECKING:
    from measurements import Place

    from tailscope.experiment.run.measured import Measured


def ticks(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_a_stall_is_found_where_the_log_covers_it() -> None:
    truth_start, truth_duration = ticks(100, 1_000, 5_000, 9_000), ticks(50, 50, 50, 50)
    log_start, log_duration = ticks(90, 1_010, 4_990), ticks(70, 60, 40_000)
    found = find_injected(
        truth_start, truth_duration, log_start, log_duration, tsc_hz=1_000_000_000
    )
    assert (found.injected, found.found, found.interrupted) == (4, 3, 2)
    assert found.duration_error_ns.tolist() == [20]


def test_a_queue_is_seen_where_all_its_packets_waited() -> None:
    recording = Recording(
        Clock(1_000_000_000, 0, 0),
        ticks(10, 20, 30, 40),
        ticks(10, 20, 30, 40),
        ticks(0, 1, 3, 2),
        ticks(25, 26, 45, 46),
        ticks(),
        ticks(),
        ticks(),
    )
    queue = find_queues(recording, ticks(12, 28, 50), ticks(10, 5, 5))
    assert queue == Queue(expected=2, seen=2)
    assert find_queues(recording, ticks(5), ticks(25)) == Queue(expected=1, seen=0)


@pytest.mark.usefixtures("dataplane", "alone")
def test_injected_stalls_are_found_and_their_queues_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", place.environment["XDG_RUNTIME_DIR"])
    plan = RunPlan(
        dut="delay",
        dut_options=STALLS,
        rate_pps=100_000,
        warm_up_ns=200_000_000,
        duration_ns=3_000_000_000,
    )
    seen: list[tuple[StallRecovery, Queue, float]] = []

    def inspect(measured: Measured) -> None:
        assert measured.dut_folder is not None
        injected_tsc = load_ticks(measured.dut_folder, "injected_duration_tsc").sum()
        injected_ns = injected_tsc / measured.recording.clock.tsc_hz * 1e9
        seen.append((*check_stalls(measured), injected_ns))

    execute(plan, pick_cores(read_topology(), ("generator", "dut")), inspect=inspect)
    ((found, queue, injected_ns),) = seen
    assert found.injected > 100
    assert found.found == found.injected
    assert queue.expected > 50 and queue.seen == queue.expected
    assert found.duration_error_ns.sum() < 0.01 * injected_ns
