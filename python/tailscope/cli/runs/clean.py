"""``tailscope runs clean``: remove what commands left behind that were killed."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tailscope.cli.options import argument, flag
from tailscope.cli.terminal import say
from tailscope.units import printable

EXAMPLE = "tailscope runs clean --dry-run"


def command(
    folders: Annotated[
        list[Path] | None,
        argument("DIR...", "Folders of runs.", show_default="runs"),
    ] = None,
    *,
    dry_run: Annotated[
        bool, flag("--dry-run", "Show what would be removed, without removing it.")
    ] = False,
    yes: Annotated[bool, flag("--yes", "Also remove measurements that are not analysed.")] = False,
) -> int:
    from tailscope.exceptions import RunExistsError, TestbedError
    from tailscope.store.atomic import leftovers_below
    from tailscope.store.directory import is_complete, unanalysed_below
    from tailscope.store.folders import RUNS
    from tailscope.store.owner import is_owned, owned
    from tailscope.testbed.clean import Leftover, clean
    from tailscope.testbed.folder import find_recordings
    from tailscope.testbed.removal import remove_tree

    any_leftover, failed = False, []
    unwritten = (leftovers_below(folder, dry_run=dry_run) for folder in folders or [RUNS])
    files = (Leftover(str(path)) for path in chain.from_iterable(unwritten))
    for what, reason in chain(clean(dry_run=dry_run), files):
        any_leftover = True
        if reason is None:
            say(("would remove " if dry_run else "removed ") + what)
        else:
            failed.append(f"{what}: it cannot be removed: {reason}")
    recordings = {path.absolute(): path for path in find_recordings() if not is_owned(path)}
    for folder in folders or [RUNS]:
        recordings |= {path.absolute(): path for path in unanalysed_below(folder)}
    for path in recordings.values():
        any_leftover = True
        if not dry_run and (yes or _is_unwanted(path)):
            try:
                with owned(path):
                    # Somebody may have analysed it since.
                    if is_complete(path):
                        continue
                    remove_tree(path)
            except RunExistsError as error:
                failed.append(str(error))
                continue
            say(f"removed {path}")
        else:
            say(
                f"left {path}: a measurement that is not analysed: `tailscope runs finish {path}`"
                " analyses it, `tailscope runs clean --yes` removes it"
            )
    if failed:
        raise TestbedError(
            "; ".join(failed),
            code="not-cleaned",
            hint="clean again when nothing uses it, with the rights that made it",
        )
    if not any_leftover:
        say("nothing was left behind")
    return 0


def _is_unwanted(path: Path) -> bool:
    """Ask whether a measurement is to be removed; without a terminal it is not."""
    if not sys.stdin.isatty():
        return False
    return typer.confirm(printable(f"remove {path}, a measurement that is not analysed?"), err=True)
