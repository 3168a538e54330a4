"""Figures of the way to another host, of times that were made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec import convert
from msgspec.structs import replace
from wording import assert_wording

from tailscope.engine.analysis import analyze_recording
from tailscope.extra.hosts.figures import hosts_record
from tailscope.extra.hosts.passages import Passages, Stalls, _followed
from tailscope.extra.hosts.records import HostsRecord
from tailscope.extra.hosts.words import (
    end_lines,
    flow_rows,
    loss_text,
    median_text,
    one_way_text,
    order_text,
    times_rows,
    warnings_of,
)
from tailscope.store.records.base import as_content
from tailscope.store.records.messages import (
    CardClock,
    CausedStalls,
    HostClock,
    SentQueries,
    ToldByReflector,
)

if TYPE_CHECKING:
    from collections.abc import Callable


BEGIN_NS = 1_800_000_000_000_000_000
FORTH_NS, HELD_NS, BACK_NS = 20_000, 5_000, 30_000
AHEAD_NS = 7_000_000
"""Lead of the reflector's clock."""
GOOD = HostClock(synchronised=True, error_ns_max=4_000_000, steps=0)
TOLD = ToldByReflector(
    same_clock=False,
    dropped=0,
    refused=0,
    unsent=0,
    stalls=0,
    stalls_untold=0,
    run_delay_us=0,
    throttled_us=0,
)
ENDS = SentQueries(
    sent=10,
    unsent=0,
    unsent_refused=0,
    received=10,
    foreign=0,
    wrong_key=0,
    dropped=0,
    refusals=0,
    stamped=10,
    frame_bytes_min=174,
    frame_bytes_max=174,
    departed_by="program",
    ports=[40_000],
    clock=GOOD,
    reflector_clock=GOOD,
    reflector=TOLD,
    run_delay_us=0,
    throttled_us=0,
    stalls=[],
    record=[],
)


def passages(
    answered: list[tuple[int, int]],
    *,
    sent: int = 10,
    inexact_ns: int = 0,
    late_ns: int = 0,
    flows: int = 1,
) -> Passages:
    """Answers as they came: the number of each query, and that of the answer."""
    times = BEGIN_NS + 1_000_000 * np.arange(sent, dtype=np.int64)
    seq = np.array([query for query, _ in answered], np.int64)
    none = np.zeros(0, np.int64)
    same = np.ones(len(seq), np.int64)
    departed = times[seq]
    arrived = departed + FORTH_NS + HELD_NS + BACK_NS + late_ns
    return Passages(
        intended_ns=times - 100,
        sent_ns=times,
        stamped=np.ones(sent, bool),
        in_queue_ns=np.full(sent, 300),
        flow_of=np.arange(sent, dtype=np.int64) % flows,
        seq=seq,
        answer_seq=np.array([answer for _, answer in answered], np.int64),
        departed_ns=departed,
        received_ns=departed + FORTH_NS + AHEAD_NS,
        answered_ns=departed + FORTH_NS + AHEAD_NS + HELD_NS,
        arrived_ns=np.maximum.accumulate(arrived),
        ttl=64 * same,
        dscp=255 * same,
        inexact_ns=inexact_ns * same,
        exact_forth=np.full(len(seq), inexact_ns == 0),
        exact_back=np.full(len(seq), inexact_ns == 0),
        exact=np.full(len(seq), inexact_ns == 0),
        stalls=(Stalls(none, none, none), Stalls(none, none, none)),
    )


def record(found: Passages, ends: SentQueries = ENDS) -> HostsRecord:
    return hosts_record("far", "192.0.2.1:862", found, ends)


ALL = [(number, number) for number in range(10)]


def test_the_latency_is_the_way_without_the_reflector() -> None:
    summary = analyze_recording(passages(ALL).recording()).summary
    assert (summary["count"], summary["tainted"]) == (10, 0)
    assert summary["latency_ns_min"] == summary["latency_ns_max"] == FORTH_NS + BACK_NS
    found = record(passages(ALL))
    assert found.round_trip is not None
    assert found.in_reflector is not None
    assert found.round_trip.ns_p50 == FORTH_NS + HELD_NS + BACK_NS
    assert found.in_reflector.ns_max == HELD_NS
    assert (found.drifted, found.inexact, found.dscp) == (0, 0, ())


def test_what_a_program_may_have_added_is_the_instruments() -> None:
    summary = analyze_recording(passages(ALL, inexact_ns=8_000).recording()).summary
    assert summary["latency_ns_max"] == FORTH_NS + BACK_NS
    assert summary["least_latency_ns_p50"] == FORTH_NS + BACK_NS - 8_000


@pytest.mark.parametrize(
    ("answered", "forth", "back", "unknown"),
    [
        (ALL, 0, 0, 0),
        # Query 3 never came: the reflector numbers on.
        ([(0, 0), (1, 1), (2, 2), *((number, number - 1) for number in range(4, 10))], 1, 0, 0),
        # Answer 3 never came back.
        ([each for each in ALL if each[0] != 3], 0, 1, 0),
        # Nobody knows of what is behind the last answer.
        (ALL[:8], 0, 0, 2),
        ([(0, 0), (2, 1), (5, 3)], 2, 1, 4),
    ],
)
def test_loss_has_a_direction(
    answered: list[tuple[int, int]], forth: int, back: int, unknown: int
) -> None:
    loss = record(passages(answered)).loss
    assert (loss.forth, loss.back, loss.where_unknown) == (forth, back, unknown)
    assert loss.lost == forth + back + unknown


def test_what_an_end_dropped_is_no_loss_of_the_network() -> None:
    answered = [(0, 0), (3, 2), *((number, number - 1) for number in range(4, 10))]
    told = replace(TOLD, dropped=1)
    loss = record(passages(answered), replace(ENDS, reflector=told, dropped=5)).loss
    assert (loss.lost, loss.reflector_socket, loss.sender_socket, loss.of_ends) == (2, 1, 1, 2)
    assert (loss.forth, loss.back) == (0, 0)


def test_an_answer_that_a_system_refused_is_no_loss_of_the_network() -> None:
    told = replace(TOLD, unsent=2)
    found = record(passages([each for each in ALL if each[0] != 3]), replace(ENDS, reflector=told))
    assert (found.loss.reflector_unsent, found.loss.back, found.loss.of_ends) == (1, 0, 1)


def test_a_reflector_without_state_tells_no_direction() -> None:
    ends = replace(ENDS, reflector=None)
    found = record(passages([each for each in ALL if each[0] != 3]), ends)
    assert (found.loss.forth, found.loss.back, found.loss.where_unknown) == (None, None, 1)
    assert found.order.reordered_forth is None


@pytest.mark.parametrize(
    "answered",
    [
        # One number has two queries.
        [*ALL[:5], *((number, number - 5) for number in range(5, 10))],
        # Numbers go back to ones whose answers were lost.
        [*ALL[3:6], *((number, number - 6) for number in range(6, 9))],
    ],
)
def test_a_reflector_that_begins_anew_tells_no_direction(answered: list[tuple[int, int]]) -> None:
    found = record(passages(answered))
    assert (found.loss.forth, found.loss.back, found.loss.anew_flows) == (None, None, 1)
    assert found.loss.where_unknown == found.loss.lost == 10 - len(answered)
    assert found.order.duplicated_back is None


def test_other_flows_keep_their_direction() -> None:
    """The reflector forgot the first of two flows."""
    answered = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 0), (7, 3), (9, 4)]
    loss = record(passages(answered, flows=2), replace(ENDS, ports=[1, 2])).loss
    assert (loss.anew_flows, loss.forth, loss.back, loss.where_unknown) == (1, 0, 1, 2)


def in_flows(number_of: Callable[[int, int], int], lost: set[int]) -> Passages:
    """40 queries in two flows, whose answers are numbered by the query and the flow."""
    answered = [(seq, number_of(seq, seq % 2)) for seq in range(40) if seq not in lost]
    return passages(answered, sent=40, flows=2)


@pytest.mark.parametrize(
    ("number_of", "lost", "forth", "back", "unknown"),
    [
        # A count for each flow; 10 and 11 were lost on the way back.
        (lambda seq, _: seq // 2, {10, 11}, 0, 2, 0),
        # One count for both: 10 and 11 may have been lost anywhere.
        (lambda seq, _: seq - 2 * (seq > 11) + 1, {10, 11}, 0, None, 2),
        # A count for each flow without a gap: 10 and 11 had no answer.
        (lambda seq, _: seq // 2 - (seq > 11), {10, 11}, 2, 0, 0),
    ],
)
def test_a_reflector_of_others_must_prove_a_direction(
    number_of: Callable[[int, int], int],
    lost: set[int],
    forth: int,
    back: int | None,
    unknown: int,
) -> None:
    ends = replace(ENDS, sent=40, ports=[1, 2], reflector=None)
    loss = record(in_flows(number_of, lost), ends).loss
    assert (loss.lost, loss.forth, loss.back, loss.where_unknown) == (2, forth, back, unknown)
    assert loss.unproven_flows == (2 if back is None else 0)


def test_gaps_of_a_single_flow_prove_nothing_of_others_reflectors() -> None:
    answered = [(0, 0), (3, 2), *((number, number - 1) for number in range(4, 10))]
    loss = record(passages(answered), replace(ENDS, reflector=None)).loss
    assert (loss.forth, loss.back, loss.where_unknown, loss.unproven_flows) == (1, None, 1, 1)


def test_an_answer_that_left_before_its_query_came_took_the_round_trip_at_most() -> None:
    found = passages(ALL)
    found.answered_ns[3] -= 10**9
    summary = analyze_recording(found.recording()).summary
    assert summary["latency_ns_max"] == FORTH_NS + HELD_NS + BACK_NS
    told = record(found)
    assert told.contradictory == 1
    assert told.in_reflector is not None
    assert told.in_reflector.ns_min == HELD_NS


def test_a_clock_that_is_set_forward_leaves_the_round_trip_as_the_most() -> None:
    """By more than an answer took, of which less than nothing would be left."""
    found = passages(ALL)
    found.answered_ns[3] += 10**9
    summary = analyze_recording(found.recording()).summary
    assert summary["latency_ns_min"] == FORTH_NS + BACK_NS
    assert summary["latency_ns_max"] == FORTH_NS + HELD_NS + BACK_NS
    told = record(found)
    assert (told.contradictory, told.drifted) == (1, 0)
    assert told.in_reflector is not None
    assert told.in_reflector.ns_max == HELD_NS


def test_clocks_that_run_apart_leave_what_they_run_apart_as_the_most() -> None:
    """A reflector holds queries for 1 s, by its clock for 70 µs more: that is 0.007 %."""
    found = passages(ALL, late_ns=10**9)
    found.answered_ns[:] += 10**9 + 70_000
    least_ns = FORTH_NS + BACK_NS - 70_000
    assert set(found.latency_ns.tolist()) == {least_ns + (10**9 + HELD_NS + 70_000) // 1_000}
    told = record(found)
    assert (told.contradictory, told.drifted) == (0, len(ALL))


def test_one_way_is_told_of_answers_whose_times_kernels_took() -> None:
    found = passages(ALL)
    found.departed_ns[0] -= 50_000
    found.exact_forth[0] = False
    one_way = record(found).one_way
    assert one_way.forth is not None
    assert one_way.forth.ns_max == FORTH_NS + AHEAD_NS
    assert (one_way.inexact_forth, one_way.inexact_back) == (1, 0)
    none = record(passages(ALL, inexact_ns=1)).one_way
    assert (none.error_ns, none.forth, none.back) == (None, None, None)


def test_a_reflector_that_began_anew_speaks_of_other_answers() -> None:
    """What is said of answer 1 is of one that left long after this one had come."""
    kind = [("answer_seq", "u4"), ("answered_ns", "u8"), ("follow_seq", "u4"), ("follow_ns", "u8")]
    arrivals = np.zeros(3, [*kind, ("followed", "u1")])
    arrivals["answered_ns"] = 1_000, 2_000, 3_000
    arrivals["answer_seq"] = 0, 1, 2
    arrivals["followed"] = 0, 1, 1
    arrivals["follow_seq"] = 0, 0, 1
    arrivals["follow_ns"] = 0, 1_100, 10**9
    flow, way_ns = np.zeros(3, np.int64), np.full(3, 50_000)
    kind = [("flow", "<u4"), ("seq", "<u4"), ("left_ns", "<u8")]
    answered, is_known = _followed(arrivals, np.zeros(0, kind), flow, way_ns)
    assert answered.tolist() == [1_100, 2_000, 3_000]
    assert is_known.tolist() == [True, False, False]
    # What a query behind the last one asked for.
    closing = np.array([(0, 2, 3_300), (1, 1, 2_200)], kind)
    answered, is_known = _followed(arrivals, closing, flow, way_ns)
    assert answered.tolist() == [1_100, 2_000, 3_300]
    assert is_known.tolist() == [True, False, True]


def test_a_level_that_shifts_widens_the_interval_of_the_median() -> None:
    """Half a run is 100 µs slower: its packets are no independent samples of one law."""
    found = passages([(number, number) for number in range(400)], sent=400)
    found.arrived_ns[200:] += 100_000
    way_ns = FORTH_NS + BACK_NS
    told = replace(ENDS, handling_ns=300, reflector=replace(TOLD, handling_ns=400))
    median = record(found, told).median
    assert median is not None
    assert (median.ns_low, median.ns_high) == (way_ns - 700, way_ns + 100_000)
    assert median.stamps_ns == 700
    untold = record(found, replace(ENDS, handling_ns=300)).median
    assert untold is not None
    assert (untold.ns_low, untold.stamps_ns) == (way_ns - 300, None)
    assert record(passages(ALL)).median is None


def test_a_phase_of_an_eighth_of_a_run_is_in_the_interval_of_the_median() -> None:
    """Another run may have more of what this one had for so long: tenths of it would miss it."""
    found = passages([(number, number) for number in range(600)], sent=600)
    found.arrived_ns[525:] += 100_000
    median = record(found, replace(ENDS, handling_ns=300)).median
    assert median is not None
    way_ns = FORTH_NS + BACK_NS
    assert (median.ns_low, median.ns_high) == (way_ns - 300, way_ns + 100_000)


def test_order_and_repetition_have_a_direction() -> None:
    overtaken = record(passages([(0, 0), (2, 1), (1, 2), *ALL[3:]])).order
    assert (overtaken.reordered_forth, overtaken.duplicated_forth) == (1, 0)
    twice = record(passages([(0, 0), (0, 1), *((n, n + 1) for n in range(1, 10)), (9, 10)])).order
    assert (twice.duplicated_forth, twice.duplicated_back) == (1, 1)


def test_one_way_is_true_within_the_error_or_not_told() -> None:
    one_way = record(passages(ALL)).one_way
    assert one_way.error_ns == 8_000_000
    assert one_way.forth is not None
    assert abs(one_way.forth.ns_p50 - FORTH_NS) <= one_way.error_ns
    free = replace(ENDS, clock=replace(GOOD, synchronised=False))
    stepped = replace(ENDS, reflector_clock=replace(GOOD, steps=1))
    wrong = replace(GOOD, error_ns_max=1_000)
    contradicting = replace(ENDS, clock=wrong, reflector_clock=wrong)
    for ends in (free, stepped, contradicting):
        withheld = record(passages(ALL), ends).one_way
        assert (withheld.error_ns, withheld.forth, withheld.back) == (None, None, None)
        assert withheld.withheld_because


def test_one_way_between_two_cards_of_a_machine_has_the_error_of_both() -> None:
    card = CardClock(link="eth0", rate_ppb=0, residual_ns=100, width_ns=41, readings=9, steps=0)
    found = passages(ALL)
    found.received_ns[:] -= AHEAD_NS
    found.answered_ns[:] -= AHEAD_NS
    here = replace(TOLD, same_clock=True)
    for told, error_ns in ((here, 121), (replace(here, card_error_ns=500), 621)):
        one_way = record(found, replace(ENDS, card=card, reflector=told)).one_way
        assert one_way.error_ns == error_ns
    older = record(found, replace(ENDS, card=card, reflector=replace(here, older=True)))
    assert older.one_way.error_ns is None
    assert any("older version" in warning for warning in warnings_of(older))


def test_runs_from_before_sizes_of_frames_were_told_are_read() -> None:
    content = as_content(record(passages(ALL)))
    ends = content["ends"]
    assert isinstance(ends, dict)
    assert ends.pop("frame_bytes_min") == ends.pop("frame_bytes_max") == 174
    read = convert(content, HostsRecord)
    assert (read.ends.frame_bytes_min, read.ends.sent) == (None, ENDS.sent)


def test_words_name_the_network_and_the_ends() -> None:
    stall = CausedStalls(
        cause="stopped", count=2, stall_ns_total=300_000_000, stall_ns_max=200_000_000
    )
    told = replace(TOLD, dropped=1, stalls=3, stalls_untold=1, run_delay_us=1_500, throttled_us=2)
    ends = replace(ENDS, unsent=4, unsent_refused=1, stalls=[stall], reflector=told)
    found = record(passages([(0, 0), (3, 1), (2, 2), *ALL[4:9]], inexact_ns=1), ends)
    lines = [loss_text(found), order_text(found), one_way_text(found)]
    lines += [f"{end}: {text}" for end, text in end_lines(found)]
    lines += warnings_of(found)
    lines += ["  ".join(row) for row in (*times_rows(found), *flow_rows(found))]
    whole = record(passages(ALL))
    lines += [one_way_text(whole), *("  ".join(row) for row in times_rows(whole))]
    other = record(passages(ALL), replace(ENDS, reflector=None))
    lines += [loss_text(other), *(text for _, text in end_lines(other)), *warnings_of(other)]
    anew = passages([*ALL[:5], *((number, number - 5) for number in range(5, 10))])
    anew.answered_ns[3] -= 10**9
    lines += warnings_of(record(anew, replace(ENDS, wrong_key=2)))
    slow = passages(ALL, late_ns=10**9)
    slow.answered_ns[:] += 10**9 + 70_000
    lines += warnings_of(record(slow))
    gap = passages([(0, 0), *((number, number - 1) for number in range(3, 10))])
    told_nothing = record(gap, replace(ENDS, reflector=None))
    lines += [loss_text(told_nothing), *warnings_of(told_nothing)]
    long = passages([(number, number) for number in range(400)], sent=400)
    measured = replace(ENDS, handling_ns=300, reflector=replace(TOLD, handling_ns=400))
    lines += [median_text(record(long, ends)) for ends in (ENDS, measured)]
    assert_wording("two-hosts", "\n".join(lines))
