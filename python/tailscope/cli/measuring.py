"""Options that several commands have which measure."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from tailscope.cli.options import named_values
from tailscope.cli.panels import DUT, EXPERIMENT, HOST, MEASUREMENT, TRAFFIC
from tailscope.duts.catalogue import DUTS
from tailscope.exceptions import UsageError
from tailscope.platforms.catalogue import PLATFORMS

__all__ = [
    "Boot",
    "BurstSize",
    "ChosenWire",
    "CounterInterval",
    "Cpus",
    "DutName",
    "DutOptions",
    "Flows",
    "FrameSize",
    "Kernel",
    "NeighbourCpus",
    "Neighbours",
    "Noise",
    "Pattern",
    "PlatformName",
    "PlatformOptions",
    "Profile",
    "Seed",
    "Tune",
    "WireName",
    "WireOptions",
    "workers",
]

DutName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dut", metavar="NAME", help=f"What to measure: {', '.join(DUTS)}.", rich_help_panel=DUT
    ),
]
DutOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--dut-option",
        metavar="NAME=VALUE",
        help="An option of it; repeatable.",
        rich_help_panel=DUT,
    ),
]
PlatformName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--platform",
        metavar="NAME",
        help=f"What it runs on: {', '.join(PLATFORMS)}.  [default: bare]",
        rich_help_panel=DUT,
    ),
]
PlatformOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--platform-option",
        metavar="NAME=VALUE",
        help="An option of it; repeatable.",
        rich_help_panel=DUT,
    ),
]
Kernel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--kernel", metavar="NAME", help="vanilla, rt or nohz.  [default: any]", rich_help_panel=DUT
    ),
]
Boot: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--boot",
        metavar="PARAMETERS",
        help="What the kernel is to be booted with; {cpus}.",
        rich_help_panel=DUT,
    ),
]
Neighbours: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--neighbour",
        metavar="KIND=N",
        help="Co-runners beside them: cpu, cache, memory, io; repeatable.",
        rich_help_panel=HOST,
    ),
]
NeighbourCpus: TypeAlias = Annotated[
    str | None,
    typer.Option("--neighbour-cpus", metavar="LIST", help="Where those run.", rich_help_panel=HOST),
]
ChosenWire: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--wire",
        metavar="NAME",
        help="memif, veth (as root), pci or vhost (vm).  [default: the first that fits]",
        rich_help_panel=TRAFFIC,
    ),
]
Pattern: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--pattern", metavar="NAME", help="cbr or poisson.  [default: cbr]", rich_help_panel=TRAFFIC
    ),
]
BurstSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--burst",
        metavar="N",
        help="Packets back to back, at the same rate.  [default: 1]",
        rich_help_panel=TRAFFIC,
    ),
]
FrameSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--size",
        metavar="BYTES",
        help="Of a frame, with its check sequence.  [default: 64]",
        rich_help_panel=TRAFFIC,
    ),
]
Flows: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--flows",
        metavar="N",
        help="Flows; they differ by source port.  [default: 1]",
        rich_help_panel=TRAFFIC,
    ),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        metavar="N",
        help="Of the Poisson process.  [default: 1]",
        rich_help_panel=TRAFFIC,
    ),
]
Tune: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--tune",
        help="Set the host's knobs for the run, as root; then restore.",
        rich_help_panel=HOST,
    ),
]
WireName: TypeAlias = Annotated[
    str, typer.Option("--wire", metavar="NAME", help="memif, veth (as root) or pci.")
]
WireOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--wire-option",
        metavar="NAME=VALUE",
        help="An option of it; repeatable.",
        rich_help_panel=TRAFFIC,
    ),
]
Cpus: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cpus",
        "-c",
        metavar="LIST",
        help="CPUs to poll on: generator, then DuT.",
        rich_help_panel=HOST,
    ),
]
Noise: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="WHAT",
        help="Record events (kernel events, as root) or stalls alone.  [default: auto]",
        rich_help_panel=MEASUREMENT,
    ),
]
CounterInterval: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--counter-interval",
        metavar="TIME",
        help="Read counters of interrupts so often, too.  [default: before and after]",
        rich_help_panel=MEASUREMENT,
    ),
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A variant that the experiment describes.",
        rich_help_panel=EXPERIMENT,
    ),
]


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
