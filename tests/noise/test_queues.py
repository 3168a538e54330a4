"""Waits of packets in queues, against devices whose work is known to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from single_packets import packets

import tailscope._engine as _engine
from tailscope.engine.analysis import analyze
from tailscope.noise.attribution import EARLIER, REST_OF_BATCH, Blocked
from tailscope.noise.explanation import explain_tail
from tailscope.noise.queues import Delayed, delayed, usual_of
from tailscope.noise.story import Story, tell
from tailscope.store import parquet
from tailscope.store.records.explanation import WAY

if TYPE_CHECKING:
    from pathlib import Path

EACH, TRANSIT = 20_000, 5_000
"""Time that the device needs for a packet, and time of the way there and back."""


@dataclass
class Device:
    """A slow device: it takes up to `batch` waiting packets, and releases them together."""

    each_ns: int = EACH
    transit_ns: int = TRANSIT
    batch: int = 1
    held_up: list[tuple[int, int]] = field(default_factory=list)
    """Start and duration of each interval in which it does not work."""

    def serve(self, pre_ns: list[int]) -> list[int]:
        """Return the departures of packets."""
        left: list[int] = []
        free_ns = 0
        while len(left) < len(pre_ns):
            begin_ns = max(free_ns, pre_ns[len(left)] + self.transit_ns)
            for start, lasted in self.held_up:
                if start <= begin_ns < start + lasted:
                    begin_ns = start + lasted
            there = sum(at + self.transit_ns <= begin_ns for at in pre_ns[len(left) :])
            size = min(there, self.batch)
            free_ns = begin_ns + size * self.each_ns
            for start, lasted in self.held_up:
                if begin_ns < start < free_ns:
                    free_ns += lasted
            left += [free_ns] * size
        return left


def blocked(pieces: list[tuple[int, int, str]], error_ns: int = 0) -> Blocked:
    """Build causes from their starts and durations, all on the device's CPU."""
    names = sorted({name for *_, name in pieces})
    return Blocked(
        np.array([start for start, *_ in pieces], np.int64),
        np.array([start + lasted for start, lasted, _ in pieces], np.int64),
        np.array([names.index(name) for *_, name in pieces], np.int64),
        np.zeros(len(pieces), np.int64),
        np.ones(len(pieces), bool),
        names,
        [""],
        error_ns,
    )


def story(pre_ns: list[int], left_ns: list[int], causes: Blocked, seq: int) -> Story:
    with packets(pre_ns, np.array(left_ns) - np.array(pre_ns)) as all_of_them:
        return tell(all_of_them, all_of_them.latencies(), causes, seq)


def waited(told_story: Story) -> dict[tuple[str, str], int]:
    return {(line.part, line.cause): line.waited_ns for line in told_story.lines}


def bursts(count: int, size: int, every_ns: int) -> list[int]:
    """A packet alone before each burst."""
    return [at * every_ns + start for at in range(count) for start in (0, *[every_ns // 2] * size)]


@pytest.mark.parametrize("batch", [1, 4, 32])
@pytest.mark.parametrize("error_ns", [0, 300])
def test_packet_127_of_a_burst_waits_for_the_127_before_it(batch: int, error_ns: int) -> None:
    size, held_ns = 128, 595_000
    pre_ns = bursts(20, size, 10_000_000)
    first = 19 * (size + 1) + 1
    # In the last burst, something takes 595 µs while the first packets are worked on.
    start_ns = pre_ns[first] + TRANSIT + EACH // 2
    left_ns = Device(batch=batch, held_up=[(start_ns, held_ns)]).serve(pre_ns)
    causes = blocked([(start_ns, held_ns, "hypervisor/SMI")], error_ns)
    told_story = waited(story(pre_ns, left_ns, causes, first + size - 1))
    assert told_story == {
        ("service", ""): EACH,
        ("service", WAY): TRANSIT,
        ("queue", EARLIER): 127 * EACH,
        ("dut", "hypervisor/SMI"): held_ns,
    }
    # The first of the last batch waits for the others of it, too.
    place = size - 1 - (size - 2) % batch
    told_story = waited(story(pre_ns, left_ns, causes, first + place))
    rest = (size - 1 - place) * EACH
    assert told_story.get(("queue", REST_OF_BATCH), 0) == rest
    assert told_story["queue", EARLIER] == place * EACH
    assert told_story["dut", "hypervisor/SMI"] == held_ns


@pytest.mark.parametrize("error_ns", [0, 300])
def test_a_queue_has_all_that_held_up_its_first_packet(error_ns: int) -> None:
    """The device is held up for 1.317 ms; a timer was 14 µs of it, at its beginning."""
    alone = [at * 200_000 for at in range(100)]
    head_ns = alone[-1] + 200_000
    pre_ns = [*alone, *(head_ns + at * 200_000 for at in range(7)), head_ns + 1_340_000]
    start_ns = head_ns + TRANSIT
    device = Device(each_ns=4_000, transit_ns=16_000, held_up=[(start_ns, 1_317_000)])
    left_ns = device.serve(pre_ns)
    causes = blocked([(start_ns + 10_000, 14_000, "local timer")], error_ns)
    least_ns = 14_000 - 2 * error_ns
    for place in range(8):
        told_story = story(pre_ns, left_ns, causes, 100 + place)
        waits = waited(told_story)
        timer = [waits.get((part, "local timer"), 0) for part in ("dut", "queue")]
        assert sum(timer) <= 14_000
        # The first one met it; the others wait for it, too, as they do for the rest.
        assert timer[0] == 0 or place == 0
        if place == 0:
            assert timer[0] >= least_ns
            assert waits["unexplained", ""] >= 1_250_000
        earlier = sum(at > pre_ns[100 + place] for at in left_ns[100 : 100 + place])
        assert waits.get(("queue", EARLIER), 0) <= earlier * 4_000
        held_up_ns = told_story.latency_ns - waits["service", ""]
        named_ns = sum(timer) + waits.get(("queue", EARLIER), 0)
        assert waits.get(("unexplained", ""), 0) >= held_up_ns - named_ns - 2 * error_ns


def test_a_packet_behind_a_backlog_waits_for_what_made_it() -> None:
    """It came when the disturbance was over; without that, no packet would have been there."""
    pre_ns = [*range(0, 10_000_000, 100_000), *range(10_000_000, 11_000_000, 25_000)]
    start_ns, held_ns = 10_000_000 + TRANSIT, 300_000
    left_ns = Device(held_up=[(start_ns, held_ns)]).serve(pre_ns)
    causes = blocked([(start_ns, held_ns, "task cc1")])
    for place in range(100, 140):
        wait_ns = left_ns[place] - pre_ns[place] - EACH - TRANSIT
        waits = waited(story(pre_ns, left_ns, causes, place))
        met_ns = max(0, min(wait_ns, start_ns + held_ns - pre_ns[place]))
        assert waits.get(("dut", "task cc1"), 0) == met_ns
        assert waits.get(("queue", "task cc1"), 0) == wait_ns - met_ns
        assert ("unexplained", "") not in waits


def test_what_a_backlog_was_made_of_is_forgotten_in_the_order_in_which_it_came() -> None:
    """The first disturbance has been made up for when the second one comes."""
    pre_ns = [*range(0, 10_000_000, 100_000), *range(10_000_000, 14_000_000, 25_000)]
    held_up = [(10_000_000, 100_000), (11_500_000, 200_000)]
    left_ns = Device(held_up=held_up).serve(pre_ns)
    causes = blocked([(10_000_000, 100_000, "task cc1"), (11_500_000, 200_000, "task ld")])
    late = next(at for at, pre in enumerate(pre_ns) if pre >= 11_800_000)
    waits = waited(story(pre_ns, left_ns, causes, late))
    assert waits["queue", "task ld"] == left_ns[late] - pre_ns[late] - EACH - TRANSIT > 0
    assert not any(cause == "task cc1" for _, cause in waits)


def test_packets_that_overtake_each_other_have_no_queues() -> None:
    chance = np.random.default_rng(5)
    pre_ns = np.arange(2_000) * 1_000
    latency_ns = 3_000 + chance.integers(0, 5_000, 2_000)
    with packets(pre_ns, latency_ns) as many:
        tail = explain_tail(many, many.latencies(), blocked([(0, 10, "local timer")]), 0.9)
    assert tail.in_order is False
    assert tail.parts_ns["queue"] == 0
    assert sum(tail.parts_ns.values()) == tail.latency_ns


def simulated(folder: Path, **more: object) -> tuple[list[int], list[int]]:
    """Simulate bursts of 128 packets through a device; return arrivals and departures."""
    _engine.simulate(
        str(folder),
        seed=3,
        packets=20 * 128,
        rate_pps=10_000,
        pattern="burst:128,0ns",
        service_ns=EACH,
        latency=f"constant:{EACH + TRANSIT}ns",
        **more,
    )
    pre, post = (next(folder.glob(f"*-{side}-*")) for side in ("pre", "post"))
    series = analyze(pre, post, match_on="probe").series
    assert series is not None
    pre_ns = series.pre_ns.astype(np.int64)
    return pre_ns.tolist(), (pre_ns + series.latency_ns.astype(np.int64)).tolist()


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_parts_over_a_burst_are_those_of_the_simulator(batch: int, tmp_path: Path) -> None:
    pre_ns, left_ns = simulated(tmp_path, batch=batch, stalls_ns=(1, 0))
    with packets(pre_ns, np.array(left_ns) - np.array(pre_ns)) as many:
        waits = Delayed.joined([*delayed(many, usual_of(many), lambda seq, _: seq >= 0)])
    place = waits.seq % 128
    # All packets of a burst come at once: the first batch takes as many as fit, as all others do.
    assert (waits.earlier_ns == place * EACH).all()
    assert (waits.batch_ns == (batch - 1 - place % batch) * EACH).all()
    assert (waits.service_ns == EACH + TRANSIT).all()
    assert (waits.held_up_ns() == 0).all()


def test_what_stalls_add_is_what_the_simulator_adds(tmp_path: Path) -> None:
    """Latencies with stalls and without them differ by what held up the device."""
    pre_ns, left_ns = simulated(tmp_path / "free", stalls_ns=(1, 0))
    stalls_ns = (20_000_000, 600_000)
    assert simulated(tmp_path / "stalled", stalls_ns=stalls_ns)[0] == pre_ns
    stalled_ns = simulated(tmp_path / "stalled", stalls_ns=stalls_ns)[1]
    with packets(pre_ns, np.array(stalled_ns) - np.array(pre_ns)) as many:
        waits = Delayed.joined([*delayed(many, usual_of(many), lambda seq, _: seq >= 0)])
    added_ns = np.array(stalled_ns) - np.array(left_ns)
    assert np.count_nonzero(added_ns) > 100
    assert (waits.held_up_ns() == added_ns).all()


def test_what_an_instrument_stamps_in_one_go_is_no_batch() -> None:
    """It stalls for most of the time, and stamps all that has come meanwhile when it runs again."""
    pre_ns = bursts(20, 128, 10_000_000)
    left_ns = np.array(Device().serve(pre_ns))
    stalls = np.arange(20) * 10_000_000 + 5_500_000
    at = np.searchsorted(stalls, left_ns, "right") - 1
    tainted = (at >= 0) & (left_ns - stalls[at] < 2_000_000)
    stamped_ns = np.where(tainted, stalls[at] + 2_000_000 + np.arange(len(left_ns)) % 129, left_ns)
    assert np.count_nonzero(tainted) > len(left_ns) / 2
    with packets(pre_ns, stamped_ns - np.array(pre_ns), tainted) as many:
        usual = usual_of(many)
    assert (usual.service_ns, usual.each_ns) == (EACH + TRANSIT, EACH)


def test_what_is_usual_says_what_it_rests_on() -> None:
    """No packet but the first finds the device idle; or all that do were delayed by a stall."""
    pre_ns = list(range(0, 200_000, 1_000))
    with packets(pre_ns, [EACH * (at + 1) - ns for at, ns in enumerate(pre_ns)]) as queued:
        usual = usual_of(queued)
    assert not usual.seen_idle and not usual.is_tainted and usual.service_ns == EACH
    apart_ns = np.arange(100) * 1_000_000
    for marks in (np.ones(100, bool), np.arange(100) < 90):
        with packets(apart_ns, np.full(100, 5_000), marks) as tainted:
            usual = usual_of(tainted)
        assert usual.seen_idle and usual.is_tainted == marks.all()


SENT = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 200)), min_size=12, max_size=60)
EVENTS = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 60), st.integers(0, 2)), max_size=12)


@given(SENT, EVENTS, st.integers(0, 9), st.integers(2, 12))
@settings(deadline=None, max_examples=30)
def test_no_cause_has_more_than_its_time(
    sent: list[tuple[int, int]], events: list[tuple[int, int, int]], error_ns: int, rows: int
) -> None:
    """Packets of any latencies, and events of any length: what a cause takes has been there."""
    pre_ns = np.cumsum([gap for gap, _ in sent])
    post_ns = np.maximum.accumulate(pre_ns + [lasts for _, lasts in sent])
    pieces, now = [], 0
    for gap, lasted, which in events:
        pieces.append((now + gap, lasted, ("timer", "shootdown", "task")[which]))
        now += gap + lasted
    causes = blocked(pieces, error_ns)
    heads = [0]
    for before, (at, came) in pairwise(enumerate(pre_ns.tolist())):
        heads.append(at if came >= post_ns[before[0]] else heads[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_ROWS", rows)
        for seq, head in [*enumerate(heads)][::3]:
            told_story = story(pre_ns.tolist(), post_ns.tolist(), causes, seq)
            assert sum(line.waited_ns for line in told_story.lines) == post_ns[seq] - pre_ns[seq]
            for (part, cause), waited_ns in waited(told_story).items():
                if part not in ("dut", "queue") or cause in (EARLIER, REST_OF_BATCH):
                    continue
                begin_ns, end_ns = pre_ns[seq], post_ns[seq]
                if part == "queue":
                    begin_ns, end_ns = pre_ns[head], pre_ns[seq]
                there = sum(
                    max(0, min(start + lasted, end_ns) - max(start, begin_ns))
                    for start, lasted, name in pieces
                    if name == cause
                )
                assert waited_ns <= there
