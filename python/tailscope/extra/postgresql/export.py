"""Sending one run: in one transaction, so that it is there wholly or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import DatabaseError, RunCorruptError, UsageError
from tailscope.extra.postgresql import content as rows_of
from tailscope.store import layout
from tailscope.store.reader import open_packets
from tailscope.store.records.plan import ImportPlan
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from tailscope.extra.postgresql.content import Content
    from tailscope.extra.postgresql.server import Server

    Progress = Callable[[int, int], None]

VERSION = 2
"""Version of tables and views; another one is refused."""

_MOST_NAME_BYTES = 63
_ASK_AGAIN_S = 0.1

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('tailscope ' || $1, 0))"
_RELATIONS = (
    "SELECT count(*), count(*) FILTER (WHERE relname = 'store_version') FROM pg_class"
    " WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)"
)
_INSERT_RUN = (
    "INSERT INTO run (name, label, sha256, summary_sha256, tailscope_version, match_on, trim_ns,"
    " window_ns, bucket_ns, worst_kept, warnings, info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,"
    " $10, $11::text::json, $12::text::json) RETURNING run_id"
)
_INSERT_SUMMARY = (
    "INSERT INTO summary SELECT $1, figure,"
    " CASE WHEN json_typeof(value) = 'number' THEN (value #>> '{}')::numeric END,"
    " CASE WHEN json_typeof(value) IN ('string', 'boolean') THEN value #>> '{}' END"
    " FROM json_each($2::text::json) AS figures (figure, value)"
)
_INSERT_PERCENTILES = (
    "INSERT INTO percentile SELECT $1, q, value_ns, ci_low_ns, ci_high_ns, beyond, supported"
    " FROM json_to_recordset($2::text::json) AS found (q numeric, value_ns bigint,"
    " ci_low_ns bigint, ci_high_ns bigint, beyond bigint, supported boolean)"
)
_INSERT_CAPTURE = (
    "INSERT INTO capture (name, type, run_id, file) VALUES ($1, $2, $3, $4) RETURNING capture_id"
)
_FIND = (
    "SELECT run_id, name, sha256 = $1,"
    " EXISTS (SELECT FROM capture WHERE capture.run_id = run.run_id)"
    " FROM run WHERE sha256 = $1 OR name = $2"
)
_FORGET = (
    "DELETE FROM pkt WHERE capture_id IN (SELECT capture_id FROM capture WHERE run_id = $1)",
    "DELETE FROM latency WHERE run_id = $1",
    "DELETE FROM run WHERE run_id = $1",
)
_ANALYZE = "ANALYZE run, summary, percentile, latency, capture, pkt"


class ExportedRun(NamedTuple):
    """The outcome of the export of a run."""

    state: str
    name: str
    """Name of the run in the database."""
    run_id: int


def check_schema_name(name: str) -> None:
    """See that a name can be one of a schema."""
    size = len(name.encode(errors="surrogateescape"))
    if not 1 <= size <= _MOST_NAME_BYTES or name != printable(name) or name.startswith("pg_"):
        raise UsageError(
            f"--schema: got {name!r}, expected 1 to {_MOST_NAME_BYTES} bytes that can be printed,"
            " and not pg_ in front",
            code="schema-name",
        )


def export(
    server: Server,
    schema: str,
    content: Content,
    *,
    progress: Progress | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> ExportedRun:
    """Send a run, unless it is there already."""
    try:
        _take_turn(server, schema, waiting)
        _open_schema(server, schema)
        found = server.rows(_FIND, content.sha256, _name(content))
        for run_id, name, is_same, has_captures in found:
            if is_same and (has_captures or not content.captures):
                server.rollback()
                return ExportedRun("already there", name, run_id)
        for run_id, *_ in found:
            _forget(server, run_id)
        run_id = _send(server, schema, content, _Sent(content, progress))
        server.execute(_ANALYZE)
        server.commit()
    except BaseException:
        with suppress(DatabaseError):
            server.rollback()
        raise
    return ExportedRun("replaced" if found else "exported", _name(content), run_id)


def _take_turn(server: Server, schema: str, waiting: Callable[[], None]) -> None:
    """Wait until no other export into the schema is under way; Ctrl-C is heard meanwhile."""
    is_told = False
    while not _has_turn(server, schema):
        server.rollback()
        if not is_told:
            waiting()
        is_told = True
        time.sleep(_ASK_AGAIN_S)


def _has_turn(server: Server, schema: str) -> bool:
    # What the export before has committed must be seen, whatever the server's default is.
    server.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    server.execute("SET LOCAL statement_timeout = 0")
    return bool(server.value(_LOCK, schema))


def _open_schema(server: Server, schema: str) -> None:
    """Make the schema the place of all that follows, with our tables in it."""
    if not server.value("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
        quoted = schema.replace('"', '""')
        server.execute(f'CREATE SCHEMA "{quoted}"')
    server.rows("SELECT set_config('search_path', quote_ident($1), true)", schema)
    ((relations, ours),) = server.rows(_RELATIONS, schema)
    if ours:
        version = server.value("SELECT version FROM store_version")
        if version != VERSION:
            raise DatabaseError(
                f"schema {schema}: version of its tables: expected {VERSION}, got {version}",
                code="schema-version",
                hint="use the tailscope that made it, or another schema: --schema NAME",
            )
        return
    if relations:
        raise DatabaseError(
            f"schema {schema}: expected tailscope's tables or none, got {relations} others",
            code="schema-foreign",
            hint="use another one: --schema NAME",
        )
    for script in ("schema.sql", "views.sql"):
        server.execute(files("tailscope.extra.postgresql").joinpath(script).read_text())
    server.execute("INSERT INTO store_version VALUES ($1)", VERSION)


def _forget(server: Server, run_id: int) -> None:
    for statement in _FORGET:
        server.execute(statement, run_id)


def _send(server: Server, schema: str, content: Content, sent: _Sent) -> int:
    run, name = content.run, _name(content)
    plan = run.info.plan
    assert not isinstance(plan, ImportPlan), "it is refused before"
    run_id: int = server.value(
        _INSERT_RUN,
        name,
        printable(run.label),
        content.sha256,
        run.info.files[layout.SUMMARY].sha256,
        printable(run.info.tailscope_version),
        run.summary["match_on"],
        run.summary["trim_ns"],
        run.summary["window_ns"],
        plan.bucket_ns,
        plan.worst,
        json.dumps(run.warnings),
        content.info,
    )
    server.execute(_INSERT_SUMMARY, run_id, content.figures)
    server.execute(_INSERT_PERCENTILES, run_id, content.percentiles)
    with open_packets(content.path, run.info) as packets:
        batches = sent.counted(rows_of.latencies(packets, run_id))
        got = server.copy(schema, "latency", rows_of.LATENCY, batches)
    _check_count(content.path / layout.LATENCY, content.matches, got)
    for side, path in content.captures.items():
        content.check_capture(path)
        capture_id = server.value(_INSERT_CAPTURE, name, side, run_id, printable(str(path)))
        keys = rows_of.packets(str(path), side, run.summary, capture_id)
        got = server.copy(schema, "pkt", rows_of.PACKETS, sent.counted(keys))
        _check_count(path, content.packets_of(side), got)
    return run_id


class _Sent:
    """Counts rows on their way."""

    def __init__(self, content: Content, progress: Progress | None) -> None:
        self._total = content.matches + sum(map(content.packets_of, content.captures))
        self._progress, self._done = progress, 0

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self._done += len(batch)
            if self._progress is not None:
                self._progress(self._done, self._total)


def _check_count(path: Path, expected: int, got: int) -> None:
    if got != expected:
        raise RunCorruptError(
            f"{path}: expected {expected} packets, as summary.json says, got {got}",
            code="packet-count",
        )


def _name(content: Content) -> str:
    """Host and directory: what tells runs apart that different machines have at the same path."""
    return printable(f"{_machine()}:{content.path.resolve()}")


def _machine() -> str:
    """The name of this machine, and what tells it from others of that name."""
    try:
        identity = Path("/etc/machine-id").read_bytes().strip()
    except OSError:
        identity = b""
    # The identity itself is not to be shown: machine-id(5).
    return f"{os.uname().nodename}-{hashlib.sha256(b'tailscope' + identity).hexdigest()[:8]}"
