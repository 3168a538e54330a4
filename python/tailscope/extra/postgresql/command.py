"""``tailscope runs export``: runs into a PostgreSQL database."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import STANDARD, JsonFile, argument, flag, option, write_json
from tailscope.cli.terminal import say
from tailscope.exceptions import RunError, TailscopeError
from tailscope.units import count_text

if TYPE_CHECKING:
    from tailscope.extra.postgresql.content import Content
    from tailscope.extra.postgresql.export import ExportedRun
    from tailscope.extra.postgresql.server import Server
    from tailscope.extra.postgresql.target import Target

EXAMPLE = "tailscope runs export runs/first --to postgresql://localhost/lab"


def command(
    runs: Annotated[
        list[Path], argument("RUN...", "Run directories, or campaigns with all their runs.")
    ],
    to: Annotated[
        str,
        option(
            "--to",
            "DATABASE",
            "postgresql://USER@HOST/DATABASE, or service=NAME; passwords from ~/.pgpass or"
            " PGPASSWORD.",
        ),
    ],
    schema: Annotated[
        str, option("--schema", "NAME", "Schema of the tables; created if needed.")
    ] = "tailscope",
    dry_run: Annotated[
        bool, flag("--dry-run", "Show what would be sent, without contacting the database.")
    ] = False,
    json_file: JsonFile = None,
) -> int:
    """Runs that are already there are skipped. A run is exported completely or not at all."""
    from tailscope.registry import require

    require("postgresql")
    from tailscope.extra.postgresql.export import check_schema_name
    from tailscope.extra.postgresql.target import read_target

    check_schema_name(schema)
    plan = ExportRequest(_found(runs), read_target(to, "--to"), schema, dry_run, json_file)
    records = _dry(plan) if dry_run else _run(plan)
    write_json(json_file, {"to": plan.target.shown, "schema": schema, "runs": records})
    return 1 if any("error" in record for record in records) else 0


@dataclass(frozen=True)
class ExportRequest:
    """A request: the runs to send, and the server."""

    runs: list[Path]
    target: Target
    schema: str
    dry_run: bool
    json_file: str | None

    def say(self, text: str) -> None:
        """Print a line for people, where standard output is theirs."""
        if self.json_file != STANDARD:
            say(text)


def _found(paths: list[Path]) -> list[Path]:
    """The runs at these paths, each once; cells of a campaign that have none are named."""
    from tailscope.store.campaign import is_campaign, read_campaign

    found: list[Path] = []
    for path in paths:
        if not is_campaign(path):
            found.append(path)
            continue
        for run in read_campaign(path):
            if run.path is None or run.unfinished is not None:
                _tell(f"{path / run.name}: left out: {run.unfinished}")
            else:
                found.append(run.path)
    if not found:
        raise RunError("no run to export: the campaign has no completed run", code="no-runs")
    return list({path.resolve(): path for path in found}.values())


def _dry(plan: ExportRequest) -> list[dict[str, object]]:
    from tailscope.extra.postgresql.content import read_content

    records = []
    for path in plan.runs:
        content = read_content(path)
        records.append(_record(path, content))
        plan.say(f"{path}:")
        for table in content.tables:
            rows, size = count_text(table.rows), count_text(table.most_bytes)
            plan.say(f"  {table.name:<10} {rows:>15} rows, at most {size:>18} bytes")
        _say_lacking(plan, content)
    plan.say(f"destination: {plan.target.shown}, schema {plan.schema}")
    return records


def _run(plan: ExportRequest) -> list[dict[str, object]]:
    from tailscope.extra.postgresql.server import connected

    with connected(plan.target) as server:
        return [_export(plan, server, path) for path in plan.runs]


def _export(plan: ExportRequest, server: Server, path: Path) -> dict[str, object]:
    """Send one run; one that is broken does not stop the others, a server that refuses does."""
    from tailscope.cli.progress import ProgressBar
    from tailscope.exceptions import DatabaseError
    from tailscope.extra.postgresql.content import read_content
    from tailscope.extra.postgresql.export import export

    try:
        content = read_content(path)
        with ProgressBar(f"exporting {path.name}", "packets") as bar:
            outcome = export(
                server,
                plan.schema,
                content,
                progress=bar.callback,
                waiting=lambda: _tell("waiting for another export to end"),
            )
    except DatabaseError:
        raise
    except (TailscopeError, OSError) as error:
        _tell(f"error: {error} [{getattr(error, 'code', 'system')}]")
        if hint := getattr(error, "hint", None):
            _tell(f"hint: {hint}")
        return {"run": str(path), "error": str(error)}
    plan.say(_sentence(path, content, outcome))
    if outcome.state != "already there":
        _say_lacking(plan, content)
    return {**_record(path, content), **outcome._asdict()}


def _sentence(path: Path, content: Content, outcome: ExportedRun) -> str:
    if outcome.state == "already there":
        return f"{path}: already there as run {outcome.run_id}: {outcome.name}"
    rows = {table.name: count_text(table.rows) for table in content.tables}
    return (
        f"{path}: {outcome.state} as run {outcome.run_id}:"
        f" {rows['latency']} latencies, {rows['pkt']} packets"
    )


def _say_lacking(plan: ExportRequest, content: Content) -> None:
    if content.lacking is not None:
        plan.say(f"  pkt has no packets of this run: {content.lacking}")


def _record(path: Path, content: Content) -> dict[str, object]:
    tables = {
        table.name: {"rows": table.rows, "most_bytes": table.most_bytes} for table in content.tables
    }
    return {"run": str(path), "tables": tables, "no_packets": content.lacking}


def _tell(text: str) -> None:
    say(text, stream=sys.stderr)
