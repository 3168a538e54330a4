"""The packets of an analysed pair, as many as are searched for patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.series import Losses, Series
from tailscope.store.reader import open_packets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

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
        None if size is None else size.astype(np.int64),
        flow,
        _losses(run, info, start_ns, int(pre_ns[-1])),
    )
    return Searched(series, count, int(seq[0]), int(seq[-1]))


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


def _losses(run: Path, info: RunInfo, first_ns: int, last_ns: int) -> Losses | None:
    """Read the packets that were lost meanwhile; None for runs that do not tell."""
    return None
