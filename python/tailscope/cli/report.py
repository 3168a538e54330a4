"""``tailscope report``: one page, or figures, of one run or of several together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tailscope.cli.options import labelled
from tailscope.exceptions import UsageError
from tailscope.report.formats import FORMATS, STYLES

__all__ = ["command"]


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write the page; report.html unless --figures is given.",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="DIR", help="Write each figure, and a CSV of what it shows."
        ),
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="LIST", help="Formats of the figures.")
    ] = ",".join(FORMATS),
    style: Annotated[
        str,
        typer.Option(
            "--style", metavar="NAME", help="Of the figures: screen, or paper for a column of two."
        ),
    ] = STYLES[0],
) -> int:
    """Draw one run, or several runs in the same figures."""
    _run(_plan(runs, out, figures, formats, style))
    return 0


@dataclass(frozen=True)
class Plan:
    """What will be drawn where; run directories by label."""

    runs: dict[str, Path]
    out: Path | None
    figures: Path | None
    formats: tuple[str, ...]
    style: str


def _plan(
    runs: list[Path], out: Path | None, figures: Path | None, formats: str, style: str
) -> Plan:
    wanted = tuple(dict.fromkeys(name.strip().lower() for name in formats.split(",")))
    for name in wanted:
        if name not in FORMATS:
            raise UsageError(f"--format: expected some of {', '.join(FORMATS)}, got {name!r}")
    if style not in STYLES:
        raise UsageError(f"--style: expected {' or '.join(STYLES)}, got {style!r}")
    if out is None and figures is None:
        out = Path("report.html")
    return Plan(labelled(runs), out, figures, wanted, style)


def _run(plan: Plan) -> None:
    from tailscope.store.reader import read_run
    from tailscope.text import printable

    found = [read_run(path, label=label) for label, path in plan.runs.items()]
    written: list[Path] = []
    if plan.figures is not None:
        from tailscope.report.drawing import LOOKS, write_pictures
        from tailscope.report.figures import pictures
        from tailscope.report.material import Material

        drawn = pictures([Material(run) for run in found])
        written += write_pictures(drawn, plan.figures, plan.formats, LOOKS[plan.style])
    if plan.out is not None:
        from tailscope.report.page import page
        from tailscope.store.atomic import write_text

        write_text(plan.out, page(found))
        written.append(plan.out)
    measured = [run for run in found if "instrument" in run.info]
    if measured:
        from tailscope.wording import reading

        print(reading([(run.summary, run.info) for run in measured]))
    for path in written:
        print(printable(str(path)))
