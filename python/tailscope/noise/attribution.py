"""What each packet waited for: its latency in parts that sum to it.

A packet's time between its two stamps is divided so:

- **service**: as long as the median packet needs;
- **dut**: what kept the device's CPU from working meanwhile, by cause;
- **instrument**: what kept the instrument's own CPU, where the device's ran, and what tailscope
  itself did on the device's CPU: the packet is tainted;
- **queue**: behind earlier packets that were still there when it came, with the first cause of
  the busy period, which is whatever delayed the first packet of that queue;
- **unexplained**: the rest.

Parts never exceed what is there to explain: causes that overlap the service time are cut,
earliest first.

Where packets and causes were timed by two clocks, only what holds however far these are apart is a
cause: a packet waited for what it met at any of these distances. What it met at some of them only
is unexplained, and has the name of what it may be.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailscope.noise.events import OWN
from tailscope.noise.intervals import Coverage, subtract, union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tailscope.noise.timeline import Timeline
    from tailscope.store.packets import Packets
    from tailscope.store.records.run import OwnWork

    Integers = NDArray[np.int64]

__all__ = [
    "DUT",
    "INSTRUMENT",
    "PARTS",
    "QUEUE",
    "SERVICE",
    "UNEXPLAINED",
    "Attribution",
    "Blocked",
    "Delayed",
    "Explained",
    "Met",
    "Share",
    "Tally",
    "blocked_by",
    "delayed",
    "met",
    "own_work_ns",
]

DUT, INSTRUMENT, QUEUE = "dut", "instrument", "queue"
SERVICE, UNEXPLAINED = "service", "unexplained"
PARTS = (SERVICE, DUT, QUEUE, INSTRUMENT, UNEXPLAINED)
EARLIER = "earlier packets"
"""The cause of a queue in which nothing has delayed the first packet."""


class Blocked(NamedTuple):
    """When a CPU could not work for packets.

    Attributes
    ----------
    start_ns, end_ns : ndarray of int64, shape (n,)
        In order, disjoint.
    cause, detail : ndarray of integers, shape (n,)
        By place in `names` and `details`.
    is_dut : ndarray of bool, shape (n,)
        Whether it was the device's CPU, or the instrument's alone, or tailscope itself on the
        device's.
    names, details : list of str
    error_ns : int
        By how much all of them may be early or late against packets: they were timed by another
        clock.
    """

    start_ns: Integers
    end_ns: Integers
    cause: NDArray[np.integer[Any]]
    detail: NDArray[np.integer[Any]]
    is_dut: NDArray[np.bool_]
    names: list[str]
    details: list[str]
    error_ns: int = 0


class Met(NamedTuple):
    """What blocked a CPU during some intervals.

    Attributes
    ----------
    part : str
        `DUT` or `INSTRUMENT`.
    cause : str
    total_ns : int
    """

    part: str
    cause: str
    total_ns: int


class Share(NamedTuple):
    """What one cause has of the tail.

    Attributes
    ----------
    part : str
        One of `PARTS`.
    cause : str
        Empty for what has none.
    packets : int
        That waited for it.
    total_ns : int
        That they waited for it, all together.
    share : float
        Of the excess over the service time of all packets explained, in [0, 1].
    largest_ns : int
        That one packet waited for it.
    """

    part: str
    cause: str
    packets: int
    total_ns: int
    share: float
    largest_ns: int


class Delayed(NamedTuple):
    """Packets to explain, and what their queues depend on.

    Attributes
    ----------
    seq, pre_ns, latency_ns : ndarray of int64, shape (n,)
    before_ns : ndarray of int64, shape (n,)
        When the packet before left, but not before this one came, nor after it left.
    head_seq, head_pre_ns, head_post_ns : ndarray of int64, shape (n,)
        The first packet of its queue, which may be the packet itself: its number, when it came and
        when it left.
    """

    seq: Integers
    pre_ns: Integers
    latency_ns: Integers
    before_ns: Integers
    head_seq: Integers
    head_pre_ns: Integers
    head_post_ns: Integers

    def only(self, which: NDArray[np.bool_] | Integers) -> Delayed:
        """Some of them."""
        return Delayed(*(each[which] for each in self))

    @classmethod
    def joined(cls, blocks: Sequence[Delayed]) -> Delayed:
        """Those of several blocks; of none, none."""
        nothing = np.zeros(0, np.int64)
        none = cls(*[nothing] * len(cls._fields))
        return cls(*(np.concatenate(each) for each in zip(none, *blocks, strict=True)))


@dataclass(frozen=True)
class Explained:
    """The parts of some packets' latencies.

    Attributes
    ----------
    service_ns, dut_ns, queue_ns, instrument_ns, unexplained_ns : ndarray of int64, shape (n,)
        They sum to the latencies.
    cause : list of str, length n
        The cause of the largest part that has one; empty where none has.
    queue_cause : list of str, length n
        The cause of the queue that a packet stood in; empty where it stood in none.
    """

    service_ns: Integers
    dut_ns: Integers
    queue_ns: Integers
    instrument_ns: Integers
    unexplained_ns: Integers
    cause: list[str]
    queue_cause: list[str]

    def parts(self) -> dict[str, Integers]:
        """All parts by the names of `PARTS`."""
        return {name: getattr(self, f"{name}_ns") for name in PARTS}

    def columns(self) -> dict[str, Any]:
        """The parts and causes, as ``worst.parquet`` has them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class Tally:
    """What the excess of many packets is made of, added up a block of packets at a time."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, int, int]] = {}

    def add(self, part: str, cause: str, waited_ns: Integers) -> None:
        """Add what each packet of a block waited for a cause."""
        packets, total_ns, largest_ns = self._found.get((part, cause), (0, 0, 0))
        self._found[part, cause] = (
            packets + int(np.count_nonzero(waited_ns)),
            total_ns + int(waited_ns.sum()),
            max(largest_ns, int(waited_ns.max(initial=0))),
        )

    def shares(self) -> list[Share]:
        """The causes, largest first; last what nothing explains, even if nothing is.

        What clocks leave open is unexplained, too, with the cause that it may be.
        """
        whole_ns = sum(total_ns for _, total_ns, _ in self._found.values())
        rest = self._found.get((UNEXPLAINED, ""), (0, 0, 0))
        named = [
            (key, found)
            for key, found in self._found.items()
            if key != (UNEXPLAINED, "") and found[1]
        ]
        named.sort(key=lambda each: -each[1][1])
        return [
            Share(*key, packets, total_ns, total_ns / whole_ns if whole_ns else 0.0, largest_ns)
            for key, (packets, total_ns, largest_ns) in [*named, ((UNEXPLAINED, ""), rest)]
        ]


def delayed(
    packets: Packets, service_ns: int, chosen: Callable[[Integers, Integers], NDArray[np.bool_]]
) -> Iterator[Delayed]:
    """Look at all packets for those to explain.

    A packet queues if the one before still waited for its service when it came.

    Parameters
    ----------
    packets : Packets
    service_ns : int
        What a packet needs when nothing is in its way: the median.
    chosen : callable
        Says which to explain, of their numbers and latencies.

    Yields
    ------
    Delayed
        Blocks of any length, in order.
    """
    last_ns: int | None = None
    head = [0, 0, 0]
    for columns in packets.batches("seq", "pre_ns", "latency_ns"):
        seq, pre_ns, latency_ns = (column.view(np.int64) for column in columns)
        post_ns = pre_ns + latency_ns
        before_ns = np.empty_like(post_ns)
        before_ns[0] = pre_ns[0] if last_ns is None else last_ns
        before_ns[1:] = post_ns[:-1]
        heads = np.flatnonzero(before_ns - service_ns <= pre_ns)
        which = np.flatnonzero(chosen(seq, latency_ns))
        # The queue of the first ones may have begun in the block before: place 0.
        place = np.searchsorted(heads, which, "right")
        first = [
            np.concatenate([[of_head], column[heads]])
            for of_head, column in zip(head, (seq, pre_ns, post_ns), strict=True)
        ]
        pre, post = pre_ns[which], post_ns[which]
        yield Delayed(
            seq[which],
            pre,
            latency_ns[which],
            np.maximum(np.minimum(before_ns[which], post), pre),
            *(column[place] for column in first),
        )
        last_ns, head = int(post_ns[-1]), [int(column[-1]) for column in first]


class Attribution:
    """Divides latencies by what blocked CPUs.

    Parameters
    ----------
    blocked : Blocked
    service_ns : int
        What a packet needs when nothing is in its way: the median.
    """

    def __init__(self, blocked: Blocked, service_ns: int) -> None:
        self._service_ns, self._error_ns = service_ns, blocked.error_ns
        self._whole = Coverage(blocked.start_ns, blocked.end_ns)
        self._by_cause = _by_cause(blocked)
        self._names = [*blocked.names, EARLIER, ""]
        self._earlier, self._none = len(blocked.names), len(blocked.names) + 1

    def explain(self, block: Delayed, tally: Tally | None = None) -> Explained:
        """Explain some packets.

        Parameters
        ----------
        block : Delayed
        tally : Tally, optional
            What they waited for is added to it.
        """
        if self._error_ns:
            return self._explain_surely(block, tally)
        start, end = block.pre_ns, block.pre_ns + block.latency_ns
        excess = np.maximum(block.latency_ns - self._service_ns, 0)
        named = np.minimum(self._whole.within(start, end), excess)
        free = block.before_ns - start - self._whole.within(start, block.before_ns)
        queue = np.minimum(excess - named, free)
        rest = excess - named - queue
        # What overlaps the service time is cut, earliest first.
        since = self._whole.since(end, named)
        queue_code = self._queue_causes(block, queue)
        parts = {DUT: np.zeros_like(excess), INSTRUMENT: np.zeros_like(excess)}
        most = _Most(len(excess), self._none)
        for code, sides in enumerate(self._by_cause):
            waited = np.where(queue_code == code, queue, 0)
            for part, coverage in sides.items():
                took = coverage.within(since, end)
                parts[part] += took
                waited += took
                if tally is not None:
                    tally.add(part, self._names[code], took)
            most.see(code, waited)
        if tally is not None:
            tally.add(UNEXPLAINED, "", rest)
        parts |= {SERVICE: block.latency_ns - excess, QUEUE: queue, UNEXPLAINED: rest}
        return self._explained(parts, queue_code, most, tally)

    def _explain_surely(self, block: Delayed, tally: Tally | None) -> Explained:
        """Explain by what holds however far the clocks are apart."""
        start, end = block.pre_ns, block.pre_ns + block.latency_ns
        excess = np.maximum(block.latency_ns - self._service_ns, 0)
        parts = {DUT: np.zeros_like(excess), INSTRUMENT: np.zeros_like(excess)}
        most, maybe = (_Most(len(excess), self._none) for _ in range(2))
        left, waits = excess, []
        for code, sides in enumerate(self._by_cause):
            surely, possibly = np.zeros_like(excess), np.zeros_like(excess)
            for part, coverage in sides.items():
                least, highest = self._range(coverage, start, end)
                took = np.minimum(least, left)
                parts[part] += took
                left, surely, possibly = left - took, surely + took, possibly + highest
                if tally is not None:
                    tally.add(part, self._names[code], took)
            waits.append(surely)
            maybe.see(code, possibly - surely)
        free = block.before_ns - start - self._range(self._whole, start, block.before_ns)[0]
        queue = np.minimum(left, np.maximum(free, 0))
        rest = left - queue
        queue_code = self._queue_causes(block, queue)
        for code, surely in enumerate(waits):
            most.see(code, surely + np.where(queue_code == code, queue, 0))
        if tally is not None:
            self._add_rest(tally, rest, maybe)
        parts |= {SERVICE: block.latency_ns - excess, QUEUE: queue, UNEXPLAINED: rest}
        return self._explained(parts, queue_code, most, tally)

    def _explained(
        self, parts: Mapping[str, Integers], queue_code: Integers, most: _Most, tally: Tally | None
    ) -> Explained:
        """The parts of packets with their causes, those of queues included."""
        queue = parts[QUEUE]
        most.see(self._earlier, np.where(queue_code == self._earlier, queue, 0))
        if tally is not None:
            for code in np.unique(queue_code[queue > 0]).tolist():
                tally.add(QUEUE, self._names[code], np.where(queue_code == code, queue, 0))
        return Explained(
            **{f"{name}_ns": parts[name] for name in PARTS},
            cause=self._texts(most.code),
            queue_cause=self._texts(queue_code),
        )

    def _add_rest(self, tally: Tally, rest: Integers, maybe: _Most) -> None:
        """Tell what is left by the one cause that could be most of it."""
        open_ns = np.minimum(rest, maybe.waited)
        for code in np.unique(maybe.code[open_ns > 0]).tolist():
            tally.add(UNEXPLAINED, self._names[code], np.where(maybe.code == code, open_ns, 0))
        tally.add(UNEXPLAINED, "", rest - open_ns)

    def _range(
        self, coverage: Coverage, start: Integers, end: Integers
    ) -> tuple[Integers, Integers]:
        """The least and the most that is covered of intervals, however far the clocks are apart.

        What lies deeper in an interval than the error is there for sure. And an interval that is
        moved by some time loses no more than that.
        """
        error_ns = self._error_ns
        about = coverage.within(start, end)
        inner = coverage.within(start + error_ns, np.maximum(end - error_ns, start + error_ns))
        outer = coverage.within(start - error_ns, end + error_ns)
        least = np.maximum(np.maximum(inner, about - error_ns), 0)
        return least, np.minimum(np.minimum(outer, about + error_ns), end - start)

    def _queue_causes(self, block: Delayed, queue: Integers) -> Integers:
        """For each packet, what delayed the first packet of its queue the longest."""
        heads, which, of_packet = np.unique(block.head_seq, return_index=True, return_inverse=True)
        start, end = block.head_pre_ns[which], block.head_post_ns[which]
        most = _Most(len(heads), self._earlier)
        for code, sides in enumerate(self._by_cause):
            took = [self._range(coverage, start, end)[0] for coverage in sides.values()]
            most.see(code, sum(took, start=np.zeros_like(start)))
        is_head = block.head_seq == block.seq
        found = np.where(is_head, self._earlier, most.code[of_packet.reshape(-1)])
        return np.where(queue > 0, found, self._none)

    def _texts(self, codes: Integers) -> list[str]:
        return [self._names[code] for code in codes.tolist()]


class _Most:
    """For each of some packets, the cause that it waited for the longest; the last of equals."""

    def __init__(self, count: int, none: int) -> None:
        self.code = np.full(count, none)
        self.waited = np.zeros(count, np.int64)

    def see(self, code: int, waited: Integers) -> None:
        more = (waited > 0) & (waited >= self.waited)
        self.code[more] = code
        self.waited[more] = waited[more]


def _by_cause(blocked: Blocked) -> list[dict[str, Coverage]]:
    """For each cause, what it took of the device and of the instrument."""
    kind = 2 * blocked.cause + ~blocked.is_dut
    order = np.argsort(kind, kind="stable")
    ends = np.searchsorted(kind[order], np.arange(2 * len(blocked.names) + 1))
    found: list[dict[str, Coverage]] = [{} for _ in blocked.names]
    for number, (first, last) in enumerate(pairwise(ends)):
        if last > first:
            at = order[first:last]
            part = INSTRUMENT if number % 2 else DUT
            found[number // 2][part] = Coverage(blocked.start_ns[at], blocked.end_ns[at])
    return found


def blocked_by(
    dut: Sequence[Timeline],
    instrument: Sequence[Timeline],
    *,
    own_work: OwnWork | None = None,
    error_ns: int = 0,
) -> Blocked:
    """Join the timelines of both sides; where both were blocked it was the device.

    What tailscope itself did on the device's CPU is the instrument's.

    Parameters
    ----------
    dut, instrument : sequence of Timeline
        One for each CPU. Of several CPUs of a side, any counts: which of them a packet passed is
        not known.
    own_work : OwnWork, optional
        How causes begin that are a side's work.
    error_ns : int
        How far their clock may be off that of the packets.
    """
    names: list[str] = []
    details: list[str] = []
    kinds = (np.int64, np.int64, np.int32, np.int32, np.bool_)
    pieces: list[NDArray[Any]] = [np.zeros(0, kind) for kind in kinds]
    own_dut, own_instrument = ((), ()) if own_work is None else (own_work.dut, own_work.instrument)
    noise = [timeline.without(own_dut) for timeline in dut]
    for is_dut, timelines in (
        (1, [timeline.without([OWN]) for timeline in noise]),
        (0, [timeline.of([OWN]) for timeline in noise]),
        (0, [timeline.without(own_instrument) for timeline in instrument]),
    ):
        for kept in timelines:
            left = subtract(kept.start_ns, kept.end_ns, pieces[0], pieces[1])
            event = kept.event[left.owner]
            cause = _shared(names, kept.causes, kept.cause[event])
            detail = _shared(details, kept.details, kept.detail[event])
            more: list[NDArray[Any]] = [
                left.start,
                left.end,
                cause,
                detail,
                np.full(len(event), is_dut, bool),
            ]
            pieces = [np.concatenate(pair) for pair in zip(pieces, more, strict=True)]
            order = np.argsort(pieces[0], kind="stable")
            pieces = [each[order] for each in pieces]
    start, end, cause, detail, side = pieces
    return Blocked(start, end, cause, detail, side, names, details, error_ns)


def met(blocked: Blocked, start_ns: Integers, end_ns: Integers) -> list[Met]:
    """Say what blocked a CPU during intervals, all of them together, largest first.

    Parameters
    ----------
    blocked : Blocked
    start_ns, end_ns : ndarray of int64, shape (n,)
    """
    found = [
        Met(part, blocked.names[code], int(coverage.within(start_ns, end_ns).sum()))
        for code, sides in enumerate(_by_cause(blocked))
        for part, coverage in sides.items()
    ]
    return sorted((each for each in found if each.total_ns), key=lambda each: -each.total_ns)


def own_work_ns(
    dut: Sequence[Timeline], own_work: OwnWork | None = None
) -> tuple[Integers, Integers]:
    """When tailscope itself kept the device's CPUs from the device.

    Parameters
    ----------
    dut : sequence of Timeline
        One for each of its CPUs.
    own_work : OwnWork, optional
        How causes begin that are a side's work.

    Returns
    -------
    tuple of two ndarray of int64, shape (n,)
        Starts and ends, in order, disjoint.
    """
    of_dut = () if own_work is None else own_work.dut
    pieces = [timeline.without(of_dut).of([OWN]) for timeline in dut]
    none = [np.zeros(0, np.int64)]
    return union(
        np.concatenate(none + [each.start_ns for each in pieces]),
        np.concatenate(none + [each.end_ns for each in pieces]),
    )


def _shared(known: list[str], own: list[str], codes: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Codes of a list of names as codes of a list that several share."""
    places = {name: place for place, name in enumerate(known)}
    found = [places.setdefault(name, len(places)) for name in own]
    known[:] = places
    shared: NDArray[np.int32] = np.array(found, np.int32)[codes]
    return shared
