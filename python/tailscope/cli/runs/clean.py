"""``tailscope runs clean``: remove what crashed measurements left behind."""

from __future__ import annotations

from typing import Annotated

from tailscope.cli.options import flag
from tailscope.cli.terminal import say

EXAMPLE = "tailscope runs clean --dry-run"


def command(
    dry_run: Annotated[
        bool, flag("--dry-run", "Show what would be removed, without removing it.")
    ] = False,
) -> int:
    from tailscope.exceptions import TestbedError
    from tailscope.testbed.clean import clean
    from tailscope.testbed.folder import find_recordings

    any_leftover, failed = False, []
    for what, reason in clean(dry_run=dry_run):
        any_leftover = True
        if reason is None:
            say(("would remove " if dry_run else "removed ") + what)
        else:
            failed.append(f"{what}: it cannot be removed: {reason}")
    for path in find_recordings():
        any_leftover = True
        say(
            f"left {path}: a measurement that is not analysed: `tailscope runs finish {path}`"
            " analyses it; if you do not need it, remove it yourself"
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
