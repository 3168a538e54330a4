"""Questions in SQL about runs and their packets, which can change nothing and see nothing else."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tailscope.exceptions import UsageError
from tailscope.store import layout
from tailscope.store.catalogue import catalogue_of, quoted
from tailscope.store.columns import PACKETS, TABLES
from tailscope.store.record import plain
from tailscope.testbed.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from tailscope.store.catalogue import Catalogue, QueriedRow

    _Group = list[tuple[str, str]]
    """Paths of files with the same columns, and the runs that they are of."""

T = TypeVar("T")

_FILES = {
    "latency": layout.LATENCY,
    "lost": layout.LOST,
    "worst": layout.WORST,
    "noise": layout.NOISE,
    "stages": layout.STAGES,
    "interrupts": layout.INTERRUPTS,
    "power": layout.POWER,
}
_FETCHED = 10_000
_MEMORY, _THREADS = "512MiB", 4
"""Bounds of DuckDB, which otherwise takes most of the machine; what exceeds them goes to disk."""
_INTERRUPTED_EVERY_S = 0.1
_POSITION = re.compile(r"\s*\n\s*LINE \d+:.*", re.DOTALL)
_HINT = (
    "tables are "
    + ", ".join((*TABLES, *PACKETS))
    + '; `tailscope runs sql "DESCRIBE run"` lists the columns of one'
)


@dataclass(frozen=True)
class QueryResult:
    """The result of a query."""

    columns: list[str]
    """Their names."""
    rows: Iterator[tuple[object, ...]]
    """Can be read once."""


@dataclass(frozen=True)
class Database:
    """Runs and their packets, for reading."""

    _connection: DuckDBPyConnection
    warnings: list[str] = field(default_factory=list)
    """Folders and files that are left out, and why."""

    def ask(self, query: str) -> QueryResult:
        """Answer a query.

        It is given to DuckDB as a text that stands for a table. There only a single SELECT is let
        through, and none that has a COPY or an INSERT in its WITH.
        """
        values = {"query": plain(query)}
        done = self._waited(lambda: self._connection.execute("FROM query($query)", values))
        return QueryResult([column[0] for column in done.description], self._rows(done))

    def _rows(self, done: DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
        while rows := self._waited(lambda: done.fetchmany(_FETCHED)):
            yield from rows

    def _waited(self, work: Callable[[], T]) -> T:
        """Let DuckDB work in a thread: it may do so for long without a look at signals."""
        with _in_our_words(), ThreadPoolExecutor(1) as pool:
            done = pool.submit(work)
            try:
                return done.result()
            except KeyboardInterrupt:
                # What comes before DuckDB has begun, it forgets.
                while not done.done():
                    self._connection.interrupt()
                    wait([done], _INTERRUPTED_EVERY_S)
                raise


@contextmanager
def database_of(folders: Sequence[Path]) -> Iterator[Database]:
    """Have the runs below folders, and their packets, in a database that changes nothing."""
    import duckdb

    with (
        catalogue_of(folders) as catalogue,
        RunFolder(on_disk=True) as scratch,
        duckdb.connect(":memory:") as connection,
    ):
        database = Database(connection, list(catalogue.found.unread))
        tables = {table: catalogue.rows(f"SELECT * FROM {table}") for table in TABLES}  # noqa: S608
        views = {
            view: _sources(catalogue, file, database.warnings) for view, file in _FILES.items()
        }
        database._waited(partial(_fill, database, tables, views, str(scratch.path)))
        try:
            yield database
        finally:
            # To close it waits for the end of a query whose rows nobody wants any more.
            connection.interrupt()


def _fill(
    database: Database,
    tables: Mapping[str, list[QueriedRow]],
    views: Mapping[str, Sequence[_Group]],
    scratch: str,
) -> None:
    connection = database._connection
    for table, rows in tables.items():
        _make_table(connection, table, rows)
    for view, groups in views.items():
        _make_view(database, view, groups)
    paths = [path for groups in views.values() for group in groups for path, _ in group]
    readable = [each for path in paths for each in {path, _without_wildcards(path)}]
    _lock(connection, readable, scratch)


def _make_table(connection: DuckDBPyConnection, table: str, rows: list[QueriedRow]) -> None:
    """Have rows as a table, sent as JSON by column: by row it takes 30 times as long."""
    columns = TABLES[table]
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
    connection.execute(f"CREATE TABLE {table} ({listed})")
    unnested = (f"""unnest(from_json(?, '["{kind}"]'))""" for kind in columns.values())
    connection.execute(
        f"INSERT INTO {table} SELECT {', '.join(unnested)}",
        [json.dumps([row[name] for row in rows], default=datetime.isoformat) for name in columns],
    )


def _make_view(database: Database, view: str, groups: Sequence[_Group]) -> None:
    """Make a view over a file of all runs.

    Which run a row is of follows from its file's name, so that DuckDB opens only files of runs
    that are asked for. Files of like columns are read together.
    """
    import duckdb

    columns = PACKETS[view]
    nothing = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in columns.items())
    parts = [f"SELECT {nothing} WHERE false"]
    for group in groups:
        names = ", ".join(f"{_text_literal(path)}: {_text_literal(run)}" for path, run in group)
        listed = ", ".join(_text_literal(_without_wildcards(path)) for path, _ in group)
        parts.append(
            f"SELECT MAP {{{names}}}[filename] AS run, * EXCLUDE (filename)"  # noqa: S608
            f" FROM read_parquet([{listed}], filename = true)"
        )
    try:
        database._connection.execute(f"CREATE VIEW {view} AS {' UNION ALL BY NAME '.join(parts)}")
    except duckdb.Error as error:
        database.warnings.append(f"{view} is not available: {_one_line(error)}")


def _sources(catalogue: Catalogue, file: str, warnings: list[str]) -> list[_Group]:
    """Paths of a file and the runs that they are of: without and with an explanation."""
    found = catalogue.rows(
        "SELECT run, size_bytes, run IN (SELECT run FROM file WHERE file = ?2) AS explained"
        " FROM file WHERE file = ?1 ORDER BY run",
        file,
        layout.EXPLANATION,
    )
    groups: dict[bool, _Group] = {False: [], True: []}
    for row in found:
        path = catalogue.found.runs[row["run"]].path / file
        if path.is_symlink() or not path.is_file():
            problem = "missing, or not a file"
        elif path.stat().st_size != row["size_bytes"]:
            problem = f"expected {row['size_bytes']} bytes, got {path.stat().st_size}"
        elif not _is_text(str(path)):
            problem = "its path is not valid text"
        else:
            groups[row["explained"]].append((str(path), row["run"]))
            continue
        warnings.append(f"left out: {path}: {problem}")
    return [group for group in groups.values() if group]


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _without_wildcards(path: str) -> str:
    """A path that DuckDB takes for itself, not for a pattern of paths."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _lock(connection: DuckDBPyConnection, readable: list[str], scratch: str) -> None:
    """Take from a connection everything but its tables and these files."""
    paths = ", ".join(map(_text_literal, readable))
    for setting in (
        f"memory_limit = {_text_literal(_MEMORY)}",
        f"threads = {min(_THREADS, len(os.sched_getaffinity(0)))}",
        f"temp_directory = {_text_literal(f'{scratch}/spilled')}",
        f"allowed_paths = [{paths}]",
        "python_enable_replacements = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Say what DuckDB says as everything else here says it."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise UsageError(f"SQL: {_one_line(error)}", code="sql", hint=_HINT) from None


def _one_line(error: Exception) -> str:
    """The message of the database, without the place in a text that nobody sees."""
    return " ".join(_POSITION.sub("", str(error)).split())
