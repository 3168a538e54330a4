"""A CPU's timeline: pieces that do not overlap, each with the cause that took the CPU.

A polling loop knows exactly for how long it did not run, and not why; the kernel tells why, and
misses how long it takes to get into an interrupt and out of it. So stalls are divided among the
events in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.noise.events import HOLDING, NMI, PAGE_FAULT, SOFTIRQ_NET, TASK
from tailscope.noise.intervals import covered, subtract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.noise.events import Events

    Integers = NDArray[np.int64]

INJECTED = "injected stall"
OUTSIDE = "hypervisor/SMI"
"""Cause of time that no kernel event explains: something below the kernel had the CPU."""

PENDING = "pending interrupt"
"""Cause of time in which an interrupt from another CPU was pending and nothing else happened:
the CPU did not run, or it had interrupts off."""

HANDING_ON = "handing on packets"
"""Cause of time in which a loop did not run because the kernel handed on what it had sent."""

UNNAMED = "stall"
"""Cause of time that nobody recorded."""

_SOFTIRQ_TASK = f"{TASK}ksoftirqd/"

_EDGE_NS = (1_000, 50_000)
"""Limits of the time to enter or leave an interrupt: assumed without data, and at most."""
_INSTANT_NS = (50_000, 1_000_000)
"""Limits for a page fault, or for an interrupt that cannot be masked."""
_DELIVERY_NS = (1_000, 50_000)
"""Limits for the way of an interrupt from one CPU to another."""
_ENOUGH = 10
_TIMES_THE_MEDIAN = 3


@dataclass(frozen=True)
class Timeline:
    """The intervals that kept one CPU from its work."""

    cpu: int
    start_ns: Integers
    end_ns: Integers
    """Ends of the pieces, in order and disjoint."""
    event: Integers
    """Event of each piece; an interrupted event has several pieces."""
    cause: NDArray[np.integer]
    detail: NDArray[np.integer]
    """Cause and detail of each piece, as indices into `causes` and `details`."""
    causes: list[str]
    details: list[str]

    def without(self, own_work: Sequence[str]) -> Timeline:
        """Leave out events that are the CPU's work, by how the names of their causes begin.

        Where that is every task, packets are softirqs', and a task is noise while these wait.
        """
        is_own = self._begins(own_work)
        if TASK in own_work:
            is_own &= ~self._holds_softirqs()
        return self._only(~is_own)

    def of(self, causes: Sequence[str]) -> Timeline:
        """Leave in only events by how the names of their causes begin."""
        return self._only(self._begins(causes))

    def handing_on(self, start_ns: Integers, end_ns: Integers) -> Timeline:
        """Set apart the softirqs of packets that a loop's stalls are made of: `HANDING_ON`."""
        at = np.searchsorted(start_ns, self.start_ns, "right") - 1
        stalls = self._begins([SOFTIRQ_NET]) & (at >= 0)
        stalls[stalls] = self.start_ns[stalls] < end_ns[at[stalls]]
        cause = self.cause.copy()
        cause[self.event[stalls]] = len(self.causes)
        return replace(self, cause=cause, causes=[*self.causes, HANDING_ON])

    def between(self, begin_ns: int, end_ns: int) -> Timeline:
        """Return the pieces that begin in a stretch of time."""
        return self._only((self.start_ns >= begin_ns) & (self.start_ns < end_ns))

    def _holds_softirqs(self) -> NDArray[np.bool_]:
        """Mark the pieces of tasks for whose end softirqs of packets waited.

        The kernel leaves softirqs that become too many to a task, `ksoftirqd`, which takes its
        turn. What ran since a softirq was wanted held it up.
        """
        is_holding = np.array([HOLDING in detail for detail in self.details], bool)
        holds: NDArray[np.bool_] = is_holding[self.detail[self.event]]
        return holds & ~self._begins([_SOFTIRQ_TASK])

    def _begins(self, causes: Sequence[str]) -> NDArray[np.bool_]:
        """Mark the pieces of causes whose names begin like one of these."""
        begins = np.array([cause.startswith(tuple(causes)) for cause in self.causes], bool)
        return begins[self.cause[self.event]] if len(self.event) else np.zeros(0, bool)

    def _only(self, which: NDArray[np.bool_]) -> Timeline:
        return Timeline(
            self.cpu,
            self.start_ns[which],
            self.end_ns[which],
            self.event[which],
            self.cause,
            self.detail,
            self.causes,
            self.details,
        )


def make_timeline(
    cpu: int,
    stalls: tuple[Integers, Integers] | None,
    injected: tuple[Integers, Integers],
    events: Events | None,
) -> Timeline:
    """Divide the stalls of a CPU among the events on it.

    An event counts in full, within a stall or not. What is left of a stall right before and after
    an event is the way into it and out of it, up to three times as long as that usually takes here;
    what is left beyond that is `OUTSIDE` where kernel events were recorded, and `UNNAMED` where
    they were not, or were lost.

    Where no loop watches a CPU, an interrupt that another CPU sent says when it did not run: what
    lies between that and its handling is `PENDING`, if it is longer than usual and nothing else
    happened.
    """
    made = _Maker(cpu, events)
    made.add_events()
    made.add_whole(injected, INJECTED)
    if stalls is None:
        made.add_pending()
    else:
        made.add_stalls(*stalls)
    return made.finish()


class _Left(NamedTuple):
    """The rest of stalls, with the events right before and after; -1 for none."""

    owner: Integers
    start: Integers
    end: Integers
    before: Integers
    after: Integers


class _Maker:
    def __init__(self, cpu: int, events: Events | None) -> None:
        self._cpu, self._events = cpu, events
        self._causes = [] if events is None else list(events.causes)
        self._details = [""] if events is None else list(events.details)
        self._cause = [] if events is None else [events.cause]
        self._detail = [] if events is None else [events.detail]
        self._count = 0 if events is None else len(events.cause)
        self._start = self._end = self._event = np.zeros(0, np.int64)

    def add_events(self) -> None:
        """Add the kernel's events."""
        if self._events is not None:
            events = self._events
            self._lay(events.piece_start_ns, events.piece_end_ns, events.piece_event)

    def add_whole(self, intervals: tuple[Integers, Integers], name: str) -> None:
        """Add intervals of one cause, each an event, where there is no piece yet."""
        pieces = subtract(*intervals, self._start, self._end)
        first = self._new(len(intervals[0]), name)
        self._lay(pieces.start, pieces.end, first + pieces.owner)

    def add_pending(self) -> None:
        """Lay down when interrupts from other CPUs waited for this one, until they were handled.

        Whatever ran meanwhile without an event did not run, or had interrupts off.
        """
        if self._events is None:
            return
        events = self._events
        sent = np.flatnonzero(events.start_ns > events.sent_ns)
        delay_ns = events.start_ns[sent] - events.sent_ns[sent]
        usual_ns = _usual(delay_ns, delay_ns > 0, _DELIVERY_NS)
        late = sent[delay_ns > usual_ns]
        late = late[np.argsort(events.start_ns[late], kind="stable")]
        end = events.start_ns[late]
        # When an event begins or ends, it runs, and takes what is pending.
        edges = np.sort(np.concatenate([events.sent_ns[late[:1]], self._start, self._end, end]))
        last = edges[np.maximum(np.searchsorted(edges, end, "left") - 1, 0)]
        start = np.maximum(events.sent_ns[late], last)
        is_recorded = (
            covered(start, np.maximum(start, end), events.gap_start_ns, events.gap_end_ns) == 0
        )
        is_pending = is_recorded & (end - start > usual_ns)
        late, start, end = late[is_pending], start[is_pending], end[is_pending]
        left = subtract(self._start, self._end, start, end)
        self._start, self._end, self._event = left.start, left.end, self._event[left.owner]
        first = self._new(len(late), PENDING, events.detail[late])
        self._lay(start, end, first + np.arange(len(late)))

    def add_stalls(self, start: Integers, end: Integers) -> None:
        """Divide the rest of stalls among adjacent events and unnamed causes."""
        is_recorded = np.zeros(len(start), bool)
        if self._events is not None:
            is_recorded = (start >= self._events.from_ns) & (end <= self._events.to_ns)
            is_recorded &= (
                covered(start, end, self._events.gap_start_ns, self._events.gap_end_ns) == 0
            )
        left = self._left(start[is_recorded], end[is_recorded])
        left = self._take_instants(self._cut_at(left, PAGE_FAULT), PAGE_FAULT)
        left = self._take_instants(left, NMI)
        self._add_rest(self._take_edges(left), OUTSIDE)
        self._add_rest(self._left(start[~is_recorded], end[~is_recorded]), UNNAMED)

    def _left(self, start: Integers, end: Integers) -> _Left:
        pieces = subtract(start, end, self._start, self._end)
        return _Left(
            pieces.owner,
            pieces.start,
            pieces.end,
            self._event_at(pieces.before),
            self._event_at(pieces.after),
        )

    def finish(self) -> Timeline:
        empty = np.zeros(0, np.int64)
        return Timeline(
            self._cpu,
            self._start,
            self._end,
            self._event,
            np.concatenate([empty, *self._cause]),
            np.concatenate([empty, *self._detail]),
            self._causes,
            self._details,
        )

    def _event_at(self, place: Integers) -> Integers:
        """Return the event of the piece at each index; -1 for none."""
        if not len(self._event):
            return np.full(len(place), -1)
        return np.where(place >= 0, self._event[place], -1)

    def _add_rest(self, left: _Left, name: str) -> None:
        """Add the rest of each stall as one event."""
        stalls, which = np.unique(left.owner, return_inverse=True)
        first = self._new(len(stalls), name)
        self._lay(left.start, left.end, first + which.reshape(-1))

    def _take_instants(self, left: _Left, name: str) -> _Left:
        """Attribute pieces to events that have no recorded end, for their usual duration.

        The piece is taken from its beginning: an NMI says that it was there when it has ended.
        """
        if self._events is None:
            return left
        owner, start, end, before, after = left
        events, when = self._instants(self._events, name)
        first = np.searchsorted(when, start, "left")
        inside = first < np.searchsorted(when, end, "left")
        most = _usual(end - start, inside, _INSTANT_NS)
        upto = np.where(inside, np.minimum(end, start + most), start)
        self._lay(start[inside], upto[inside], events[first[inside]])
        is_left = end > upto
        return _Left(*(column[is_left] for column in (owner, upto, end, before, after)))

    def _cut_at(self, left: _Left, name: str) -> _Left:
        """Cut pieces where an event begins whose end was not recorded."""
        if self._events is None or not len(left.start):
            return left
        events, when = self._instants(self._events, name)
        piece = np.searchsorted(left.start, when, "left") - 1
        inside = (piece >= 0) & (when < left.end[piece])
        events, when, piece = events[inside], when[inside], piece[inside]
        start = np.concatenate([left.start, when])
        order = np.argsort(start, kind="stable")
        start, piece = start[order], np.concatenate([np.arange(len(left.start)), piece])[order]
        begins = np.concatenate([np.full(len(left.start), -1), events])[order]
        end, next_begins = left.end[piece], np.append(begins[1:], -1)
        return _Left(
            left.owner[piece],
            start,
            np.minimum(end, np.append(start[1:], end[-1])),
            np.where(begins >= 0, begins, left.before[piece]),
            np.where(next_begins >= 0, next_begins, left.after[piece]),
        )

    @staticmethod
    def _instants(events: Events, name: str) -> tuple[Integers, Integers]:
        """Return the events of a name whose ends were not recorded, and when they were noticed."""
        numbers = events.named(name)
        numbers = numbers[~np.isin(numbers, events.piece_event)]
        return numbers, events.start_ns[numbers]

    def _take_edges(self, left: _Left) -> _Left:
        """Attribute the time to enter and leave the kernel to the events it belongs to."""
        owner, start, end, before, after = left
        has_before, has_after = before >= 0, after >= 0
        most = _usual(end - start, has_after & ~has_before, _EDGE_NS)
        into = np.where(has_after, np.minimum(end - start, most), 0)
        most = _usual(end - start, has_before & ~has_after, _EDGE_NS)
        rest = end - into
        out = np.where(has_before, np.minimum(rest - start, most), 0)
        self._lay(rest[into > 0], end[into > 0], after[into > 0])
        self._lay(start[out > 0], (start + out)[out > 0], before[out > 0])
        is_left = rest > start + out
        return _Left(*(column[is_left] for column in (owner, start + out, rest, before, after)))

    def _new(self, count: int, name: str, detail: Integers | None = None) -> int:
        """Create events of a cause; return the number of the first one."""
        if name not in self._causes:
            self._causes.append(name)
        self._cause.append(np.full(count, self._causes.index(name), np.int64))
        if detail is None:
            detail = np.full(count, self._nothing(), np.int64)
        self._detail.append(detail)
        self._count += count
        return self._count - count

    def _nothing(self) -> int:
        if "" not in self._details:
            self._details.append("")
        return self._details.index("")

    def _lay(self, start: Integers, end: Integers, event: Integers) -> None:
        whole = np.concatenate([self._start, start]), np.concatenate([self._end, end])
        order = np.argsort(whole[0], kind="stable")
        self._start, self._end = whole[0][order], whole[1][order]
        self._event = np.concatenate([self._event, event])[order]


def _usual(durations_ns: Integers, which: NDArray[np.bool_], limits_ns: tuple[int, int]) -> int:
    """Return the assumed longest duration of events whose ends were not recorded.

    Three times the median, where there are enough of them, within limits; else the lower one.
    """
    least, most = limits_ns
    if np.count_nonzero(which) < _ENOUGH:
        return least
    return min(most, max(least, int(_TIMES_THE_MEDIAN * np.median(durations_ns[which]))))
