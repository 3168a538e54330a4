"""Upper bound of each packet's latency that neighbours on the device's CPU can explain.

A packet waits for what holds the CPU while it is in the device, and for the packet before it if
that was still there. With latencies L, what the CPU was held h, and the latency of a packet that
nothing is in the way of, s, the delay b of packet i is at most::

    b(i) = min(L(i), h(since the packet before left, or i came) + carried)
    carried = min(b(i-1), for how long the packet before was still there, L(i-1) - s)

Where it is only known how long the CPU was held within a window, and not when, the busy periods of
the device with the longest waits are taken for it (`longest_within`), and b(i) is L(i) - s at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.analysis import Distribution
from tailscope.noise.intervals import Coverage, covered, union

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tailscope.store.packets import Packets

    Integers = NDArray[np.int64]
    Unsigned = NDArray[np.uint64]

_TIMES = 2
"""Largest ratio of waiting time to the time the CPU was held: a queue has to drain, too."""
_WINDOW_SHARE = 4
_CLOCKS_NS = 1_000_000
"""Largest error of the clock of `/proc` against that of the packets."""
_UNDISTURBED = 0.25
"""Quantile of undisturbed latencies that counts as a packet's latency without a queue."""
_ENOUGH = 100
_SLICE_NS = 1_000_000


class HeldIntervals(NamedTuple):
    """Intervals in which neighbours may have held the device's CPUs."""

    start_ns: Integers
    end_ns: Integers
    """Ends of the intervals, which are in order of their starts."""
    held_ns: Integers
    """Longest time held: in each interval, or in the waits that ended in it."""

    @classmethod
    def none(cls) -> HeldIntervals:
        """Return no intervals."""
        return cls(*(np.zeros(0, np.int64) for _ in cls._fields))

    @classmethod
    def whole(cls, start_ns: Integers, end_ns: Integers) -> HeldIntervals:
        """Return intervals that neighbours held from beginning to end."""
        start, end = union(start_ns, end_ns)
        return cls(start, end, end - start)

    def columns(self) -> Mapping[str, Integers]:
        """Return the columns of ``neighbours.parquet``."""
        return self._asdict()


def longest_within(
    windows: HeldIntervals, start_ns: Integers, end_ns: Integers, lasted_ns: Integers
) -> NDArray[np.bool_]:
    """Choose intervals that waits for neighbours may be.

    In each window those are the longest ones of which the wait may have ended there, until they
    make up twice the waits of the window; what may have ended in another window is not counted.
    Where the waits are a quarter of the window or more, the device may not have emptied its queue
    in between: it is every interval that touches it.
    """
    chosen = np.zeros(len(start_ns), bool)
    earliest = start_ns + lasted_ns - _CLOCKS_NS
    latest = np.maximum(end_ns, start_ns + lasted_ns) + _CLOCKS_NS
    most = np.maximum.accumulate(latest)
    least = np.minimum.accumulate(earliest[::-1])[::-1]
    # The part of each window that no other window covers.
    alone_from = np.maximum(windows.start_ns, np.append(windows.start_ns[:1], windows.end_ns[:-1]))
    alone_until = np.minimum(windows.end_ns, np.append(windows.start_ns[1:], windows.end_ns[-1:]))
    columns = (*windows, alone_from, alone_until)
    for begin_ns, until_ns, held_ns, own_begin_ns, own_until_ns in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if held_ns * _WINDOW_SHARE >= until_ns - begin_ns:
            chosen[(end_ns > begin_ns - held_ns) & (start_ns < until_ns)] = True
            continue
        first, last = np.searchsorted(most, begin_ns), np.searchsorted(least, until_ns, "right")
        candidates = np.arange(first, last)
        candidates = candidates[
            (latest[candidates] >= begin_ns) & (earliest[candidates] <= until_ns)
        ]
        candidates = candidates[
            (lasted_ns[candidates] > 0) & (lasted_ns[candidates] <= _TIMES * held_ns)
        ]
        candidates = candidates[np.argsort(-lasted_ns[candidates], kind="stable")]
        is_inside = (earliest[candidates] > own_begin_ns) & (latest[candidates] < own_until_ns)
        spent = np.where(is_inside, lasted_ns[candidates], 0)
        chosen[candidates[np.cumsum(spent) - spent < _TIMES * held_ns]] = True
    return chosen


class HeldPackets(NamedTuple):
    """The data for bounding the packets of a run."""

    start_ns: Integers
    end_ns: Integers
    """Ends of the intervals in which the CPU was held, in order and disjoint."""
    undisturbed_ns: int
    """Latency of an undisturbed packet; 0 if it cannot be determined."""
    most_lost: int
    """Largest number of packets that the device can have lost to neighbours: twice as many as
    arrive in that time at the highest rate observed."""
    is_exact: bool = True
    """True if the CPU was held in these intervals; false if it may have been."""

    def bounds(self) -> PacketBounds:
        """Return a bound of packets, starting with the first one."""
        return PacketBounds(self)


class PacketBounds:
    """A bound of packets in order of arrival, batch by batch."""

    def __init__(self, held: HeldPackets) -> None:
        self._coverage = Coverage(held.start_ns, held.end_ns)
        self._undisturbed_ns, self._is_exact = held.undisturbed_ns, held.is_exact
        self._bound_ns = self._latency_ns = self._pre_ns = 0

    def of(self, came_ns: Unsigned, took_ns: Unsigned) -> Unsigned:
        """Return the most that neighbours can explain of each latency, shape (n,)."""
        pre_ns, latency_ns = came_ns.view(np.int64), took_ns.view(np.int64)
        post_ns = pre_ns + latency_ns
        before_pre = np.concatenate([[self._pre_ns], pre_ns[:-1]])
        before_latency = np.concatenate([[self._latency_ns], latency_ns[:-1]])
        since = np.minimum(np.maximum(pre_ns, before_pre + before_latency), post_ns)
        own = self._coverage.within(since, post_ns)
        still = np.minimum(
            before_pre + before_latency - pre_ns, before_latency - self._undisturbed_ns
        )
        most = np.minimum(latency_ns, own + np.maximum(still, 0))
        # b(i) = min(most(i), own(i) + b(i-1)), from which own is taken off up to each packet.
        total = np.cumsum(own)
        least = np.minimum.accumulate(np.concatenate([[self._bound_ns], most - total]))[1:]
        self._pre_ns, self._latency_ns = int(pre_ns[-1]), int(latency_ns[-1])
        self._bound_ns = int(least[-1] + total[-1])
        bound = np.maximum(least + total, self._coverage.within(pre_ns, post_ns))
        if not self._is_exact:
            bound = np.minimum(bound, np.maximum(latency_ns - self._undisturbed_ns, 0))
        return bound.view(np.uint64)


def held_packets(held: HeldIntervals, packets: Packets, *, is_exact: bool) -> HeldPackets:
    """Prepare the bounding of packets."""
    start, end = held.start_ns, held.end_ns
    if not is_exact:
        since, until, waited = _busy_periods(packets)
        chosen = longest_within(held, since, until, waited)
        start, end = union(since[chosen], until[chosen])
    # Until a queue has drained, packets wait for causes that have ended.
    wide_start, wide_end = union(start, start + _TIMES * (end - start))
    undisturbed, arrivals = Distribution(), _Arrivals()
    for pre_ns, latency_ns, least_ns in _stays(packets):
        free = covered(pre_ns, pre_ns + latency_ns, wide_start, wide_end) == 0
        undisturbed.record(least_ns[free].astype(np.uint64))
        arrivals.add(pre_ns)
    most_lost = _TIMES * -(-int(held.held_ns.sum()) // _SLICE_NS) * arrivals.most
    return HeldPackets(start, end, _low(undisturbed), most_lost, is_exact)


def _stays(packets: Packets) -> Iterator[tuple[Integers, Integers, Integers]]:
    """List arrivals, and latencies with and without stalls of the instrument."""
    for pre_ns, latency_ns, stall_ns in packets.batches(
        "pre_ns", "latency_ns", "instrument_stall_ns"
    ):
        least_ns = latency_ns if stall_ns is None else latency_ns - np.minimum(latency_ns, stall_ns)
        yield pre_ns.view(np.int64), latency_ns.view(np.int64), least_ns.view(np.int64)


def _low(undisturbed: Distribution) -> int:
    if undisturbed.count < _ENOUGH:
        return 0
    return int(undisturbed.at_ranks([max(1, int(_UNDISTURBED * undisturbed.count))])[0])


def _busy_periods(packets: Packets) -> tuple[Integers, Integers, Integers]:
    """Return the device's busy periods, and the longest wait of a packet in each.

    What the instrument stalled meanwhile is no part of the wait, but of the time in which it ended.
    """
    latencies = Distribution()
    for _, _, least_ns in _stays(packets):
        latencies.record(least_ns.astype(np.uint64))
    service_ns = _low(latencies)
    pieces: list[tuple[Integers, ...]] = []
    for pre_ns, latency_ns, least_ns in _stays(packets):
        post_ns = pre_ns + latency_ns
        begins = np.ones(len(pre_ns), bool)
        begins[1:] = (post_ns[:-1] <= pre_ns[1:]) | (latency_ns[:-1] <= service_ns)
        first = np.flatnonzero(begins)
        pieces.append(
            (
                pre_ns[first],
                np.maximum.reduceat(post_ns, first),
                np.maximum(np.maximum.reduceat(least_ns, first) - service_ns, 0),
            )
        )
    none = (np.zeros(0, np.int64),) * 3
    start, end, waited = (np.concatenate(column) for column in zip(none, *pieces, strict=True))
    # Busy periods of packets that the device handles in parallel overlap.
    end = np.minimum(end, np.append(start[1:], end[-1:]))
    return start, end, waited


class _Arrivals:
    """A counter of the packets in the busiest millisecond."""

    def __init__(self) -> None:
        self.most = 0
        self._last, self._count = -1, 0

    def add(self, pre_ns: Integers) -> None:
        slices, counts = np.unique(pre_ns // _SLICE_NS, return_counts=True)
        if slices[0] == self._last:
            counts[0] += self._count
        self.most = max(self.most, int(counts.max()))
        self._last, self._count = int(slices[-1]), int(counts[-1])
