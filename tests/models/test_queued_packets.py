"""The time on the CPU by packets that queued: against devices whose work is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.engine.analysis import analyze
from tailscope.exceptions import ModelError
from tailscope.models.overload.queued import FEWEST_QUEUES, Queues, queued_time, queues_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

WAY_NS = 1_000


def left_at(sent: Integers, work: Integers, batch: int) -> Integers:
    """Return the departures from a device that processes batches, one after the other."""
    left, free, at = np.zeros(len(sent), np.int64), 0, 0
    while at < len(sent):
        start, behind = max(free, int(sent[at]) + WAY_NS), at
        while behind < len(sent) and behind - at < batch and sent[behind] + WAY_NS <= start:
            behind += 1
        free = start + int(work[at:behind].sum())
        left[at:behind] = free + WAY_NS
        at = behind
    return left


def bursts(burst: int, count: int, apart_ns: int, gap_ns: int) -> Integers:
    """Return the times at which packets are sent."""
    return np.repeat(np.arange(count) * apart_ns, burst) + np.tile(np.arange(burst) * gap_ns, count)


def found(sent: Integers, left: Integers) -> Queues:
    return queues_of(np.arange(len(sent)), sent, left - sent, 2 * WAY_NS)


@settings(max_examples=60, deadline=None)
@given(
    burst=st.integers(3, 80),
    batch=st.integers(1, 64),
    work_ns=st.integers(200, 50_000),
    gap_ns=st.integers(1, 100),
)
def test_constant_work_is_found_whatever_the_batch(
    burst: int, batch: int, work_ns: int, gap_ns: int
) -> None:
    """Packets come faster than they are worked on; the batches before may hold one, or many."""
    sent = bursts(burst, FEWEST_QUEUES, burst * work_ns * 2 + 10 * WAY_NS, gap_ns)
    left = left_at(sent, np.full(len(sent), work_ns), batch)
    time = queued_time(found(sent, left))
    if time is not None:
        assert time.estimate == pytest.approx(work_ns, rel=1e-9)
    # Of a burst that a single packet's work outlasts, all but the first batches queue.
    if burst * gap_ns < work_ns and burst > batch + 1:
        assert time is not None


def test_random_work_is_found_by_its_mean() -> None:
    """The interval holds the mean of the law in about 95 of 100 cases."""
    chance, runs, held = np.random.default_rng(3), 300, 0
    for _ in range(runs):
        sent = bursts(64, 60, 5_000_000, 100)
        work = chance.integers(5_000, 25_000, len(sent))
        time = queued_time(found(sent, left_at(sent, work, 32)))
        assert time is not None
        held += time.ci_low <= 15_000 <= time.ci_high
    assert abs(held / runs - 0.95) < 4 * math.sqrt(0.05 * 0.95 / runs)


def test_a_delay_line_shows_how_packets_came() -> None:
    sent = bursts(64, FEWEST_QUEUES, 5_000_000, 100)
    time = queued_time(found(sent, sent + 22_000))
    assert time is not None and time.estimate == pytest.approx(100)


def test_packets_far_apart_do_not_queue() -> None:
    sent = np.arange(5_000) * 100_000
    assert queued_time(found(sent, left_at(sent, np.full(len(sent), 20_000), 32))) is None


def test_a_queue_ends_where_a_packet_is_missing() -> None:
    """Lost packets took work, too, so the packets around them say nothing together."""
    sent = bursts(10, FEWEST_QUEUES, 1_000_000, 10)
    left = left_at(sent, np.full(len(sent), 1_000), 1)
    there = np.arange(len(sent)) % 10 != 5
    queues = queues_of(np.flatnonzero(there), sent[there], (left - sent)[there], 2 * WAY_NS)
    assert set(queues.packets.tolist()) == {4, 3}
    time = queued_time(queues)
    assert time is not None and time.estimate == pytest.approx(1_000)


def test_noise_is_no_work() -> None:
    sent = bursts(32, 40, 5_000_000, 100)
    queues = found(sent, left_at(sent, np.full(len(sent), 6_000), 1))
    stalled = np.arange(len(queues.packets)) * 1_000.0
    longer = Queues(queues.begin_ns, queues.end_ns + stalled.astype(np.int64), queues.packets)
    with_noise, without = queued_time(longer), queued_time(longer, stalled)
    assert with_noise is not None and without is not None
    assert without.estimate == pytest.approx(6_000)
    assert with_noise.estimate > 6_000
    with raises(ModelError, "queues-noisy"):
        queued_time(queues, 10.0 * (queues.end_ns - queues.begin_ns))


def test_nothing_is_found_in_nothing() -> None:
    assert queued_time(queues_of([], [], [], 0.0)) is None


@pytest.mark.parametrize("batch", [4, 32])
def test_the_authors_bursts_agree_with_their_medians(data: Path, batch: int) -> None:
    """Table IV has 15.1 us for Snort-filter (VM): medians of 18.4 and 3.3 us without bursts."""
    folder = data / "noms2020" / f"burst-{batch}batch" / "vm"
    (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
    series = analyze(pre, post, trim="1s").series
    assert series is not None
    queues = queues_of(series.seq, series.pre_ns, series.latency_ns, 3_300)
    time = queued_time(queues)
    assert time is not None and time.n > 200_000
    assert time.estimate == pytest.approx(15_100, rel=0.05)
