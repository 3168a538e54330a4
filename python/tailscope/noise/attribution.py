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
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailscope.noise.events import OWN
from tailscope.noise.intervals import Overlaps, covered, overlaps, subtract, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.noise.timeline import Timeline
    from tailscope.store.records.run import OwnWork

    Integers = NDArray[np.int64]

__all__ = [
    "DUT",
    "INSTRUMENT",
    "PARTS",
    "QUEUE",
    "SERVICE",
    "UNEXPLAINED",
    "Blocked",
    "Explained",
    "Share",
    "blocked_by",
    "explain",
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
    cause, detail : ndarray of int64, shape (n,)
        By place in `names` and `details`.
    is_dut : ndarray of bool, shape (n,)
        Whether it was the device's CPU, or the instrument's alone, or tailscope itself on the
        device's.
    names, details : list of str
    """

    start_ns: Integers
    end_ns: Integers
    cause: Integers
    detail: Integers
    is_dut: NDArray[np.bool_]
    names: list[str]
    details: list[str]


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
        The first cause of the queue that a packet stood in; empty where it stood in none.
    shares : list of Share
        What the excess of all of them is made of, largest first; unexplained last.
    """

    service_ns: Integers
    dut_ns: Integers
    queue_ns: Integers
    instrument_ns: Integers
    unexplained_ns: Integers
    cause: list[str]
    queue_cause: list[str]
    shares: list[Share]

    def parts(self) -> dict[str, Integers]:
        """All parts by the names of `PARTS`."""
        return {name: getattr(self, f"{name}_ns") for name in PARTS}

    def columns(self) -> dict[str, Any]:
        """The parts and causes, as ``worst.parquet`` has them."""
        return {name: value for name, value in asdict(self).items() if name != "shares"}


def explain(
    pre_ns: Integers,
    latency_ns: Integers,
    which: Integers,
    blocked: Blocked,
    service_ns: int,
) -> Explained:
    """Explain some packets of a series.

    Parameters
    ----------
    pre_ns, latency_ns : ndarray of int64, shape (n,)
        Of all packets, in order of `pre_ns`.
    which : ndarray of int64, shape (k,)
        The packets to explain, by place in those.
    blocked : Blocked
    service_ns : int
        What a packet needs when nothing is in its way: the median.
    """
    post_ns = pre_ns + latency_ns
    start, end, latency = pre_ns[which], post_ns[which], latency_ns[which]
    excess = np.maximum(latency - service_ns, 0)
    met = overlaps(start, end, blocked.start_ns, blocked.end_ns)
    took = _cut(met, excess, len(which))
    is_dut = blocked.is_dut[met.other]
    named = _summed(met.owner, took, len(which))
    queue, heads = _queues(pre_ns, post_ns, which, blocked, service_ns, excess - named)
    causes = _Causes(blocked)
    head_causes = causes.of_heads(pre_ns[heads], post_ns[heads])
    head_causes = np.where(heads == which, causes.earlier, head_causes)
    queue_causes = np.where(queue > 0, head_causes, causes.none)
    dut = _summed(met.owner, np.where(is_dut, took, 0), len(which))
    return Explained(
        service_ns=latency - excess,
        dut_ns=dut,
        queue_ns=queue,
        instrument_ns=named - dut,
        unexplained_ns=excess - named - queue,
        cause=causes.largest(met, took, queue, queue_causes, len(which)),
        queue_cause=causes.texts(queue_causes),
        shares=causes.shares(met, took, queue, queue_causes, excess),
    )


def blocked_by(
    dut: Sequence[Timeline],
    instrument: Sequence[Timeline],
    *,
    own_work: OwnWork | None = None,
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
    """
    names: list[str] = []
    details: list[str] = []
    pieces = [np.zeros(0, np.int64)] * 5
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
            more = (left.start, left.end, cause, detail, np.full(len(event), is_dut))
            pieces = [np.concatenate(pair) for pair in zip(pieces, more, strict=True)]
            order = np.argsort(pieces[0], kind="stable")
            pieces = [each[order] for each in pieces]
    start, end, cause, detail, side = pieces
    return Blocked(start, end, cause, detail, side.astype(bool), names, details)


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


class _Causes:
    """The causes of parts; two more than those of blocked times: earlier packets, and none."""

    def __init__(self, blocked: Blocked) -> None:
        self._blocked = blocked
        self._names = np.array([*blocked.names, EARLIER, ""], object)
        self.earlier, self.none = len(blocked.names), len(blocked.names) + 1

    def texts(self, codes: Integers) -> list[str]:
        return [str(name) for name in self._names[codes]]

    def of_heads(self, start: Integers, end: Integers) -> Integers:
        """For the first packet of each queue, what delayed it the longest."""
        met = overlaps(start, end, self._blocked.start_ns, self._blocked.end_ns)
        found = np.full(len(start), self.earlier)
        # The longest of each owner comes last, and stays.
        order = np.lexsort((met.end - met.start, met.owner))
        found[met.owner[order]] = self._blocked.cause[met.other[order]]
        return found

    def largest(
        self, met: Overlaps, took: Integers, queue: Integers, queue_causes: Integers, count: int
    ) -> list[str]:
        """For each packet, the cause that it waited for the longest."""
        owner = np.concatenate([met.owner, np.arange(count)])
        cause = np.concatenate([self._blocked.cause[met.other], queue_causes])
        waited = np.concatenate([took, queue])
        many = len(self._names)
        pairs, which = np.unique(owner * many + cause, return_inverse=True)
        owners, causes = np.divmod(pairs, many)
        total = _summed(which.reshape(-1), waited, len(pairs))
        found = np.full(count, self.none)
        order = np.lexsort((total, owners))
        order = order[total[order] > 0]
        found[owners[order]] = causes[order]
        return self.texts(found)

    def shares(
        self,
        met: Overlaps,
        took: Integers,
        queue: Integers,
        queue_causes: Integers,
        excess: Integers,
    ) -> list[Share]:
        whole = int(excess.sum())
        rest = excess - _summed(met.owner, took, len(excess)) - queue
        cause, is_dut = self._blocked.cause[met.other], self._blocked.is_dut[met.other]
        everyone = np.arange(len(excess))
        found = []
        for part, owner, codes, waited in (
            (DUT, met.owner[is_dut], cause[is_dut], took[is_dut]),
            (INSTRUMENT, met.owner[~is_dut], cause[~is_dut], took[~is_dut]),
            (QUEUE, everyone, queue_causes, queue),
        ):
            for code in np.unique(codes[waited > 0]).tolist():
                of_code = codes == code
                packets = np.unique(owner[of_code & (waited > 0)], return_inverse=True)
                each = _summed(
                    packets[1].reshape(-1), waited[of_code & (waited > 0)], len(packets[0])
                )
                found.append(_share(part, str(self._names[code]), each, whole))
        found.sort(key=lambda share: -share.total_ns)
        return [*found, _share(UNEXPLAINED, "", rest[rest > 0], whole)]


def _share(part: str, cause: str, each: Integers, whole: int) -> Share:
    total = int(each.sum())
    largest = int(each.max()) if len(each) else 0
    return Share(part, cause, len(each), total, total / whole if whole else 0.0, largest)


def _shared(known: list[str], own: list[str], codes: Integers) -> Integers:
    """Codes of a list of names as codes of a list that several share."""
    places = {name: place for place, name in enumerate(known)}
    found = [places.setdefault(name, len(places)) for name in own]
    known[:] = places
    return np.array(found, np.int64)[codes]


def _summed(owner: Integers, values: Integers, count: int) -> Integers:
    total = np.zeros(count, np.int64)
    np.add.at(total, owner, values)
    return total


def _cut(met: Overlaps, most: Integers, count: int) -> Integers:
    """Cut what was met to what there is to explain, earliest first."""
    length = met.end - met.start
    whole = _summed(met.owner, length, count)
    upto = np.cumsum(length)
    before_owner = np.concatenate([[0], np.cumsum(whole)])[met.owner]
    # What of an owner's lies at or after this one.
    from_here = whole[met.owner] - (upto - length - before_owner)
    took: Integers = length - np.clip(from_here - most[met.owner], 0, length)
    return took


def _queues(
    pre_ns: Integers,
    post_ns: Integers,
    which: Integers,
    blocked: Blocked,
    service_ns: int,
    left: Integers,
) -> tuple[Integers, Integers]:
    """How long packets stood behind those before them, and the first packet of each queue."""
    if not len(pre_ns):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # Whoever came before still waited for its service when this packet came.
    waits = np.zeros(len(pre_ns), bool)
    waits[1:] = post_ns[:-1] - service_ns > pre_ns[1:]
    heads = np.maximum.accumulate(np.where(waits, 0, np.arange(len(pre_ns))))[which]
    before = np.maximum(which - 1, 0)
    until = np.where(which > 0, np.minimum(post_ns[before], post_ns[which]), pre_ns[which])
    until = np.maximum(until, pre_ns[which])
    free = until - pre_ns[which] - covered(pre_ns[which], until, blocked.start_ns, blocked.end_ns)
    return np.minimum(left, free), heads
