"""``latency.parquet`` and ``lost.parquet``: packets of a run, written as they come in."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Self

import numpy as np

import tailscope._engine as _engine
from tailscope.engine.columns import Texts
from tailscope.store.parquet import ROWS_PER_GROUP, handed
from tailscope.store.tables import FLOW_COLUMNS, LATENCY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tailscope.engine.analysis import Series
    from tailscope.engine.columns import Values
    from tailscope.store.tables import Table

_FLOW_ENCODINGS = dict.fromkeys(FLOW_COLUMNS, "dictionary")
_ENCODINGS = dict.fromkeys(("intended_ns", "tainted", *FLOW_COLUMNS), "plain")
"""Encodings of columns of which neighbours differ much; of the others, differences are small."""


class PacketFile:
    """A table of packets in Parquet, a group of rows at a time."""

    ROWS_PER_GROUP = ROWS_PER_GROUP

    def __init__(self, file: IO[bytes], table: Table, flows: Sequence[str] | None = None) -> None:
        """Begin a table; numbers in column ``flow`` are places in `flows`, which may grow."""
        self._file = file
        self._flows = flows
        # A column without any value has no dictionary.
        encodings = _ENCODINGS if flows is None else {**_ENCODINGS, **_FLOW_ENCODINGS}
        self._names = table.names
        self._writer = _engine.TableWriter(
            [
                (each.name, each.kind, each.may_be_null, encodings.get(each.name, "delta"))
                for each in table.columns
            ]
        )
        self._waiting: list[tuple[Values | None, ...]] = []
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._flush()
            self._file.write(self._writer.finish())

    def append(self, columns: Sequence[Values | None]) -> None:
        """Append rows by their columns, of which the last may be left out: they are null."""
        assert columns[0] is not None, "every packet has a number"
        self._waiting.append((*columns, *[None] * (len(self._names) - len(columns))))
        self._rows += len(columns[0])
        if self._rows >= self.ROWS_PER_GROUP:
            self._flush(whole_groups=True)

    def _flush(self, *, whole_groups: bool = False) -> None:
        """Write what waits: the same file, in whatever pieces the packets came."""
        if not self._waiting:
            return
        columns = [_whole(pieces) for pieces in zip(*self._waiting, strict=True)]
        ready = self._rows - (self._rows % self.ROWS_PER_GROUP if whole_groups else 0)
        for start in range(0, ready, self.ROWS_PER_GROUP):
            self._write_group(columns, slice(start, min(start + self.ROWS_PER_GROUP, ready)))
        rest = tuple(None if column is None else column[ready:].copy() for column in columns)
        self._waiting = [rest] if ready < self._rows else []
        self._rows -= ready

    def _write_group(self, columns: Sequence[Values | None], rows: slice) -> None:
        group = [
            handed(None if column is None else self._cells(name, column[rows]))
            for name, column in zip(self._names, columns, strict=True)
        ]
        self._file.write(self._writer.write(rows.stop - rows.start, group))

    def _cells(self, name: str, column: Values) -> Values | Texts:
        if name == "flow":
            return Texts(column, self._flows or [])
        return column.astype(np.uint64) if name == "size_bytes" else column


class LatencyFile(PacketFile):
    """``latency.parquet``: every match.

    Columns ``intended_ns``, ``tainted`` and ``instrument_stall_ns`` are null for captures: they do
    not tell when a packet should have been sent, nor how far the instrument itself delayed it.
    """

    def __init__(self, file: IO[bytes], flows: Sequence[str] | None = None) -> None:
        super().__init__(file, LATENCY, flows)

    def write(self, series: Series) -> None:
        """Append matches; they reach the file a group of rows at a time."""
        self.append(series)


def _whole(pieces: Sequence[Values | None]) -> Values | None:
    """Join pieces of a column; None if it has no values."""
    there = [piece for piece in pieces if piece is not None]
    return np.concatenate(there) if len(there) == len(pieces) else None
