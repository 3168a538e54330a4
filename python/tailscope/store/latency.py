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
    from concurrent.futures import Future, ThreadPoolExecutor
    from types import TracebackType

    from tailscope.engine.analysis import Series
    from tailscope.engine.columns import Values
    from tailscope.store.tables import Table

_FLOW_ENCODINGS = dict.fromkeys(FLOW_COLUMNS, "dictionary")
_ENCODINGS = dict.fromkeys(("tainted", *FLOW_COLUMNS), "plain")
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
        self._group: list[Values | None] = []
        self._rows = 0
        # A group is encoded while the next matches come in.
        self._pool: ThreadPoolExecutor | None = None
        self._encoding: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._wait()
                if self._rows:
                    self._encode(self._group, self._rows)
                self._file.write(self._writer.finish())
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def append(self, columns: Sequence[Values | None]) -> None:
        """Append rows by their columns, of which the last may be left out: they are null.

        The file is the same, in whatever pieces rows come.
        """
        numbers = columns[0]
        assert numbers is not None, "every packet has a number"
        columns = (*columns, *[None] * (len(self._names) - len(columns)))
        rows, taken = len(numbers), 0
        while taken < rows:
            if not self._rows and rows - taken >= self.ROWS_PER_GROUP:
                end = taken + self.ROWS_PER_GROUP
                self._group = [None if each is None else each[taken:end] for each in columns]
                taken, self._rows = end, self.ROWS_PER_GROUP
                self._hand_over()
                continue
            if not self._rows:
                self._group = [
                    None if column is None else np.empty(self.ROWS_PER_GROUP, column.dtype)
                    for column in columns
                ]
            count = min(rows - taken, self.ROWS_PER_GROUP - self._rows)
            for own, column in zip(self._group, columns, strict=True):
                if own is not None and column is not None:
                    own[self._rows : self._rows + count] = column[taken : taken + count]
            taken, self._rows = taken + count, self._rows + count
            if self._rows == self.ROWS_PER_GROUP:
                self._hand_over()

    def _hand_over(self) -> None:
        """Have a whole group encoded, when the one before is."""
        self._wait()
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1)
        self._encoding = self._pool.submit(self._encode, self._group, self._rows)
        self._group, self._rows = [], 0

    def _wait(self) -> None:
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            encoding.result()

    def _encode(self, group: Sequence[Values | None], rows: int) -> None:
        columns = [
            handed(None if column is None else self._cells(name, column[:rows]))
            for name, column in zip(self._names, group, strict=True)
        ]
        self._file.write(self._writer.write(rows, columns))

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
