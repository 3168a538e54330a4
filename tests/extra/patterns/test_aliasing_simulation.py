"""Simulated packets against a server that is watched nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
from errors import refuses_argument
from hypothesis import given
from hypothesis import strategies as st

from tailscope.extra.patterns.models.aliasing.simulation import (
    Interruptions,
    Periodic,
    RecordedInterruptions,
    departures,
    queue,
    simulate,
)

times = st.integers(0, 60)
durations = st.integers(0, 12)


def array(values: object) -> np.ndarray:
    return np.array(values, np.int64)


def watched(packets: list[tuple[int, int]], interruptions: list[tuple[int, int]]) -> list[int]:
    """Departures, one nanosecond after the other: interruptions first, then the first packet."""
    waiting: list[list[int]] = []
    departed: dict[int, int] = {}
    held, now = 0, 0
    while len(departed) < len(packets):
        held += sum(duration for start, duration in interruptions if start == now)
        waiting += [[at, need] for at, (arrival, need) in enumerate(packets) if arrival == now]
        if held:
            held -= 1
        else:
            while waiting and waiting[0][1] == 0:
                departed[waiting.pop(0)[0]] = now
            if waiting:
                waiting[0][1] -= 1
        now += 1
    return [departed[at] for at in range(len(packets))]


@given(
    packets=st.lists(st.tuples(times, durations), max_size=12).map(sorted),
    interruptions=st.lists(st.tuples(times, durations), max_size=8).map(sorted),
)
def test_a_queue_equals_the_watched_one(
    packets: list[tuple[int, int]], interruptions: list[tuple[int, int]]
) -> None:
    arrival, service = array(packets).reshape(-1, 2).T
    calls = Interruptions(*array(interruptions).reshape(-1, 2).T)
    assert departures(arrival, calls, service).tolist() == watched(packets, interruptions)


@given(
    arrivals=st.lists(times, min_size=1, max_size=12).map(sorted),
    service=st.integers(0, 3),
    period=st.integers(9, 30),
    duration=st.integers(0, 8),
    phase=st.integers(0, 40),
    every=st.integers(1, 3),
    recorded=st.lists(st.tuples(times, durations), max_size=4),
)
def test_sources_interrupt_together(
    arrivals: list[int],
    service: int,
    period: int,
    duration: int,
    phase: int,
    every: int,
    recorded: list[tuple[int, int]],
) -> None:
    clock = Periodic(period, duration, phase_ns=phase, every=every, teeth=(every - 1,))
    record = RecordedInterruptions(*array(recorded).reshape(-1, 2).T)
    latency = simulate(array(arrivals), [clock, record], base_ns=100, service_ns=service)
    ticks = [
        (arrivals[0] + phase + tick * period, duration)
        for tick in range(-40, 300)
        if tick % every == every - 1 and phase + tick * period + duration >= 0
    ]
    # The watch begins at 0; what began before is shifted there, with what is left of it.
    calls = [(max(at, 0), length + min(at, 0)) for at, length in [*ticks, *recorded]]
    departed = watched([(at, service) for at in arrivals], calls)
    waits = [there - at - service for there, at in zip(departed, arrivals, strict=True)]
    assert latency.tolist() == [100 + wait for wait in waits]


def test_a_packet_waits_for_the_rest_of_an_interruption() -> None:
    arrival = array([0, 999, 1_000, 1_500, 1_999, 2_000])
    latency = simulate(arrival, [RecordedInterruptions(array([1_000]), array([1_000]))], base_ns=50)
    assert latency.tolist() == [50, 50, 1_050, 550, 51, 50]


def test_packets_queue_behind_those_that_waited() -> None:
    arrival = array([0, 10, 20, 400])
    held = RecordedInterruptions(array([0]), array([100]))
    assert simulate(arrival, [held], base_ns=7, service_ns=5).tolist() == [107, 102, 97, 7]


def test_interruptions_wait_for_each_other() -> None:
    calls = RecordedInterruptions(array([0, 40]), array([100, 100]))
    assert simulate(array([50]), [calls], base_ns=0).tolist() == [150]
    assert queue(array([0, 40]), array([100, 100])).tolist() == [100, 200]


def test_undersampled_interruptions_make_a_pattern() -> None:
    """Packets a little slower than a multiple of the clock creep through its interruptions."""
    arrival = np.arange(300_000) * 100_001
    latency = simulate(arrival, [Periodic(4e6, 7_000)], base_ns=3_000)
    delayed = np.flatnonzero(latency > 3_000)
    assert latency.max() == 10_000
    # Each 40th packet meets a tick, and is 40 ns later than the one before it.
    steps = np.diff(latency[delayed])
    assert np.median(steps) == -40
    assert set(np.diff(delayed)[steps < 0].tolist()) <= {40, 1}


def test_no_packets_have_no_latency() -> None:
    assert simulate(array([]), [Periodic(1e6, 10)], base_ns=3).tolist() == []
    assert simulate(array([5, 6]), [], base_ns=3).tolist() == [3, 3]


def test_what_cannot_be_is_refused() -> None:
    with refuses_argument("arrival_ns"):
        simulate(array([2, 1]), [], base_ns=0)
    with refuses_argument("sources"):
        simulate(array([1]), [Periodic(100, 60), Periodic(100, 40)], base_ns=0)
    with refuses_argument("teeth") as refused:
        Periodic(100, 1, every=3, teeth=(3,))
    assert all(text in str(refused.value) for text in ("0 to 2", "[3]"))
    for wrong in ({"period_ns": 0}, {"duration_ns": -1}, {"every": 0}):
        with refuses_argument(next(iter(wrong))):
            Periodic(**({"period_ns": 10, "duration_ns": 1} | wrong))
    with refuses_argument("duration_ns") as refused:
        RecordedInterruptions(array([1, 2]), array([1]))
    assert "shape" in str(refused.value)
    with refuses_argument("duration_ns") as refused:
        RecordedInterruptions(array([1]), array([-1]))
    assert "-1" in str(refused.value)
