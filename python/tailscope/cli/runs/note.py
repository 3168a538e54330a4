"""``tailscope runs note``: what a user has to say of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tailscope.cli.options import RunName, RunsFolder, argument
from tailscope.cli.terminal import say

EXAMPLE = "tailscope runs note runs/first 'cable of port 2 replaced'"


def command(
    run: RunName,
    text: Annotated[str | None, argument("[TEXT]", "Text to add below earlier notes.")] = None,
    folder: RunsFolder = Path("runs"),
) -> int:
    from tailscope.cli.table import note_lines
    from tailscope.store.folders import run_named
    from tailscope.store.notes import add_note, read_notes

    path = run_named(run, folder)
    notes = read_notes(path) if text is None else add_note(path, text)
    for line in note_lines(notes.notes):
        say(line)
    return 0
