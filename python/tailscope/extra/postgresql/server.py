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

_REFUSALS = {
    "08": (
        "connection-lost",
        "the connection broke; nothing of this run was kept: export it again",
    ),
    "25006": (
        "read-only",
        "this server is read-only (a standby, or set so): use another one",
    ),
    "28": (
        "authentication",
        "a password comes from PGPASSWORD, PGPASSFILE, ~/.pgpass or a service file",
    ),
    "42501": (
        "permission",
        "ask whoever runs the database for CREATE SCHEMA name AUTHORIZATION user, and name it:"
        " --schema name",
    ),
    "53100": (
        "disk-full",
        "the server's disk is full; nothing of this run was kept: make room, export it again",
    ),
    "53300": ("too-many-connections", "the server has no connection left: try again later"),
    "57": (
        "shutting-down",
        "the server is going down; nothing of this run was kept: export it again",
    ),
}
"""Code and hint of an error, by its SQLSTATE or by the class of that."""

_IS_IT_RUNNING = "is the server running, and is its address right?"
_NO_CONNECTION = {
    "no password supplied": ("password-missing", _REFUSALS["28"][1]),
    "password": _REFUSALS["28"],
    "authentication": _REFUSALS["28"],
    "no pg_hba.conf entry": (
        "host-refused",
        "the server accepts no connection from here: see its pg_hba.conf",
    ),
    'socket "/tmp/.s.PGSQL': (
        "no-server",
        "without a host the driver looks in /tmp; for another folder use, for"
        " instance, postgresql:///NAME?host=/var/run/postgresql",
    ),
    "definition of service": (
        "no-such-service",
        "services are looked up in PGSERVICEFILE and ~/.pg_service.conf",
    ),
    "does not exist": (
        "no-such-database",
        "createdb makes a database, createuser a user",
    ),
    "No such file or directory": ("no-server", _IS_IT_RUNNING),
    "Connection refused": ("no-server", _IS_IT_RUNNING),
}
"""Code and hint of a connection that is refused, by a part of what libpq says."""


class Server:
    """A connection: everything happens in the transaction that is open, until `commit`."""

    def __init__(self, connection: Any, target: Target) -> None:
        self._connection, self._target = connection, target

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement; what it returns."""
        with self._errors(), self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def value(self, sql: str, *values: Any) -> Any:
        """Execute a statement that returns one value."""
        ((found,),) = self.rows(sql, *values)
        return found

    def execute(self, sql: str, *values: Any) -> None:
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
            state = error.sqlstate or "08"
            refusal = _REFUSALS.get(state) or _REFUSALS.get(state[:2]) or ("database", None)
            raise _described(error, self._target, *refusal) from None


@contextmanager
def connected(target: Target) -> Iterator[Server]:
    """Connect within a block; what was not committed at its end is taken back."""
    try:
        connection = driver.connect(target.conninfo)
    except adbc.Error as error:
        # libpq gives no SQLSTATE where there is no connection.
        refusals = [refusal for part, refusal in _NO_CONNECTION.items() if part in str(error)]
        refusal = refusals[0] if refusals else ("no-connection", _IS_IT_RUNNING)
        raise _described(error, target, *refusal) from None
    try:
        yield Server(connection, target)
    finally:
        with suppress(adbc.Error):
            connection.rollback()
        with suppress(adbc.Error):
            connection.close()


def _described(error: adbc.Error, target: Target, code: str, hint: str | None) -> DatabaseError:
    fields = {name: value.decode(errors="replace") for name, value in error.details or ()}
    text = fields.get("PG_DIAG_MESSAGE_PRIMARY") or _without_prefix(str(error))
    if detail := fields.get("PG_DIAG_MESSAGE_DETAIL"):
        text += f"; {detail}"
    return DatabaseError(target.hide(f"{target.shown}: {text}"), code=code, hint=hint)


def _without_prefix(text: str) -> str:
    """What libpq says, on one line, without who passed it on."""
    return " ".join(text.rpartition("[libpq] ")[2].removeprefix("Failed to connect: ").split())
