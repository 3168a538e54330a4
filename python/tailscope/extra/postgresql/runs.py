"""Runs that were exported, as the catalogue has runs of folders."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from tailscope.exceptions import DatabaseError, RunError
from tailscope.extra.postgresql.export import VERSION
from tailscope.store import layout
from tailscope.store.columns import COUNT, RUN, SUMMARY, TRUTH
from tailscope.store.record import CatalogueRow, plain, record_of
from tailscope.store.records.base import read_record
from tailscope.store.records.run import RunInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailscope.engine.analysis import Figure
    from tailscope.extra.postgresql.server import Server

_TABLES = (
    "SELECT count(*) FROM pg_class WHERE relname = 'store_version'"
    " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)"
)


def records(server: Server, schema: str) -> list[CatalogueRow]:
    """Read all runs of a schema, without their packets."""
    if not server.value(_TABLES, schema):
        raise DatabaseError(
            f"schema {schema}: no runs: `tailscope runs export` has made no tables there",
            code="schema-empty",
            hint="name the schema: --schema NAME",
        )
    server.rows("SELECT set_config('search_path', quote_ident($1), true)", schema)
    version = server.value("SELECT version FROM store_version")
    if version != VERSION:
        raise DatabaseError(
            f"schema {schema}: version of its tables: expected {VERSION}, got {version}",
            code="schema-version",
            hint="use the tailscope that made it, or another schema: --schema NAME",
        )
    figures: dict[int, dict[str, Figure]] = {}
    found = server.rows("SELECT run_id, figure, value::text, text FROM summary")
    for run_id, name, number, text in found:
        if name in SUMMARY:
            figures.setdefault(run_id, {})[name] = _figure(SUMMARY[name], number, text)
    runs = server.rows("SELECT run_id, name, info::text FROM run ORDER BY run_id")
    server.rollback()
    return list(_records(runs, figures))


def _records(
    runs: Iterable[tuple[int, str, str]], figures: dict[int, dict[str, Figure]]
) -> Iterator[CatalogueRow]:
    for run_id, name, text in runs:
        try:
            info = read_record(text.encode(), RunInfo, f"{name}: info", newest=layout.RUN_FORMAT)
            yield record_of(name, info, figures.get(run_id, {}))
        except RunError as error:
            row = dict.fromkeys(RUN) | {
                "run": plain(name),
                "state": "damaged",
                "problem": plain(str(error)),
            }
            yield CatalogueRow(row, dict.fromkeys(SUMMARY) | {"run": plain(name)})


def _figure(kind: str, number: str | None, text: str | None) -> Figure:
    if kind == TRUTH:
        return None if text is None else text == "true"
    if number is None:
        return text
    return int(Decimal(number)) if kind == COUNT else float(number)
