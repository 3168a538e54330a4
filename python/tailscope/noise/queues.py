"""Waiting times of packets in a device's queue, from their timestamps alone.

The device serves packets in the order in which they came. It begins with one when that has come and
the one before has left: ``start = max(arrival, previous departure)``. Packets that leave together
are a *batch*: the device works on all of them before any leaves.

Two durations say what is usual here (`Usual`): the latency of a packet that finds the device idle,
and how much longer a packet of a queue takes to leave than the one before. Whatever a device took
beyond that, it was *held up*. A packet therefore waits

- for earlier packets, as long as these usually take. This is what it would have waited if nothing
  had held up the device;
- for the later packets of its batch;
- for what held up the device, at last: since when, follows from how much there is left to wait for.

If packets overtake each other, their order in the device is not known, and neither are their
queues: they wait for what happens while they are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tailscope.store.packets import Packets

    Integers = NDArray[np.int64]

_STRETCHES = 8
_LEAST = 10
"""Smallest number of packets that shows what is usual."""
_MOST_OVERTAKING = 0.01
"""Largest share of packets that may overtake others before the order counts as unknown."""
_LONGEST_GAPS = 0.01
"""Share of the gaps between departures that may be due to a held-up device."""
_TOGETHER = 4
"""Packets leave together if the gap between them is less than a fourth of the mean."""
_HELD_UP = 2
"""A device is held up if it takes more than half as long again as usual: services vary."""
_LARGEST_BATCH = 1 << 15
"""Largest batch; more packets that leave together count as several batches."""
_MOST_REMEMBERED = 1 << 16
"""Largest number of remembered delays of one queue; earlier ones are merged."""


class Usual(NamedTuple):
    """The usual durations of a device."""

    service_ns: int
    """Median latency of a packet that finds the device idle and is alone in its batch. If none
    finds it idle, the same as `each_ns`."""
    each_ns: int
    """Median time that the device is busy with each packet of a queue."""
    apart_ns: int
    """Largest gap between departures of one batch."""
    in_order: bool
    """True if packets leave in the order of their arrival, so that their queues are known."""
    seen_idle: bool = True
    """True if enough packets found the device idle."""
    is_tainted: bool = False
    """True if the instrument's stalls touched some of the packets that `service_ns` is of, as too
    few were free of them."""


class Delayed(NamedTuple):
    """Packets to explain, and their waiting times by timestamps."""

    seq: Integers
    pre_ns: Integers
    latency_ns: Integers
    service_ns: Integers
    """Usual service time, or less if the packet took less."""
    earlier_ns: Integers
    """Usual time that the device needed for earlier packets."""
    batch_ns: Integers
    """Time that the device needed for later packets of the batch. The three never exceed the
    latency."""
    since_ns: Integers
    """Start of what held up the device for the whole wait: before the packet came, or while it
    was there."""

    def only(self, which: NDArray[np.bool_] | Integers) -> Delayed:
        """Return some of the packets."""
        return Delayed(*(column[which] for column in self))

    def held_up_ns(self) -> Integers:
        """Return the time that each packet waited for what held up the device."""
        return self.latency_ns - self.service_ns - self.earlier_ns - self.batch_ns

    @classmethod
    def joined(cls, blocks: Sequence[Delayed]) -> Delayed:
        """Join the packets of several blocks."""
        nothing = np.zeros(0, np.int64)
        none = cls(*[nothing] * len(cls._fields))
        return cls(*(np.concatenate(columns) for columns in zip(none, *blocks, strict=True)))


class _Batches(NamedTuple):
    """Batches of packets that left together, in order."""

    first: Integers
    size: Integers
    """Index of the first packet, and number of packets."""
    came_ns: Integers
    complete_ns: Integers
    left_ns: Integers
    """Arrival of the first and the last packet, and departure of the last one."""


def _batches(pre_ns: Integers, front_ns: Integers, apart_ns: int) -> _Batches:
    """Divide packets into batches; `front_ns` is the latest departure up to each packet."""
    first = np.flatnonzero(np.diff(front_ns, prepend=front_ns[0] - apart_ns - 1) > apart_ns)
    ends = np.append(first[1:], len(pre_ns))
    return _Batches(first, ends - first, pre_ns[first], pre_ns[ends - 1], front_ns[ends - 1])


def usual_of(packets: Packets) -> Usual:
    """Determine the usual durations of the device that packets passed.

    Looks at up to a quarter of a million of them, in stretches that are spread evenly; at those
    that the instrument's stalls have not tainted, if these are enough.
    """
    stretches = _sampled(packets)
    if not stretches:
        return Usual(0, 0, 0, in_order=True)
    alone_ns = _median([stretch.idle() for stretch in stretches], least=1)
    if alone_ns is None:
        alone_ns = (
            _median([_Sample(stretch.latency_ns, stretch.is_clean) for stretch in stretches], 1)
            or 0
        )
    apart_ns = _apart_ns(_joined([stretch.gaps(alone_ns) for stretch in stretches]))
    batches = [_batches(stretch.pre_ns, stretch.front_ns, apart_ns) for stretch in stretches]
    clean = [
        np.logical_and.reduceat(stretch.is_clean, batch.first)
        for stretch, batch in zip(stretches, batches, strict=True)
    ]
    pairs = [*zip(batches, clean, strict=True)]
    each_ns = _median([_busy(batch, is_clean, alone_ns) for batch, is_clean in pairs])
    least = 1 if each_ns is None else _LEAST
    alone = [_alone(batch, is_clean, each_ns or 0) for batch, is_clean in pairs]
    service_ns = _median(alone, least)
    seen_idle = service_ns is not None or each_ns is None
    if service_ns is None:
        service_ns = alone_ns if each_ns is None else each_ns
    return Usual(
        service_ns,
        service_ns if each_ns is None else min(each_ns, service_ns),
        apart_ns,
        in_order=_are_in_order(stretches),
        seen_idle=seen_idle,
        is_tainted=_takes_tainted(alone),
    )


class _Sample(NamedTuple):
    """Durations, and marks of those that the instrument did not disturb."""

    values_ns: Integers
    is_clean: NDArray[np.bool_]

    def only(self, which: NDArray[np.bool_]) -> _Sample:
        """Return some of the durations."""
        return _Sample(self.values_ns[which], self.is_clean[which])


class _Stretch(NamedTuple):
    """Successive packets."""

    pre_ns: Integers
    latency_ns: Integers
    front_ns: Integers
    """Latest departure of the packet and all before it."""
    is_clean: NDArray[np.bool_]
    """True if the packet's latency is not tainted."""

    def is_queued(self, service_ns: int) -> NDArray[np.bool_]:
        """Mark the packets, except the first, that came long before all earlier ones had left."""
        is_queued: NDArray[np.bool_] = self.pre_ns[1:] + service_ns < self.front_ns[:-1]
        return is_queued

    def idle(self) -> _Sample:
        """Return the latencies of packets that found the device idle."""
        return _Sample(self.latency_ns[1:], self.is_clean[1:]).only(~self.is_queued(0))

    def gaps(self, service_ns: int) -> _Sample:
        """Return the gaps between departures of queued packets."""
        gaps = _Sample(np.diff(self.front_ns), self.is_clean[1:])
        return gaps.only(self.is_queued(service_ns))


def _sampled(packets: Packets) -> list[_Stretch]:
    """Return evenly spaced stretches of the run."""
    stretches, every = [], 1
    while -(-packets.batch_count // every) > _STRETCHES:
        every *= 2
    for pre_ns, latency_ns, tainted in packets.batches(
        "pre_ns", "latency_ns", "tainted", every=every
    ):
        pre, latency = pre_ns.astype(np.int64), latency_ns.astype(np.int64)
        is_clean = np.ones(len(pre), bool) if tainted is None else ~tainted.astype(bool)
        stretches.append(_Stretch(pre, latency, np.maximum.accumulate(pre + latency), is_clean))
    return stretches


def _joined(samples: Sequence[_Sample]) -> Integers:
    """Return the durations that the instrument did not disturb, or all if these are too few."""
    values_ns, is_clean = (np.concatenate(column) for column in zip(*samples, strict=True))
    clean: Integers = values_ns[is_clean]
    return clean if len(clean) >= _LEAST else values_ns


def _takes_tainted(samples: Sequence[_Sample]) -> bool:
    """Return whether durations that the instrument disturbed count, as the others are too few."""
    clean = sum(int(np.count_nonzero(sample.is_clean)) for sample in samples)
    return clean < min(_LEAST, sum(len(sample.is_clean) for sample in samples))


def _median(samples: Sequence[_Sample], least: int = _LEAST) -> int | None:
    """Return the median of all samples; None if there are too few values."""
    values_ns = _joined(samples)
    if len(values_ns) < least:
        return None
    return int(np.quantile(values_ns, 0.5, method="inverted_cdf"))


def _are_in_order(stretches: Sequence[_Stretch]) -> bool:
    """Return True if hardly any packet overtakes an earlier one in the device."""
    came_busy = overtook = 0
    for stretch in stretches:
        came_busy += int(np.count_nonzero(stretch.is_queued(0)))
        overtook += int(np.count_nonzero(stretch.pre_ns + stretch.latency_ns < stretch.front_ns))
    return overtook < _LEAST or overtook <= _MOST_OVERTAKING * came_busy


def _busy(batches: _Batches, is_clean: NDArray[np.bool_], alone_ns: int) -> _Sample:
    """Return the time per packet of batches that were waiting for the device.

    The first batch may have begun before, and the last one may go on.
    """
    queued = batches.complete_ns[1:-1] + alone_ns <= batches.left_ns[:-2]
    took_ns, size = np.diff(batches.left_ns)[:-1][queued], batches.size[1:-1][queued]
    return _Sample(np.repeat(took_ns // size, size), np.repeat(is_clean[1:-1][queued], size))


def _alone(batches: _Batches, is_clean: NDArray[np.bool_], each_ns: int) -> _Sample:
    """Return what a packet alone would have taken, by batches that found the device idle."""
    others_ns = (batches.size - 1) * each_ns
    alone_ns = np.maximum(batches.left_ns - batches.complete_ns - others_ns, 0)
    idle = batches.came_ns[1:] >= batches.left_ns[:-1]
    return _Sample(alone_ns[1:], is_clean[1:]).only(idle)


def _apart_ns(gaps_ns: Integers) -> int:
    """Return the largest gap between departures of one batch.

    Where the device takes packets one by one, all gaps are about the mean. Where it takes batches,
    most are far below, and few far above.
    """
    if len(gaps_ns) < _LEAST:
        return 0
    longest = int(len(gaps_ns) * _LONGEST_GAPS)
    return int(np.sort(gaps_ns)[: len(gaps_ns) - longest].mean()) // _TOGETHER


def delayed(
    packets: Packets, usual: Usual, chosen: Callable[[Integers, Integers], NDArray[np.bool_]]
) -> Iterator[Delayed]:
    """Find the waiting times of the packets to explain, block by block."""
    device = _Device(usual)
    waiting = [np.zeros(0, np.int64)] * 3
    for columns in packets.batches("seq", "pre_ns", "latency_ns"):
        block = [
            np.concatenate([before, column.view(np.int64)])
            for before, column in zip(waiting, columns, strict=True)
        ]
        front_ns = device.front(block[1] + block[2])
        batches = _batches(block[1], front_ns, usual.apart_ns)
        # The last batch may go on in the next block.
        cut = int(batches.first[-1])
        if len(block[0]) - cut > _LARGEST_BATCH:
            cut = len(block[0])
        else:
            batches = _Batches(*(column[:-1] for column in batches))
        waiting = [column[cut:] for column in block]
        seq, pre_ns, latency_ns = (column[:cut] for column in block)
        yield device.take(seq, pre_ns, latency_ns, front_ns[:cut], batches, chosen=chosen)
    seq, pre_ns, latency_ns = waiting
    if len(seq):
        front_ns = device.front(pre_ns + latency_ns)
        batches = _batches(pre_ns, front_ns, usual.apart_ns)
        yield device.take(seq, pre_ns, latency_ns, front_ns, batches, chosen=chosen)


def stalled_ns(
    packets: Packets, usual: Usual, chosen: Callable[[Integers, Integers], NDArray[np.bool_]]
) -> int:
    """Return for how long the instrument stalled while the packets to explain were delayed."""
    total_ns = 0
    for seq, latency_ns, stall_ns in packets.batches("seq", "latency_ns", "instrument_stall_ns"):
        if stall_ns is None:
            return 0
        numbers, took_ns = seq.view(np.int64), latency_ns.view(np.int64)
        delay_ns = np.maximum(took_ns - usual.service_ns, 0)
        each_ns = np.minimum(delay_ns, stall_ns.view(np.int64))
        total_ns += int(each_ns[chosen(numbers, took_ns)].sum())
    return total_ns


class _Device:
    """A device that serves packets in order, block by block."""

    def __init__(self, usual: Usual) -> None:
        self._usual = usual
        self._transit_ns = usual.service_ns - usual.each_ns
        self._front_ns: int | None = None
        # The unfinished queue: the arrival of its first packet, the number of packets since, and
        # the least that the device was behind.
        self._head_ns, self._in_queue, self._least_behind_ns = 0, 0, np.iinfo(np.int64).max
        # The delays of the device during that queue: cumulative sums, starts and durations.
        self._total_ns = 0
        self._totals = self._begun = self._lasted = np.zeros(0, np.int64)

    def front(self, post_ns: Integers) -> Integers:
        """Return the latest departure up to each packet of a block."""
        front_ns = np.maximum.accumulate(post_ns)
        return front_ns if self._front_ns is None else np.maximum(front_ns, self._front_ns)

    def take(
        self,
        seq: Integers,
        pre_ns: Integers,
        latency_ns: Integers,
        front_ns: Integers,
        batches: _Batches,
        *,
        chosen: Callable[[Integers, Integers], NDArray[np.bool_]],
    ) -> Delayed:
        """Serve a block of whole batches, and return the chosen packets."""
        which = np.flatnonzero(chosen(seq, latency_ns))
        came_ns, took_ns = pre_ns[which], latency_ns[which]
        service_ns = np.minimum(took_ns, self._usual.service_ns)
        if not self._usual.in_order or not len(seq):
            nothing = np.zeros_like(came_ns)
            return Delayed(seq[which], came_ns, took_ns, service_ns, nothing, nothing, came_ns)
        each_ns, transit_ns = self._usual.each_ns, self._transit_ns
        batch = np.searchsorted(batches.first, which, "right") - 1
        place = which - batches.first[batch]
        start_ns = pre_ns[0] if self._front_ns is None else self._front_ns
        before_ns = np.concatenate([[start_ns], batches.left_ns[:-1]])
        if self._front_ns is None:
            self._head_ns = int(pre_ns[0])

        # Each packet's place in its queue, and the arrival of the queue's first packet.
        before_each = np.concatenate([[start_ns], front_ns[:-1]])
        heads = np.flatnonzero(pre_ns >= before_each)
        sizes = np.diff(heads, prepend=0, append=len(seq))
        in_queue = np.arange(len(seq)) - np.repeat(np.append(-self._in_queue, heads), sizes)
        heads_ns = np.append(self._head_ns, pre_ns[heads])
        head_ns = heads_ns[np.searchsorted(heads, which, "right")]

        # The wait for earlier packets if nothing had held up the device.
        behind_ns = in_queue * each_ns - pre_ns
        least_ns = np.minimum(np.minimum.accumulate(behind_ns), self._least_behind_ns)
        busy_ns = np.maximum(before_ns[batch] - came_ns - transit_ns, 0)
        earlier_ns = np.minimum(behind_ns[which] - least_ns[which], busy_ns + place * each_ns)
        earlier_ns = np.minimum(earlier_ns, took_ns - service_ns)
        batch_ns = (batches.size[batch] - 1 - place) * each_ns
        batch_ns = np.minimum(batch_ns, took_ns - service_ns - earlier_ns)

        # The device was held up if a batch took much longer than its packets usually do.
        usual_ns = batches.size * each_ns
        began_ns = np.maximum(batches.came_ns + transit_ns, before_ns)
        held_ns = batches.left_ns - began_ns - usual_ns
        held_ns = np.where(_HELD_UP * held_ns > usual_ns, held_ns, 0)
        total_ns = self._total_ns + np.cumsum(held_ns)
        held = np.flatnonzero(held_ns)
        self._remember(
            total_ns[held],
            np.maximum(batches.came_ns, before_ns)[held],
            held_ns[held],
        )
        packets = Delayed(seq[which], came_ns, took_ns, service_ns, earlier_ns, batch_ns, head_ns)
        since_ns = self._since(packets, total_ns[batch])

        self._front_ns, self._total_ns = int(front_ns[-1]), int(total_ns[-1])
        self._head_ns, self._in_queue = int(heads_ns[-1]), int(in_queue[-1]) + 1
        self._least_behind_ns = int(least_ns[-1])
        return packets._replace(since_ns=since_ns)

    def _remember(self, totals: Integers, begun: Integers, lasted: Integers) -> None:
        """Remember what held up the device, in the unfinished queue and in this block."""
        earlier = np.searchsorted(self._begun, self._head_ns, "left")
        latest = slice(max(int(earlier), len(self._begun) - _MOST_REMEMBERED), None)
        self._totals = np.concatenate([self._totals[latest], totals])
        self._begun = np.concatenate([self._begun[latest], begun])
        self._lasted = np.concatenate([self._lasted[latest], lasted])

    def _since(self, waiting: Delayed, total_ns: Integers) -> Integers:
        """Return the latest time since which the device was held up long enough for each wait.

        Until now, `since_ns` is when the queue began.
        """
        wait_ns, head_ns = waiting.held_up_ns(), waiting.since_ns
        post_ns = waiting.pre_ns + waiting.latency_ns
        if not len(self._totals):
            return np.where(wait_ns > 0, head_ns, post_ns)
        left_ns = total_ns - wait_ns
        at = np.searchsorted(self._totals, left_ns, "right")
        at = np.minimum(at, len(self._totals) - 1)
        needed_ns = self._totals[at] - left_ns
        since_ns = np.maximum(self._begun[at] + self._lasted[at] - needed_ns, head_ns)
        # If the remembered delays do not suffice, the whole queue counts.
        is_enough = (needed_ns <= self._lasted[at]) & (self._totals[at] <= total_ns)
        since_ns = np.where(is_enough, np.minimum(since_ns, post_ns), head_ns)
        return np.where(wait_ns > 0, since_ns, post_ns)
