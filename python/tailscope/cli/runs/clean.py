"""``tailscope runs clean``: remove what crashed measurements left behind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.units import printable

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = "tailscope runs clean --dry-run"


def command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, without removing it.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also remove measurements that are not analysed.")
    ] = False,
) -> int:
    from tailscope.exceptions import TestbedError
    from tailscope.testbed.clean import clean
    from tailscope.testbed.folder import find_recordings
    from tailscope.testbed.removal import remove_tree

    any_leftover, failed = False, []
    for what, reason in clean(dry_run=dry_run):
        any_leftover = True
        if reason is None:
            print(printable(("would remove " if dry_run else "removed ") + what))
        else:
            failed.append(f"{what}: it cannot be removed: {reason}")
    for path in find_recordings():
        any_leftover = True
        about = f"{path}: a measurement that is not analysed: `tailscope runs finish {path}`"
        if not dry_run and (yes or _is_unwanted(path)):
            remove_tree(path)
            print(printable(f"removed {path}"))
        else:
            print(printable(f"left {about} analyses it, `tailscope runs clean --yes` removes it"))
    if failed:
        raise TestbedError(
            "; ".join(failed),
            code="not-cleaned",
            hint="clean again when nothing uses it, with the rights that made it",
        )
    if not any_leftover:
        print("nothing was left behind")
    return 0


def _is_unwanted(path: Path) -> bool:
    """Ask whether a measurement is to be removed; without a terminal it is not."""
    if not sys.stdin.isatty():
        return False
    return typer.confirm(printable(f"remove {path}, a measurement that is not analysed?"), err=True)
