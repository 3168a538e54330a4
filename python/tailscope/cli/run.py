"""``tailscope run``: send traffic through a device, and measure it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run import Measured
    from tailscope.testbed.cores import Cores

__all__ = ["command"]

STANDARD = "-"
INTERRUPTED = 130


def command(
    dut: Annotated[
        str, typer.Option("--dut", metavar="NAME", help="What to measure: l2fwd, delay, loop.")
    ],
    dut_option: Annotated[
        list[str] | None,
        typer.Option("--dut-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
    ] = None,
    wire: Annotated[
        str, typer.Option("--wire", metavar="NAME", help="memif, veth (as root) or pci.")
    ] = "memif",
    wire_option: Annotated[
        list[str] | None,
        typer.Option("--wire-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
    ] = None,
    rate: Annotated[
        str, typer.Option("--rate", metavar="PPS", help="Packets per second, such as 10k.")
    ] = "10k",
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
    cpus: Annotated[
        str | None,
        typer.Option("--cpus", "-c", metavar="LIST", help="CPUs to poll on: generator, then DuT."),
    ] = None,
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
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="Write all figures as JSON; - is standard output."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
) -> int:
    """Measure the latency of a device under test, every packet of it."""
    from tailscope.analysis import duration_ns
    from tailscope.cli.options import named_values, positive_duration_ns, rate_pps
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
    found = [_measure(plan, cores, folder, json_file) for folder in folders]
    if json_file is not None:
        figures = [one.figures() for one in found]
        _write_json(json_file, figures[0] if repeat == 1 else figures)
    if any(one.interrupted for one in found):
        return INTERRUPTED
    return 1 if any(one.measured.info["partial"] for one in found) else 0


@dataclass(frozen=True)
class _Found:
    """What is left of a run once its folder is gone."""

    measured: Measured
    interrupted: bool

    def figures(self) -> dict[str, Any]:
        info = self.measured.info
        return {
            **self.measured.analysis.summary,
            **{name: info["instrument"][name] for name in ("unsent", "lost_in_dut")},
            "lost_in_instrument": info["instrument"]["lost_in_instrument"],
            "partial": info["partial"],
            "warnings": [*info["warnings"], *self.measured.analysis.warnings],
        }


def _measure(plan: RunPlan, cores: Cores, folder: Path, json_file: str | None) -> _Found:
    from tailscope.cli.live import LiveLine
    from tailscope.cli.table import print_table
    from tailscope.experiment.run import execute

    with LiveLine() as line:
        measured = execute(plan, cores, out=folder, progress=line.show)
    if json_file != STANDARD:
        print_table(measured.analysis, measured.info, written=[folder])
    if measured.interrupted:
        print("interrupted: what was measured until then was kept", file=sys.stderr)
    return _Found(measured, measured.interrupted)


def _folders(plan: RunPlan, out: Path | None, repeat: int) -> list[Path]:
    if out is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{plan.dut}-{plan.wire}-{plan.rate_pps}pps-{stamp}"
    return [out] if repeat == 1 else [out / f"run-{number + 1}" for number in range(repeat)]


def _describe(plan: RunPlan, cores: Cores, folders: list[Path], json_file: str | None) -> int:
    if json_file is not None:
        record = {**plan.record(), "cpus": list(cores.pollers), "out": [str(f) for f in folders]}
        _write_json(json_file, record)
        return 0
    for name, value in plan.describe(cores).items():
        print(f"{name:<10}{value}")
    for folder in folders:
        print(f"{'out':<10}{folder}")
    for warning in cores.warnings:
        print(f"{'warning':<10}{warning}")
    return 0


def _write_json(file: str, content: Any) -> None:
    from tailscope.store.atomic import write_text

    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    if file == STANDARD:
        sys.stdout.write(text)
    else:
        write_text(Path(file), text)
