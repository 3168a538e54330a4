"""How much of each packet's latency neighbours can explain at most, who held the device's CPU.

A packet waits for what holds the CPU while it is in the device, and for what the packet before it
had waited for already if that was still waiting when it came. So the delay of packet i by others is
at most::

    b(i) = min(latency(i), held(from when the packet before left, or i came, until i left)
                           + min(b(i-1), for how long the packet before still waited when i came))

A packet waits from the moment on at which an undisturbed one would have left. Where it is only
known how long the CPU was held within a window, and not when, the busy periods of the device with
the longest waits are taken for it, until they make up twice that time: behind who had to wait, there
is a queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.analysis import Distribution
from tailscope.noise.intervals import Coverage, covered, union

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.noise.neighbours import HeldIntervals
    from tailscope.store.packets import Packets

    Integers = NDArray[np.int64]
    Unsigned = NDArray[np.uint64]

__all__ = ["HeldPackets", "PacketBounds", "held_packets", "longest_within"]

_TIMES = 2
"""How much longer than the CPU was held packets may wait for that: a queue has to be emptied."""
_WINDOW_SHARE = 4
_CLOCKS_NS = 1_000_000
"""How far the clock of `/proc` may be off that of the packets."""
_UNDISTURBED = 0.25
"""The quantile of undisturbed latencies that a packet needs without a queue."""
_ENOUGH = 100
_SLICE_NS = 1_000_000


def longest_within(
    windows: HeldIntervals, start_ns: Integers, end_ns: Integers, lasted_ns: Integers
) -> NDArray[np.bool_]:
    """Choose intervals that waits for neighbours may be.

    In each window those are the longest ones of which the wait ended there, until they make up
    twice the waits of the window. Where these are a quarter of the window or more, the device may
    not have emptied its queue in between: it is every interval that touches it.

    Parameters
    ----------
    windows : HeldIntervals
    start_ns, end_ns : ndarray of int64, shape (n,)
        In order, disjoint.
    lasted_ns : ndarray of int64, shape (n,)
        How long the wait lasted with which each of them begins.
    """
    chosen = np.zeros(len(start_ns), bool)
    by_end = np.argsort(start_ns + lasted_ns, kind="stable")
    ended_ns = (start_ns + lasted_ns)[by_end]
    for begin_ns, until_ns, held_ns in zip(*(each.tolist() for each in windows), strict=True):
        if held_ns * _WINDOW_SHARE >= until_ns - begin_ns:
            chosen[(end_ns > begin_ns - held_ns) & (start_ns < until_ns)] = True
            continue
        first = np.searchsorted(ended_ns, begin_ns - _CLOCKS_NS, "left")
        last = np.searchsorted(ended_ns, until_ns + _CLOCKS_NS, "right")
        here = by_end[first:last]
        here = here[lasted_ns[here] <= _TIMES * held_ns]
        here = here[np.argsort(-lasted_ns[here], kind="stable")]
        ended = start_ns[here] + lasted_ns[here]
        # What ended at the edge of a window may be counted in the other one.
        is_inside = (ended > begin_ns + _CLOCKS_NS) & (ended < until_ns - _CLOCKS_NS)
        spent = np.where(is_inside, lasted_ns[here], 0)
        chosen[here[np.cumsum(spent) - spent < _TIMES * held_ns]] = True
    return chosen


class HeldPackets(NamedTuple):
    """What it takes to bound the packets of a run.

    Attributes
    ----------
    start_ns, end_ns : ndarray of int64, shape (n,)
        When the CPU was held; in order, disjoint.
    undisturbed_ns : int
        What a packet needs that nothing is in the way of; 0 where there are none to tell.
    most_lost : int
        Packets that the device can have lost for it, at most: as many as it forwards in that time
        when it is busiest.
    """

    start_ns: Integers
    end_ns: Integers
    undisturbed_ns: int
    most_lost: int

    def bounds(self) -> PacketBounds:
        """What bounds packets from the first one on."""
        return PacketBounds(self)


class PacketBounds:
    """Bounds packets in the order in which they came, a batch at a time."""

    def __init__(self, held: HeldPackets) -> None:
        self._coverage = Coverage(held.start_ns, held.end_ns)
        self._undisturbed_ns = held.undisturbed_ns
        self._bound_ns = self._latency_ns = self._pre_ns = 0

    def of(self, came_ns: Unsigned, took_ns: Unsigned) -> Unsigned:
        """How much of each latency neighbours can explain at most, shape (n,).

        Parameters
        ----------
        came_ns, took_ns : ndarray of uint64, shape (n,)
            When packets came, and their latencies.
        """
        pre_ns, latency_ns = came_ns.view(np.int64), took_ns.view(np.int64)
        post_ns = pre_ns + latency_ns
        before_pre = np.concatenate([[self._pre_ns], pre_ns[:-1]])
        before_latency = np.concatenate([[self._latency_ns], latency_ns[:-1]])
        since = np.minimum(np.maximum(pre_ns, before_pre + before_latency), post_ns)
        own = self._coverage.within(since, post_ns)
        still = before_pre + before_latency - self._undisturbed_ns - pre_ns
        most = np.minimum(latency_ns, own + np.maximum(still, 0))
        # b(i) = min(most(i), own(i) + b(i-1)), from which own is taken off up to each packet.
        total = np.cumsum(own)
        least = np.minimum.accumulate(np.concatenate([[self._bound_ns], most - total]))[1:]
        self._pre_ns, self._latency_ns = int(pre_ns[-1]), int(latency_ns[-1])
        self._bound_ns = int(least[-1] + total[-1])
        bound = np.maximum(least + total, self._coverage.within(pre_ns, post_ns))
        return bound.view(np.uint64)


def held_packets(held: HeldIntervals, packets: Packets, *, is_exact: bool) -> HeldPackets:
    """Prepare to bound packets.

    Parameters
    ----------
    held : HeldIntervals
    packets : Packets
    is_exact : bool
        Whether it is known when the CPU was held, and not only for how long within each interval.
    """
    start, end = held.start_ns, held.end_ns
    if not is_exact:
        since, until, waited = _busy_periods(packets)
        chosen = longest_within(held, since, until, waited)
        start, end = union(since[chosen], until[chosen])
    # Until a queue is emptied, packets wait for what is over.
    wide_start, wide_end = union(start, start + _TIMES * (end - start))
    undisturbed, departures = Distribution(), _Departures()
    for pre_ns, latency_ns in _stays(packets):
        post_ns = pre_ns + latency_ns
        free = covered(pre_ns, post_ns, wide_start, wide_end) == 0
        undisturbed.record(latency_ns[free].astype(np.uint64))
        departures.add(post_ns)
    most_lost = -(-int(held.held_ns.sum()) // _SLICE_NS) * departures.most
    return HeldPackets(start, end, _low(undisturbed), most_lost)


def _stays(packets: Packets) -> Iterator[tuple[Integers, Integers]]:
    """When packets came, and their latencies, a batch at a time."""
    for pre_ns, latency_ns in packets.batches("pre_ns", "latency_ns"):
        yield pre_ns.view(np.int64), latency_ns.view(np.int64)


def _low(undisturbed: Distribution) -> int:
    if undisturbed.count < _ENOUGH:
        return 0
    return int(undisturbed.at_ranks([max(1, int(_UNDISTURBED * undisturbed.count))])[0])


def _busy_periods(packets: Packets) -> tuple[Integers, Integers, Integers]:
    """When the device had work without a break, and how long packets waited then at most."""
    latencies = Distribution()
    for _, latency_ns in _stays(packets):
        latencies.record(latency_ns.astype(np.uint64))
    service_ns = _low(latencies)
    pieces: list[tuple[Integers, ...]] = []
    last_ns = 0
    for pre_ns, latency_ns in _stays(packets):
        post_ns = pre_ns + latency_ns
        before_ns = np.concatenate([[last_ns], post_ns[:-1]])
        begins = before_ns - service_ns <= pre_ns
        begins[0] = True
        first = np.flatnonzero(begins)
        pieces.append(
            (
                pre_ns[first],
                np.maximum.reduceat(post_ns, first),
                np.maximum(np.maximum.reduceat(latency_ns, first) - service_ns, 0),
            )
        )
        last_ns = int(post_ns[-1])
    none = (np.zeros(0, np.int64),) * 3
    start, end, waited = (np.concatenate(each) for each in zip(none, *pieces, strict=True))
    # Several at once do not overlap what follows: it is longest_within that wants them in order.
    end = np.minimum(end, np.append(start[1:], end[-1:]))
    return start, end, waited


class _Departures:
    """Counts the packets that leave the device in the busiest millisecond."""

    def __init__(self) -> None:
        self.most = 0
        self._slices = self._counts = np.zeros(0, np.int64)

    def add(self, post_ns: Integers) -> None:
        found, more = np.unique(post_ns // _SLICE_NS, return_counts=True)
        slices, place = np.unique(np.concatenate([self._slices, found]), return_inverse=True)
        counts = np.concatenate([self._counts, more])
        total = np.bincount(place.reshape(-1), counts).astype(np.int64)
        self.most = max(self.most, int(total.max(initial=0)))
        # Some of the next batch may have left at the same time.
        self._slices, self._counts = slices[-2:], total[-2:]
