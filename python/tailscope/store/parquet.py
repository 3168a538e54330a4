"""Parquet files of a run, read a piece at a time; they are input, whoever wrote them."""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, Self

import numpy as np

import tailscope._engine as _engine
from tailscope.engine.columns import Texts, column_of, joined, values
from tailscope.exceptions import RunCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tailscope.engine.columns import Column, Values
    from tailscope.store.run import NewColumns
    from tailscope.store.tables import Table, TableColumn

    Cells = Values | tuple[NDArray[np.uint32], list[str]]
    Marks = NDArray[np.bool_] | None

ROWS_PER_GROUP = 1 << 20
_ROWS = 1 << 15
_KINDS = {
    np.dtype(np.bool_): "bool",
    np.dtype(np.int64): "int64",
    np.dtype(np.uint64): "uint64",
    np.dtype(np.float64): "double",
}


def write_parquet(path: Path, columns: NewColumns) -> None:
    """Write a table; under its name it is whole."""
    from tailscope.store.atomic import replacing

    made = {name: column_of(cells) for name, cells in columns.items()}
    rows = len(next(iter(made.values())))
    writer = _engine.TableWriter(
        [(name, _kind(column), True, "dictionary") for name, column in made.items()]
    )
    with replacing(path) as file:
        for start in range(0, rows, ROWS_PER_GROUP):
            group = [column[start : start + ROWS_PER_GROUP] for column in made.values()]
            file.write(writer.write(len(group[0]), [handed(column) for column in group]))
        file.write(writer.finish())


def _kind(column: Column) -> str:
    return "string" if isinstance(column, Texts) else _KINDS[column.dtype]


def handed(column: Column | None) -> tuple[Cells | None, Marks]:
    """Return a column as the engine takes it; None for one without any cells."""
    if column is None:
        return None, None
    if isinstance(column, Texts):
        return (np.asarray(column.places, np.uint32), [name or "" for name in column.names]), None
    cells = np.ascontiguousarray(np.ma.getdata(column))
    return cells, np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else None


def _taken(cells: Cells, missing: Marks) -> Column:
    """Return a column that the engine has read."""
    if not isinstance(cells, tuple):
        return cells if missing is None else np.ma.MaskedArray(cells, missing)
    places, names = cells
    if missing is None:
        return Texts(places, names)
    return Texts(np.where(missing, np.uint32(len(names)), places), [*names, None])


def _empty(kind: str) -> Column:
    dtype = next((of for of, name in _KINDS.items() if name == kind), None)
    return Texts.of([]) if dtype is None else np.zeros(0, dtype)


def missing_cells(column: Column) -> int:
    """Count the cells of a column that are missing."""
    if isinstance(column, Texts):
        absent = [place for place, name in enumerate(column.names) if name is None]
        return int(np.isin(column.places, absent).sum()) if absent else 0
    return int(np.ma.getmaskarray(column).sum()) if isinstance(column, np.ma.MaskedArray) else 0


class TableFile:
    """A table of a run: a context that closes its file."""

    def __init__(self, file: IO[bytes] | bytes, name: str, *tables: Table) -> None:
        self._file = io.BytesIO(file) if isinstance(file, bytes) else file
        self._name = name
        try:
            size = self._file.seek(0, io.SEEK_END)
            self._reader = _engine.TableReader(self._file, size)
        except (_engine.EngineError, OSError) as error:
            self.__exit__(None, None, None)
            raise self._corrupt(f"not Parquet: {error}", "parquet") from None
        self._rows = self._reader.rows
        self._places = {column: at for at, (column, _) in enumerate(self._reader.columns)}
        columns = [column for table in tables for column in table.columns]
        self.names = self._checked(columns)
        self._full = {column.name for column in columns if not column.may_be_null}

    def __len__(self) -> int:
        return self._rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def batch_count(self) -> int:
        """Return the number of batches."""
        return self._reader.batch_count(_ROWS)

    def batches(self, names: Sequence[str], every: int = 1) -> Iterator[dict[str, Column]]:
        """Read some columns, none of them empty; of so many batches only the first."""
        if missing := [name for name in names if name not in self.names]:
            raise self._corrupt(f"{missing[0]}: no such column", "no-such-column")
        if not len(self):
            return
        try:
            batches = self._reader.batches([self._places[name] for name in names], _ROWS)
            while (found := batches.next()) is not None:
                yield self._full_where_needed(names, found)
                batches.skip(every - 1)
        except _engine.EngineError as error:
            raise self._corrupt(f"not the Parquet that was written: {error}", "parquet") from None

    def _full_where_needed(
        self, names: Sequence[str], found: Sequence[tuple[Cells, Marks]]
    ) -> dict[str, Column]:
        batch = {name: _taken(*each) for name, each in zip(names, found, strict=True)}
        for name in self._full.intersection(names):
            if missing := missing_cells(batch[name]):
                raise self._corrupt(
                    f"{name}: expected no missing values, got {missing}", "values-missing"
                )
        return batch

    def columns(self, names: Sequence[str] | None = None) -> Mapping[str, Column]:
        """Read columns as a whole, with what is missing, as `read`."""
        wanted = self.names if names is None else names
        kinds = dict(self._reader.columns)
        pieces: dict[str, list[Column]] = {name: [] for name in wanted}
        for batch in self.batches(wanted):
            for name, column in batch.items():
                pieces[name].append(column)
        return {name: joined(found or [_empty(kinds[name])]) for name, found in pieces.items()}

    def read(self, names: Sequence[str] | None = None) -> dict[str, Values]:
        """Read columns as a whole; all that the table and the file have by default."""
        wanted = self.names if names is None else [*names]
        pieces: dict[str, list[Values]] = {name: [] for name in wanted}
        for batch in self.batches(wanted):
            for name in wanted:
                pieces[name].append(values(batch[name]))
        return {
            name: np.concatenate(found) if found else np.zeros(0, np.int64)
            for name, found in pieces.items()
        }

    def _checked(self, columns: Sequence[TableColumn]) -> list[str]:
        """The names of the columns that there are."""
        kinds = dict(self._reader.columns)
        there = []
        for column in columns:
            got = kinds.get(column.name)
            if got is None:
                continue
            # Without rows, a column of texts was written as one of numbers once.
            if len(self) and got != column.kind:
                raise self._corrupt(
                    f"{column.name}: expected {column.kind}, got {got}", "column-type"
                )
            there.append(column.name)
        return there

    def _corrupt(self, what: str, code: str) -> RunCorruptError:
        return RunCorruptError(f"{self._name}: {what}", code=code)
