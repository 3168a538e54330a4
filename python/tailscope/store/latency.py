"""``latency.parquet``: every match of a run, written as the matches come in."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Self

import numpy as np

import tailscope._engine as _engine
from tailscope.engine.analysis import Series
from tailscope.store.parquet import ROWS_PER_GROUP, handed
from tailscope.store.tables import LATENCY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tailscope.engine.columns import Values

_ENCODINGS = {"intended_ns": "plain", "tainted": "plain"}
"""Encodings of columns of which neighbours differ much; of the others, differences are small."""


class LatencyFile:
    """``latency.parquet``, written as the matches come in.

    Columns ``intended_ns``, ``tainted`` and ``instrument_stall_ns`` are null for captures: they do
    not tell when a packet should have been sent, nor how far the instrument itself delayed it.
    """

    ROWS_PER_GROUP = ROWS_PER_GROUP

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._writer = _engine.TableWriter(
            [
                (each.name, each.kind, each.may_be_null, _ENCODINGS.get(each.name, "delta"))
                for each in LATENCY.columns
            ]
        )
        self._waiting: list[Series] = []

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

    def write(self, series: Series) -> None:
        """Append matches; they reach the file a group of rows at a time."""
        self._waiting.append(series)
        if sum(len(each.seq) for each in self._waiting) >= self.ROWS_PER_GROUP:
            self._flush(whole_groups=True)

    def _flush(self, *, whole_groups: bool = False) -> None:
        """Write what waits: the same file, in whatever pieces the matches came."""
        if not self._waiting:
            return
        columns = [_whole(pieces) for pieces in zip(*self._waiting, strict=True)]
        self._waiting = []
        assert columns[0] is not None, "every match has a number"
        rows = len(columns[0])
        ready = rows - (rows % self.ROWS_PER_GROUP if whole_groups else 0)
        for start in range(0, ready, self.ROWS_PER_GROUP):
            self._write_group(columns, slice(start, min(start + self.ROWS_PER_GROUP, ready)))
        if ready < rows:
            rest = [None if column is None else column[ready:].copy() for column in columns]
            self._waiting = [Series(*rest)]  # type: ignore[arg-type]

    def _write_group(self, columns: Sequence[Values | None], rows: slice) -> None:
        group = [handed(None if column is None else column[rows]) for column in columns]
        self._file.write(self._writer.write(rows.stop - rows.start, group))


def _whole(pieces: Sequence[Values | None]) -> Values | None:
    """Join pieces of a column; None if it has no values."""
    there = [piece for piece in pieces if piece is not None]
    return np.concatenate(there) if len(there) == len(pieces) else None
