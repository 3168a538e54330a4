"""The single packets of a run, read a piece at a time: there may be more than memory holds."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tailscope.engine.columns import values
from tailscope.exceptions import RunCorruptError
from tailscope.store.parquet import TableFile, missing_cells
from tailscope.store.tables import LATENCY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.engine.analysis import Distribution
    from tailscope.engine.columns import Column


_ALWAYS = {column.name for column in LATENCY.columns if not column.may_be_null}
"""Columns that every file has."""


class Latencies(NamedTuple):
    """The results of one pass over all packets; without any, numbers and times are 0."""

    distribution: Distribution
    """Distribution of the latencies."""
    first_seq: int
    last_seq: int
    """Numbers of the first and the last packet."""
    first_ns: int
    last_ns: int
    """Times at which the first packet came and the last one left."""
    worst_seq: int
    """Number of the packet with the longest latency, the first of several."""


class Packets:
    """``latency.parquet``: a context that closes it."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._table, self._name = TableFile(file, name, LATENCY), name

    def __len__(self) -> int:
        return len(self._table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._table.__exit__(kind, error, trace)

    @property
    def batch_count(self) -> int:
        """Return the number of batches."""
        return self._table.batch_count

    def batches(self, *names: str, every: int = 1) -> Iterator[list[Any]]:
        """Read columns of all packets, in the order of the pre capture.

        Of so many batches as `every` says only the first is read.
        """
        derived = "instrument_stall_ns" in names and not self._has("instrument_stall_ns")
        wanted = [*dict.fromkeys((*names, "latency_ns", "tainted"))] if derived else [*names]
        before = -1
        for batch in self._table.batches([name for name in wanted if self._is_read(name)], every):
            found = {name: self._values(name, cells) for name, cells in batch.items()}
            if derived:
                found["instrument_stall_ns"] = _all_of_tainted(found)
            if (seq := found.get("seq")) is not None:
                before = self._in_order(seq, before)
            yield [found.get(name) for name in names]

    def record_batches(self, *names: str) -> Iterator[pa.RecordBatch]:
        """Read columns as `batches`, as Arrow has them; a column without values is null."""
        from tailscope.engine.arrow import arrow, column

        pa = arrow()
        kinds = {each.name: pa.type_for_alias(each.kind) for each in LATENCY.columns}
        wanted = [*dict.fromkeys(("seq", *names))]
        for batch in self.batches(*wanted):
            found = dict(zip(wanted, batch, strict=True))
            rows = len(found["seq"])
            columns = [
                pa.nulls(rows, kinds[name]) if found[name] is None else column(found[name])
                for name in names
            ]
            yield pa.record_batch(columns, [*names])

    def columns(self, *names: str) -> list[Any]:
        """Read columns as a whole, as `batches`."""
        read = [*self.batches(*names)]
        if not read:
            return [np.zeros(0, np.uint64) for _ in names]
        return [
            None if any(each is None for each in pieces) else np.concatenate(pieces)
            for pieces in zip(*read, strict=True)
        ]

    def beyond(self, limit_ns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read when packets came and left that took longer than a limit."""
        came = [np.zeros(0, np.int64)]
        left = [np.zeros(0, np.int64)]
        for pre_ns, latency_ns in self.batches("pre_ns", "latency_ns"):
            chosen = latency_ns > limit_ns
            came.append(pre_ns[chosen].astype(np.int64))
            left.append(came[-1] + latency_ns[chosen].astype(np.int64))
        return np.concatenate(came), np.concatenate(left)

    def latencies(self) -> Latencies:
        """Read how long packets took."""
        from tailscope.engine.analysis import Distribution

        distribution = Distribution()
        first_seq = last_seq = first_ns = last_ns = worst_seq = 0
        largest_ns = -1
        for seq, pre_ns, latency_ns in self.batches("seq", "pre_ns", "latency_ns"):
            if not distribution.count:
                first_seq, first_ns = int(seq[0]), int(pre_ns[0])
            distribution.record(latency_ns)
            last_seq, last_ns = int(seq[-1]), max(last_ns, int((pre_ns + latency_ns).max()))
            at = int(latency_ns.argmax())
            if int(latency_ns[at]) > largest_ns:
                largest_ns, worst_seq = int(latency_ns[at]), int(seq[at])
        return Latencies(distribution, first_seq, last_seq, first_ns, last_ns, worst_seq)

    def _has(self, name: str) -> bool:
        return name in self._table.names

    def _is_read(self, name: str) -> bool:
        """Return whether a column is there, or has to be."""
        return self._has(name) or name in _ALWAYS

    def _values(self, name: str, cells: Column) -> NDArray[Any] | None:
        missing = missing_cells(cells)
        if missing == len(cells):
            return None
        if missing:
            raise self._corrupt(
                f"{name}: expected no missing values, got {missing}", "values-missing"
            )
        return np.ma.getdata(values(cells))

    def _in_order(self, seq: NDArray[np.uint64], before: int) -> int:
        if int(seq[0]) <= before or not (seq[1:] > seq[:-1]).all():
            raise self._corrupt("seq: expected packets in ascending order", "packet-order")
        return int(seq[-1])

    def _corrupt(self, what: str, code: str) -> RunCorruptError:
        return RunCorruptError(f"{self._name}: {what}", code=code)


def _all_of_tainted(found: dict[str, Any]) -> NDArray[np.uint64] | None:
    """Return all latency of tainted packets, for files that do not have the instrument's share."""
    tainted = found.get("tainted")
    if tainted is None:
        return None
    stalled: NDArray[np.uint64] = found["latency_ns"] * tainted
    return stalled
