"""The recorded ways of packets through a device, as columns of ``stages.parquet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import load_ticks
from tailscope.engine.columns import Texts
from tailscope.exceptions import AnalysisError, DataplaneError
from tailscope.store.tables import STAGES
from tailscope.testbed.stage_recorder import KernelStages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.engine.analysis import Clock
    from tailscope.engine.columns import Column
    from tailscope.store.run import NewColumns
    from tailscope.testbed.stage_recorder import LoopStages, RecordedStages

    Integers = NDArray[np.int64]

POINTS = ("arrived", "received", "queued", "started", "dropped")
"""Points in the order of their numbers in ``tailscope-dp stages``."""
LOOP_POINTS = ("polled", "received", "handed_on", "sent")
_AT_ONCE = 1
"""Reason of a packet that is queued on a link without a queue."""
_RING_FULL, _NOT_HANDED_ON = "TX_RING_FULL", "NOT_HANDED_ON"
_BACK = np.uint64(1 << 62)
"""Flag in the numbers of packets that travel back."""
_WARM_UP = np.uint64(1 << 63)
"""Flag in the numbers of packets before the measurement."""
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


def columns(recorded: RecordedStages, clock: Clock, *, back: bool) -> NewColumns:
    """Read the recording as columns of ``stages.parquet``; those of other ways are null."""
    if isinstance(recorded, KernelStages):
        return _of_kernel(recorded, clock, back=back)
    return _of_loop(recorded, clock, back=back)


def _of_kernel(recorded: KernelStages, clock: Clock, *, back: bool) -> NewColumns:
    events = _load(recorded)
    events = events[_is_measured(events["seq"], back=back)]
    order = np.argsort(events["tsc"], kind="stable")
    events = events[order]
    seq = (events["seq"] & ~np.uint64(_BACK)).astype(np.int64)
    entering, leaving = reversed(recorded.links) if back else recorded.links
    at_link = {"arrived": entering, "received": entering, "queued": leaving, "started": leaving}
    numbers = np.unique(seq)
    times: dict[str, Integers] = {}
    firsts: dict[str, tuple[Integers, Integers]] = {}
    for number, point in enumerate(POINTS):
        is_passed = events["point"] == number
        if point in at_link:
            is_passed &= events["ifindex"] == at_link[point]
        rows = np.flatnonzero(is_passed)
        _, first = np.unique(seq[rows], return_index=True)
        rows = rows[first]
        place = np.searchsorted(numbers, seq[rows])
        at_ns = times[f"{point}_ns"] = np.zeros(len(numbers), np.int64)
        at_ns[place] = clock.all_at_ns(events["tsc"][rows].astype(np.int64))
        firsts[point] = place, rows
    # A link without a queue starts a packet when it gets it, whether that was seen or not.
    place, rows = firsts["queued"]
    place = place[events["reason"][rows] == _AT_ONCE]
    started_ns, queued_ns = times["started_ns"][place], times["queued_ns"][place]
    times["started_ns"][place] = np.where(started_ns > 0, started_ns, queued_ns)
    place, rows = firsts["dropped"]
    names = recorded.result.reasons
    reasons = np.full(len(numbers), "", object)
    reasons[place] = [names.get(int(reason), str(reason)) for reason in events["reason"][rows]]
    return _as_columns(numbers, times, reasons)


def _of_loop(recorded: LoopStages, clock: Clock, *, back: bool) -> NewColumns:
    try:
        noted = load_ticks(recorded.folder, "passed_seq")
        ticks = [load_ticks(recorded.folder, f"passed_{point}_tsc") for point in LOOP_POINTS]
    except AnalysisError as error:
        raise DataplaneError(str(error), code="events-unreadable", hint=error.hint) from None
    rows = np.flatnonzero(_is_measured(noted, back=back))
    numbers, first = np.unique(noted[rows] & ~np.uint64(_BACK), return_index=True)
    rows = rows[first]
    times, last_ns = {}, np.zeros(len(rows), np.int64)
    for point, at in zip(LOOP_POINTS, ticks, strict=True):
        ticks_at_point = at[rows].astype(np.int64)
        times[f"{point}_ns"] = np.where(ticks_at_point > 0, clock.all_at_ns(ticks_at_point), 0)
        last_ns = np.maximum(last_ns, times[f"{point}_ns"])
    is_dropped = times["sent_ns"] == 0
    times["dropped_ns"] = np.where(is_dropped, last_ns, 0)
    reasons = np.full(len(rows), "", object)
    reasons[is_dropped] = _NOT_HANDED_ON
    reasons[is_dropped & (times["handed_on_ns"] > 0)] = _RING_FULL
    return _as_columns(numbers.astype(np.int64), times, reasons)


def _is_measured(seq: NDArray[np.uint64], *, back: bool) -> NDArray[np.bool_]:
    is_measured: NDArray[np.bool_] = (seq & (_WARM_UP | _BACK)) == (_BACK if back else 0)
    return is_measured


def _as_columns(
    seq: Integers, times: dict[str, Integers], reasons: NDArray[np.object_]
) -> NewColumns:
    """Return all columns of the table; points of another way have no times."""
    made: dict[str, Column] = {"seq": seq.astype(np.uint64)}
    none = np.zeros(len(seq), np.int64)
    for name in [name for name in STAGES.names if name.endswith("_ns")]:
        at_ns = times.get(name, none)
        made[name] = np.ma.MaskedArray(at_ns, at_ns == 0)
    made["reason"] = Texts.of(reasons.tolist())
    return made


def _load(recorded: KernelStages) -> NDArray[np.void]:
    path = recorded.folder / recorded.result.file
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataplaneError(
            f"{path}: expected events of the kernel: {error}", code="events-unreadable"
        ) from None
    if rows.dtype != _EVENT or rows.ndim != 1:
        raise DataplaneError(
            f"{path}: expected rows of {_EVENT}, got {rows.dtype}", code="events-rows"
        )
    return np.asarray(rows)
