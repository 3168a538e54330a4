"""``tailscope host apply``: set what can be set while the machine runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailscope.cli.host.changes import change_text
from tailscope.cli.options import CpusToFree, flag, option
from tailscope.cli.terminal import say
from tailscope.exceptions import UsageError
from tailscope.units import printable

EXAMPLE = "sudo tailscope host apply --cpus 1"


def command(
    cpus: CpusToFree,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Show what would be written, without writing it.")
    ] = False,
    only: Annotated[
        list[str] | None,
        option("--only", "NAME", "A knob, or a pattern such as nic-*; repeatable."),
    ] = None,
) -> int:
    from tailscope.host.apply import applicable, apply, needs_root, planned
    from tailscope.host.audit import cpus_to_keep_free, remarks
    from tailscope.host.machine import Machine

    machine = Machine()
    wanted = cpus_to_keep_free(machine, cpus)
    plan = planned(machine, wanted, only)
    if not dry_run:
        needs_root(machine)
    if dry_run or not yes:
        for knob, changes in plan:
            for path, text in changes:
                say(f"{knob.name}: {change_text(path, machine.read(path), text)}")
    for name, why in applicable(machine, wanted, only, holding=False).left_out.items():
        say(f"left out: {name}: {printable(why)}")
    for remark in remarks(machine, wanted):
        say(remark)
    if not plan:
        say("nothing to change")
    if dry_run or not plan or not (yes or _agreed()):
        return 0
    outcomes = apply(machine, wanted, only, by=f"tailscope host apply --cpus {cpus}")
    for outcome in outcomes:
        change = change_text(outcome.path, outcome.original, outcome.wanted)
        refused = "" if outcome.refused is None else f"  refused: {outcome.refused}"
        say(f"{outcome.knob}: {change}{printable(refused)}")
    count = sum(outcome.refused is None for outcome in outcomes)
    back = "; `tailscope host revert` restores them" if count else ""
    say(f"{count} set, {len(outcomes) - count} refused{back}", stream=sys.stderr)
    return 0 if count else 1


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "standard input is not a terminal, so the command cannot ask",
            code="no-terminal",
            hint="--yes applies without asking; --dry-run shows what would be written",
        )
    return typer.confirm("write this?", err=True)
