"""Tables of the catalogue, their columns, and the type of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.plan.field import fields_of
from tailscope.plan.fields import AboutFields, PairFields, PlanFields
from tailscope.store import tables
from tailscope.store.records.summary import figure_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.store.tables import Table

TEXT, COUNT, REAL, TRUTH, TIME = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"
_UNSIGNED = "UBIGINT"

_OF_PLANS = {str: TEXT, int: COUNT, bool: TRUTH, dict: TEXT}

PLAN = {
    "command": TEXT,
    **{
        name: _OF_PLANS[declared.held]
        for struct in (PlanFields, PairFields)
        for name, declared in fields_of(struct).items()
        if declared.is_column
    },
}
"""Columns of table ``run`` that its plan has under the same name."""

ABOUT = {
    name: _OF_PLANS[declared.held]
    for name, declared in fields_of(AboutFields).items()
    if declared.is_column
}
"""Columns of table ``run`` that captures and imports have from what their user says."""

RUN = {
    "run": TEXT,
    "path": TEXT,
    "campaign": TEXT,
    "state": TEXT,
    "problem": TEXT,
    "emulated": TRUTH,
    "written_utc": TIME,
    "tailscope_version": TEXT,
    **PLAN,
    **ABOUT,
    "kernel": TEXT,
    "kernel_release": TEXT,
    "cpu_model": TEXT,
    "cpu_count": COUNT,
    "clock": TEXT,
    "floor_ns_p50": COUNT,
    "floor_ns_p999": COUNT,
    "believed_up_to": REAL,
}
"""Columns of table ``run``."""


_OF_FIGURES = {"count": COUNT, "signed": COUNT, "real": REAL, "truth": TRUTH}

SUMMARY = {
    "run": TEXT,
    **{
        name: _OF_FIGURES[line.kind]
        for name, line in figure_lines()
        if line.kind in _OF_FIGURES and line.is_column
    },
}
"""Columns of table ``summary``: figures by the names that they have in ``summary.json``."""

TABLES: dict[str, Mapping[str, str]] = {
    "run": RUN,
    "summary": SUMMARY,
    "tag": {"run": TEXT, "tag": TEXT},
    "note": {"run": TEXT, "written_utc": TIME, "text": TEXT},
    "file": {"run": TEXT, "file": TEXT, "size_bytes": COUNT, "sha256": TEXT},
}
"""Tables, their columns, and the type of each."""

_OF_TABLES = {
    "uint64": _UNSIGNED,
    "int64": COUNT,
    "double": REAL,
    "bool": TRUTH,
    "string": TEXT,
}


def _view(*parts: Table) -> dict[str, str]:
    columns = {column.name: _OF_TABLES[column.kind] for part in parts for column in part.columns}
    return {"run": TEXT, **columns}


PACKETS: dict[str, Mapping[str, str]] = {
    "latency": _view(tables.LATENCY),
    "lost": _view(tables.LOST),
    "worst": _view(tables.WORST, tables.WORST_EXPLAINED),
    "noise": _view(tables.NOISE),
    "stages": _view(tables.STAGES),
    "interrupts": _view(tables.INTERRUPTS),
    "power": _view(tables.POWER),
}
"""Views over the Parquet files of all runs, their columns, and the type of each."""
