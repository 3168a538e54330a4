"""Stalls, divided among the events in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from intervals import disjoint, points

from tailscope.noise.causes import causes_of, event_durations_ns
from tailscope.noise.events import PAGE_FAULT, Events
from tailscope.noise.timeline import (
    INJECTED,
    OUTSIDE,
    PENDING,
    UNNAMED,
    Timeline,
    make_timeline,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def events(
    *pieces: tuple[int, int, str],
    faults: tuple[int, ...] = (),
    gaps: tuple[tuple[int, int], ...] = (),
    sent: Mapping[int, int] = {},
    to_ns: int = 1 << 40,
) -> Events:
    """Events of one piece each, and page faults; when those were sent that began at some times."""
    names = [*dict.fromkeys(name for *_, name in pieces), PAGE_FAULT]
    begins = [*(start for start, *_ in pieces), *faults]
    codes = [names.index(name) for *_, name in pieces] + [names.index(PAGE_FAULT)] * len(faults)
    return Events(
        cpu=1,
        causes=names,
        details=[""],
        cause=ints(*codes),
        detail=np.zeros(len(codes), np.int64),
        start_ns=ints(*begins),
        sent_ns=ints(*(sent.get(start, start) for start in begins)),
        piece_start_ns=ints(*(start for start, *_ in pieces)),
        piece_end_ns=ints(*(end for _, end, _ in pieces)),
        piece_event=np.arange(len(pieces)),
        lost=0,
        untold_switches=0,
        from_ns=0,
        to_ns=to_ns,
        gap_start_ns=ints(*(start for start, _ in gaps)),
        gap_end_ns=ints(*(end for _, end in gaps)),
    )


def pieces_of(timeline: Timeline) -> list[tuple[int, int, str]]:
    names = [timeline.causes[timeline.cause[event]] for event in timeline.event.tolist()]
    return list(zip(timeline.start_ns.tolist(), timeline.end_ns.tolist(), names, strict=True))


CALLS = [(start, start + 300, "function call") for start in range(1_000_000, 11_000_000, 1_000_000)]
DELIVERED = {start: start - 2_000 for start, *_ in CALLS}
"""Interrupts from another CPU with the time they were sent, usually 2 µs earlier."""


def pending(
    *pieces: tuple[int, int, str], sent: dict[int, int], **more: Any
) -> list[tuple[int, int]]:
    told_events = events(*CALLS, *pieces, sent={**DELIVERED, **sent}, **more)
    line = make_timeline(1, None, NONE, told_events)
    assert (line.start_ns[1:] >= line.end_ns[:-1]).all()
    return [(start, end) for start, end, name in pieces_of(line) if name == PENDING]


def test_a_cpu_that_does_not_handle_an_interrupt_does_not_run() -> None:
    late = (21_317_000, 21_317_300, "function call")
    assert pending(late, sent={}) == []
    assert pending(late, sent={21_317_000: 20_000_000}) == [(20_000_000, 21_317_000)]
    # It ran when a timer was handled; what came before is not known.
    timer = (20_500_000, 20_514_000, "local timer")
    assert pending(timer, late, sent={21_317_000: 20_000_000}) == [(20_514_000, 21_317_000)]
    timer = (21_300_000, 21_316_000, "local timer")
    assert pending(timer, late, sent={21_317_000: 20_000_000}) == []
    # So it did when another task began; one that ran all the time did not run then.
    begins = (20_600_000, 21_317_000, "task cc1")
    assert pending(begins, late, sent={21_317_000: 20_000_000}) == [(20_600_000, 21_317_000)]
    ran = (19_000_000, 21_317_000, "task cc1")
    assert pending(ran, late, sent={21_317_000: 20_000_000}) == [(20_000_000, 21_317_000)]
    # Two that were sent one after the other are handled one after the other.
    next_one = (21_317_300, 21_317_600, "reschedule")
    both = {21_317_000: 20_000_000, 21_317_300: 20_900_000}
    assert pending(late, next_one, sent=both) == [(20_000_000, 21_317_000)]
    # Events were lost: it may have run.
    lost = ((20_100_000, 20_200_000),)
    assert pending(late, sent={21_317_000: 20_000_000}, gaps=lost) == []


def test_a_loop_that_ran_had_no_pending_interrupt() -> None:
    late = (21_317_000, 21_317_300, "function call")
    told_events = events(*CALLS, late, sent={**DELIVERED, 21_317_000: 20_000_000})
    stalls = (ints(21_000_000), ints(21_317_400))
    names = {name for *_, name in pieces_of(make_timeline(1, stalls, NONE, told_events))}
    assert names == {"function call", OUTSIDE}


def test_an_nmi_that_was_timed_takes_no_more_than_its_ways() -> None:
    ticks = [(start + 100, start + 800, "local timer") for start in (10_000, 20_000, 30_000)]
    stalls = (ints(100, 10_000, 20_000, 30_000), ints(5000, 11_000, 21_000, 31_000))
    line = make_timeline(1, stalls, NONE, events((300, 700, "NMI"), *ticks))
    assert pieces_of(line)[:4] == [
        (100, 300, "NMI"),
        (300, 700, "NMI"),
        (700, 1700, "NMI"),
        (1700, 5000, OUTSIDE),
    ]


def test_ways_in_and_out_belong_to_the_event() -> None:
    stalls = (ints(100, 5000), ints(900, 5700))
    line = make_timeline(
        1, stalls, NONE, events((300, 700, "local timer"), (5200, 5600, "reschedule"))
    )
    assert pieces_of(line) == [
        (100, 300, "local timer"),
        (300, 700, "local timer"),
        (700, 900, "local timer"),
        (5000, 5200, "reschedule"),
        (5200, 5600, "reschedule"),
        (5600, 5700, "reschedule"),
    ]
    assert event_durations_ns(line).tolist() == [800, 700]


def test_what_is_much_longer_than_usual_is_nobody_s() -> None:
    usual = np.arange(10) * 10_000
    stalls = (np.append(usual, 100_000), np.append(usual + 1200, 190_100))
    timers = [(at + 600, at + 1100, "local timer") for at in usual] + [
        (189_500, 190_000, "local timer")
    ]
    line = make_timeline(1, stalls, NONE, events(*timers))
    # The way in takes 600 ns, mostly: up to 1800 ns are the timer's.
    assert pieces_of(line)[-4:] == [
        (100_000, 187_700, OUTSIDE),
        (187_700, 189_500, "local timer"),
        (189_500, 190_000, "local timer"),
        (190_000, 190_100, "local timer"),
    ]


def test_a_single_way_says_nothing_of_what_is_usual() -> None:
    line = make_timeline(1, (ints(0), ints(9000)), NONE, events((8000, 8900, "local timer")))
    assert pieces_of(line)[:2] == [(0, 7000, OUTSIDE), (7000, 8000, "local timer")]


def test_a_page_fault_takes_the_stall_but_not_a_pause() -> None:
    stalls = (ints(50, 10_000), ints(4050, 9_010_000))
    line = make_timeline(1, stalls, NONE, events(faults=(100, 10_100)))
    assert pieces_of(line) == [
        (50, 100, PAGE_FAULT),
        (100, 4050, PAGE_FAULT),
        (10_000, 10_100, PAGE_FAULT),
        (10_100, 60_100, PAGE_FAULT),
        (60_100, 61_100, PAGE_FAULT),
        (61_100, 9_010_000, OUTSIDE),
    ]


def test_what_was_before_a_page_fault_is_not_the_fault_s() -> None:
    line = make_timeline(1, (ints(0), ints(400_000)), NONE, events(faults=(300_000, 370_000)))
    assert pieces_of(line) == [
        (0, 299_000, OUTSIDE),
        (299_000, 300_000, PAGE_FAULT),
        (300_000, 350_000, PAGE_FAULT),
        (350_000, 351_000, PAGE_FAULT),
        (351_000, 369_000, OUTSIDE),
        (369_000, 370_000, PAGE_FAULT),
        (370_000, 400_000, PAGE_FAULT),
    ]


def test_what_was_lost_has_no_name() -> None:
    stalls = (ints(0, 9000), ints(5000, 14_000))
    line = make_timeline(1, stalls, NONE, events(gaps=((8000, 9500),)))
    assert pieces_of(line) == [(0, 5000, OUTSIDE), (9000, 14_000, UNNAMED)]


def test_without_events_places_are_known_and_causes_are_not() -> None:
    stalls = (ints(0, 100), ints(50, 400))
    line = make_timeline(1, stalls, (ints(150), ints(250)), None)
    assert pieces_of(line) == [
        (0, 50, UNNAMED),
        (100, 150, UNNAMED),
        (150, 250, INJECTED),
        (250, 400, UNNAMED),
    ]
    assert len(set(line.event.tolist())) == 3


def test_nothing_is_named_that_was_not_recorded() -> None:
    stalls = (ints(0, 9000), ints(5000, 14_000))
    line = make_timeline(1, stalls, NONE, events(to_ns=6000))
    assert pieces_of(line) == [(0, 5000, OUTSIDE), (9000, 14_000, UNNAMED)]


def test_causes_are_counted_by_event() -> None:
    stalls = (ints(100, 5000), ints(900, 5800))
    timeline = make_timeline(1, stalls, NONE, events((300, 700, "a"), (5200, 5600, "a")))
    [cause] = causes_of([timeline], 1_000_000)
    assert (cause.cause, cause.count, cause.total_ns, cause.duration_ns_p50) == ("a", 2, 1600, 800)
    assert (cause.rate_hz, cause.share, cause.p99_supported) == (2000.0, 0.0016, False)
    assert not causes_of([timeline.without(["a"])], 1_000_000)


LENGTHS = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=8)


@given(LENGTHS, LENGTHS, LENGTHS, st.sets(st.integers(0, 20_000), max_size=8))
def test_every_stall_is_divided_without_rest(
    stalls: list[tuple[int, int]],
    kernel: list[tuple[int, int]],
    injected: list[tuple[int, int]],
    faults: set[int],
) -> None:
    start, end = disjoint(kernel)
    pieces = [(low, high, "x") for low, high in zip(start.tolist(), end.tolist(), strict=True)]
    whole = disjoint(stalls)
    made = disjoint(injected)
    line = make_timeline(1, whole, made, events(*pieces, faults=tuple(sorted(faults))))
    assert points(line.start_ns, line.end_ns) == (
        points(*whole) | points(start, end) | points(*made)
    )
    assert (line.start_ns[1:] >= line.end_ns[:-1]).all()
    kept = [(low, high) for low, high, name in pieces_of(line) if name == "x"]
    assert points(start, end) <= points(*map(np.array, zip(*kept, strict=True))) if kept else True
