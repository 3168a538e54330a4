"""What delayed the worst packets of a tap: earlier packets, or what had the CPU that sent them.

While a packet is in the device, others leave it. As long as they leave at the usual pace, the
packet waits in a queue, whatever else the CPUs do. Where nothing left for much longer than that,
the device was held up, and what ran on the CPU that sent the packet in the end is the cause.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.analysis import analyze, read_keys
from tailscope.extra.tap.kernel import Passage
from tailscope.extra.tap.records import Delay, DelayedPacket
from tailscope.noise.attribution import EARLIER
from tailscope.noise.intervals import covered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.noise.timeline import Timeline

    Integers = NDArray[np.int64]

_PRE = "-pre.pcap"
_MOST_PACKETS = 1 << 20
_FEWEST = 10
"""Departures of a queue that show how fast it moves."""
_HELD_UP = 1.5
"""A device is held up where nothing leaves for half as long again as usual."""
_NETWORKING = ("softirq NET_RX", "softirq NET_TX", "task ksoftirqd/", "task napi/")
"""What sends packets that the kernel forwards."""
_WHOLE_NS, _AROUND_NS = 50_000_000, 5_000_000
"""Of a packet that took longer than the first, captures hold only what left within the second of
each of its two times."""
_TASK = "task "
_SENDS = 0.9
"""Smallest share of the departures at which what sends packets runs."""
_MOST_DETAILS = 3


def passages(folder: Path) -> dict[Passage, tuple[Path, Path]]:
    """Find the packets with captures in a folder, by the names of these."""
    found = {}
    for pre in folder.glob(f"*{_PRE}"):
        time_ns, latency = pre.name.removesuffix(_PRE).split("-")
        post = pre.with_name(pre.name.replace(_PRE, "-post.pcap"))
        found[Passage(int(time_ns), int(latency.removesuffix("ns")))] = (pre, post)
    return found


class Crossing(NamedTuple):
    """A packet, and those that left around it."""

    passage: Passage
    flow: str
    left_ns: Integers
    """When packets left, in order."""
    paces_ns: Integers
    """Times between departures of packets that waited for each other."""


def read_crossing(
    passage: Passage, captures: tuple[Path, Path], match_on: str, window_ns: int
) -> Crossing | None:
    """Read which packets left around one; None if its captures do not tell it."""
    found = analyze(
        *captures,
        match_on=match_on,
        window=window_ns,
        worst=_MOST_PACKETS,
        clocks="same",
        series=False,
    )
    worst = found.worst
    came, left = worst.pre_ns.astype(np.int64), worst.post_ns.astype(np.int64)
    is_packet = (came == passage.pre_ns) & (left - came == passage.latency_ns)
    if not is_packet.any():
        return None
    flows = found.worst_flows
    flow = "" if flows is None else flows[0][int(np.argmax(is_packet))]
    order = np.argsort(left, kind="stable")
    came, left = came[order], left[order]
    paces_ns = np.diff(left)[came[1:] < left[:-1]]
    times = [packets.ts_ns.astype(np.int64) for packets in read_keys(captures[1], match_on)]
    return Crossing(passage, flow, np.sort(np.concatenate(times)), paces_ns)


def explain_crossing(
    crossing: Crossing, timelines: Sequence[Timeline], service_ns: int, pace_ns: int | None
) -> DelayedPacket:
    """Divide the time of a packet among what it waited for."""
    pre_ns, latency_ns = crossing.passage
    post_ns = pre_ns + latency_ns
    service_ns = min(service_ns, latency_ns)
    meanwhile = (crossing.left_ns > pre_ns) & (crossing.left_ns < post_ns)
    edges = np.concatenate([[pre_ns], crossing.left_ns[meanwhile], [post_ns]])
    usual_ns = np.full(len(edges) - 1, service_ns if pace_ns is None else pace_ns)
    usual_ns[-1] = max(service_ns, usual_ns[-1])
    is_held = np.diff(edges) > _HELD_UP * usual_ns
    is_unseen = np.zeros(len(is_held), bool)
    if latency_ns > _WHOLE_NS:
        near_ns = _AROUND_NS - _HELD_UP * usual_ns
        is_unseen = is_held & (edges[:-1] >= pre_ns + near_ns) & (edges[1:] <= post_ns - near_ns)
    unseen_ns = int((np.diff(edges) - usual_ns)[is_unseen].sum())
    is_held &= ~is_unseen
    begin, end = (edges[:-1] + usual_ns)[is_held], edges[1:][is_held]
    held_ns = int((end - begin).sum())
    queue_ns = latency_ns - service_ns - held_ns - unseen_ns
    cpus = senders(timelines, crossing.left_ns, post_ns)
    delays = []
    if len(cpus) == 1:
        delays = list(_blocking(cpus[0], begin, end))
    named_ns = sum(delay.waited_ns for delay in delays)
    if queue_ns > 0:
        delays.append(Delay(part="queue", cause=EARLIER, details=(), waited_ns=queue_ns))
    return DelayedPacket(
        pre_ns=pre_ns,
        latency_ns=latency_ns,
        flow=crossing.flow,
        cpus=tuple(timeline.cpu for timeline in cpus),
        service_ns=service_ns + min(queue_ns, 0),
        delays=tuple(sorted(delays, key=lambda delay: -delay.waited_ns)),
        unexplained_ns=held_ns - named_ns + unseen_ns,
    )


def senders(timelines: Sequence[Timeline], left_ns: Integers, post_ns: int) -> list[Timeline]:
    """Find the CPUs that may have sent the packet that left at a time.

    What sends packets runs whenever one leaves, and less often otherwise: a softirq of networking,
    or a task that forwards them.
    """
    running = [_running(timeline, left_ns) for timeline in timelines]
    then = [_running(timeline, np.array([post_ns]))[0] for timeline in timelines]
    begin, end = left_ns[:1], left_ns[-1:]
    best, best_lift = "", 0.0
    for name in {name for name in then if name}:
        is_there = np.zeros(len(left_ns), bool)
        share = 0.0
        for timeline, names in zip(timelines, running, strict=True):
            is_there |= names == name
            own = _names(timeline)[timeline.event] == name
            took_ns = covered(begin, end, timeline.start_ns[own], timeline.end_ns[own])
            share += int(took_ns[0]) / max(1, int(end[0] - begin[0]))
        lift = float(is_there.mean()) - min(share, 1.0)
        if is_there.mean() >= _SENDS and lift > best_lift:
            best, best_lift = name, lift
    return [
        timeline for timeline, name in zip(timelines, then, strict=True) if best and name == best
    ]


def _names(timeline: Timeline) -> NDArray[np.object_]:
    """Name what each event may send packets as: networking, or a task with its number."""
    names = []
    for cause, detail in zip(timeline.cause.tolist(), timeline.detail.tolist(), strict=True):
        name = timeline.causes[cause]
        is_networking = name.startswith(_NETWORKING)
        if is_networking or not name.startswith(_TASK):
            names.append(_NETWORKING[0] if is_networking else "")
        else:
            names.append(f"{name} {timeline.details[detail]}")
    return np.array(names, object)


def _running(timeline: Timeline, when_ns: Integers) -> NDArray[np.object_]:
    """Return what ran at some times; empty for what cannot send."""
    names = np.full(len(when_ns), "", object)
    at = np.searchsorted(timeline.end_ns, when_ns, "right")
    is_there = at < len(timeline.start_ns)
    is_there[is_there] &= timeline.start_ns[at[is_there]] <= when_ns[is_there]
    names[is_there] = _names(timeline)[timeline.event[at[is_there]]]
    return names


def _blocking(timeline: Timeline, begin: Integers, end: Integers) -> Iterator[Delay]:
    """Tell what had a CPU within some times, by cause; of tasks each by itself."""
    within_ns = covered(timeline.start_ns, timeline.end_ns, begin, end)
    waited_ns: Counter[str] = Counter()
    details: dict[str, list[str]] = {}
    for at in np.flatnonzero(within_ns).tolist():
        event = timeline.event[at]
        cause = timeline.causes[timeline.cause[event]]
        detail = timeline.details[timeline.detail[event]]
        if cause.startswith(_TASK):
            pid, _, detail = detail.removeprefix("pid ").partition(" ")
            cause = f"{cause} (pid {pid})"
        waited_ns[cause] += int(within_ns[at])
        if detail and detail not in details.setdefault(cause, []):
            details[cause].append(detail)
    for cause, waited in waited_ns.items():
        told = tuple(details.get(cause, ())[:_MOST_DETAILS])
        yield Delay(part="dut", cause=cause, details=told, waited_ns=waited)


def usual_pace_ns(crossings: Sequence[Crossing], own: Crossing) -> int | None:
    """Return the usual time between packets of a queue; None if no queue was seen."""
    for paces_ns in (own.paces_ns, np.concatenate([each.paces_ns for each in crossings])):
        if len(paces_ns) >= _FEWEST:
            return int(np.median(paces_ns))
    return None
