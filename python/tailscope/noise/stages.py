"""Stages of a packet's latency in a device, by the points that it passes.

A packet that the kernel forwards passes these points, as events of its tracepoints say:

- **arrived**: the driver hands it to the kernel (``netif_rx``, ``napi_gro_receive_entry``);
- **received**: the stack takes it (``netif_receive_skb``);
- **queued**: the stack hands it to the queue of the link that it leaves by (``net_dev_queue``);
- **started**: the queue hands it to that link's driver (``net_dev_start_xmit``);
- **dropped**: the kernel throws it away, with a reason (``kfree_skb``).

A polling loop of tailscope notes them itself:

- **polled**: its call that receives begins;
- **received**: that call returns the packet;
- **handed on**: its call that sends begins;
- **sent**: that call returns, and a ring has taken the packet.

The points divide its latency into stages that sum to it. The kernel's events were stamped by
another clock than packets: one that seems to come before the point before it, by no more than the
error of bringing the clocks together, is moved there; a packet with a larger contradiction has no
stages. A packet may leave the generator while a call is receiving, and be back before the call that
sends it returns: it is polled when it leaves, then, and sent when it is back.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailscope.engine.columns import Texts, values
from tailscope.noise.attribution import met
from tailscope.store import layout
from tailscope.store.files import is_there
from tailscope.store.parquet import TableFile
from tailscope.store.reader import verified_file
from tailscope.store.records.explanation import (
    DropReason,
    ExplainedStage,
    ExplainedStages,
    StageCause,
)
from tailscope.store.tables import STAGES as TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.noise.attribution import Blocked
    from tailscope.noise.queues import Delayed
    from tailscope.store.packets import Packets
    from tailscope.store.records.run import RunInfo
    from tailscope.store.records.stages import StagesRecord

    Integers = NDArray[np.int64]


class Way(NamedTuple):
    """The way of packets through a device."""

    where: str
    """Name of the place that packets pass."""
    stages: tuple[str, str, str, str, str]
    """Parts of the latency: between departure, the points on the way, and receipt."""
    points: tuple[str, str, str, str]
    """Columns of ``stages.parquet``, in order."""


WAYS: dict[str, Way] = {
    "kernel": Way(
        "kernel",
        ("wire in", "driver", "stack", "qdisc", "wire out"),
        ("arrived_ns", "received_ns", "queued_ns", "started_ns"),
    ),
    "loop": Way(
        "device",
        ("wire in", "rx burst", "work", "tx burst", "wire out"),
        ("polled_ns", "received_ns", "handed_on_ns", "sent_ns"),
    ),
}
"""Ways by their names in ``run.json``."""
_CAUSES_KEPT = 5


class Passed(NamedTuple):
    """The times at which packets passed the points of their way; 0 for points not passed."""

    seq: Integers
    """Numbers of the packets, ascending."""
    points_ns: Integers
    """Times in nanoseconds, one column for each point of the way."""
    dropped_ns: Integers
    reason: NDArray[np.object_]
    """Reason for which the packet was dropped; empty if it was not."""


class Stages(NamedTuple):
    """The recorded way of packets through a device."""

    way: Way
    passed: Passed
    error_ns: int
    """Largest error of these times against those of packets."""


class Divided(NamedTuple):
    """The latency of packets in stages."""

    is_seen: NDArray[np.bool_]
    """Marks of the packets that were recorded."""
    is_whole: NDArray[np.bool_]
    """Marks of the packets that were recorded at every point, at consistent times."""
    stages_ns: Integers
    """Durations, one column for each stage; the row of a whole packet sums to its latency."""


def read_stages(path: Path, info: RunInfo) -> Stages | None:
    """Read ``stages.parquet`` of a run; return None if it was not recorded."""
    if _recorded(info) is None or layout.STAGES not in info.files:
        return None
    return _stages(verified_file(path, info, layout.STAGES), path, info)


def read_recorded_stages(path: Path, info: RunInfo) -> Stages | None:
    """Read the same of a run that is not finished yet."""
    if _recorded(info) is None or not is_there(path, layout.STAGES):
        return None
    return _stages((path / layout.STAGES).open("rb"), path, info)


def _recorded(info: RunInfo) -> StagesRecord | None:
    return None if info.noise is None else info.noise.stages


def _stages(content: IO[bytes], path: Path, info: RunInfo) -> Stages:
    recorded = _recorded(info)
    assert recorded is not None, "it was recorded"
    way = WAYS[recorded.way]
    with TableFile(content, str(path / layout.STAGES), TABLE) as file:
        return Stages(way, _passed_in(file, way), recorded.clock_error_ns)


def _passed_in(file: TableFile, way: Way) -> Passed:
    numbers = ("seq", *way.points, "dropped_ns")
    none = np.zeros(0, np.int64)
    pieces_by_name: dict[str, list[NDArray[Any]]] = {name: [none] for name in (*numbers, "reason")}
    for batch in file.batches([*pieces_by_name]):
        for name in numbers:
            cells = batch[name]
            assert not isinstance(cells, Texts), "the table was opened as one of numbers"
            pieces_by_name[name].append(np.ma.filled(cells, 0).astype(np.int64))
        pieces_by_name["reason"].append(values(batch["reason"]))
    whole = {name: np.concatenate(pieces) for name, pieces in pieces_by_name.items()}
    points_ns = np.stack([whole[name] for name in way.points], axis=1)
    return Passed(whole["seq"], points_ns, whole["dropped_ns"], whole["reason"])


def divide(stages: Stages, seq: Integers, pre_ns: Integers, latency_ns: Integers) -> Divided:
    """Divide the latency of packets into stages."""
    passed, post_ns = stages.passed, pre_ns + latency_ns
    if not len(passed.seq):
        none = np.zeros(len(seq), np.bool_)
        return Divided(none, none, np.zeros((len(seq), len(stages.way.stages)), np.int64))
    at = np.minimum(np.searchsorted(passed.seq, seq), len(passed.seq) - 1)
    first, second, third, last = passed.points_ns[at].T
    is_seen = (passed.seq[at] == seq) & (passed.points_ns[at] > 0).any(axis=1)
    if stages.way is WAYS["loop"]:
        first = np.where(first > 0, np.maximum(first, pre_ns), 0)
        last = np.minimum(last, post_ns)
    else:
        # Not every driver says when it hands over a packet: then that is a part of the wire.
        first = np.where(first > 0, first, second)
    marks = np.stack([pre_ns, first, second, third, last, post_ns], axis=1)
    is_ordered = np.all(np.diff(marks, axis=1) >= -stages.error_ns, axis=1)
    is_whole = is_seen & is_ordered & np.all(marks > 0, axis=1)
    within = np.minimum(np.maximum.accumulate(marks, axis=1), post_ns[:, None])
    return Divided(is_seen, is_whole, np.diff(within, axis=1))


def explain_stages(
    stages: Stages, packets: Packets, blocked: Blocked, threshold_ns: int
) -> ExplainedStages:
    """Describe the time in each stage: of all packets, and of those in the tail."""
    nothing, seen, seen_tail = np.zeros(0, np.int64), 0, 0
    pieces = [(nothing, nothing, np.zeros((0, len(stages.way.stages)), np.int64))]
    for batch in packets.batches("seq", "pre_ns", "latency_ns"):
        seq, pre_ns, latency_ns = (column.view(np.int64) for column in batch)
        divided = divide(stages, seq, pre_ns, latency_ns)
        whole = divided.is_whole
        seen += int(divided.is_seen.sum())
        seen_tail += int(divided.is_seen[latency_ns > threshold_ns].sum())
        pieces.append((pre_ns[whole], latency_ns[whole], divided.stages_ns[whole]))
    pre_ns, latency_ns, stages_ns = map(np.concatenate, zip(*pieces, strict=True))
    tail = latency_ns > threshold_ns
    ends_ns = pre_ns[:, None] + np.cumsum(stages_ns, axis=1)
    return ExplainedStages(
        way="kernel" if stages.way is WAYS["kernel"] else "loop",
        packets=len(pre_ns),
        left_out=seen - len(pre_ns),
        tail_packets=int(tail.sum()),
        tail_left_out=seen_tail - int(tail.sum()),
        stages=tuple(
            ExplainedStage(
                stage=stage,
                ns_p50=_quantile(lasted, 0.5),
                ns_p99=_quantile(lasted, 0.99),
                share_p50=_median_share(lasted, latency_ns),
                tail_share=_share(lasted[tail], latency_ns[tail]),
                interrupted_by=_interruptions(blocked, (ends - lasted)[tail], ends[tail]),
            )
            for stage, lasted, ends in zip(stages.way.stages, stages_ns.T, ends_ns.T, strict=True)
        ),
        drops=_drops(stages.passed, packets),
    )


def stages_of(stages: Stages, packet: Delayed) -> dict[str, int] | None:
    """Return one packet's time in each stage, which sum to its latency; None if unknown."""
    divided = divide(stages, packet.seq, packet.pre_ns, packet.latency_ns)
    if not divided.is_whole[0]:
        return None
    return dict(zip(stages.way.stages, divided.stages_ns[0].tolist(), strict=True))


def _quantile(lasted: Integers, q: float) -> int | None:
    """Return the smallest value with at least that share at or below it."""
    if not len(lasted):
        return None
    return int(np.quantile(lasted, q, method="inverted_cdf"))


def _median_share(lasted: Integers, latency_ns: Integers) -> float | None:
    return float(np.median(lasted / np.maximum(latency_ns, 1))) if len(lasted) else None


def _share(lasted: Integers, latency_ns: Integers) -> float | None:
    total = int(latency_ns.sum())
    return int(lasted.sum()) / total if total else None


def _interruptions(
    blocked: Blocked, start_ns: Integers, end_ns: Integers
) -> tuple[StageCause, ...]:
    """Return the causes that blocked CPUs during a stage, the longest first."""
    waits = met(blocked, start_ns, end_ns)[:_CAUSES_KEPT]
    return tuple(StageCause(**wait._asdict()) for wait in waits)


def _drops(passed: Passed, packets: Packets) -> tuple[DropReason, ...]:
    """Count the reasons for which lost packets were dropped, the most frequent first."""
    dropped = np.flatnonzero(passed.dropped_ns > 0)
    seq = passed.seq[dropped]
    came_back = np.zeros(len(seq), bool)
    for (numbers,) in packets.batches("seq"):
        came_back |= np.isin(seq, numbers.view(np.int64))
    reasons, counts = np.unique(passed.reason[dropped][~came_back].astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return tuple(
        DropReason(reason=str(reasons[at]), packets=int(counts[at])) for at in order.tolist()
    )
