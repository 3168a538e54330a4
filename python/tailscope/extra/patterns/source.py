"""The packets of an analysed pair, as many as are searched for patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailscope.engine.columns import values
from tailscope.extra.patterns.models.series import Losses, Series
from tailscope.extra.patterns.segments import find_retransmissions
from tailscope.registry import offered
from tailscope.store.parquet import TableFile
from tailscope.store.reader import open_packets, verified_file
from tailscope.store.tables import LOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.answer import Answer
    from tailscope.store.packets import Packets
    from tailscope.store.records.run import RunInfo

MOST = 1 << 20
"""Largest number of packets that are searched: those around the worst one."""
_COLUMNS = ("seq", "pre_ns", "latency_ns", "flow", "size_bytes")


class Searched(NamedTuple):
    """The packets that are searched."""

    series: Series
    packets: int
    """Number of packets of the run."""
    first_seq: int
    last_seq: int
    start_ns: int = 0
    """Time from which those of the series count."""
    others: tuple[Answer, ...] = ()
    """What captures tell of patterns that are not in the series."""


def read_series(run: Path, info: RunInfo) -> Searched:
    """Read the packets of a run, or of a large one those around the worst; there may be none."""
    with open_packets(run, info) as packets:
        count = len(packets)
        begin = _begin(packets) if count > MOST else 0
        seq, pre_ns, latency_ns, flow, size = _joined(_within(packets, begin, begin + MOST))
    if not len(seq):
        nothing = np.zeros(0, np.int64)
        return Searched(Series(nothing, nothing), count, 0, 0)
    start_ns = int(pre_ns[0])
    series = Series(
        pre_ns.astype(np.int64) - start_ns,
        latency_ns.astype(np.int64),
        _known(size),
        flow,
        _losses(run, info, start_ns, int(pre_ns[-1])),
    )
    lost_ns = np.zeros(0, np.uint64)
    if series.losses is not None:
        lost_ns = series.losses.arrival_ns.astype(np.uint64) + np.uint64(start_ns)
    seen_ns = np.concatenate([pre_ns, lost_ns])
    again = find_retransmissions(info, seen_ns, lost_ns, is_whole=count <= MOST)
    return Searched(series, count, int(seq[0]), int(seq[-1]), start_ns, (again,))


def read_directions(run: Path) -> dict[str, Searched]:
    """Return the packets of each direction of a path, the first of many; none of other runs."""
    asked = (directions(run) for directions in offered("directions"))
    for ways in asked:
        if ways is not None:
            return {way: _of_direction(columns) for way, columns in ways.items()}
    return {}


def _of_direction(columns: Mapping[str, NDArray[np.int64]]) -> Searched:
    pre_ns, latency_ns, flow = (columns[name][:MOST] for name in ("pre_ns", "latency_ns", "flow"))
    lost_ns = columns.get("lost_ns")
    series = Series(
        pre_ns - pre_ns[:1].sum(),
        latency_ns,
        None,
        flow,
        None if lost_ns is None else Losses(lost_ns),
    )
    return Searched(series, len(columns["pre_ns"]), 0, max(len(pre_ns) - 1, 0))


def _begin(packets: Packets) -> int:
    """Return the row at which to begin, so that the worst packet is in the middle."""
    row = worst = 0
    highest_ns = -1
    for (latency_ns,) in packets.batches("latency_ns"):
        at = int(latency_ns.argmax())
        if int(latency_ns[at]) > highest_ns:
            highest_ns, worst = int(latency_ns[at]), row + at
        row += len(latency_ns)
    return min(max(worst - MOST // 2, 0), row - MOST)


def _within(packets: Packets, begin: int, end: int) -> Iterator[list[Any]]:
    """Read some rows; flows come as numbers."""
    numbers: dict[str | None, int] = {}
    row = 0
    for batch in packets.batches(*_COLUMNS):
        if row >= end:
            return
        rows = slice(max(begin - row, 0), max(end - row, 0))
        row += len(batch[0])
        columns = [None if column is None else column[rows] for column in batch]
        flow = columns[3]
        if flow is not None:
            columns[3] = np.array(
                [numbers.setdefault(name, len(numbers)) for name in flow.tolist()], np.int64
            )
        yield columns


def _joined(batches: Iterator[list[Any]]) -> list[Any]:
    pieces = [*batches]
    if not pieces:
        return [np.zeros(0, np.int64)] * len(_COLUMNS)
    return [
        None if any(each is None for each in column) else np.concatenate(column)
        for column in zip(*pieces, strict=True)
    ]


def _losses(run: Path, info: RunInfo, start_ns: int, end_ns: int) -> Losses | None:
    """Read the packets that were lost meanwhile; None for runs that do not tell."""
    if LOST.file not in info.files:
        return None
    times, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with TableFile(verified_file(run, info, LOST.file), str(run / LOST.file), LOST) as file:
        for batch in file.batches(("pre_ns", "size_bytes")):
            pre_ns, size = (values(batch[name]) for name in ("pre_ns", "size_bytes"))
            meanwhile = (pre_ns >= start_ns) & (pre_ns <= end_ns)
            times.append(pre_ns[meanwhile].astype(np.int64) - start_ns)
            sizes.append(size[meanwhile].astype(np.int64))
    return Losses(np.concatenate(times), _known(np.concatenate(sizes)))


def _known(size: NDArray[Any] | None) -> NDArray[np.int64] | None:
    """Return sizes if all are known: those of very many flows and sizes are 0."""
    return None if size is None or not size.all() else size.astype(np.int64)
