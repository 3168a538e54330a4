"""``tailscope host``: how this machine is set, and how it should be."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tailscope.cli.options import STANDARD, JsonFile, write_json
from tailscope.exceptions import UsageError
from tailscope.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.host.audit import Audit
    from tailscope.host.machine import Machine

__all__ = ["app", "remind"]

app = typer.Typer(rich_markup_mode=None, help="Audit and tune this machine.")

_Cpus: TypeAlias = Annotated[
    str, typer.Option("--cpus", "-c", metavar="LIST", help="CPUs to keep free: those that poll.")
]


@app.command("audit")
def audit_command(cpus: _Cpus, json_file: JsonFile = None) -> int:
    """Say of each knob what it is and what it should be; nothing is changed."""
    from tailscope.host.audit import audit, cpus_to_keep_free
    from tailscope.host.machine import Machine

    machine = Machine()
    found = audit(machine, cpus_to_keep_free(machine, cpus))
    if json_file is not None:
        write_json(json_file, found.record())
    if json_file != STANDARD:
        for line in audit_lines(found):
            print(line)
    return 0


@app.command("apply")
def apply_command(
    cpus: _Cpus,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="A knob, or some, as nic-*; repeatable."),
    ] = None,
) -> int:
    """Set as root what can be set while the machine runs, until `host revert`."""
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
                print(f"{knob.name}: {_change(path, machine.read(path), text)}")
    for name, why in applicable(machine, wanted, only, holding=False).left_out.items():
        print(f"left out: {name}: {printable(why)}")
    for remark in remarks(machine, wanted):
        print(remark)
    if not plan:
        print("nothing to change")
    if dry_run or not plan or not (yes or _agreed()):
        return 0
    outcomes = apply(machine, wanted, only, by=f"tailscope host apply --cpus {cpus}")
    for each in outcomes:
        refused = "" if each.refused is None else f"  refused: {each.refused}"
        print(f"{each.knob}: {_change(each.path, each.original, each.wanted)}{printable(refused)}")
    count = sum(each.refused is None for each in outcomes)
    back = "; `tailscope host revert` takes them back" if count else ""
    print(f"{count} set, {len(outcomes) - count} refused{back}", file=sys.stderr)
    return 0 if count else 1


@app.command("revert")
def revert_command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be restored, and restore nothing.")
    ] = False,
) -> int:
    """Restore as root, exactly, what was there before; also after a crash."""
    from tailscope.host.apply import revert
    from tailscope.host.machine import Machine

    found = revert(Machine(), dry_run=dry_run)
    if found.aside is not None:
        print(f"booted since, which takes all settings back; the journal is {found.aside}")
    elif found.by is None:
        print("nothing to revert")
    for entry in found.restored:
        verb = "would restore" if dry_run else "restored"
        print(f"{verb} {printable(entry.path)} to {_text(entry.original)}")
    for entry, why in found.failed:
        print(f"failed {entry.path}: {printable(why)}")
    return 1 if found.failed else 0


@app.command("export")
def export_command(
    cpus: _Cpus,
    format_name: Annotated[
        str, typer.Option("--format", metavar="NAME", help="cmdline, grub, tuned or ansible.")
    ],
) -> int:
    """Write what needs a reboot, or should last, for the tool that keeps it."""
    from tailscope.host.audit import cpus_to_keep_free
    from tailscope.host.export import export
    from tailscope.host.machine import Machine

    machine = Machine()
    sys.stdout.write(export(machine, cpus_to_keep_free(machine, cpus), format_name))
    return 0


def remind(machine: Machine | None = None) -> None:
    """Say that the host is tuned, where a command that has ended left it so."""
    from tailscope.exceptions import TuningError
    from tailscope.host.journal import Journal, journal_file, tuning_lock
    from tailscope.host.machine import Machine

    machine = machine or Machine()
    file = journal_file(machine)
    if not file.exists():
        return
    by = ""  # For root's eyes; that there is a journal says enough.
    if os.access(file, os.R_OK):
        try:
            with tuning_lock(machine):
                journal = Journal.read(machine)
        except (OSError, TuningError):
            return  # In use, or damaged: `host revert` says so.
        by = "" if journal is None else f" by `{printable(journal.by)}`"
    print(f"the host was tuned{by} and not reverted: `tailscope host revert`", file=sys.stderr)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "standard input is no terminal: nobody can be asked",
            hint="--yes agrees; --dry-run says to what",
        )
    return typer.confirm("write this?", err=True)


def _change(path: str, original: str | None, wanted: str) -> str:
    return f"{printable(path)}: {_text(original)} -> {_text(wanted)}"


def _text(text: str | None) -> str:
    """A text on one line."""
    if text is None:
        return "nothing"
    return printable(" / ".join(text.strip().split("\n"))) or "''"


def audit_lines(audit: Audit) -> Iterator[str]:
    """Write an audit as a table, bad knobs first, each with the reason why."""
    from tailscope.host.audit import STATES

    rows = [
        (
            each.state,
            each.name,
            each.as_is or "-",
            each.should_be or "-",
            "" if state == "good" else each.why,
        )
        for state in STATES[:-1]
        for each in audit.findings
        if each.state == state
    ]
    head = ("state", "knob", "as is", "should be", "why")
    yield from map(printable, _aligned([head, *rows]))
    spared = [each.name for each in audit.findings if each.state == STATES[-1]]
    if spared:
        yield f"not applicable: {', '.join(spared)}"
    yield from audit.remarks
    good, known = audit.count("good"), audit.count("good") + audit.count("bad")
    score = "-" if audit.score is None else f"{audit.score:.0%}"
    unknown = audit.count("unknown")
    more = f", {unknown} could not be read (root may)" if unknown else ""
    yield f"score {score}: {good} of {known} knobs are as CPUs {audit.cpus} want them{more}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns to the left, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
