"""Parquet files of a run, read a piece at a time; they are input, whoever wrote them."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from tailscope.exceptions import RunCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.store.run import NewColumns
    from tailscope.store.tables import Table, TableColumn

_ROWS = 1 << 15
_BUFFER_BYTES = 1 << 20


def write_parquet(path: Path, columns: NewColumns) -> None:
    """Write a table; under its name it is whole."""
    import pyarrow.parquet as pq

    from tailscope.engine.arrow import table
    from tailscope.store.atomic import replacing

    with replacing(path) as file:
        pq.write_table(table(columns), file, compression="zstd")


class TableFile:
    """A table of a run: a context that closes its file."""

    def __init__(self, file: IO[bytes] | bytes, name: str, *tables: Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._file, self._name = file, name
        try:
            source = pa.BufferReader(file) if isinstance(file, bytes) else file
            self._parquet = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES)
        except (pa.ArrowException, OSError) as error:
            self.__exit__(None, None, None)
            raise self._corrupt(f"not Parquet: {error}", "parquet") from None
        columns = [column for table in tables for column in table.columns]
        self.names = self._checked(columns)
        self._full = {column.name for column in columns if not column.may_be_null}

    def __len__(self) -> int:
        return int(self._parquet.metadata.num_rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(self._file, bytes):
            self._file.close()

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read some columns, none of them empty."""
        if missing := [name for name in names if name not in self.names]:
            raise self._corrupt(f"{missing[0]}: no such column", "no-such-column")

        for group in range(self._parquet.num_row_groups):
            # Of all groups at once, what one was read through stays until the last is.
            yield from self._of_group(group, names)

    def _of_group(self, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # In this thread: Arrow's own may outlive the interpreter (apache/arrow issue 34314).
        batches = self._parquet.iter_batches(
            _ROWS, row_groups=[group], columns=[*names], use_threads=False
        )
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise self._corrupt(
                    f"not the Parquet that was written: {error}", "parquet"
                ) from None
            for name in self._full.intersection(names):
                if missing := batch[name].null_count:
                    raise self._corrupt(
                        f"{name}: expected no missing values, got {missing}", "values-missing"
                    )
            if len(batch):
                yield batch

    def table(self) -> pa.Table:
        """Read all columns that the table and the file have, as Arrow has them."""
        import pyarrow as pa

        schema = self._parquet.schema_arrow
        found = (batch.select(self.names) for batch in self.batches(self.names))
        return pa.Table.from_batches(found, pa.schema([schema.field(name) for name in self.names]))

    def read(self, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Read columns as a whole; all that the table and the file have by default."""
        from tailscope.engine.arrow import values

        wanted = self.names if names is None else [*names]
        pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
        for batch in self.batches(wanted):
            for name in wanted:
                pieces[name].append(values(batch[name]))
        return {
            name: np.concatenate(found) if found else np.zeros(0, np.int64)
            for name, found in pieces.items()
        }

    def _checked(self, columns: Sequence[TableColumn]) -> list[str]:
        """The names of the columns that there are."""
        schema = self._parquet.schema_arrow
        there = []
        for column in columns:
            at = schema.get_field_index(column.name)
            if at >= 0:
                self._check_type(column, schema.field(at).type)
                there.append(column.name)
        return there

    def _check_type(self, column: TableColumn, got: pa.DataType) -> None:
        import pyarrow as pa

        # Without rows, a column of texts was written as one of numbers once.
        if not len(self):
            return
        expected = pa.type_for_alias(column.kind)
        plain = got.value_type if pa.types.is_dictionary(got) else got
        if plain != expected:
            raise self._corrupt(f"{column.name}: expected {expected}, got {got}", "column-type")

    def _corrupt(self, what: str, code: str) -> RunCorruptError:
        return RunCorruptError(f"{self._name}: {what}", code=code)
