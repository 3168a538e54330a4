"""Upper bounds of what neighbours explain of latencies, against a queue of known truth."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import LOOP, MARK, busy_neighbour, holds, latencies, recorded
from single_packets import packets

from tailscope.noise import neighbour_sampler
from tailscope.noise.held import HeldIntervals, HeldPackets, held_packets, longest_within
from tailscope.noise.intervals import covered
from tailscope.noise.load import load_text
from tailscope.noise.neighbour_sampler import (
    NeighbourSampler,
    ProgramTimes,
    RunDelay,
    busy_ns,
    idle_ns,
)
from tailscope.noise.neighbours import (
    held_by_neighbours,
    held_by_tasks,
    held_windows,
)
from tailscope.noise.timeline import UNNAMED, Timeline
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import MARK as ENVIRONMENT
from tailscope.testbed.tasks import TICK_NS, ThreadTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

SECOND = 1_000_000_000
WORK_NS = 5_000
NONE = HeldIntervals.none()


def bounds(came: Integers, took: Integers, held: HeldPackets, batch: int = 1000) -> Integers:
    of = held.bounds()
    pieces = [
        of.of(came[at : at + batch].astype(np.uint64), took[at : at + batch].astype(np.uint64))
        for at in range(0, len(came), batch)
    ]
    return np.concatenate(pieces).astype(np.int64)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.floats(0.01, 0.8),
    st.sampled_from([3_000, 50_000, 2_000_000]),
    st.integers(2_000, 100_000),
    st.integers(1, 700),
)
def test_a_bound_is_never_below_what_others_took(
    seed: int, share: float, mean_ns: int, gap_ns: int, batch: int
) -> None:
    chance = np.random.default_rng(seed)
    came = np.cumsum(chance.exponential(gap_ns, 1000)).astype(np.int64)
    held = holds(seed, int(came[-1]), share, mean_ns)
    took, alone = latencies(came, WORK_NS, held), latencies(came, WORK_NS, NONE)
    bound = bounds(came, took, HeldPackets(held.start_ns, held.end_ns, WORK_NS, 0), batch)
    assert (bound <= took).all()
    assert (took - bound <= alone).all()


def test_what_nobody_held_explains_nothing() -> None:
    came = np.arange(1, 1001, dtype=np.int64) * 6_000
    took = latencies(came, 7_000, NONE)
    assert took[-1] > 900_000
    assert not bounds(came, took, HeldPackets(*NONE[:2], 7_000, 0)).any()


def test_a_packet_far_behind_is_not_excused() -> None:
    """One hold in the beginning; the queue behind it is emptied, what is slow then is its own."""
    came = np.arange(1, 1001, dtype=np.int64) * 20_000
    held = HeldIntervals.whole(np.array([10_000]), np.array([510_000]))
    took = latencies(came, WORK_NS, held)
    took[500:] += 400_000
    bound = bounds(came, took, HeldPackets(*held[:2], WORK_NS, 0))
    assert (took - bound)[:100].max() <= WORK_NS
    assert not bound[100:].any()


def windows(held: HeldIntervals, lasts_ns: int, every_ns: int = 100_000_000) -> HeldIntervals:
    """Return what a sampler sees of it: waits, counted when they end."""
    edges = np.arange(0, lasts_ns + every_ns, every_ns)
    waited = [int(held.held_ns[held.end_ns <= edge].sum()) for edge in edges]
    return held_windows([*map(RunDelay, edges.tolist(), waited)], 10**15)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.8])
@pytest.mark.parametrize("mean_ns", [200_000, 4_000_000])
def test_without_times_the_longest_waits_are_taken(share: float, mean_ns: int) -> None:
    """Only the run delay is known: what is left of a device that is fast is below its limit."""
    lasts_ns = SECOND
    came = np.arange(1, 10_000, dtype=np.int64) * (lasts_ns // 10_000)
    held = holds(7, lasts_ns, share, mean_ns)
    took, limit_ns = latencies(came, WORK_NS, held), 4 * WORK_NS
    known = held_packets(windows(held, lasts_ns), packets(came, took), is_exact=False)
    left = took - bounds(came, took, known)
    assert (took > limit_ns).mean() > share / 4
    assert (left > limit_ns).mean() <= (took > limit_ns).mean() / 20


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_what_the_instrument_stalled_hides_no_wait(share: float) -> None:
    """Others hold the generator's CPU, too: it sends late, and sees late what comes back."""
    lasts_ns = SECOND
    stalls = holds(8, lasts_ns, 0.5, 4_000_000)
    came = np.sort(released(np.arange(1, 10_000, dtype=np.int64) * (lasts_ns // 10_000), stalls))
    held = holds(7, lasts_ns, share, 4_000_000)
    took = released(came + latencies(came, WORK_NS, held), stalls) - came
    stall = covered(came, came + took, stalls.start_ns, stalls.end_ns)
    known = held_packets(
        windows(held, lasts_ns), packets(came, took, stall_ns=stall), is_exact=False
    )
    left = np.maximum(took - stall - bounds(came, took, known), 0)
    alone = latencies(came, WORK_NS, NONE)
    assert (left > alone + WORK_NS).mean() <= share / 20


def released(at_ns: Integers, stalls: HeldIntervals) -> Integers:
    """Return when a loop that stalls handles what is due at these times."""
    last = np.searchsorted(stalls.start_ns, at_ns, "right") - 1
    return np.where(last < 0, at_ns, np.maximum(at_ns, stalls.end_ns[last]))


def test_a_slow_device_on_a_quiet_machine_is_not_excused() -> None:
    """A tenth of a millisecond in a tenth of a second explains few of the packets that are slow."""
    came = np.arange(1, 20_000, dtype=np.int64) * 50_000
    held = holds(7, SECOND, 0.001, 50_000)
    took = latencies(came, 26_000, held) + np.random.default_rng(1).integers(0, 200, len(came))
    known = held_packets(windows(held, SECOND), packets(came, took), is_exact=False)
    left = took - bounds(came, took, known)
    assert (left >= 26_000).all()
    assert (took > 27_000).sum() > 3 * (left > 27_000).sum()
    assert known.most_lost <= 2 * 20 * 2


def test_lost_packets_are_bounded_by_what_came() -> None:
    came = np.arange(1, 10_000, dtype=np.int64) * 100_000
    held = HeldIntervals.whole(np.array([10]), np.array([5_500_010]))
    known = held_packets(held, packets(came, np.full_like(came, 2_000)), is_exact=True)
    assert known.most_lost == 2 * 6 * 10
    assert held_packets(NONE, packets(came, came), is_exact=True).most_lost == 0


def test_a_wait_is_looked_for_where_it_ended() -> None:
    start = np.array([5, 95, 110, 180, 195]) * 1_000_000
    end = np.array([15, 105, 111, 182, 230]) * 1_000_000
    edges = np.array([0, 100, 200]) * 1_000_000
    first = HeldIntervals(edges[:1], edges[1:2], np.array([10_000_000]))
    second = HeldIntervals(edges[1:2], edges[2:], np.array([10_000_000]))
    lasted = end - start
    assert longest_within(first, start, end, lasted).tolist() == [True, False, False, False, False]
    assert longest_within(second, start, end, lasted).tolist() == [False, True, True, True, False]
    little = second._replace(held_ns=np.array([1_000_000]))
    assert longest_within(little, start, end, lasted).tolist() == [False, False, False, True, False]
    much = second._replace(held_ns=np.array([25_000_000]))
    assert longest_within(much, start, end, lasted).tolist() == [False, True, True, True, True]


def test_who_reads_may_lose_the_cpu_meanwhile() -> None:
    """A reading begins at 100 ms, and reads what was counted until 250 ms."""
    start = np.arange(0, 360, 10, dtype=np.int64) * 1_000_000
    end = start + 4_000_000
    waited = [4_000_000 * int((end <= at * 1_000_000).sum()) for at in (0, 250, 350)]
    delays = [
        RunDelay(0, 0),
        RunDelay(100_000_000, waited[1], reading_ns=150_000_000),
        RunDelay(350_000_000, waited[2]),
    ]
    known = held_by_neighbours(
        recorded(delays), MARK, [1], timelines=None, stalls=(start, end)
    ).intervals
    assert known.start_ns.tolist() == start[end <= 350_000_000].tolist()


def test_what_a_device_waits_for_others_than_neighbours_is_its_own() -> None:
    """Co-runners and the device's own threads have kept it waiting, and hardly anybody else."""
    delays = [RunDelay(0, 0), RunDelay(100, 60), RunDelay(200, 60), RunDelay(300, 100)]
    assert held_windows(delays, 100).held_ns.tolist() == [60, 40]
    assert held_windows(delays, 5).held_ns.tolist() == [3, 2]
    assert not len(held_windows(delays, 0).held_ns)
    assert not len(held_windows([], 5).held_ns)


def test_the_best_evidence_is_taken() -> None:
    delays = [RunDelay(0, 0), RunDelay(100_000_000, 2_000_000)]
    sampled = recorded(delays, programs={"browser": 2_000_000}, platform=[8, 9])
    stalls = np.array([40_000_000, 7_000_000]), np.array([42_000_000, 7_001_000])

    def held(**known: object) -> tuple[str | None, int]:
        given = {"timelines": None, "stalls": None, **known}
        outcome = held_by_neighbours(sampled, MARK, [1], **given)  # type: ignore[arg-type]
        assert [each.name for each in outcome.record.programs] == ["browser"]
        return outcome.record.known_from, outcome.record.held_ns

    assert held() == ("run delay", 2_000_000)
    assert held(stalls=stalls) == ("stalls", 2_001_000)
    assert held(timelines=[timeline()]) == ("events", 30)
    nothing = held_by_neighbours(recorded(), MARK, [1], timelines=None, stalls=None).record
    assert nothing.known_from is None and nothing.unknown_because is not None


def timeline(unnamed_ns: int = 0) -> Timeline:
    """A browser ran twice, kernel threads, a co-runner and a timer once each."""
    causes = ["task browser", "task kswapd0", "task stress-ng-cpu", "local timer", UNNAMED]
    causes += ["task kworker/1:2", "task kworker: vmstat_update"]
    details = ["pid 7", "pid 8", "pid 9", "", "pid 10", "pid 11 kworker/1:3"]
    start = np.array([10, 30, 50, 70, 90, 110, 130, 140], np.int64)
    return Timeline(
        1,
        start,
        start + np.array([10, 5, 5, 5, 20, unnamed_ns, 9, 5]),
        np.arange(8),
        np.array([0, 1, 2, 3, 0, 4, 5, 6]),
        np.array([0, 1, 2, 3, 0, 3, 4, 5]),
        causes,
        details,
    )


def test_the_kernel_and_co_runners_are_no_neighbours() -> None:
    held, programs = held_by_tasks([timeline()], {8, 9}, NONE)
    assert (held.start_ns.tolist(), held.end_ns.tolist()) == ([10, 90], [20, 110])
    assert programs == {"browser": 30}


def test_a_stall_without_a_name_may_be_a_neighbour_where_the_device_waited() -> None:
    waited = HeldIntervals(np.array([0]), np.array([1000]), np.array([9]))
    held, _ = held_by_tasks([timeline(9)], {8, 9}, waited)
    assert held.start_ns.tolist() == [10, 90, 110]


def test_programs_that_are_not_ours_are_seen() -> None:
    cpu, name = max(os.sched_getaffinity(0)), Path(sys.executable).name[:15]
    with busy_neighbour(cpu), subprocess.Popen([sys.executable, "-c", LOOP]) as own:
        times = ProgramTimes()
        times.look()
        deadline_s = time.monotonic() + 60
        while not (times.programs_ns[name, cpu] and sum(times.own_ns.values()) > 50_000_000):
            assert time.monotonic() < deadline_s, times.programs_ns
            time.sleep(0.05)
            times.look()
        assert own.pid in times.platform
        text = load_text([cpu])
        own.kill()
    assert text is not None
    assert f"CPU {cpu}," in text


@pytest.mark.parametrize(
    ("ran_ms", "elsewhere_ms"),
    [
        ({1: 900, 0: 20}, {}),
        ({1: 20, 0: 500, 3: 400}, {0: 500, 3: 400}),
        ({0: 900}, {0: 900}),
        # As a program that leaves packets to the kernel.
        ({0: 9}, {}),
        ({}, {}),
    ],
)
def test_a_device_that_runs_on_other_cpus_is_noticed(
    ran_ms: dict[int, int], elsewhere_ms: dict[int, int]
) -> None:
    own_ns = {(MARK, cpu): ms * 1_000_000 for cpu, ms in ran_ms.items()}
    found = replace(recorded(), own_ns={("generator", 0): 10**9, **own_ns})
    expected = {cpu: ms * 1_000_000 for cpu, ms in elsewhere_ms.items()}
    assert found.elsewhere_ns(MARK, (1,)) == expected


def test_what_this_process_takes_is_not_the_devices() -> None:
    times = ProgramTimes()
    times.look()
    began_s = time.process_time()
    while time.process_time() - began_s < 0.03:
        pass
    times.look()
    assert not times.own_ns
    assert os.getpid() not in times.platform


def test_a_cpu_that_serves_interrupts_is_not_idle(tmp_path: Path) -> None:
    """A wait for other programs includes a wait for what interrupts them."""
    (tmp_path / "stat").write_text("cpu 1 1 1\ncpu1 50 1 9 30 2 4 8 6 0 0\nintr 5\n")
    assert idle_ns(tmp_path / "stat") == {1: 32 * TICK_NS}
    assert busy_ns(tmp_path / "stat") == {1: 60 * TICK_NS}


def test_ticks_of_the_device_hide_no_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is counted one tick has run between nothing and two."""
    times = ProgramTimes("a measurement")
    monkeypatch.setattr(neighbour_sampler, "processes", lambda: [5])
    monkeypatch.setattr(neighbour_sampler, "threads_of", lambda pid: [pid])
    monkeypatch.setattr(neighbour_sampler, "parent_of", lambda _pid: os.getpid())
    for ticks in (7, 8):
        monkeypatch.setattr(
            neighbour_sampler,
            "times_of",
            lambda _pid, _tid, ticks=ticks: ThreadTimes(False, ticks * TICK_NS, 1),
        )
        times.look()
    assert not sum(times.own_ns.values())


def test_a_program_that_was_just_begun_is_known_by_its_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before a child begins its program, the kernel shows no mark of its own."""
    with RunFolder() as folder:
        mark = folder.part("platform").name
        times = ProgramTimes(folder.name)
        monkeypatch.setattr(neighbour_sampler, "processes", lambda: [5])
        monkeypatch.setattr(neighbour_sampler, "threads_of", lambda pid: [pid])
        monkeypatch.setattr(neighbour_sampler, "parent_of", lambda _pid: os.getpid())
        run = ThreadTimes(False, 0, 1)
        monkeypatch.setattr(neighbour_sampler, "times_of", lambda _pid, _tid: run)
        for shown in ({"": ""}, {ENVIRONMENT: mark}):
            monkeypatch.setattr(neighbour_sampler, "environment_of", lambda _pid, s=shown: s)
            times.look()
    assert times.own_processes[5] == mark


def test_a_device_that_waits_for_its_cpu_is_seen_to() -> None:
    cpu = max(os.sched_getaffinity(0))
    with busy_neighbour(cpu), RunFolder() as folder:
        mark = folder.part("platform").name
        environment = {**os.environ, ENVIRONMENT: mark}
        command = ["taskset", "-c", str(cpu), sys.executable, "-c", f"print(flush=True)\n{LOOP}"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as device:
            try:
                assert device.stdout is not None
                device.stdout.readline()
                with NeighbourSampler(folder.name, {mark: frozenset([cpu])}) as sampler:
                    time.sleep(0.5)
                    sampled = sampler.finish()
            finally:
                device.kill()
    assert sampled is not None
    assert len(sampled.delays[mark]) > len(("begin", "end"))
    assert sampled.most_ns([cpu]) > 0
    assert held_by_neighbours(sampled, mark, [cpu], timelines=None, stalls=None).record.held_ns > 0
