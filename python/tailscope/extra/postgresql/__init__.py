"""Runs in a PostgreSQL server: tables as the papers have them, and their figures as views.

Read ``export.py`` first: it sends one run, wholly or not at all. ``content.py`` says what a run has
to send, ``server.py`` speaks with the server, ``target.py`` knows which one that is and keeps its
password to itself. Tables and views are in ``schema.sql`` and ``views.sql``.
"""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition, Extra

ADDITION = Addition(
    commands=(
        AddedCommand(
            "export",
            "Export runs to PostgreSQL: every packet, all figures, and views that recompute them.",
            group="runs",
        ),
    ),
    services={"database_runs": "source:read_source"},
    extra=Extra(
        "postgresql",
        {
            "adbc_driver_manager": "adbc-driver-postgresql",
            "adbc_driver_postgresql": "adbc-driver-postgresql",
        },
    ),
)
