"""Options that several commands have, and values as people write them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from tailscope.exceptions import UsageError

__all__ = [
    "INTERRUPTED",
    "STANDARD",
    "UNDECIDED",
    "CounterInterval",
    "Cpus",
    "JsonFile",
    "Noise",
    "Rate",
    "WireName",
    "WireOptions",
    "labelled",
    "named_values",
    "write_json",
]

INTERRUPTED = 130
"""The exit status of what somebody has ended before its time."""

UNDECIDED = 3
"""The exit status where the evidence does not suffice."""

STANDARD = "-"
"""In place of a file's name: standard input or output."""

WireName: TypeAlias = Annotated[
    str, typer.Option("--wire", metavar="NAME", help="memif, veth (as root) or pci.")
]
WireOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--wire-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
]
Rate: TypeAlias = Annotated[
    str, typer.Option("--rate", metavar="PPS", help="Packets per second, such as 10k.")
]
Cpus: TypeAlias = Annotated[
    str | None,
    typer.Option("--cpus", "-c", metavar="LIST", help="CPUs to poll on: generator, then DuT."),
]
Noise: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="WHAT",
        help="Record events (kernel events, as root) or stalls alone.  [default: auto]",
    ),
]
CounterInterval: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--counter-interval",
        metavar="TIME",
        help="Read counters of interrupts so often, too.  [default: before and after]",
    ),
]
JsonFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write all figures as JSON; - is standard output."),
]


def labelled(runs: list[Path]) -> dict[str, Path]:
    """Call each run by its name, or by what its path does not share where names are alike.

    Raises
    ------
    UsageError
        If the same run is named twice.
    """
    paths = [run.resolve() for run in runs]
    if len(set(paths)) != len(paths):
        raise UsageError("the same run is named twice")
    labels = [path.name for path in paths]
    if len(set(labels)) != len(labels):
        shared = os.path.commonpath(paths)
        labels = [os.path.relpath(path, shared) for path in paths]
    return dict(zip(labels, runs, strict=True))


def named_values(given: list[str] | None, option: str) -> dict[str, str]:
    """Read an option that is given as NAME=VALUE, once for each name.

    Raises
    ------
    UsageError
        If it is not, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{option}: got {text!r}, expected NAME=VALUE")
        if name in found:
            raise UsageError(f"{option}: got {name} twice")
        found[name] = value
    return found


def write_json(file: str, content: Any) -> None:
    """Write what ``--json`` asks for."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    if file == STANDARD:
        sys.stdout.write(text)
        return
    from tailscope.store.atomic import write_text

    write_text(Path(file), text)
