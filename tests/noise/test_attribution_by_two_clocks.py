"""What packets waited for where causes were timed by another clock, however far it is off."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from single_packets import packets
from wording import assert_wording

from tailscope.noise.attribution import EARLIER, REST_OF_BATCH, Attribution, Blocked, Tally
from tailscope.noise.explanation import explain_tail
from tailscope.noise.queues import Delayed, Usual, delayed
from tailscope.noise.story import tell
from tailscope.words.figures import cause_rows, clocks_text, part_text

NAMES = ["timer", "shootdown", "task"]
Piece = tuple[int, int, int, bool]


def blocked(pieces: list[Piece], error_ns: int) -> Blocked:
    start, end, cause, is_dut = (np.array(each) for each in zip(*pieces, strict=True))
    nothing = np.zeros(len(pieces), np.int64)
    return Blocked(
        start.astype(np.int64),
        end.astype(np.int64),
        cause.astype(np.int64),
        nothing,
        is_dut.astype(bool),
        NAMES,
        ["a detail"],
        error_ns,
    )


def overlap(start: int, end: int, pieces: list[Piece], shift: int) -> dict[tuple[str, str], int]:
    """Return each cause's share of a packet's time if the clocks are this far apart."""
    found: dict[tuple[str, str], int] = {}
    for since, until, cause, is_dut in pieces:
        met = min(end, until + shift) - max(start, since + shift)
        if met > 0:
            key = ("dut" if is_dut else "instrument", NAMES[cause])
            found[key] = found.get(key, 0) + met
    return found


GAPS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 40), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=6,
)
SENT = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 60)), min_size=1, max_size=8)


@given(SENT, GAPS, st.integers(1, 30), st.integers(1, 25))
@settings(deadline=None, max_examples=300)
def test_a_cause_is_one_at_every_distance(
    sent: list[tuple[int, int]],
    gaps: list[tuple[int, int, int, bool]],
    service: int,
    error_ns: int,
) -> None:
    pre = (100 + np.cumsum([gap for gap, _ in sent])).tolist()
    latency = [lasts for _, lasts in sent]
    pieces: list[Piece] = []
    now = 60
    for gap, length, cause, is_dut in gaps:
        pieces.append((now + gap, now + gap + length, cause, is_dut))
        now += gap + length
    usual = Usual(service, service // 2, error_ns % 3, in_order=True)
    with packets(pre, latency) as many:
        whole = Delayed.joined([*delayed(many, usual, lambda seq, _: seq >= 0)])
    attribution = Attribution(blocked(pieces, error_ns))
    for at in range(len(pre)):
        tally = Tally()
        found = attribution.explain(whole.only(np.array([at])), tally)
        parts = {name: int(values[0]) for name, values in found.parts().items()}
        assert sum(parts.values()) == latency[at] and min(parts.values()) >= 0
        shares = tally.shares()
        assert sum(share.total_ns for share in shares) == latency[at] - parts["service"]
        met = [
            overlap(pre[at], pre[at] + latency[at], pieces, shift)
            for shift in range(-error_ns, error_ns + 1)
        ]
        before = [
            overlap(int(whole.since_ns[at]), pre[at], pieces, shift)
            for shift in range(-error_ns, error_ns + 1)
        ]
        for share in shares:
            if share.part == "queue" and share.cause not in (EARLIER, REST_OF_BATCH):
                cause = share.cause.removesuffix(" of the instrument")
                part = "dut" if cause == share.cause else "instrument"
                assert all(share.total_ns <= each.get((part, cause), 0) for each in before)
            elif share.part in ("dut", "instrument"):
                assert all(share.total_ns <= each.get(share[:2], 0) for each in met)
            elif share.part == "unexplained" and share.cause:
                # It may be this one: at some distance it takes more than for sure.
                sure = sum(
                    each.total_ns
                    for each in shares
                    if each.cause == share.cause and each.part in ("dut", "instrument")
                )
                most = max(
                    sum(ns for (_, cause), ns in each.items() if cause == share.cause)
                    for each in met
                )
                assert most > sure
        if found.cause[0]:
            assert found.cause[0] in (*NAMES, EARLIER, REST_OF_BATCH)


def test_what_lies_deep_enough_within_a_packet_counts_in_full() -> None:
    with packets([1000, 5000, 9000], [100, 2000, 100]) as many:
        tail = explain_tail(many, many.latencies(), blocked([(5500, 6300, 2, True)], 300), 0.5)
    assert tail.clock_error_ns == 300
    assert [(each.part, each.cause, each.total_ns) for each in tail.causes] == [
        ("dut", "task", 800),
        ("unexplained", "", 1100),
    ]


def test_what_may_have_been_before_the_packet_is_left_open() -> None:
    """It may have met all of this disturbance, or none."""
    pieces = [(4900, 5100, 1, True)]
    with packets([1000, 5000, 9000], [100, 400, 100]) as many:
        tail = explain_tail(many, many.latencies(), blocked(pieces, 150), 0.5)
        story = tell(many, many.latencies(), blocked(pieces, 150))
    assert [(each.part, each.cause, each.total_ns) for each in tail.causes] == [
        ("unexplained", "shootdown", 200),
        ("unexplained", "", 100),
    ]
    assert [row[0] for row in cause_rows(tail)][1] == part_text("unexplained", "") == "unexplained"
    assert_wording("noise/may-be", cause_rows(tail)[0][0])
    assert story.lines[0].details == ("a detail",)
    assert_wording("noise/clocks", clocks_text(tail))


def test_with_one_clock_nothing_is_left_open() -> None:
    with packets([1000, 5000, 9000], [100, 400, 100]) as many:
        pieces = [(4900, 5100, 1, True)]
        tail = explain_tail(many, many.latencies(), blocked(pieces, 0), 0.5)
    assert [(each.part, each.cause) for each in tail.causes] == [
        ("dut", "shootdown"),
        ("unexplained", ""),
    ]
    assert tail.clock_error_ns is None and clocks_text(tail) == ""
