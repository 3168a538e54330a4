"""Options that several commands have, and values as people write them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from tailscope.duts.catalogue import DUTS
from tailscope.exceptions import UsageError
from tailscope.platforms.catalogue import PLATFORMS

__all__ = [
    "EXIT_STATUS",
    "INTERRUPTED",
    "STANDARD",
    "UNDECIDED",
    "Boot",
    "BurstSize",
    "ChosenWire",
    "CounterInterval",
    "Cpus",
    "DutName",
    "DutOptions",
    "Flows",
    "FrameSize",
    "JsonFile",
    "Keep",
    "Kernel",
    "NeighbourCpus",
    "Neighbours",
    "Noise",
    "Pattern",
    "PlatformName",
    "PlatformOptions",
    "Rate",
    "RunName",
    "RunNames",
    "RunsFolder",
    "Seed",
    "Tune",
    "WireName",
    "WireOptions",
    "checked_figure",
    "labelled",
    "named_values",
    "workers",
    "write_json",
]

INTERRUPTED = 130
"""The exit status of what somebody has ended before its time."""

UNDECIDED = 3
"""The exit status where the evidence does not suffice."""

EXIT_STATUS = {
    0: "it ran, and what was measured is within limits",
    1: "it could not run: usage, input, disk, rights; or a part of it failed",
    2: "it ran, and a limit was exceeded",
    UNDECIDED: "it ran, and the evidence does not suffice",
    INTERRUPTED: "it was interrupted",
}
"""What a command's exit status means."""

STANDARD = "-"
"""In place of a file's name: standard input or output."""

DutName: TypeAlias = Annotated[
    str | None,
    typer.Option("--dut", metavar="NAME", help=f"What to measure: {', '.join(DUTS)}."),
]
DutOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--dut-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
]
PlatformName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--platform",
        metavar="NAME",
        help=f"What it runs on: {', '.join(PLATFORMS)}.  [default: bare]",
    ),
]
PlatformOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--platform-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
]
Kernel: TypeAlias = Annotated[
    str | None,
    typer.Option("--kernel", metavar="NAME", help="vanilla, rt or nohz.  [default: any]"),
]
Boot: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--boot", metavar="PARAMETERS", help="What the kernel is to be booted with; {cpus}."
    ),
]
Neighbours: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--neighbour",
        metavar="KIND=N",
        help="Co-runners beside them: cpu, cache, memory, io; repeatable.",
    ),
]
NeighbourCpus: TypeAlias = Annotated[
    str | None, typer.Option("--neighbour-cpus", metavar="LIST", help="Where those run.")
]
ChosenWire: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--wire",
        metavar="NAME",
        help="memif, veth (as root), pci or vhost (vm).  [default: the first that fits]",
    ),
]
Pattern: TypeAlias = Annotated[
    str | None,
    typer.Option("--pattern", metavar="NAME", help="cbr or poisson.  [default: cbr]"),
]
BurstSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--burst", metavar="N", help="Packets back to back, at the same rate.  [default: 1]"
    ),
]
FrameSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--size", metavar="BYTES", help="Of a frame, with its check sequence.  [default: 64]"
    ),
]
Flows: TypeAlias = Annotated[
    int | None,
    typer.Option("--flows", metavar="N", help="Flows; they differ by source port.  [default: 1]"),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option("--seed", min=0, metavar="N", help="Of the Poisson process.  [default: 1]"),
]
Tune: TypeAlias = Annotated[
    bool | None,
    typer.Option("--tune", help="Set the host's knobs for the run, as root; then restore."),
]
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
RunName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run directory, or the name of a run below --dir."),
]
RunNames: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Run directories, or names of runs below --dir."),
]
RunsFolder: TypeAlias = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Where names of runs are looked up.")
]
JsonFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write all figures as JSON; - is standard output."),
]
Keep: TypeAlias = Annotated[
    bool, typer.Option("--keep", help="Keep all figures in the run, for its report.")
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


def checked_figure(path: Path | None) -> Path | None:
    """Where ``--figure`` shall be; the end of its name says in which format.

    Raises
    ------
    UsageError
        If it is none that can be drawn.
    """
    from tailscope.report.formats import FORMATS

    if path is not None and path.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageError(
            f"--figure: expected a name that ends in .{', .'.join(FORMATS)}, got {path}"
        )
    return path


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


def workers(given: list[str] | None) -> dict[str, int]:
    """Read co-runners: how many workers of each kind.

    Raises
    ------
    UsageError
        If that is no number.
    """
    found = named_values(given, "--neighbour")
    for kind, number in found.items():
        if not number.isdecimal():
            raise UsageError(f"--neighbour {kind}: got {number!r}, expected a number of workers")
    return {kind: int(number) for kind, number in found.items()}


def write_json(file: str, content: Any) -> None:
    """Write what ``--json`` asks for."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    if file == STANDARD:
        sys.stdout.write(text)
        return
    from tailscope.store.atomic import write_text

    write_text(Path(file), text)
