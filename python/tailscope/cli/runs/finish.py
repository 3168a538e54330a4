"""``tailscope runs finish``: what a run lacks because it was interrupted, or the disk was full."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailscope.cli.options import argument
from tailscope.cli.terminal import say

EXAMPLE = "tailscope runs finish runs/first"


def command(
    context: typer.Context, runs: Annotated[list[Path], argument("RUN...", "Run directories.")]
) -> int:
    """A run is kept as soon as its figures are written. Nothing is measured again."""
    from tailscope.experiment.run.finish import finish
    from tailscope.report.of_run import page_of

    for run in runs:
        written = finish(run, page_of, command=context.obj or ())
        say(f"{run}: {'wrote ' + ', '.join(written) if written else 'lacks nothing'}")
    return 0
