"""The catalogue of runs: tables to be queried, in memory, and a copy kept between commands.

Run directories are the truth. What was read of them is kept in a DuckDB file in the user's cache,
one for each choice of folders, so that the next command reads only what has changed. Every command
copies that file into memory and closes it. It is never changed in place: a new one is written under
another name and renamed. So readers need no lock; of several writers one writes while the others
make do with what they have in memory, as everybody does where nothing can be written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tailscope
from tailscope.store.columns import TABLES, TEXT
from tailscope.store.folders import FoundRuns, find_runs
from tailscope.store.record import read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from tailscope.store.folders import RunPlace
    from tailscope.store.record import CatalogueRow, Row

    QueriedRow = dict[str, Any]
    """A row that a query returns: its types are those of the query."""

_SEEN = {"run": TEXT, "signature": TEXT}
_ALL: dict[str, Mapping[str, str]] = {"seen": _SEEN, **TABLES}


class RowSource(Protocol):
    """A source of rows of runs other than folders."""

    def rows(self) -> Iterable[CatalogueRow]:
        """Read all of them."""


@dataclass(frozen=True)
class Catalogue:
    """All runs below folders, as tables."""

    connection: DuckDBPyConnection
    """Connection to a database in memory with the tables of `tailscope.store.columns.TABLES`."""
    found: FoundRuns
    """Runs of the folders, and the places of these."""

    def rows(self, query: str, *values: object) -> list[QueriedRow]:
        """Rows that a query gives, by the names of their columns."""
        done = self.connection.execute(query, list(values))
        names = [column[0] for column in done.description]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


@contextmanager
def catalogue_of(folders: Sequence[Path]) -> Iterator[Catalogue]:
    """Have the runs below folders in tables, as they are now."""
    found = find_runs(folders)
    file = _cache_folder() / f"{_key(folders)}.duckdb"
    connection = _kept(file) or _empty()
    try:
        if _refresh(connection, found.runs):
            _keep(connection, file)
        yield Catalogue(connection, found)
    finally:
        connection.close()


@contextmanager
def catalogue_of_records(records: Iterable[CatalogueRow]) -> Iterator[Catalogue]:
    """Have runs in tables that were read elsewhere than in folders."""
    connection = _empty()
    try:
        for record in records:
            for table, rows in record.rows().items():
                _insert(connection, table, rows)
        yield Catalogue(connection, FoundRuns())
    finally:
        connection.close()


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tailscope" / "catalogue"


def _key(folders: Sequence[Path]) -> str:
    """Return a key that files of other folders and other versions do not share."""
    paths = sorted(str(folder.resolve()) for folder in folders)
    content = repr((tailscope.__version__, _ALL, paths))
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _empty() -> DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:")
    for table, columns in _ALL.items():
        listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        connection.execute(f"CREATE TABLE {table} ({listed})")
    return connection


def _kept(file: Path) -> DuckDBPyConnection | None:
    """Return the result of an earlier refresh; None if there is none, or it is damaged."""
    import duckdb

    if not file.is_file():
        return None
    connection = duckdb.connect(":memory:")
    try:
        connection.execute(f"ATTACH {text_literal(str(file))} AS kept (READ_ONLY)")
        connection.execute("COPY FROM DATABASE kept TO memory")
        connection.execute("DETACH kept")
        for table, columns in _ALL.items():
            connection.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {table} LIMIT 0")  # noqa: S608
    except duckdb.Error:
        connection.close()
        return None
    return connection


def _refresh(connection: DuckDBPyConnection, runs: Mapping[str, RunPlace]) -> bool:
    """Read what has changed; whether anything had."""
    now = {name: place.signature() for name, place in runs.items()}
    before = dict(connection.execute("SELECT run, signature FROM seen").fetchall())
    gone = [name for name in before if before[name] != now.get(name)]
    new = [name for name in now if before.get(name) != now[name]]
    if not gone and not new:
        return False
    for table in _ALL:
        connection.execute(f"DELETE FROM {table} WHERE run IN (SELECT unnest(?))", [gone])  # noqa: S608
    rows: dict[str, list[Row]] = {table: [] for table in _ALL}
    for name in new:
        record = read_record(runs[name].path, name=name, campaign=runs[name].campaign)
        rows["seen"].append({"run": name, "signature": now[name]})
        for table, of_run in record.rows().items():
            rows[table] += of_run
    for table, added in rows.items():
        _insert(connection, table, added)
    return True


def _insert(connection: DuckDBPyConnection, table: str, rows: list[Row]) -> None:
    """Add rows, as JSON: for hundreds of columns the quickest that needs no further library."""
    shape = text_literal(json.dumps([dict(_ALL[table])]))
    connection.execute(
        f"INSERT INTO {table} BY NAME SELECT unnest(from_json(?, {shape}), max_depth := 2)",
        [json.dumps(rows, default=datetime.isoformat)],
    )


def _keep(connection: DuckDBPyConnection, file: Path) -> None:
    """Keep the tables for the next refresh, unless another process is about to, or none can be."""
    import duckdb

    with suppress(OSError, duckdb.Error):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(connection, file)
        finally:
            os.close(lock)


def _write(connection: DuckDBPyConnection, file: Path) -> None:
    part = file.with_suffix(".part")
    for left in (part, part.with_name(f"{part.name}.wal")):
        left.unlink(missing_ok=True)
    connection.execute(f"ATTACH {text_literal(str(part))} AS fresh")
    try:
        connection.execute("COPY FROM DATABASE memory TO fresh")
    finally:
        connection.execute("DETACH fresh")
    part.chmod(0o600)
    part.replace(file)
