"""What delayed the worst packets: by departures and timelines that are made, and on a router."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from foreign.network import routed_network
from runs import AS_ROOT, needed
from taps import Tap, forward, hold_cpu, send_each_ms

from tailscope.extra.tap.delays import Crossing, explain_crossing, passages, senders, usual_pace_ns
from tailscope.extra.tap.kernel import KernelRing, Passage
from tailscope.noise.timeline import Timeline
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.steady import SteadyClock

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope

MS = 1_000_000
NET, HOG = "softirq NET_RX", "task hog"


def timeline(cpu: int, *pieces: tuple[str, float, float]) -> Timeline:
    """What a CPU did: each piece by its cause, begin and end in ms; all of a task is one event."""
    causes = list(dict.fromkeys(cause for cause, _, _ in pieces))
    details = ["pid 7" if cause.startswith("task ") else "" for cause in causes]
    codes = np.arange(len(causes))
    return Timeline(
        cpu,
        np.array([begin * MS for _, begin, _ in pieces], np.int64),
        np.array([end * MS for _, _, end in pieces], np.int64),
        np.array([causes.index(cause) for cause, _, _ in pieces], np.int64),
        codes,
        codes,
        causes,
        details,
    )


def crossing(pre_ms: float, latency_ms: float, left_ms: list[float]) -> Crossing:
    left_ns = np.array([time_ms * MS for time_ms in left_ms], np.int64)
    passage = Passage(int(pre_ms * MS), int(latency_ms * MS))
    return Crossing(passage, "a > b udp", left_ns, np.diff(left_ns))


def sending(*times_ms: float) -> list[tuple[str, float, float]]:
    """A softirq of networking at each time."""
    return [(NET, each - 0.001, each + 0.001) for each in times_ms]


def test_what_leaves_at_the_usual_pace_is_a_queue_whatever_else_runs() -> None:
    """The CPU ran a task for nearly all of the time, and a packet left each 0.2 ms."""
    left_ms = [0.2 * at for at in range(1, 61)]
    pieces = [piece for at in left_ms for piece in (*sending(at), (HOG, at + 0.001, at + 0.199))]
    found = explain_crossing(crossing(2.1, 5.9, left_ms), [timeline(0, *pieces)], 10_000, 200_000)
    assert [(delay.part, delay.cause) for delay in found.delays] == [("queue", "earlier packets")]
    assert (found.delays[0].waited_ns, found.unexplained_ns) == (5_890_000, 0)


def test_what_had_the_cpu_while_nothing_left_is_the_cause() -> None:
    """The device was held up for 3 ms; the other CPU, which sends nothing, does not count."""
    left_ms = [1.0, 2.0, 5.0, 5.01, 5.02, 6.0]
    own = timeline(1, *sending(1.0, 2.0), (HOG, 2.1, 4.9), *sending(5.0, 5.01, 5.02, 6.0))
    other = timeline(0, ("task other", 0.5, 7.0))
    found = explain_crossing(crossing(2.0, 3.0, left_ms), [other, own], 20_000, 10_000)
    assert found.cpus == (1,)
    waited_ns = {delay.cause: delay.waited_ns for delay in found.delays}
    assert waited_ns == {"task hog (pid 7)": 2_800_000, NET: 1000}
    assert found.service_ns + sum(waited_ns.values()) + found.unexplained_ns == 3 * MS


def test_what_captures_do_not_hold_is_blamed_on_nobody() -> None:
    """Of a packet of 80 ms they hold what left within 5 ms of its two times."""
    before_ms = [5 + 0.1 * at for at in range(100)]
    behind_ms = [85 + 0.1 * at for at in range(101)]
    stalled = ([at for at in before_ms if at < 12], [at for at in behind_ms if at > 88])
    for (first, second), is_blamed in (((before_ms, behind_ms), False), (stalled, True)):
        cpu = timeline(1, *sending(*first), (HOG, 20.0, 80.0), *sending(*second))
        found = explain_crossing(crossing(10.0, 80.0, [*first, *second]), [cpu], 20_000, 100_000)
        assert any(delay.cause.startswith(HOG) for delay in found.delays) == is_blamed
        waited_ns = sum(delay.waited_ns for delay in found.delays)
        assert found.service_ns + waited_ns + found.unexplained_ns == 80 * MS


@pytest.mark.parametrize("both", [True, False])
def test_a_packet_that_either_cpu_may_have_sent_stays_unexplained(both: bool) -> None:
    """And one that none was seen to send."""
    left_ms = [1.0, 2.0, 5.0, 6.0]
    pieces = sending(*left_ms) if both else [(HOG, 2.1, 4.0)]
    cpus = [timeline(cpu, *pieces) for cpu in (0, 1)]
    found = explain_crossing(crossing(2.0, 3.0, left_ms), cpus, 20_000, 10_000)
    assert (found.cpus, found.delays) == ((0, 1) if both else (), ())
    assert found.unexplained_ns == 3 * MS - 20_000


def test_a_program_that_forwards_is_known_by_when_it_runs() -> None:
    """Not one that always runs, and sends nothing."""
    left_ms = [1.0, 2.0, 3.0, 4.0, 5.0]
    forwarder = [("task nf", at - 0.01, at + 0.01) for at in left_ms]
    cpus = [timeline(0, (HOG, 0.0, 9.0)), timeline(1, *forwarder)]
    left_ns = np.array([at * MS for at in left_ms], np.int64)
    assert [found.cpu for found in senders(cpus, left_ns, 3 * MS)] == [1]
    assert senders([], left_ns, 3 * MS) == []


def test_the_pace_of_a_queue_takes_ten_packets_that_waited() -> None:
    """Its own, or those of all."""
    few, many = crossing(0, 1, [1, 2, 3]), crossing(0, 1, [0.1 * at for at in range(20)])
    assert usual_pace_ns([few], few) is None
    assert usual_pace_ns([few, many], few) == pytest.approx(0.1 * MS, abs=1)
    assert usual_pace_ns([few, many], many) == pytest.approx(0.1 * MS, abs=1)


@AS_ROOT
def test_events_around_a_packet_stay_and_files_do_not_grow() -> None:
    """A task on a CPU is found again around the time at which it ran."""
    cpu = min(os.sched_getaffinity(0))
    with RunFolder() as folder, KernelRing(folder.part("kernel"), 10 * MS) as ring:
        begun_ns = SteadyClock().now_ns()
        with hold_cpu(cpu, lasts_s=0.2):
            pass
        passage = Passage(begun_ns + 60 * MS, 60 * MS)
        ring.keep([passage])
        recorded = ring.finish()
        sizes = [file.stat().st_blocks for file in recorded.events.values()]
        timelines = ring.timelines(recorded)[passage]
    assert sum(sizes) == 0
    [own] = [each for each in timelines if each.cpu == cpu]
    tasks = own.of(["task "])
    assert int((tasks.end_ns - tasks.start_ns).sum()) > 30 * MS
    assert tasks.start_ns[-1] < passage.pre_ns + 70 * MS


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_program_beside_the_one_that_forwards_is_named(
    tailscope: Tailscope, tmp_path: Path
) -> None:
    """Both have one CPU; the other one takes it by its priority, for 8 ms at a time."""
    needed("ip", "ethtool", "tcpdump", "chrt", "taskset")
    cpu = max(os.sched_getaffinity(0))
    with routed_network() as router:
        tap = Tap(router, tmp_path, "--filter", "udp", "--window", "300ms")
        tap.wait_heard()
        forward(router, cpu)
        with hold_cpu(cpu, lasts_s=30, for_ms=8, every_ms=200, priority=10) as neighbour:
            send_each_ms(router, 4000)
        time.sleep(1)
        tap.end()
    told = json.loads(tailscope("explain", tap.out, "--json", "-").stdout)["worst"]
    assert len(told) >= 3
    name = f"(pid {neighbour.pid})"
    by_neighbour = [
        sum(delay["waited_ns"] for delay in packet["delays"] if name in delay["cause"])
        for packet in told
    ]
    assert sum(waited_ns > 2 * MS for waited_ns in by_neighbour) >= len(told) // 2
    assert all(
        packet["service_ns"]
        + sum(delay["waited_ns"] for delay in packet["delays"])
        + packet["unexplained_ns"]
        == packet["latency_ns"]
        for packet in told
    )
    assert {passage.latency_ns for passage in passages(tap.out / "worst")} == {
        packet["latency_ns"] for packet in told
    }
