"""Stages of packets in a device, from events made up: against what those mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from single_packets import packets

from tailscope.engine.analysis import Clock
from tailscope.exceptions import DataplaneError
from tailscope.noise.attribution import Blocked
from tailscope.noise.passed import columns
from tailscope.noise.stages import (
    WAYS,
    Passed,
    Stages,
    divide,
    explain_stages,
    read_recorded_stages,
)
from tailscope.store.parquet import write_parquet
from tailscope.store.records.messages import PassedPackets
from tailscope.testbed.stage_recorder import KernelStages, LoopStages, StagesResult

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.store.records.stages import StagesRecord

CLOCK = Clock(tsc_hz=1_000_000_000, tsc=0, unix_ns=1_000_000)
NEAR, FAR = 7, 8
BACK, WARM_UP = 1 << 62, 1 << 63
KERNEL, LOOP = WAYS["kernel"], WAYS["loop"]
EVENT = [
    ("tsc", "<u8"),
    ("seq", "<u8"),
    ("point", "<u4"),
    ("ifindex", "<u4"),
    ("cpu", "<u4"),
    ("reason", "<u4"),
]
ARRIVED, RECEIVED, QUEUED, STARTED, DROPPED = range(5)
PACKET = [(100, ARRIVED, NEAR), (130, RECEIVED, NEAR), (150, QUEUED, FAR), (155, STARTED, FAR)]
"""A packet's way: time, point and link."""


def recorded(folder: Path, events: list[tuple[int, ...]]) -> KernelStages:
    """Write a recording of `tailscope-dp stages`: rows of time, number, point, link and reason."""
    rows = [(at, seq, point, link, 0, reason) for at, seq, point, link, reason in events]
    np.save(folder / "events.npy", np.array(rows, EVENT))
    result = StagesResult(
        program="stages",
        file="events.npy",
        events=len(rows),
        lost=0,
        clock_error_ns=3,
        reasons={40: "QDISC_DROP"},
    )
    return KernelStages(folder, (NEAR, FAR), 1, result)


def read_back(folder: Path, events: list[tuple[int, ...]], *, back: bool = False) -> Passed:
    """Write events as a run does, and read them back."""
    found = columns(recorded(folder, events), CLOCK, back=back)
    write_parquet(folder / "stages.parquet", found)
    return read_written(folder, recorded(folder, events).record).passed


def read_written(folder: Path, record: StagesRecord) -> Stages:
    """Read the stages of a run with this table and this record."""
    info: Any = SimpleNamespace(noise=SimpleNamespace(stages=record))
    stages = read_recorded_stages(folder, info)
    assert stages is not None
    assert stages.error_ns == record.clock_error_ns
    return stages


def passed(*rows: tuple[int, ...], reasons: tuple[str, ...] | None = None) -> Passed:
    """Build packets by number, with the time at each point; 0 for points they did not pass."""
    seq, *points, dropped = np.array(rows, np.int64).T
    return Passed(
        seq, np.stack(points, axis=1), dropped, np.array(reasons or [""] * len(rows), object)
    )


def never_blocked(*pieces: tuple[int, int]) -> Blocked:
    """Build a device's CPU that was blocked in some intervals."""
    start, end = np.array(pieces or np.zeros((0, 2)), np.int64).T
    code = np.zeros(len(pieces), np.int64)
    return Blocked(start, end, code, code, np.ones(len(pieces), bool), ["timer"], [""])


def test_events_become_the_points_of_each_packet(tmp_path: Path) -> None:
    events = [
        *((at + 1000 * seq, seq, point, link, 0) for seq in (0, 2) for at, point, link in PACKET),
        (50, 1, DROPPED, FAR, 40),
        (60, 3, DROPPED, FAR, 99),
    ]
    found = read_back(tmp_path, events[::-1])
    assert found.seq.tolist() == [0, 1, 2, 3]
    begin = CLOCK.unix_ns
    assert found.points_ns[:, 0].tolist() == [begin + 100, 0, begin + 2100, 0]
    assert found.points_ns[:, 3].tolist() == [begin + 155, 0, begin + 2155, 0]
    assert found.dropped_ns.tolist() == [0, begin + 50, 0, begin + 60]
    assert found.reason.tolist() == ["", "QDISC_DROP", "", "99"]


def test_the_first_time_at_the_right_link_counts(tmp_path: Path) -> None:
    """A packet may pass a point more than once, as on a bridge that hands it up as well."""
    events = [
        (90, 5, QUEUED, NEAR, 0),
        *((at, 5, point, link, 0) for at, point, link in PACKET),
        (400, 5, RECEIVED, NEAR, 0),
        (500, 5, STARTED, FAR, 0),
    ]
    found = read_back(tmp_path, events)
    assert (found.points_ns - CLOCK.unix_ns).tolist() == [[100, 130, 150, 155]]


def test_a_link_without_a_queue_starts_a_packet_when_it_gets_it(tmp_path: Path) -> None:
    """Where the start was not seen; on a link with a queue nobody knows it then."""
    events = [
        *((at, 4, point, link, point == QUEUED) for at, point, link in PACKET),
        *((at, 5, point, link, point == QUEUED) for at, point, link in PACKET[:3]),
        *((at, 6, point, link, 0) for at, point, link in PACKET[:3]),
    ]
    found = read_back(tmp_path, events)
    begin = CLOCK.unix_ns
    assert found.points_ns[:, 3].tolist() == [begin + 155, begin + 150, 0]


def test_packets_that_travel_back_have_the_links_the_other_way(tmp_path: Path) -> None:
    other = {NEAR: FAR, FAR: NEAR}
    events = [(at, 5, point, link, 0) for at, point, link in PACKET]
    events += [(at, 5 | WARM_UP, point, link, 0) for at, point, link in PACKET]
    events += [(at + 9, 6 | BACK, point, other[link], 0) for at, point, link in PACKET]
    for back, seq, at in ((False, 5, 155), (True, 6, 164)):
        found = read_back(tmp_path, events, back=back)
        assert found.seq.tolist() == [seq]
        assert found.points_ns[0, 3] - CLOCK.unix_ns == at


def test_no_event_is_no_packet(tmp_path: Path) -> None:
    assert len(read_back(tmp_path, []).seq) == 0
    none = Stages(KERNEL, read_back(tmp_path, []), 3)
    divided = divide(none, np.arange(3), np.arange(3), np.ones(3, np.int64))
    assert not divided.is_seen.any()


def test_a_file_of_other_rows_is_refused(tmp_path: Path) -> None:
    made = recorded(tmp_path, [])
    np.save(tmp_path / "events.npy", np.zeros(3))
    with raises(DataplaneError, "events-rows"):
        columns(made, CLOCK, back=False)
    (tmp_path / "events.npy").write_bytes(b"\x93NUMPY")
    with raises(DataplaneError, "events-unreadable"):
        columns(made, CLOCK, back=False)


@pytest.mark.parametrize(
    ("points", "stages"),
    [
        ((110, 130, 150, 155), [10, 20, 20, 5, 45]),
        ((0, 130, 150, 155), [30, 0, 20, 5, 45]),  # The driver said nothing.
        ((98, 130, 150, 155), [0, 30, 20, 5, 45]),  # Within the clocks' error.
        ((110, 130, 150, 202), [10, 20, 20, 50, 0]),
        ((110, 108, 150, 155), [10, 0, 40, 5, 45]),
        ((96, 130, 150, 155), None),  # Beyond it.
        ((110, 130, 150, 204), None),
        ((110, 130, 150, 0), None),
        ((110, 0, 150, 155), None),
    ],
)
def test_points_divide_a_latency(points: tuple[int, ...], stages: list[int] | None) -> None:
    known = Stages(KERNEL, passed((4, *points, 0)), 3)
    found = divide(known, np.array([4]), np.array([100]), np.array([100]))
    assert found.is_seen.tolist() == [True]
    assert found.is_whole.tolist() == [stages is not None]
    if stages is not None:
        assert found.stages_ns.tolist() == [stages]


@given(
    st.lists(st.tuples(*[st.integers(0, 300)] * 4), min_size=1, max_size=20),
    st.integers(0, 200),
    st.integers(0, 20),
)
def test_stages_of_a_whole_packet_sum_to_its_latency(
    points: list[tuple[int, ...]], latency_ns: int, error_ns: int
) -> None:
    known = Stages(
        KERNEL, passed(*((2 * at, *each, 0) for at, each in enumerate(points))), error_ns
    )
    seq = np.arange(2 * len(points))
    lasts_ns = np.full(len(seq), latency_ns)
    found = divide(known, seq, np.full(len(seq), 100), lasts_ns)
    whole = found.stages_ns[found.is_whole]
    assert (whole >= 0).all()
    assert (whole.sum(axis=1) == latency_ns).all()
    assert not found.is_seen[1::2].any()
    assert not (found.is_whole & ~found.is_seen).any()


def test_an_explanation_has_shares_causes_and_reasons() -> None:
    rows = [(seq, *(1000 * seq + at for at in (110, 130, 150, 155)), 0) for seq in range(10)]
    rows[9] = (9, 9110, 9130, 9150, 9455, 0)
    lost = [(20, 0, 0, 0, 0, 5), (21, 0, 0, 0, 0, 6), (22, 0, 0, 0, 0, 7)]
    # What came back is not lost, even if the kernel dropped a copy of it.
    rows[3] = (*rows[3][:-1], 8)
    reasons = ["", "", "", "OTHERHOST", *[""] * 6, "QDISC_DROP", "NO_SOCKET", "QDISC_DROP"]
    known = Stages(KERNEL, passed(*rows, *lost, reasons=tuple(reasons)), 3)
    latency_ns = [100] * 9 + [400]
    with packets([1000 * seq + 100 for seq in range(10)], latency_ns) as all_of_them:
        found = explain_stages(known, all_of_them, never_blocked((9200, 9230), (9490, 9500)), 100)
    assert (found.packets, found.left_out, found.tail_packets) == (10, 0, 1)
    assert [each.stage for each in found.stages] == [*KERNEL.stages]
    assert [each.ns_p50 for each in found.stages] == [10, 20, 20, 5, 45]
    assert [each.share_p50 for each in found.stages] == [0.1, 0.2, 0.2, 0.05, 0.45]
    assert [each.tail_share for each in found.stages] == [
        pytest.approx(ns / 400) for ns in (10, 20, 20, 305, 45)
    ]
    interrupted = {each.stage: [*each.interrupted_by] for each in found.stages}
    assert [each.total_ns for each in interrupted["qdisc"]] == [30]
    assert [(each.part, each.cause) for each in interrupted["wire out"]] == [("dut", "timer")]
    assert not interrupted["stack"]
    assert {each.reason: each.packets for each in found.drops} == {"QDISC_DROP": 2, "NO_SOCKET": 1}
    assert found.drops[0].reason == "QDISC_DROP"


def test_without_whole_packets_there_are_no_figures() -> None:
    known = Stages(KERNEL, passed((0, 110, 130, 0, 0, 0)), 3)
    with packets([100, 1100], [100, 100]) as all_of_them:
        found = explain_stages(known, all_of_them, never_blocked(), 50)
    assert (found.packets, found.left_out) == (0, 1)
    assert (found.tail_packets, found.tail_left_out) == (0, 1)
    assert {each.ns_p50 for each in found.stages} == {None}
    assert {each.tail_share for each in found.stages} == {None}


def loops(folder: Path, *packets: tuple[int, ...]) -> LoopStages:
    """Write a forwarder's recording: number, polled, received, handed on, sent."""
    rows = np.array(packets, np.uint64).reshape(-1, 5)
    names = ("seq", "polled_tsc", "received_tsc", "handed_on_tsc", "sent_tsc")
    for name, cells in zip(names, rows.T, strict=True):
        np.save(folder / f"passed_{name}.npy", cells)
    return LoopStages(folder, 1, PassedPackets(packets=len(rows), lost=0))


def test_what_a_loop_noted_becomes_the_points_of_each_packet(tmp_path: Path) -> None:
    noted = loops(
        tmp_path,
        (7, 10, 20, 30, 40),
        (3, 11, 20, 30, 0),
        (4, 12, 20, 0, 0),
        (5 | BACK, 13, 20, 30, 40),
        (WARM_UP, 14, 20, 30, 40),
    )
    write_parquet(tmp_path / "stages.parquet", columns(noted, CLOCK, back=False))
    found = read_written(tmp_path, noted.record)
    assert found.way is LOOP
    assert found.passed.seq.tolist() == [3, 4, 7]
    begin = CLOCK.unix_ns
    assert found.passed.points_ns[2].tolist() == [begin + at for at in (10, 20, 30, 40)]
    assert found.passed.dropped_ns.tolist() == [begin + 30, begin + 20, 0]
    assert found.passed.reason.tolist() == ["TX_RING_FULL", "NOT_HANDED_ON", ""]
    write_parquet(tmp_path / "stages.parquet", columns(noted, CLOCK, back=True))
    assert read_written(tmp_path, noted.record).passed.seq.tolist() == [5]


def test_a_loops_missing_column_is_an_error(tmp_path: Path) -> None:
    noted = loops(tmp_path)
    (tmp_path / "passed_sent_tsc.npy").unlink()
    with raises(DataplaneError, "events-unreadable") as error:
        columns(noted, CLOCK, back=False)
    assert "passed_sent_tsc" in str(error.value)


@pytest.mark.parametrize(
    ("points", "stages"),
    [
        ((110, 130, 150, 155), [10, 20, 20, 5, 45]),
        ((40, 130, 150, 155), [0, 30, 20, 5, 45]),  # It left while a call was receiving.
        ((110, 130, 150, 900), [10, 20, 20, 50, 0]),  # It was back before the call returned.
        ((110, 130, 128, 155), None),
        ((110, 130, 250, 260), None),
        ((0, 130, 150, 155), None),
        ((110, 130, 150, 0), None),
    ],
)
def test_calls_of_a_loop_divide_a_latency(
    points: tuple[int, ...], stages: list[int] | None
) -> None:
    found = divide(
        Stages(LOOP, passed((4, *points, 0)), 1), np.array([4]), np.array([100]), np.array([100])
    )
    assert found.is_whole.tolist() == [stages is not None]
    if stages is not None:
        assert found.stages_ns.tolist() == [stages]
