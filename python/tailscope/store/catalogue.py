"""The catalogue of runs: tables to be queried, in memory, and a copy kept between commands.

Run directories are the truth. What was read of them is kept in a file in the user's cache, one for
each choice of folders, so that the next command reads only what has changed: a database of SQLite
behind its checksum. Every command reads that file whole. It is never changed in place, so readers
need no lock; of several writers the last one prevails. Where nothing can be written, commands make
do with what they have in memory.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tailscope
from tailscope.store.atomic import write_bytes
from tailscope.store.columns import TABLES, TEXT, TIME, TRUTH
from tailscope.store.folders import FoundRuns, find_runs
from tailscope.store.record import read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tailscope.store.folders import RunPlace
    from tailscope.store.record import CatalogueRow, Row, Value

    QueriedRow = dict[str, Any]
    """A row that a query returns."""

_SEEN = {"run": TEXT, "signature": TEXT}
_TABLES: dict[str, Mapping[str, str]] = {"seen": _SEEN, **TABLES}
_READ: dict[str, Callable[[Any], object]] = {TRUTH: bool, TIME: datetime.fromisoformat}
"""What makes a value of the type of its column of what SQLite has: numbers and texts."""
_READ_AS = {
    name: _READ[kind]
    for columns in TABLES.values()
    for name, kind in columns.items()
    if kind in _READ
}
_MOST = 2**63


class RowSource(Protocol):
    """A source of rows of runs other than folders."""

    def rows(self) -> Iterable[CatalogueRow]:
        """Read all of them."""


@dataclass(frozen=True)
class Catalogue:
    """All runs below folders, as tables."""

    _connection: sqlite3.Connection
    """Connection to a database in memory with the tables of `tailscope.store.columns.TABLES`."""
    found: FoundRuns
    """Runs of the folders, and the places of these."""

    def rows(self, query: str, *values: Value) -> list[QueriedRow]:
        """Rows that a query gives, by the names of their columns; these tell types."""
        done = self._connection.execute(query, [_stored(value) for value in values])
        names = [column[0] for column in done.description]
        rows = [dict(zip(names, row, strict=True)) for row in done]
        for name in _READ_AS.keys() & set(names):
            for row in rows:
                if row[name] is not None:
                    row[name] = _READ_AS[name](row[name])
        return rows


@contextmanager
def catalogue_of(folders: Sequence[Path]) -> Iterator[Catalogue]:
    """Have the runs below folders in tables, as they are now."""
    found = find_runs(folders)
    file = _cache_folder() / f"{_key(folders)}.catalogue"
    with closing(_kept(file) or _empty()) as connection:
        if _refresh(connection, found.runs):
            _keep(connection, file)
        yield Catalogue(connection, found)


@contextmanager
def catalogue_of_records(records: Iterable[CatalogueRow]) -> Iterator[Catalogue]:
    """Have runs in tables that were read elsewhere than in folders."""
    with closing(_empty()) as connection:
        for record in records:
            for table, rows in record.rows().items():
                _insert(connection, table, rows)
        yield Catalogue(connection, FoundRuns())


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tailscope" / "catalogue"


def _key(folders: Sequence[Path]) -> str:
    """Return a key that files of other folders and other versions do not share."""
    paths = sorted(str(folder.resolve()) for folder in folders)
    content = repr((tailscope.__version__, _TABLES, paths))
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function("contains", 2, _contains, deterministic=True)
    return connection


def _contains(text: str | None, part: str) -> bool:
    """Whether a text has a part, in any case of its letters: SQLite's own knows those of ASCII."""
    return text is not None and part.lower() in text.lower()


def _empty() -> sqlite3.Connection:
    connection = _database()
    for table, columns in _TABLES.items():
        listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        connection.execute(f"CREATE TABLE {table} ({listed})")
    return connection


def _kept(file: Path) -> sqlite3.Connection | None:
    """Return the result of an earlier refresh; None if there is none, or it is damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    checksum = _checksum(b"")
    kept = memoryview(content)[len(checksum) :]
    if _checksum(kept) != content[: len(checksum)]:
        return None
    connection = _database()
    connection.deserialize(kept)
    return connection


def _checksum(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()


def _refresh(connection: sqlite3.Connection, runs: Mapping[str, RunPlace]) -> bool:
    """Read what has changed; whether anything had."""
    now = {name: place.signature() for name, place in runs.items()}
    before = dict(connection.execute("SELECT run, signature FROM seen"))
    if now == before:
        return False
    same = {name: signature for name, signature in now.items() if before.get(name) == signature}
    connection.execute("DELETE FROM seen")
    _insert_seen(connection, same)
    for table in TABLES:
        connection.execute(f"DELETE FROM {table} WHERE run NOT IN (SELECT run FROM seen)")  # noqa: S608
    new = {name: signature for name, signature in now.items() if name not in same}
    for name in new:
        record = read_record(runs[name].path, name=name, campaign=runs[name].campaign)
        for table, rows in record.rows().items():
            _insert(connection, table, rows)
    _insert_seen(connection, new)
    return True


def _insert_seen(connection: sqlite3.Connection, signatures: Mapping[str, str]) -> None:
    rows: list[Row] = [{"run": run, "signature": each} for run, each in signatures.items()]
    _insert(connection, "seen", rows)


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    columns = _TABLES[table]
    places = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT INTO {table} VALUES ({places})",  # noqa: S608
        ([_stored(row[name]) for name in columns] for row in rows),
    )


def _stored(value: Value) -> str | int | float | None:
    """Return a value as SQLite has it; a whole number that no column holds is none."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        return None
    return value


def _keep(connection: sqlite3.Connection, file: Path) -> None:
    """Keep the tables for the next refresh, if that is possible."""
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = connection.serialize()
        write_bytes(file, _checksum(content) + content)
