"""Where packets are in the kernel: the points that they pass, and their latency in stages.

A packet that the kernel forwards passes these points, as events of its tracepoints say:

- **arrived**: the driver hands it to the kernel (``netif_rx``, ``napi_gro_receive_entry``);
- **received**: the stack takes it (``netif_receive_skb``);
- **queued**: the stack hands it to the queue of the link that it leaves by (``net_dev_queue``);
- **started**: the queue hands it to that link's driver (``net_dev_start_xmit``);
- **dropped**: the kernel throws it away, with a reason (``kfree_skb``).

The points divide its latency into stages that sum to it. Events were stamped by another clock than
packets: one that seems to come before the point before it, by no more than the error of bringing
the clocks together, is moved there; a packet with a larger contradiction has no stages.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailscope.arrow import column, strings, values
from tailscope.exceptions import DataplaneError
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

    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.analysis import Clock
    from tailscope.noise.attribution import Blocked, Delayed
    from tailscope.store.packets import Packets
    from tailscope.store.records.run import KernelStages, RunInfo
    from tailscope.store.run import NewColumns
    from tailscope.testbed.stage_recorder import RecordedStages

    Integers = NDArray[np.int64]

__all__ = [
    "STAGES",
    "Divided",
    "Passed",
    "Stages",
    "columns",
    "divide",
    "explain_stages",
    "read_recorded_stages",
    "read_stages",
    "stages_of",
]

STAGES = ("wire in", "driver", "stack", "qdisc", "wire out")
"""Between departure, the four points on the way, and the time of receipt."""
POINTS = ("arrived", "received", "queued", "started", "dropped")
"""In the order of the numbers that ``tailscope-dp stages`` gives them."""
_DROPPED = POINTS.index("dropped")
_BACK = 1 << 62
"""Numbers of packets that travel back have it."""
_EVENT = np.dtype(
    [
        ("tsc", "<u8"),
        ("seq", "<u8"),
        ("point", "<u4"),
        ("ifindex", "<u4"),
        ("cpu", "<u4"),
        ("reason", "<u4"),
    ]
)
_CAUSES_KEPT = 5


class Passed(NamedTuple):
    """When packets passed points in the kernel; 0 where one did not.

    Attributes
    ----------
    seq : ndarray of int64, shape (n,)
        In ascending order.
    arrived_ns, received_ns, queued_ns, started_ns, dropped_ns : ndarray of int64, shape (n,)
    reason : ndarray of str, shape (n,)
        Why the kernel dropped it; empty where it did not.
    """

    seq: Integers
    arrived_ns: Integers
    received_ns: Integers
    queued_ns: Integers
    started_ns: Integers
    dropped_ns: Integers
    reason: NDArray[Any]


class Stages(NamedTuple):
    """What is known of the way of packets through the kernel.

    Attributes
    ----------
    passed : Passed
    error_ns : int
        How far these times may be off those of packets.
    """

    passed: Passed
    error_ns: int


class Divided(NamedTuple):
    """The latency of packets in stages.

    Attributes
    ----------
    is_seen : ndarray of bool, shape (n,)
        Which packets were looked at.
    is_whole : ndarray of bool, shape (n,)
        Which of them were seen at every point, at times that do not contradict each other.
    stages_ns : ndarray of int64, shape (n, 5)
        A column for each of `STAGES`; the row of a whole packet sums to its latency.
    """

    is_seen: NDArray[np.bool_]
    is_whole: NDArray[np.bool_]
    stages_ns: Integers


def columns(recorded: RecordedStages, clock: Clock, *, back: bool) -> NewColumns:
    """Read what ``tailscope-dp stages`` has recorded, as columns of ``stages.parquet``.

    Parameters
    ----------
    recorded : RecordedStages
    clock : Clock
        Of the packets.
    back : bool
        Whether those are wanted that travel back, from the device's second link to its first.

    Raises
    ------
    DataplaneError
        If the file is not what the recorder writes.
    """
    events = _load(recorded)
    events = events[(events["seq"] & _BACK > 0) == back]
    order = np.argsort(events["tsc"], kind="stable")
    events = events[order]
    seq = (events["seq"] & ~np.uint64(_BACK)).astype(np.int64)
    entering, leaving = reversed(recorded.links) if back else recorded.links
    at_link = {"arrived": entering, "received": entering, "queued": leaving, "started": leaving}
    known = np.unique(seq)
    made: dict[str, pa.Array] = {"seq": column(known.astype(np.uint64))}
    firsts: dict[str, tuple[Integers, Integers]] = {}
    for number, point in enumerate(POINTS):
        here = events["point"] == number
        if point in at_link:
            here &= events["ifindex"] == at_link[point]
        rows = np.flatnonzero(here)
        _, first = np.unique(seq[rows], return_index=True)
        rows = rows[first]
        place = np.searchsorted(known, seq[rows])
        at_ns = np.zeros(len(known), np.int64)
        at_ns[place] = clock.all_at_ns(events["tsc"][rows].astype(np.int64))
        made[f"{point}_ns"] = column(at_ns, missing=at_ns == 0)
        firsts[point] = place, rows
    place, rows = firsts["dropped"]
    names = recorded.result.reasons
    texts = np.full(len(known), "", object)
    texts[place] = [names.get(int(each), str(each)) for each in events["reason"][rows]]
    made["reason"] = strings(texts.tolist())
    return made


def _load(recorded: RecordedStages) -> NDArray[Any]:
    path = recorded.folder / recorded.result.file
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataplaneError(f"{path}: expected events of the kernel: {error}") from None
    if found.dtype != _EVENT or found.ndim != 1:
        raise DataplaneError(f"{path}: expected rows of {_EVENT}, got {found.dtype}")
    return np.asarray(found)


def read_stages(path: Path, info: RunInfo) -> Stages | None:
    """Read ``stages.parquet`` of a run; None where nobody has recorded it.

    Parameters
    ----------
    path : Path
        A run directory.
    info : RunInfo
        Its ``run.json``.
    """
    if _recorded(info) is None or layout.STAGES not in info.files:
        return None
    return _stages(verified_file(path, info, layout.STAGES), path, info)


def read_recorded_stages(path: Path, info: RunInfo) -> Stages | None:
    """Read the same of a run that is not finished yet.

    Parameters
    ----------
    path : Path
        A run directory.
    info : RunInfo
        What its ``run.json`` is to say.
    """
    if _recorded(info) is None or not is_there(path, layout.STAGES):
        return None
    return _stages((path / layout.STAGES).open("rb"), path, info)


def _recorded(info: RunInfo) -> KernelStages | None:
    return None if info.noise is None else info.noise.stages


def _stages(content: IO[bytes], path: Path, info: RunInfo) -> Stages:
    recorded = _recorded(info)
    assert recorded is not None, "it was recorded"
    with TableFile(content, str(path / layout.STAGES), TABLE) as file:
        return Stages(_passed_in(file), recorded.clock_error_ns)


def _passed_in(file: TableFile) -> Passed:
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in Passed._fields}
    for batch in file.batches(Passed._fields):
        for name, pieces in found.items():
            cells = batch[name]
            pieces.append(values(cells if name == "reason" else cells.fill_null(0)))
    none = np.zeros(0, np.int64)
    whole = {name: np.concatenate([none, *pieces]) for name, pieces in found.items()}
    return Passed(**{**whole, "seq": whole["seq"].astype(np.int64)})


def divide(stages: Stages, seq: Integers, pre_ns: Integers, latency_ns: Integers) -> Divided:
    """Divide the latency of packets into stages.

    Parameters
    ----------
    stages : Stages
    seq, pre_ns, latency_ns : ndarray of int64, shape (n,)
        Packets that came back.
    """
    known, post_ns = stages.passed, pre_ns + latency_ns
    if not len(known.seq):
        none = np.zeros(len(seq), np.bool_)
        return Divided(none, none, np.zeros((len(seq), len(STAGES)), np.int64))
    at = np.minimum(np.searchsorted(known.seq, seq), len(known.seq) - 1)
    points = [known.arrived_ns, known.received_ns, known.queued_ns, known.started_ns]
    arrived, received, *out = (each[at] for each in points)
    # Not every driver says when it hands over a packet: then that is a part of the wire.
    arrived = np.where(arrived > 0, arrived, received)
    marks = np.stack([pre_ns, arrived, received, *out, post_ns], axis=1)
    is_seen = (known.seq[at] == seq) & np.any(marks[:, 1:-1] > 0, axis=1)
    is_ordered = np.all(np.diff(marks, axis=1) >= -stages.error_ns, axis=1)
    is_whole = is_seen & is_ordered & np.all(marks > 0, axis=1)
    within = np.minimum(np.maximum.accumulate(marks, axis=1), post_ns[:, None])
    return Divided(is_seen, is_whole, np.diff(within, axis=1))


def explain_stages(
    stages: Stages, packets: Packets, blocked: Blocked, threshold_ns: int
) -> ExplainedStages:
    """Say how long packets were in each stage: all of them, and those of the tail.

    Parameters
    ----------
    stages : Stages
    packets : Packets
        All that came back.
    blocked : Blocked
        When CPUs could not work.
    threshold_ns : int
        Packets beyond it are the tail.
    """
    nothing, seen = np.zeros(0, np.int64), 0
    pieces = [(nothing, nothing, np.zeros((0, len(STAGES)), np.int64))]
    for batch in packets.batches("seq", "pre_ns", "latency_ns"):
        seq, pre_ns, latency_ns = (each.view(np.int64) for each in batch)
        divided = divide(stages, seq, pre_ns, latency_ns)
        whole = divided.is_whole
        seen += int(divided.is_seen.sum())
        pieces.append((pre_ns[whole], latency_ns[whole], divided.stages_ns[whole]))
    pre_ns, latency_ns, stages_ns = map(np.concatenate, zip(*pieces, strict=True))
    tail = latency_ns > threshold_ns
    ends_ns = pre_ns[:, None] + np.cumsum(stages_ns, axis=1)
    return ExplainedStages(
        packets=len(pre_ns),
        left_out=seen - len(pre_ns),
        tail_packets=int(tail.sum()),
        stages=tuple(
            ExplainedStage(
                stage=stage,
                ns_p50=_quantile(lasted, 0.5),
                ns_p99=_quantile(lasted, 0.99),
                share_p50=_median_share(lasted, latency_ns),
                tail_share=_share(lasted[tail], latency_ns[tail]),
                interrupted_by=_interruptions(blocked, (ends - lasted)[tail], ends[tail]),
            )
            for stage, lasted, ends in zip(STAGES, stages_ns.T, ends_ns.T, strict=True)
        ),
        drops=_drops(stages.passed, packets),
    )


def stages_of(stages: Stages, packet: Delayed) -> dict[str, int] | None:
    """Say how long one packet was in each stage, which sum to its latency; None if not known."""
    divided = divide(stages, packet.seq, packet.pre_ns, packet.latency_ns)
    if not divided.is_whole[0]:
        return None
    return dict(zip(STAGES, divided.stages_ns[0].tolist(), strict=True))


def _quantile(lasted: Integers, q: float) -> int | None:
    """The smallest value with at least that share at or below it."""
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
    """What kept CPUs from their work during a stage, the longest first."""
    found = met(blocked, start_ns, end_ns)[:_CAUSES_KEPT]
    return tuple(StageCause(**each._asdict()) for each in found)


def _drops(passed: Passed, packets: Packets) -> tuple[DropReason, ...]:
    """Why the kernel dropped packets that never came back, the most frequent reason first."""
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
