"""Runs in a database, for commands that otherwise read folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.extra.postgresql.export import check_schema_name
from tailscope.extra.postgresql.runs import records
from tailscope.extra.postgresql.server import connected
from tailscope.extra.postgresql.target import Target, read_target

if TYPE_CHECKING:
    from tailscope.store.record import CatalogueRow


@dataclass(frozen=True)
class DatabaseRuns:
    """The runs of a schema."""

    target: Target
    schema: str

    def rows(self) -> list[CatalogueRow]:
        """Read all of them, without their packets."""
        with connected(self.target) as server:
            return records(server, self.schema)


def read_source(database: str, schema: str) -> DatabaseRuns:
    """Read the options ``--from`` and ``--schema``; nothing is connected to yet."""
    check_schema_name(schema)
    return DatabaseRuns(read_target(database, "--from"), schema)
