"""``latency.parquet``: every match of a run, written as the matches come in."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Self

from tailscope.store.tables import LATENCY

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from tailscope.engine.analysis import Series


class LatencyFile:
    """``latency.parquet``, written as the matches come in.

    Columns ``intended_ns``, ``tainted`` and ``instrument_stall_ns`` are null for captures: they do
    not tell when a packet should have been sent, nor how far the instrument itself delayed it.
    """

    ROWS_PER_GROUP = 1 << 20

    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa = pa
        self._schema = pa.schema(
            [
                pa.field(each.name, pa.type_for_alias(each.kind), nullable=each.may_be_null)
                for each in LATENCY.columns
            ]
        )
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={
                "seq": "DELTA_BINARY_PACKED",
                "pre_ns": "DELTA_BINARY_PACKED",
                "latency_ns": "DELTA_BINARY_PACKED",
                "intended_ns": "PLAIN",
                "tainted": "PLAIN",
                "instrument_stall_ns": "DELTA_BINARY_PACKED",
            },
        )
        self._waiting: list[pa.RecordBatch] = []

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
        self._writer.close()

    def write(self, series: Series) -> None:
        """Append matches; they reach the file a group of rows at a time."""
        from tailscope.engine.arrow import column

        pa = self._pa
        columns = [
            pa.nulls(len(series.seq), field.type) if values is None else column(values)
            for field, values in zip(self._schema, series, strict=True)
        ]
        self._waiting.append(pa.record_batch(columns, schema=self._schema))
        if sum(map(len, self._waiting)) >= self.ROWS_PER_GROUP:
            self._flush(whole_groups=True)

    def _flush(self, *, whole_groups: bool = False) -> None:
        """Write what waits: the same file, in whatever pieces the matches came."""
        table = self._pa.Table.from_batches(self._waiting, schema=self._schema)
        rest = len(table) % self.ROWS_PER_GROUP if whole_groups else 0
        ready = table.slice(0, len(table) - rest).combine_chunks()
        self._writer.write_table(ready, row_group_size=self.ROWS_PER_GROUP)
        self._waiting = table.slice(len(ready)).to_batches()
