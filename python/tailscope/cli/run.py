"""``tailscope run``: send traffic through a device, and measure it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailscope.cli.options import (
    STANDARD,
    Cpus,
    JsonFile,
    Rate,
    WireName,
    WireOptions,
    named_values,
    positive_duration_ns,
    rate_pps,
    write_json,
)
from tailscope.duts.dataplane import DUTS

if TYPE_CHECKING:
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run import Measured
    from tailscope.testbed.cores import Cores

__all__ = ["command"]

INTERRUPTED = 130


def command(
    dut: Annotated[
        str, typer.Option("--dut", metavar="NAME", help=f"What to measure: {', '.join(DUTS)}.")
    ],
    dut_option: Annotated[
        list[str] | None,
        typer.Option("--dut-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
    ] = None,
    wire: WireName = "memif",
    wire_option: WireOptions = None,
    rate: Rate = "10k",
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="NAME", help="cbr or poisson.")
    ] = "cbr",
    burst: Annotated[
        int,
        typer.Option("--burst", min=1, metavar="N", help="Packets back to back, at the same rate."),
    ] = 1,
    size: Annotated[
        int,
        typer.Option("--size", metavar="BYTES", help="Of a frame, with its check sequence."),
    ] = 64,
    flows: Annotated[
        int, typer.Option("--flows", min=1, metavar="N", help="Flows; they differ by source port.")
    ] = 1,
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Seed of the Poisson process.")
    ] = 1,
    duration: Annotated[
        str, typer.Option("--duration", "-d", metavar="TIME", help="How long to measure.")
    ] = "10s",
    warm_up: Annotated[
        str, typer.Option("--warm-up", metavar="TIME", help="How long to send before that.")
    ] = "1s",
    cpus: Cpus = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, metavar="N", help="Run it so often.")
    ] = 1,
    captures: Annotated[
        bool, typer.Option("--captures", help="Keep captures of both sides in the run directory.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The run directory; with --repeat, the folder of run-1, run-2, ...",
        ),
    ] = None,
    json_file: JsonFile = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
) -> int:
    """Measure the latency of a device under test, every packet of it."""
    from tailscope.analysis import duration_ns
    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import pick_cores, read_topology

    plan = RunPlan(
        dut=dut,
        dut_options=named_values(dut_option, "--dut-option"),
        wire=wire,
        wire_options=named_values(wire_option, "--wire-option"),
        rate_pps=rate_pps(rate, "--rate"),
        pattern=pattern,
        burst=burst,
        size_bytes=size,
        flows=flows,
        seed=seed,
        duration_ns=positive_duration_ns(duration, "--duration"),
        warm_up_ns=duration_ns(warm_up, "--warm-up"),
        captures=captures,
    )
    cores = pick_cores(read_topology(), plan.pollers, cpus)
    folders = _folders(plan, out, repeat)
    if dry_run:
        return _describe(plan, cores, folders, json_file)
    found: list[Measured] = []
    for folder in folders:
        found.append(_measure(plan, cores, folder, json_file))
        if found[-1].interrupted:
            break
    if json_file is not None:
        figures = [_figures(one) for one in found]
        write_json(json_file, figures[0] if repeat == 1 else figures)
    if found[-1].interrupted:
        return INTERRUPTED
    return 1 if any(one.info["partial"] for one in found) else 0


def _figures(measured: Measured) -> dict[str, Any]:
    info = measured.info
    own = ("unsent", "lost_in_dut", "lost_in_instrument")
    return {
        **measured.analysis.summary,
        **{name: info["instrument"][name] for name in own},
        "partial": info["partial"],
        "warnings": [*info["warnings"], *measured.analysis.warnings],
    }


def _measure(plan: RunPlan, cores: Cores, folder: Path, json_file: str | None) -> Measured:
    from tailscope.cli.live import LiveLine
    from tailscope.cli.table import print_table
    from tailscope.experiment.run import execute

    with LiveLine() as line:
        measured = execute(plan, cores, out=folder, progress=line.show)
    if json_file != STANDARD:
        print_table(measured.analysis, measured.info, written=[folder])
    if measured.interrupted:
        print("interrupted: what was measured until then was kept", file=sys.stderr)
    return measured


def _folders(plan: RunPlan, out: Path | None, repeat: int) -> list[Path]:
    if out is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{plan.dut}-{plan.wire}-{plan.rate_pps}pps-{stamp}"
    return [out] if repeat == 1 else [out / f"run-{number + 1}" for number in range(repeat)]


def _describe(plan: RunPlan, cores: Cores, folders: list[Path], json_file: str | None) -> int:
    from tailscope.text import printable

    if json_file is not None:
        record = {**plan.record(), "cpus": list(cores.pollers), "out": [str(f) for f in folders]}
        write_json(json_file, record)
        return 0
    for name, value in plan.describe(cores).items():
        print(f"{name:<10}{value}")
    for folder in folders:
        print(f"{'out':<10}{printable(str(folder))}")
    for warning in cores.warnings:
        print(f"{'warning':<10}{warning}")
    return 0
