"""A server that answers: one connection, and what it says when it refuses."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import adbc_driver_manager as adbc
import adbc_driver_postgresql.dbapi as driver
import pyarrow as pa

from tailscope.exceptions import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailscope.extra.postgresql.target import Target

_CANCELLED = "57014"
"""What becomes of Ctrl-C while the driver waits: it asks the server to cancel."""

_HINTS = {
    "08": "the connection broke; nothing of this run was kept: export it again",
    "25006": "this server is read-only (a standby, or set so): use another one",
    "28": "a password comes from PGPASSWORD, PGPASSFILE, ~/.pgpass or a service file",
    "42501": "ask whoever runs the database for CREATE SCHEMA name AUTHORIZATION user, and name it:"
    " --schema name",
    "53100": "the server's disk is full; nothing of this run was kept: make room, export it again",
    "53300": "the server has no connection left: try again later",
    "57": "the server is going down; nothing of this run was kept: export it again",
}
"""By SQLSTATE, or its class."""

_NO_CONNECTION = {
    "password": _HINTS["28"],
    "authentication": _HINTS["28"],
    "no pg_hba.conf entry": "the server accepts no connection from here: see its pg_hba.conf",
    'socket "/tmp/.s.PGSQL': "without a host the driver looks in /tmp; for another folder use, for"
    " instance, postgresql:///NAME?host=/var/run/postgresql",
    "definition of service": "services are looked up in PGSERVICEFILE and ~/.pg_service.conf",
    "does not exist": "createdb makes a database, createuser a user",
}
"""By a part of what libpq says."""


class Server:
    """A connection: everything happens in the transaction that is open, until `commit`."""

    def __init__(self, connection: Any, target: Target) -> None:
        self._connection, self._target = connection, target

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement; what it returns."""
        with self._errors(), self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def value(self, sql: str, *values: object) -> Any:
        """Execute a statement that returns one value."""
        ((found,),) = self.rows(sql, *values)
        return found

    def execute(self, sql: str, *values: object) -> None:
        """Execute a statement that returns nothing; without values, several at once."""
        with self._errors(), self._connection.cursor() as cursor:
            if values:
                cursor.execute(sql, values)
            else:
                cursor.adbc_statement.set_sql_query(sql)
                cursor.adbc_statement.execute_update()

    def copy(
        self, schema: str, table: str, columns: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> int:
        """Send rows by COPY, as they come in; how many there were."""
        raised: list[BaseException] = []

        def guarded() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except BaseException as error:
                raised.append(error)  # the driver would only pass on its text
                raise

        reader = pa.RecordBatchReader.from_batches(columns, guarded())
        try:
            with self._errors(), self._connection.cursor() as cursor:
                return int(cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema))
        except DatabaseError:
            if raised:
                raise raised[0] from None
            raise

    def commit(self) -> None:
        """Keep what was done."""
        with self._errors():
            self._connection.commit()

    def rollback(self) -> None:
        """Take back what was done."""
        with self._errors():
            self._connection.rollback()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except adbc.Error as error:
            if error.sqlstate == _CANCELLED:
                raise KeyboardInterrupt from None
            hint = _hint_of(error.sqlstate or "08")
            raise _described(error, self._target, hint) from None


@contextmanager
def connected(target: Target) -> Iterator[Server]:
    """Connect within a block; what was not committed at its end is taken back."""
    try:
        connection = driver.connect(target.conninfo)
    except adbc.Error as error:
        # libpq gives no SQLSTATE where there is no connection.
        found = [hint for part, hint in _NO_CONNECTION.items() if part in str(error)]
        hint = found[0] if found else "is the server running, and is its address right?"
        raise _described(error, target, hint) from None
    try:
        yield Server(connection, target)
    finally:
        with suppress(adbc.Error):
            connection.rollback()
        with suppress(adbc.Error):
            connection.close()


def _described(error: adbc.Error, target: Target, hint: str | None) -> DatabaseError:
    said = {name: value.decode(errors="replace") for name, value in error.details or ()}
    text = said.get("PG_DIAG_MESSAGE_PRIMARY") or _without_prefix(str(error))
    if detail := said.get("PG_DIAG_MESSAGE_DETAIL"):
        text += f"; {detail}"
    return DatabaseError(target.hide(f"{target.shown}: {text}"), hint=hint)


def _hint_of(state: str) -> str | None:
    return _HINTS.get(state) or _HINTS.get(state[:2])


def _without_prefix(text: str) -> str:
    """What libpq says, on one line, without who passed it on."""
    return " ".join(text.rpartition("[libpq] ")[2].removeprefix("Failed to connect: ").split())
