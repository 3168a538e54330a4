"""``tailscope calibrate``: how far this machine's instrument can be believed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["command"]

STANDARD = "-"


def command(
    wire: Annotated[
        str, typer.Option("--wire", metavar="NAME", help="memif, veth (as root) or pci.")
    ] = "memif",
    wire_option: Annotated[
        list[str] | None,
        typer.Option("--wire-option", metavar="NAME=VALUE", help="An option of it; repeatable."),
    ] = None,
    rate: Annotated[
        str, typer.Option("--rate", metavar="PPS", help="Packets per second, such as 10k.")
    ] = "100k",
    duration: Annotated[
        str,
        typer.Option(
            "--duration", "-d", metavar="TIME", help="Of the floor; the rest takes 1.5 times that."
        ),
    ] = "10s",
    cpus: Annotated[
        str | None,
        typer.Option("--cpus", "-c", metavar="LIST", help="CPUs to poll on: generator, then DuT."),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write it as JSON; - is standard output."),
    ] = None,
) -> int:
    """Measure the floor of this machine and wire; later reports show it."""
    from tailscope.cli.live import LiveLine
    from tailscope.cli.options import named_values, positive_duration_ns, rate_pps
    from tailscope.experiment.calibration import calibrate
    from tailscope.store import floor
    from tailscope.testbed.cores import pick_cores, read_topology

    cores = pick_cores(read_topology(), 2, cpus)
    with LiveLine() as line:
        found = calibrate(
            wire,
            named_values(wire_option, "--wire-option"),
            cores,
            rate_pps=rate_pps(rate, "--rate"),
            duration_ns=positive_duration_ns(duration, "--duration"),
            progress=line.show_part,
        )
    path = floor.save(wire, found)
    if json_file == STANDARD:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    if json_file is not None:
        from pathlib import Path

        from tailscope.store.atomic import write_text

        write_text(Path(json_file), json.dumps(found, indent=2) + "\n")
    for name, value in _lines(found).items():
        print(f"{name:<16}{value}")
    for warning in cores.warnings:
        print(f"{'warning':<16}{warning}")
    print(f"{'kept':<16}{path}")
    return 0


def _lines(found: Mapping[str, Any]) -> dict[str, str]:
    from tailscope.text import count_text, duration_text, percentile_name

    def times(prefix: str) -> str:
        parts = (("p50", "p50"), ("p99.9", "p999"), ("max", "max"))
        return ", ".join(
            f"{label} {'-' if value is None else duration_text(value)}"
            for label, name in parts
            for value in [found[f"{prefix}_{name}"]]
        )

    believed, delay, stalls = found["believed_up_to"], found["delay"], found["stalls"]
    error = stalls["duration_error_ns_p99"]
    return {
        "floor": times("latency_ns"),
        "believed up to": "-" if believed is None else percentile_name(believed),
        "departure error": f"{times('departure_error_ns')} outside stalls",
        "known delay": f"{duration_text(delay['expected_ns'])}, found"
        f" {duration_text(delay['found_ns'])} more than without",
        "injected stalls": f"{count_text(stalls['found'])} of {count_text(stalls['injected'])}"
        f" found, duration within {'-' if error is None else duration_text(error)} at p99",
        "their queues": f"{count_text(stalls['queues_seen'])} of"
        f" {count_text(stalls['queues_expected'])} seen in the packets",
    }
