"""``tailscope host revert``: set everything back."""

from __future__ import annotations

from typing import Annotated

from tailscope.cli.host.changes import one_line
from tailscope.cli.options import flag
from tailscope.cli.terminal import say
from tailscope.units import printable

EXAMPLE = "sudo tailscope host revert"


def command(
    dry_run: Annotated[
        bool, flag("--dry-run", "Show what would be restored, without restoring it.")
    ] = False,
) -> int:
    from tailscope.host.apply import revert
    from tailscope.host.machine import Machine

    reverted = revert(Machine(), dry_run=dry_run)
    if reverted.aside is not None:
        say(f"booted since, which takes all settings back; the journal is {reverted.aside}")
    elif reverted.by is None:
        say("nothing to revert")
    for entry in reverted.restored:
        verb = "would restore" if dry_run else "restored"
        say(f"{verb} {printable(entry.path)} to {one_line(entry.original)}")
    for entry, why in reverted.failed:
        say(f"failed {entry.path}: {printable(why)}")
    return 1 if reverted.failed else 0
