"""``tailscope clean``: remove what crashed measurements left behind."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["command"]


def command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, without removing it.")
    ] = False,
) -> int:
    from tailscope.testbed.clean import clean

    found = list(clean(dry_run=dry_run))
    for what in found:
        print(("would remove " if dry_run else "removed ") + what)
    if not found:
        print("nothing was left behind")
    return 0
