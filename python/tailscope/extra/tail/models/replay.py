"""The tail at higher rates: packets replayed closer together, with the work that queues have shown.

While packets queue, the device works without a pause, so that the time between departures is the
work on a packet, and all that kept the device from it (`Work`). Packets that are sent closer
together wait for that work in order: ``start = max(arrival, previous departure)``.

What held up the device may belong to a packet, and come more often at a higher rate, or to the
machine, and come as often as before whether packets are there or not. Stamps do not tell. Both are
replayed, and the interval holds both:

- by packet: the work on queued packets as it was, however long some took;
- by time: the usual work on them, and what lasted longer put beside it, in time. What lasted longer
  than the time between packets alone is taken from all of the run, the rest from queues.

Queues of the bursts and slices of the run's time are drawn with replacement, whole: what was slow
together stays together. So are stretches of the gaps between packets. As many are drawn as were
seen, and come again where more packets are replayed: what little was seen varies as much as it
would if measured anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.models.estimate import Estimate
from tailscope.models.overload.queued import FEWEST_QUEUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tailscope.models.overload.queued import Queues

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Marks = NDArray[np.bool_]

_HELD_UP = 2
"""Work took longer than usual if it took more than twice the median."""
_TOGETHER, _MOSTLY_TOGETHER = 1 / 8, 0.4
"""Packets leave together within this share of the mean gap; a device works on batches if so many
do."""
_LONGEST_GAPS, _LARGEST_BATCH = 0.01, 0.95
"""Share of the gaps between departures that may be due to a held-up device; quantile of the sizes
of batches that stands for the largest."""
_SLICES = 20
_STRETCHES = 200
_REPLAYS = 39
"""The smallest and the largest of 39 leave out one in 20."""
_STEPS = 7
"""Halvings of the interval below the highest rate."""
_MOST_PACKETS = 1 << 17
_FEWEST_BEYOND = 10
"""Smallest number of packets beyond a quantile."""


class Limit(NamedTuple):
    """A latency, and the share of packets that may take longer."""

    latency_ns: float
    allowed: float


class Held(NamedTuple):
    """A rate at which one replay met the limits, and the next higher one, at which it did not."""

    up_to_pps: float
    below_pps: float


class Replayed(NamedTuple):
    """The rate up to which limits are met."""

    rate_pps: Estimate
    """By both readings."""
    by_packet_pps: tuple[float, float]
    """Lowest and highest, if work that took long belongs to its packets."""
    by_time_pps: tuple[float, float]
    """Lowest and highest, if it comes in time."""


class Stalls(NamedTuple):
    """What held up a device: when, in time without all of it, and for how long."""

    at_ns: Floats
    lasted_ns: Floats

    @classmethod
    def joined(cls, parts: Sequence[Stalls]) -> Stalls:
        """Put several into the order of time."""
        at_ns = np.concatenate([part.at_ns for part in parts])
        order = np.argsort(at_ns, kind="stable")
        return cls(at_ns[order], np.concatenate([part.lasted_ns for part in parts])[order])


@dataclass(frozen=True)
class Work:
    """Work on packets that queued, in their order."""

    took_ns: Floats
    """Time of each; an equal share of that of its batch."""
    begins: Marks
    """True for the first packet of each batch."""
    first: Integers
    """Index of the first packet of each queue, and the number of packets."""
    batch: int
    """Largest number of packets that are handed on together."""

    def drawn(self, queues: Integers, count: int) -> tuple[Floats, Integers]:
        """Return the work on packets of some queues, one after the other, and where batches begin.

        If these are fewer packets than the count, they come again.
        """
        at = _indices(self.first[queues], np.diff(self.first)[queues])
        at = np.resize(at, count)
        return self.took_ns[at], np.flatnonzero(self.begins[at])


def _indices(first: Integers, count: Integers) -> Integers:
    """Return the indices of stretches, one after the other."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def work_of(left_ns: Integers, queues: Queues) -> Work:
    """Return the work on the packets of queues; `left_ns` are departures of all packets, in order.

    Of packets that leave together, the first shows the work on all.
    """
    if len(queues.packets) < FEWEST_QUEUES:
        raise EvidenceError(
            f"the tail at higher rates: packets queued {len(queues.packets)} times, expected at"
            f" least {FEWEST_QUEUES}",
            code="tail-queues-few",
            hint="only packets that queue show the work on each: measure with bursts, such as"
            " --burst 128, and name that run last",
        )
    at = _indices(np.searchsorted(left_ns, queues.begin_ns, "right"), queues.packets)
    gaps_ns = np.diff(left_ns, prepend=left_ns[0])[at].astype(float)
    first = np.concatenate([[0], np.cumsum(queues.packets)])
    usual = np.sort(gaps_ns)[: len(gaps_ns) - int(len(gaps_ns) * _LONGEST_GAPS)].mean()
    begins = gaps_ns > _TOGETHER * usual
    begins[first[:-1]] = True
    if np.mean(~begins) < _MOSTLY_TOGETHER:
        return Work(gaps_ns, np.ones(len(gaps_ns), bool), first, 1)
    batches = np.flatnonzero(begins)
    sizes = np.diff(batches, append=len(gaps_ns))
    took_ns = np.repeat(np.add.reduceat(gaps_ns, batches) / sizes, sizes)
    largest = int(np.quantile(sizes, _LARGEST_BATCH, method="inverted_cdf"))
    return Work(took_ns, begins, first, largest)


@dataclass(frozen=True)
class Seen:
    """What runs at low load have shown of a device."""

    work: Work
    transfer_ns: float
    apart_ns: Floats
    """Times between packets of the function's run."""
    usual_ns: float
    """Median work on a packet that queued."""
    long_ns: float
    """What lasts longer than that, and than the time between packets, is seen in all of the run."""
    stalls: Stalls
    """What held up the device for longer than the time between packets, in that run."""

    @classmethod
    def of(
        cls,
        work: Work,
        transfer_ns: float,
        pre_ns: Integers,
        latency_ns: Integers,
        is_clean: Marks,
    ) -> Seen:
        """Find what held up the device, by packets that the instrument's stalls did not change."""
        left_ns = np.maximum.accumulate(pre_ns + latency_ns)
        ready_ns = pre_ns + transfer_ns
        began_ns = np.maximum(ready_ns, np.concatenate([ready_ns[:1], left_ns[:-1]]))
        usual_ns = float(np.median(work.took_ns))
        late_ns = left_ns - began_ns - usual_ns
        apart_ns = np.diff(pre_ns).astype(float)
        long_ns = max(_typical_gap(apart_ns), usual_ns)
        is_long = is_clean & (late_ns > long_ns)
        stalls = Stalls((began_ns - ready_ns[0])[is_long], late_ns[is_long])
        return cls(work, transfer_ns, apart_ns, usual_ns, long_ns, stalls)


def _typical_gap(apart_ns: Floats) -> float:
    """Return the gap that half of the time is in gaps no longer than."""
    gaps = np.sort(apart_ns)
    total = np.cumsum(gaps)
    return float(gaps[np.searchsorted(total, total[-1] / 2)])


@dataclass(frozen=True)
class Reading:
    """One way to read what was seen: work on each packet, and stalls beside it, in time."""

    work_ns: Floats
    stalls: Stalls
    batch: int

    def latency_ns(self, came_ns: Floats) -> Floats:
        """Return how long packets wait and are worked on, by the time when each came."""
        lost_ns = np.concatenate([[0.0], np.cumsum(self.stalls.lasted_ns)])
        since_ns = self.stalls.at_ns + lost_ns[:-1]
        before = _count_before(since_ns, came_ns)
        left_ns = np.concatenate([[0.0], self.stalls.at_ns])[before]
        ready_ns = np.maximum(left_ns, came_ns - lost_ns[before])
        worked_ns = np.cumsum(self.work_ns[: len(came_ns)])
        start_ns = np.maximum.accumulate(ready_ns - worked_ns + self.work_ns[: len(came_ns)])
        done_ns = start_ns + worked_ns
        if self.batch > 1:
            done_ns = _handed_on(ready_ns, done_ns, self.work_ns, self.batch)
        lost_until_ns = lost_ns[_count_before(self.stalls.at_ns, done_ns, "right")]
        latency_ns: Floats = done_ns + lost_until_ns - came_ns
        return latency_ns


def _count_before(
    few_ns: Floats, many_ns: Floats, side: Literal["left", "right"] = "left"
) -> Integers:
    """Return how many of the few are not above each of the many; ``right``: how many are below.

    Both are in order, so that to place the few is enough.
    """
    places = np.searchsorted(many_ns, few_ns, side)
    counts: Integers = np.cumsum(np.bincount(places, minlength=len(many_ns) + 1)[: len(many_ns)])
    return counts


def _handed_on(ready_ns: Floats, done_ns: Floats, work_ns: Floats, batch: int) -> Floats:
    """Return when packets leave a device that takes what waits, and hands it on as a whole."""
    index = np.arange(len(done_ns))
    begun_ns = done_ns - work_ns[: len(done_ns)]
    waiting = np.searchsorted(ready_ns, begun_ns, "right")
    behind = np.clip(waiting, index + 1, np.minimum(index + batch, len(index)))
    several = np.flatnonzero(behind > index + 1)
    last, free = index.copy(), 0
    for first, end in zip(several.tolist(), behind[several].tolist(), strict=True):
        if first >= free:
            last[first:end] = end - 1
            free = end
    return done_ns[last]


def highest_rate_within(
    seen: Seen, limits: Sequence[Limit], rate_max_pps: float, chance: np.random.Generator
) -> Replayed:
    """Find the largest rate up to which packets meet all limits, with an interval."""
    rarest = min(limit.allowed for limit in limits)
    packets = min(len(seen.apart_ns), _MOST_PACKETS)
    if rarest * packets < _FEWEST_BEYOND:
        raise EvidenceError(
            f"the tail at higher rates: {packets:,} packets have {rarest * packets:.1f} beyond the"
            f" quantile, expected at least {_FEWEST_BEYOND}",
            code="tail-packets-few",
            hint=f"measure for longer, or ask for a quantile that {_FEWEST_BEYOND} packets of the"
            f" function's run lie beyond; at most {_MOST_PACKETS:,} packets are replayed",
        )
    found: tuple[list[Held], list[Held]] = ([], [])
    for _ in range(_REPLAYS):
        apart_ns = _drawn_gaps(seen.apart_ns, chance)
        for reading, rates in zip(_readings(seen, chance), found, strict=True):
            guess_pps = float(np.median(rates)) if rates else None
            rates.append(_highest(seen, apart_ns, reading, limits, rate_max_pps, guess_pps))
    by_packet_pps, by_time_pps = (
        (min(held.up_to_pps for held in rates), max(held.below_pps for held in rates))
        for rates in found
    )
    rate = Estimate(
        estimate=float(np.median([*found[0], *found[1]])),
        ci_low=min(by_packet_pps[0], by_time_pps[0]),
        ci_high=max(by_packet_pps[1], by_time_pps[1]),
        n=len(seen.work.took_ns),
        method=f"{_REPLAYS} replays by packet, and by time",
    )
    return Replayed(rate, by_packet_pps, by_time_pps)


def _highest(
    seen: Seen,
    drawn_ns: Floats,
    reading: Reading,
    limits: Sequence[Limit],
    rate_max_pps: float,
    guess_pps: float | None,
) -> Held:
    """Halve the rates up to the highest until they are close, at first about a guess."""

    def holds(rate_pps: float) -> bool:
        packets = max(1, min(len(reading.work_ns), int(rate_pps * lasts_ns / 1e9)))
        apart_ns = np.resize(drawn_ns, packets)
        came_ns = np.cumsum(apart_ns) * (1e9 / rate_pps / apart_ns.mean())
        latency_ns = reading.latency_ns(came_ns) + seen.transfer_ns
        return all(np.mean(latency_ns > each.latency_ns) <= each.allowed for each in limits)

    lasts_ns = float(seen.apart_ns.sum())
    low, high, close_pps = 0.0, rate_max_pps, rate_max_pps / 2**_STEPS
    step_pps = 2 * close_pps
    while guess_pps is not None and low < guess_pps < high:
        if holds(guess_pps):
            low, guess_pps = guess_pps, guess_pps + step_pps
        else:
            high, guess_pps = guess_pps, guess_pps - step_pps
        step_pps *= 2
        if low > 0 and high < rate_max_pps:
            break
    while high - low > close_pps:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    # What holds nowhere is told as nothing, not as the lowest rate that was replayed.
    return Held(low, high) if low > 0 else Held(0.0, 0.0)


def _drawn_gaps(apart_ns: Floats, chance: np.random.Generator) -> Floats:
    """Draw stretches of the gaps between packets with replacement; none begins within a burst.

    They are short, so that queues grow from gaps that never were together.
    """
    begins = np.flatnonzero(apart_ns > apart_ns.mean() / 2)
    even = np.linspace(0, len(apart_ns), _STRETCHES + 1)[1:-1]
    inner = begins[np.minimum(np.searchsorted(begins, even), len(begins) - 1)]
    edges = np.unique(np.concatenate([[0], inner, [len(apart_ns)]]))
    drawn = chance.integers(0, len(edges) - 1, len(edges) - 1)
    return apart_ns[_indices(edges[drawn], np.diff(edges)[drawn])]


def _readings(seen: Seen, chance: np.random.Generator) -> Iterator[Reading]:
    """Draw queues and slices of time, and read them by packet and by time."""
    work = seen.work
    count = len(work.first) - 1
    draws = -(-_MOST_PACKETS // max(1, int(work.first[-1]) // count)) + 1
    anew = chance.integers(0, count, count)
    took_ns, begin = work.drawn(anew[chance.integers(0, count, draws)], _MOST_PACKETS)
    late_ns = np.where(took_ns > _HELD_UP * seen.usual_ns, took_ns - seen.usual_ns, 0.0)
    usual_ns = took_ns - late_ns
    # What held up a batch did so once, not with each packet.
    held_up_ns = np.add.reduceat(late_ns, begin)
    by_packet_ns = usual_ns.copy()
    by_packet_ns[begin] += held_up_ns
    yield Reading(by_packet_ns, Stalls(np.zeros(0), np.zeros(0)), work.batch)
    is_short = (held_up_ns > 0) & (held_up_ns < seen.long_ns)
    at_ns, worked_ns = (np.cumsum(usual_ns) - usual_ns)[begin[is_short]], float(usual_ns.sum())
    lasts_ns = float(seen.apart_ns.sum())
    again = int(-(-lasts_ns // worked_ns))
    repeated_ns = (np.arange(again)[:, None] * worked_ns + at_ns).ravel()
    short = Stalls(repeated_ns, np.tile(held_up_ns[is_short], again))
    stalls = Stalls.joined([short, _drawn_slices(seen, lasts_ns, chance)])
    yield Reading(usual_ns, stalls, work.batch)


def _drawn_slices(seen: Seen, lasts_ns: float, chance: np.random.Generator) -> Stalls:
    """Draw slices of the run's time, with what held up the device in each."""
    slice_ns = lasts_ns / _SLICES
    edges = np.searchsorted(seen.stalls.at_ns, np.arange(_SLICES + 1) * slice_ns)
    parts = []
    for place, drawn in enumerate(chance.integers(0, _SLICES, _SLICES)):
        which = slice(edges[drawn], edges[drawn + 1])
        moved_ns = (place - drawn) * slice_ns
        parts.append(Stalls(seen.stalls.at_ns[which] + moved_ns, seen.stalls.lasted_ns[which]))
    return Stalls.joined(parts)
