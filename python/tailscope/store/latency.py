"""``latency.parquet``: every match of a run, written as the matches come in."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Self

import numpy as np

import tailscope._engine as _engine
from tailscope.store.parquet import ROWS_PER_GROUP, handed
from tailscope.store.tables import LATENCY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from types import TracebackType

    from tailscope.engine.analysis import Series
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

    def write(self, series: Series) -> None:
        """Append matches: the same file, in whatever pieces they come."""
        rows, taken = len(series.seq), 0
        while taken < rows:
            if not self._rows:
                self._group = [
                    None if column is None else np.empty(self.ROWS_PER_GROUP, column.dtype)
                    for column in series
                ]
            count = min(rows - taken, self.ROWS_PER_GROUP - self._rows)
            for own, column in zip(self._group, series, strict=True):
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
        columns = [handed(None if column is None else column[:rows]) for column in group]
        self._file.write(self._writer.write(rows, columns))
