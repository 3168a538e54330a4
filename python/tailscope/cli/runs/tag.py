"""``tailscope runs tag``: words by which runs are found again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tailscope.cli.options import RunNames, RunsFolder, option
from tailscope.cli.terminal import say

EXAMPLE = "tailscope runs tag runs/first --add paper"


def command(
    runs: RunNames,
    add: Annotated[list[str] | None, option("--add", "TAG", "Repeatable.")] = None,
    remove: Annotated[list[str] | None, option("--remove", "TAG", "Repeatable.")] = None,
    folder: RunsFolder = Path("runs"),
) -> int:
    from tailscope.store.folders import run_named
    from tailscope.store.notes import change_tags, read_notes

    paths = [run_named(name, folder) for name in runs]
    for path in paths:
        remarks = change_tags(path, add=add or (), remove=remove or ()) if add or remove else None
        tags = (remarks or read_notes(path)).tags
        say(f"{path}: {' '.join(tags) or 'no tag'}")
    return 0
