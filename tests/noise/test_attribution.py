"""Parts of a latency, against a packet at a time and a nanosecond at a time."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from single_packets import packets
from wording import assert_wording

from tailscope.noise.attribution import (
    EARLIER,
    REST_OF_BATCH,
    Attribution,
    Blocked,
    Explained,
    Share,
    Tally,
    blocked_by,
    own_work_ns,
)
from tailscope.noise.events import HOLDING, work_of_device
from tailscope.noise.explanation import explain_tail
from tailscope.noise.queues import Delayed, Usual, delayed
from tailscope.noise.story import tell
from tailscope.noise.timeline import HANDING_ON, Timeline
from tailscope.store import parquet
from tailscope.store.records.run import OwnWork
from tailscope.words.figures import explained_answer, explained_text

NAMES = ["timer", "shootdown", "task"]


@dataclass
class Piece:
    start: int
    end: int
    cause: int
    is_dut: bool


def blocked(pieces: list[Piece]) -> Blocked:
    return Blocked(
        np.array([piece.start for piece in pieces], np.int64),
        np.array([piece.end for piece in pieces], np.int64),
        np.array([piece.cause for piece in pieces], np.int64),
        np.zeros(len(pieces), np.int64),
        np.array([piece.is_dut for piece in pieces], bool),
        NAMES,
        [""],
    )


def explained(
    pre: list[int], latency: list[int], pieces: list[Piece], usual: Usual
) -> tuple[Explained, list[Share], Delayed]:
    tally = Tally()
    with packets(pre, latency) as all_of_them:
        whole = Delayed.joined([*delayed(all_of_them, usual, lambda seq, _: seq >= 0)])
    return Attribution(blocked(pieces)).explain(whole, tally), tally.shares(), whole


class SlowPacket(NamedTuple):
    """The waits of a packet by timestamps."""

    service: int
    earlier: int
    batch: int
    since: int


def slow_queue(pre: list[int], latency: list[int], usual: Usual) -> list[SlowPacket]:
    """Return the waits of packets, one packet at a time."""
    transit = usual.service_ns - usual.each_ns
    front = list(accumulate((at + took for at, took in zip(pre, latency, strict=True)), max))
    batches: list[list[int]] = []
    for at, left in enumerate(front):
        if at and left - front[at - 1] <= usual.apart_ns:
            batches[-1].append(at)
        else:
            batches.append([at])
    found, held_up, before, head, behind = [], [], pre[0], 0, 0
    for batch in batches:
        took = front[batch[-1]] - max(pre[batch[0]] + transit, before)
        held = took - len(batch) * usual.each_ns
        if 2 * held > len(batch) * usual.each_ns:
            held_up.append((max(pre[batch[0]], before), held))
        for place, at in enumerate(batch):
            is_head = not at or pre[at] >= front[at - 1]
            behind = 0 if is_head else max(0, behind + usual.each_ns - pre[at] + pre[at - 1])
            head = pre[at] if is_head else head
            service = min(latency[at], usual.service_ns)
            busy = max(0, before - pre[at] - transit) + place * usual.each_ns
            earlier = min(behind, busy, latency[at] - service)
            rest = min((len(batch) - 1 - place) * usual.each_ns, latency[at] - service - earlier)
            left, since = latency[at] - service - earlier - rest, head
            for began, lasted in reversed(held_up):
                if began < head or left <= lasted:
                    since = max(head, began + lasted - min(left, lasted))
                    break
                left -= lasted
            end = pre[at] + latency[at]
            waits = latency[at] > service + earlier + rest
            found.append(SlowPacket(service, earlier, rest, min(since, end) if waits else end))
        before = front[batch[-1]]
    return found


def slowly(pre: int, latency: int, pieces: list[Piece], found: SlowPacket) -> Counter[str]:
    """Parts and causes of a latency by counting nanoseconds, from the packet's end backwards."""
    left = latency - found.service - found.earlier - found.batch
    parts = Counter(service=found.service, queue=found.earlier + found.batch)
    parts[EARLIER], parts[REST_OF_BATCH] = found.earlier, found.batch
    for ns in range(pre + latency - 1, found.since - 1, -1):
        piece = next((piece for piece in pieces if piece.start <= ns < piece.end), None)
        if piece is not None and left:
            parts["queue" if ns < pre else "dut" if piece.is_dut else "instrument"] += 1
            parts[NAMES[piece.cause]] += 1
            left -= 1
    parts["unexplained"] = parts[""] = left
    return parts


PIECES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 30), st.integers(0, 2), st.booleans()), max_size=6
)
PACKETS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 60)), min_size=1, max_size=10)
USUAL = st.tuples(st.integers(1, 30), st.integers(0, 30), st.integers(0, 12)).map(
    lambda each: Usual(max(each[:2]), min(each[:2]), each[2], in_order=True)
)


@given(PACKETS, PIECES, USUAL, st.integers(1, 12))
@settings(deadline=None)
def test_parts_are_those_of_a_slow_count(
    sent: list[tuple[int, int]],
    gaps: list[tuple[int, int, int, bool]],
    usual: Usual,
    rows_at_once: int,
) -> None:
    pre = np.cumsum([gap for gap, _ in sent]).tolist()
    latency = [lasts for _, lasts in sent]
    pieces, now = [], 0
    for gap, length, cause, is_dut in gaps:
        pieces.append(Piece(now + gap, now + gap + length, cause, is_dut))
        now += gap + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_ROWS", rows_at_once)
        found, shares, whole = explained(pre, latency, pieces, usual)
    slow = slow_queue(pre, latency, usual)
    columns = (whole.service_ns, whole.earlier_ns, whole.batch_ns, whole.since_ns)
    assert [*zip(*(column.tolist() for column in columns), strict=True)] == slow
    for at in range(len(pre)):
        got = {name: int(values[at]) for name, values in found.parts().items()}
        expected = slowly(pre[at], latency[at], pieces, slow[at])
        assert got == {name: expected[name] for name in got}
        assert sum(got.values()) == latency[at]
        waits = {name: expected[name] for name in (*NAMES, EARLIER, REST_OF_BATCH, "")}
        assert waits[found.cause[at]] == max(waits.values())
    excess = sum(max(0, lasts - usual.service_ns) for lasts in latency)
    assert sum(share.total_ns for share in shares) == excess


ALONE = Usual(100, 100, 0, in_order=True)


def test_a_queue_has_the_causes_of_its_first_packet() -> None:
    # The device is held from 1000 to 1500; four packets wait, and leave 100 apart.
    pre = [1000, 1100, 1200, 1550, 5000]
    latency = [610, 610, 610, 360, 100]
    found, *_ = explained(pre, latency, [Piece(1000, 1500, 1, True)], ALONE)
    assert found.dut_ns.tolist() == [500, 400, 300, 0, 0]
    # All others have 10 ns that nobody explains, and the last one came when 250 were over.
    assert found.queue_ns.tolist() == [0, 100, 200, 250, 0]
    assert found.queue_cause == ["", "shootdown", "shootdown", "shootdown", ""]
    assert found.cause == ["shootdown", "shootdown", "shootdown", "shootdown", ""]
    assert found.unexplained_ns.tolist() == [10, 10, 10, 10, 0]


def test_a_burst_queues_behind_itself() -> None:
    found, *_ = explained([0, 0, 0], [100, 200, 300], [], ALONE)
    assert found.queue_ns.tolist() == [0, 100, 200]
    assert found.queue_cause[1:] == [EARLIER, EARLIER]


def test_a_packet_has_no_cause_if_most_of_its_wait_is_unexplained() -> None:
    found, *_ = explained([0], [1000], [Piece(50, 200, 0, True)], ALONE)
    assert (found.dut_ns[0], found.unexplained_ns[0], found.cause) == (150, 750, [""])


def test_the_instrument_is_to_blame_where_the_device_ran() -> None:
    pieces = [Piece(0, 50, 0, False), Piece(50, 80, 2, True)]
    found, shares, _ = explained([0], [100], pieces, Usual(20, 20, 0, in_order=True))
    assert (found.instrument_ns[0], found.dut_ns[0], found.unexplained_ns[0]) == (50, 30, 0)
    assert [(share.part, share.cause) for share in shares][:2] == [
        ("instrument", "timer"),
        ("dut", "task"),
    ]


def test_the_tail_is_what_lies_beyond_the_quantile() -> None:
    with packets(range(0, 100_000, 1000), [100] * 98 + [200, 900]) as many:
        pieces = blocked([Piece(99_050, 99_850, 0, True)])
        tail = explain_tail(many, many.latencies(), pieces, 0.98)
    assert (tail.packets, tail.threshold_ns, tail.service_ns) == (2, 100, 100)
    assert tail.parts_ns == {
        "service": 200,
        "dut": 800,
        "queue": 0,
        "instrument": 0,
        "unexplained": 100,
    }
    assert sum(tail.parts_ns.values()) == tail.latency_ns == 1100
    assert tail.excess_ns == sum(share.total_ns for share in tail.causes) == 900


@pytest.mark.parametrize(("stalled_ns", "is_told"), [(0, False), (700, True)])
def test_a_delay_during_which_the_instrument_stalled_may_be_its_own(
    stalled_ns: int, is_told: bool
) -> None:
    stalled = np.array([0] * 99 + [stalled_ns])
    with packets(range(0, 100_000, 1000), [100] * 99 + [900], None, stalled) as many:
        pieces = blocked([Piece(99_050, 99_850, 0, True)])
        tail = explain_tail(many, many.latencies(), pieces, 0.98)
    assert tail.stalled_ns == stalled_ns
    assert ("87.5%" in explained_text(tail)) == is_told
    assert ("at most" in explained_answer(tail)) == is_told


def test_a_tail_without_packets_begins_at_a_lower_quantile() -> None:
    with packets(range(0, 100_000, 1000), [100] * 98 + [200, 900]) as many:
        tail = explain_tail(many, many.latencies(), blocked([Piece(99_050, 99_850, 0, True)]))
    assert (tail.quantile, tail.none_above, tail.packets) == (0.99, 0.999, 1)
    assert_wording("noise/lower-quantile", explained_text(tail))
    assert tail.excess_ns == sum(share.total_ns for share in tail.causes) == 800


def test_packets_that_all_take_as_long_have_no_tail() -> None:
    with packets(range(0, 10_000, 1000), [100] * 10) as many:
        tail = explain_tail(many, many.latencies(), blocked([]))
    assert (tail.quantile, tail.packets, tail.causes) == (0.999, 0, ())
    assert_wording("noise/no-tail", explained_text(tail))


def test_a_story_lists_the_largest_part_first() -> None:
    pieces = blocked([Piece(9050, 9250, 0, True), Piece(9300, 9600, 2, False)])
    with packets(range(0, 10_000, 1000), [100] * 9 + [700]) as many:
        story = tell(many, many.latencies(), pieces)
    assert (story.seq, story.rank, story.packets, story.sent_after_ns) == (9, 1, 10, 9000)
    assert [(line.part, line.cause, line.waited_ns) for line in story.lines] == [
        ("instrument", "task", 300),
        ("dut", "timer", 200),
        ("unexplained", "", 100),
        ("service", "", 100),
    ]
    assert sum(line.share for line in story.lines) == pytest.approx(1)


def timeline(cpu: int, *pieces: tuple[int, int, str]) -> Timeline:
    """A CPU's time, each piece an event."""
    causes = sorted({cause for *_, cause in pieces})
    numbers = np.arange(len(pieces))
    return Timeline(
        cpu,
        np.array([start for start, *_ in pieces], np.int64),
        np.array([end for _, end, _ in pieces], np.int64),
        numbers,
        np.array([causes.index(cause) for *_, cause in pieces], np.int64),
        np.zeros(len(pieces), np.int64),
        causes,
        [""],
    )


def test_what_tailscope_does_on_the_device_s_cpu_is_the_instrument_s() -> None:
    dut = [
        timeline(1, (0, 10, "task cc1"), (20, 40, "tailscope's tracer")),
        timeline(2, (30, 50, "local timer"), (60, 70, "softirq NET_RX")),
    ]
    instrument = [timeline(0, (25, 60, "task mypy"))]
    own = OwnWork(instrument=(), dut=("softirq NET_",))
    found = blocked_by(dut, instrument, own_work=own)
    rows = [
        (start, end, found.names[cause], bool(is_dut))
        for start, end, cause, is_dut in zip(
            found.start_ns, found.end_ns, found.cause, found.is_dut, strict=True
        )
    ]
    # Where both were blocked it was the device; tailscope's work on its CPU comes second.
    assert rows == [
        (0, 10, "task cc1", True),
        (20, 30, "tailscope's tracer", False),
        (30, 50, "local timer", True),
        (50, 60, "task mypy", False),
    ]
    start, end = own_work_ns([*dut, timeline(3, (39, 45, "tailscope's supervisor"))], own)
    assert (start.tolist(), end.tolist()) == ([20], [45])
    work = work_of_device(has_links=True, in_softirqs=True, in_threads=False)
    assert not len(own_work_ns(dut, OwnWork(instrument=(), dut=work))[0])


def test_tasks_delay_threads_of_the_kernel_that_take_packets() -> None:
    work = work_of_device(has_links=True, in_softirqs=True, in_threads=True)
    dut = timeline(1, (0, 10, "task napi/dut0-8"), (10, 12, "softirq NET_RX"), (20, 40, "task cc1"))
    own = OwnWork(instrument=(), dut=work)
    assert noise_of(dut, own) == [("task cc1", 20, 40)]


def noise_of(dut: Timeline, own: OwnWork) -> list[tuple[str, int, int]]:
    found = blocked_by([dut], [], own_work=own)
    pieces = zip(found.cause, found.start_ns, found.end_ns, strict=True)
    return [(found.names[cause], int(start), int(end)) for cause, start, end in pieces]


def test_a_task_is_noise_while_softirqs_wait_for_their_turn() -> None:
    """It held up packets since their softirq was wanted, and not before."""
    own = OwnWork(instrument=(), dut=("softirq NET_", "task ", "tailscope's "))
    pieces = [
        (0, 20, "task cc1"),
        (20, 50, "task cc1"),
        (50, 60, "local timer"),
        (60, 70, "task cc1"),
        (70, 75, "task ksoftirqd/0"),
        (75, 80, "softirq NET_RX"),
    ]
    found = timeline(0, *pieces)
    timer = ("local timer", 50, 60)
    assert noise_of(found, own) == [timer]
    waited = replace(
        found,
        details=["", f"pid 7 {HOLDING}"],
        detail=np.array([start in (20, 60, 70) for start, _, _ in pieces], np.int64),
    )
    assert noise_of(waited, own) == [("task cc1", 20, 50), timer, ("task cc1", 60, 70)]


def test_what_a_generator_sends_at_once_holds_it_up() -> None:
    """Softirqs of packets are its work, unless its loop does not run because of them."""
    stalls = np.array([100]), np.array([200])
    sent = [(0, 20, "softirq NET_RX"), (110, 150, "softirq NET_RX"), (150, 160, "task cc1")]
    generator = timeline(0, *sent).handing_on(*stalls)
    own = OwnWork(instrument=("softirq NET_",), dut=("softirq NET_",))
    for cpu, names in ((1, [HANDING_ON, "task cc1"]), (0, ["task cc1"])):
        # On a CPU of both sides they may be the device's.
        found = blocked_by([timeline(cpu)], [generator], own_work=own)
        assert [found.names[cause] for cause in found.cause] == names
        assert not found.is_dut.any()


def peak_bytes(sent: int, pieces: int, quantile: float) -> int:
    """Return the peak memory of an explanation when a device stood still for a long time."""
    pre, latency = np.arange(sent) * 100, np.full(sent, 1_000)
    stood = slice(sent // 2, sent // 2 + 2_000)
    latency[stood] = int(pre[-1]) // 3 - (pre[stood] - pre[stood.start])
    every = int(pre[-1]) // pieces
    held = blocked(
        [Piece(at * every, at * every + every // 2, at % 3, True) for at in range(pieces)]
    )
    with packets(pre, latency) as all_of_them:
        tracemalloc.start()
        try:
            explained = explain_tail(all_of_them, all_of_them.latencies(), held, quantile)
            return tracemalloc.get_traced_memory()[1] if explained.packets else 0
        finally:
            tracemalloc.stop()


def test_memory_is_flat_in_the_number_of_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 1 << 10)
    # What is imported on the way counts for the first one alone.
    _, few, many = (peak_bytes(sent, 50, 0.999) for sent in (10_000, 100_000, 400_000))
    assert 0 < many < 1.2 * few


def test_each_of_many_packets_may_wait_for_each_of_many_events() -> None:
    """2000 packets that each wait for most of 20 000 events are 40 million meetings."""
    assert 0 < peak_bytes(20_000, 20_000, 0.9) < 40e6 / 2
