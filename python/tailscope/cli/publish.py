"""``tailscope publish``: a campaign as a static site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.progress import ProgressBar
from tailscope.units import count_text, printable

if TYPE_CHECKING:
    from tailscope.report.site import Publication

__all__ = ["command"]


def command(
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="The directory of a campaign.")
    ],
    out: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Empty folder, or an earlier publication to replace."),
    ],
    packets: Annotated[
        bool | None,
        typer.Option(
            "--with-packets/--without-packets",
            help="Publish single packets and captures.  [default: if they are 100 MiB at most]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the files, and their sizes.")
    ] = False,
) -> int:
    from tailscope.report.site import check_place, plan_site, write_site

    plan = plan_site(campaign, packets=packets)
    for problem in plan.material.problems():
        print("warning:", printable(problem), file=sys.stderr)
    if dry_run:
        check_place(plan, out.resolve())
        _describe(plan)
        return 0
    with ProgressBar("publishing", unit="runs") as bar:
        write_site(plan, out, bar.callback)
    _say_left_out(plan)
    print(f"{'written':<10}{printable(str(out / 'index.html'))}")
    return 0


def _describe(plan: Publication) -> None:
    total = 0
    for name, size in plan.files():
        total += size or 0
        text = "made" if size is None else count_text(size)
        print(printable(f"{text:>15}  {name}"))
    print(f"{count_text(total):>15}  bytes of data, plus generated files")
    _say_left_out(plan)


def _say_left_out(plan: Publication) -> None:
    if plan.left_out:
        size = count_text(sum(plan.left_out.values()))
        count = count_text(len(plan.left_out))
        print(f"{'left out':<10}{count} files of single packets, {size} bytes; see --with-packets")
