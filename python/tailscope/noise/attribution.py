"""Attribution of each packet's latency to causes, in parts that sum to it.

A packet's time between its two stamps is divided so:

- **service**: as long as a packet usually needs that finds the device idle;
- **queue**: behind earlier packets, as long as these usually take; for the rest of its batch; and
  behind what held up the device before the packet came, by cause;
- **dut**: what kept the device's CPU from working while the packet was there, by cause;
- **instrument**: what kept the instrument's own CPU, where the device's ran, and what tailscope
  itself did on the device's CPU: the packet is tainted;
- **unexplained**: the rest.

Timestamps alone say how long a packet waited for others, and since when something held up the
device instead (`tailscope.noise.queues`). What blocked a CPU since then is a cause, for as long as
it lasted and no longer, the latest first. So a queue inherits all that held up its first packet:
each cause with its own time, and what has no cause as unexplained.

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
from tailscope.noise.timeline import HANDING_ON
from tailscope.store.records.explanation import REST_OF_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tailscope.noise.queues import Delayed
    from tailscope.noise.timeline import Timeline
    from tailscope.store.records.run import OwnWork

    Integers = NDArray[np.int64]

DUT, INSTRUMENT, QUEUE = "dut", "instrument", "queue"
SERVICE, UNEXPLAINED = "service", "unexplained"
PARTS = (SERVICE, DUT, QUEUE, INSTRUMENT, UNEXPLAINED)
_OF_THE_INSTRUMENT = " of the instrument"
EARLIER = "earlier packets"
"""Cause of waiting in a queue that was not held up."""


class Blocked(NamedTuple):
    """Intervals in which CPUs were blocked."""

    start_ns: Integers
    end_ns: Integers
    """Ends of the intervals, in order and disjoint."""
    cause: NDArray[np.integer]
    detail: NDArray[np.integer]
    """Cause and detail of each interval, as indices into `names` and `details`."""
    is_dut: NDArray[np.bool_]
    """True if the device's CPU was blocked; false if the instrument's was, or if tailscope
    itself ran on the device's."""
    names: list[str]
    details: list[str]
    error_ns: int = 0
    """Largest error of these times against those of packets, which another clock stamped."""


_NOTHING = np.zeros(0, np.int64)
NEVER = Blocked(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING.astype(bool), [], [])
"""Nothing is known to have blocked a CPU."""


class Met(NamedTuple):
    """Causes that blocked a CPU during some intervals."""

    part: str
    """`DUT` or `INSTRUMENT`."""
    cause: str
    total_ns: int


class Share(NamedTuple):
    """One cause's share of the tail."""

    part: str
    """One of `PARTS`."""
    cause: str
    """Name of the cause; empty if it is unknown."""
    packets: int
    """Number of packets that waited for it."""
    total_ns: int
    """Total waiting time of these packets, in nanoseconds."""
    share: float
    """Share of the excess over the service time of all packets explained, in [0, 1]."""
    largest_ns: int
    """Longest wait of one packet, in nanoseconds."""


@dataclass(frozen=True)
class Explained:
    """The parts of some packets' latencies."""

    service_ns: Integers
    dut_ns: Integers
    queue_ns: Integers
    instrument_ns: Integers
    unexplained_ns: Integers
    """Unexplained time; the parts sum to the latencies."""
    cause: list[str]
    """Cause of the longest wait; empty if that is unexplained or there is none."""
    queue_cause: list[str]
    """Cause of the longest wait in the queue; empty if there was no queue."""

    def parts(self) -> dict[str, Integers]:
        """Return all parts by the names of `PARTS`."""
        return {name: getattr(self, f"{name}_ns") for name in PARTS}

    def columns(self) -> dict[str, Integers | list[str]]:
        """Return the parts and causes as columns of ``worst.parquet``."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Tally:
    """The composition of many packets' excess, summed up block by block."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, int, int]] = {}

    def add(self, part: str, cause: str, waited_ns: Integers) -> None:
        """Add each packet's wait for a cause."""
        packets, total_ns, largest_ns = self._found.get((part, cause), (0, 0, 0))
        self._found[part, cause] = (
            packets + int(np.count_nonzero(waited_ns)),
            total_ns + int(waited_ns.sum()),
            max(largest_ns, int(waited_ns.max(initial=0))),
        )

    def shares(self) -> list[Share]:
        """Return the causes, the largest first, then the unexplained rest, even if it is 0.

        What clocks leave open is unexplained, too, with the cause that it may be.
        """
        whole_ns = sum(total_ns for _, total_ns, _ in self._found.values())
        rest = self._found.get((UNEXPLAINED, ""), (0, 0, 0))
        named = [
            (key, sums) for key, sums in self._found.items() if key != (UNEXPLAINED, "") and sums[1]
        ]
        named.sort(key=lambda entry: -entry[1][1])
        return [
            Share(*key, packets, total_ns, total_ns / whole_ns if whole_ns else 0.0, largest_ns)
            for key, (packets, total_ns, largest_ns) in [*named, ((UNEXPLAINED, ""), rest)]
        ]


class _Wait(NamedTuple):
    """The packets' wait for a cause, by the CPU that it blocked."""

    part: str
    """`DUT` or `INSTRUMENT`."""
    code: int
    """Code of the cause."""
    own_ns: Integers
    before_ns: Integers
    """Waiting time in the device, and in its queue before the packet came."""


class Attribution:
    """The division of latencies among the causes that blocked CPUs."""

    def __init__(self, blocked: Blocked) -> None:
        self._error_ns = blocked.error_ns
        self._whole = Coverage(blocked.start_ns, blocked.end_ns)
        self._by_cause = _by_cause(blocked)
        self._names = [*blocked.names, EARLIER, REST_OF_BATCH, ""]
        self._earlier = len(blocked.names)
        self._batch, self._none = self._earlier + 1, self._earlier + 2

    def explain(self, block: Delayed, tally: Tally | None = None) -> Explained:
        """Explain some packets."""
        rest = block.held_up_ns()
        parts = {part: np.zeros_like(rest) for part in (DUT, QUEUE, INSTRUMENT)}
        waited: dict[int, Integers] = {}
        queued = {(DUT, self._earlier): block.earlier_ns, (DUT, self._batch): block.batch_ns}
        for wait in self._waits(block):
            rest = rest - wait.own_ns - wait.before_ns
            parts[wait.part] += wait.own_ns
            waited[wait.code] = waited.get(wait.code, 0) + wait.own_ns
            queued[wait.part, wait.code] = wait.before_ns
            if tally is not None:
                tally.add(wait.part, self._names[wait.code], wait.own_ns)
        assert (rest >= 0).all(), "causes never take more than there is to explain"
        longest, longest_in_queue = (_Longest(len(rest), self._none) for _ in range(2))
        longest.see(self._none, rest)
        queued_for: dict[int, Integers] = {}
        for (part, code), in_queue in queued.items():
            parts[QUEUE] += in_queue
            queued_for[code] = queued_for.get(code, 0) + in_queue
            if tally is not None:
                name = self._names[code] + _OF_THE_INSTRUMENT * (part == INSTRUMENT)
                tally.add(QUEUE, name, in_queue)
        for code, in_queue in queued_for.items():
            longest_in_queue.see(code, in_queue)
            longest.see(code, waited.get(code, 0) + in_queue)
        if tally is not None:
            self._add_rest(block, rest, waited, tally)
        parts |= {SERVICE: block.service_ns, UNEXPLAINED: rest}
        return Explained(
            **{f"{name}_ns": parts[name] for name in PARTS},
            cause=self._texts(longest.code),
            queue_cause=self._texts(longest_in_queue.code),
        )

    def _waits(self, block: Delayed) -> Iterator[_Wait]:
        """Return the waits for each cause, none longer than the cause lasted."""
        start, end = block.pre_ns, block.pre_ns + block.latency_ns
        waits = self._sure_waits(block) if self._error_ns else self._exact_waits(block)
        for wait in waits:
            lasted = self._by_cause[wait.code][wait.part]
            assert (wait.own_ns <= lasted.within(start, end)).all(), (
                "no cause has more than its time"
            )
            before_ns = lasted.within(np.minimum(block.since_ns, start), start)
            assert (wait.before_ns <= before_ns).all(), "no queue has more than its cause"
            yield wait

    def _exact_waits(self, block: Delayed) -> Iterator[_Wait]:
        """Return the waits for what held up the device last, if all times are those of packets."""
        start, end = block.pre_ns, block.pre_ns + block.latency_ns
        named = np.minimum(self._whole.within(block.since_ns, end), block.held_up_ns())
        since = self._whole.since(end, named)
        for code, sides in enumerate(self._by_cause):
            for part, coverage in sides.items():
                own_ns = coverage.within(np.maximum(since, start), end)
                yield _Wait(part, code, own_ns, coverage.within(np.minimum(since, start), start))

    def _sure_waits(self, block: Delayed) -> Iterator[_Wait]:
        """Return the waits that are certain whatever the error of the clocks."""
        start, end = block.pre_ns, block.pre_ns + block.latency_ns
        left_ns, unsure = block.held_up_ns(), []
        for code, sides in enumerate(self._by_cause):
            for part, coverage in sides.items():
                least_ns, _ = self._range(coverage, start, end)
                own_ns = np.minimum(least_ns, left_ns)
                left_ns = left_ns - own_ns
                unsure.append((part, code, own_ns))
        for part, code, own_ns in unsure:
            coverage = self._by_cause[code][part]
            least_ns, _ = self._range(coverage, np.minimum(block.since_ns, start), start)
            before_ns = np.minimum(least_ns, left_ns)
            left_ns = left_ns - before_ns
            yield _Wait(part, code, own_ns, before_ns)

    def _add_rest(
        self, block: Delayed, rest: Integers, waited: dict[int, Integers], tally: Tally
    ) -> None:
        """Add the unexplained rest; with two clocks, by the cause that could be most of it."""
        maybe = _Longest(len(rest), self._none)
        if self._error_ns:
            start, end = block.pre_ns, block.pre_ns + block.latency_ns
            for code, sides in enumerate(self._by_cause):
                most_ns = [self._range(coverage, start, end)[1] for coverage in sides.values()]
                maybe.see(code, sum(most_ns, start=-waited.get(code, np.zeros_like(rest))))
        open_ns = np.minimum(rest, maybe.waited)
        for code in np.unique(maybe.code[open_ns > 0]).tolist():
            tally.add(UNEXPLAINED, self._names[code], np.where(maybe.code == code, open_ns, 0))
        tally.add(UNEXPLAINED, "", rest - open_ns)

    def _range(
        self, coverage: Coverage, start: Integers, end: Integers
    ) -> tuple[Integers, Integers]:
        """Return the least and the most that may be covered of each interval.

        What lies deeper in an interval than the error is there for sure. And an interval that is
        moved by some time loses no more than that.
        """
        error_ns = self._error_ns
        about = coverage.within(start, end)
        inner = coverage.within(start + error_ns, np.maximum(end - error_ns, start + error_ns))
        outer = coverage.within(start - error_ns, end + error_ns)
        least = np.maximum(np.maximum(inner, about - error_ns), 0)
        return least, np.minimum(np.minimum(outer, about + error_ns), end - start)

    def _texts(self, codes: Integers) -> list[str]:
        return [self._names[code] for code in codes.tolist()]


class _Longest:
    """The cause of each packet's longest wait; the last of equals."""

    def __init__(self, count: int, none: int) -> None:
        self.code = np.full(count, none)
        self.waited = np.zeros(count, np.int64)

    def see(self, code: int, waited: Integers) -> None:
        more = (waited > 0) & (waited >= self.waited)
        self.code[more] = code
        self.waited[more] = waited[more]


def _by_cause(blocked: Blocked) -> list[dict[str, Coverage]]:
    """Return for each cause its coverage of the device's and the instrument's CPUs."""
    kind = 2 * blocked.cause + ~blocked.is_dut
    order = np.argsort(kind, kind="stable")
    ends = np.searchsorted(kind[order], np.arange(2 * len(blocked.names) + 1))
    coverage: list[dict[str, Coverage]] = [{} for _ in blocked.names]
    for number, (first, last) in enumerate(pairwise(ends)):
        if last > first:
            at = order[first:last]
            part = INSTRUMENT if number % 2 else DUT
            coverage[number // 2][part] = Coverage(blocked.start_ns[at], blocked.end_ns[at])
    return coverage


def blocked_by(
    dut: Sequence[Timeline],
    instrument: Sequence[Timeline],
    *,
    own_work: OwnWork | None = None,
    error_ns: int = 0,
) -> Blocked:
    """Join the timelines of both sides; the device's have precedence.

    What tailscope itself did on the device's CPU is the instrument's.
    """
    names: list[str] = []
    details: list[str] = []
    kinds = (np.int64, np.int64, np.int32, np.int32, np.bool_)
    pieces: list[NDArray[Any]] = [np.zeros(0, kind) for kind in kinds]
    own_dut, own_instrument = ((), ()) if own_work is None else (own_work.dut, own_work.instrument)
    noise = [timeline.without(own_dut) for timeline in dut]
    # On a CPU of both sides, the kernel hands on packets for the device.
    shared = {timeline.cpu for timeline in dut if own_instrument}
    for is_dut, timelines in (
        (1, [timeline.without([OWN]) for timeline in noise]),
        (0, [timeline.of([OWN]) for timeline in noise]),
        (
            0,
            [
                timeline.without([HANDING_ON] if timeline.cpu in shared else []).without(
                    own_instrument
                )
                for timeline in instrument
            ],
        ),
    ):
        for timeline in timelines:
            left = subtract(timeline.start_ns, timeline.end_ns, pieces[0], pieces[1])
            event = timeline.event[left.owner]
            cause = shared_codes(names, timeline.causes, timeline.cause[event])
            detail = shared_codes(details, timeline.details, timeline.detail[event])
            more: list[NDArray[Any]] = [
                left.start,
                left.end,
                cause,
                detail,
                np.full(len(event), is_dut, bool),
            ]
            pieces = [np.concatenate(pair) for pair in zip(pieces, more, strict=True)]
            order = np.argsort(pieces[0], kind="stable")
            pieces = [values[order] for values in pieces]
    start, end, cause, detail, side = pieces
    return Blocked(start, end, cause, detail, side, names, details, error_ns)


def met(blocked: Blocked, start_ns: Integers, end_ns: Integers) -> list[Met]:
    """Sum up by cause what blocked a CPU during intervals, the largest first."""
    causes = [
        Met(part, blocked.names[code], int(coverage.within(start_ns, end_ns).sum()))
        for code, sides in enumerate(_by_cause(blocked))
        for part, coverage in sides.items()
    ]
    return sorted((cause for cause in causes if cause.total_ns), key=lambda cause: -cause.total_ns)


def own_work_ns(
    dut: Sequence[Timeline], own_work: OwnWork | None = None
) -> tuple[Integers, Integers]:
    """Return the intervals in which tailscope itself blocked the device's CPUs."""
    of_dut = () if own_work is None else own_work.dut
    pieces = [timeline.without(of_dut).of([OWN]) for timeline in dut]
    none = [np.zeros(0, np.int64)]
    return union(
        np.concatenate(none + [interval.start_ns for interval in pieces]),
        np.concatenate(none + [interval.end_ns for interval in pieces]),
    )


def shared_codes(names: list[str], own: list[str], codes: NDArray[np.integer]) -> NDArray[np.int32]:
    """Translate codes of one list of names into codes of a shared list."""
    places = {name: place for place, name in enumerate(names)}
    places_of_own = [places.setdefault(name, len(places)) for name in own]
    names[:] = places
    shared: NDArray[np.int32] = np.array(places_of_own, np.int32)[codes]
    return shared
