"""``tailscope calibrate``: how far this machine's instrument can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import option_of
from tailscope.cli.options import (
    STANDARD,
    JsonFile,
    Quiet,
    named_values,
    packet_rate,
    without_format,
    write_json,
)
from tailscope.cli.terminal import say_named
from tailscope.units import (
    count_text,
    duration_text,
    percentile_name,
    positive_duration_ns,
    refuse_unknown,
)

if TYPE_CHECKING:
    from tailscope.store.records.floor import FloorRecord

EXAMPLE = "tailscope calibrate --wire memif"


def command(
    wire: Annotated[
        str, option_of("wire", "memif, veth (privileged) or pci.", own_default=True)
    ] = "memif",
    wire_option: Annotated[list[str] | None, option_of("wire_options")] = None,
    rate: Annotated[str, option_of("rate", own_default=True)] = "100k",
    duration: Annotated[
        str,
        option_of(
            "duration",
            "Duration of the floor's measurement; the rest takes 1.5 times that.",
            own_default=True,
        ),
    ] = "10s",
    cpus: Annotated[str | None, option_of("cpus")] = None,
    json_file: JsonFile = None,
    quiet: Quiet = False,
) -> int:
    from tailscope.cli.live import LiveLine, Pace
    from tailscope.duts.dataplane import Loop
    from tailscope.experiment.search.calibration import calibrate
    from tailscope.store import floor
    from tailscope.testbed.cores import pick_cores, read_topology

    refuse_unknown("--wire", wire, Loop.wires, "wire")
    cores = pick_cores(read_topology(), ("generator", "dut"), cpus)
    pace = Pace()
    with LiveLine(quiet=quiet) as line:
        record = calibrate(
            wire,
            named_values(wire_option, "--wire-option"),
            cores,
            rate_pps=packet_rate(rate),
            duration_ns=positive_duration_ns(duration, "--duration"),
            progress=lambda what, event: line.show({"what": f"{what}:", **pace.parts(event)}),
        )
    path = floor.save(record)
    if json_file is not None:
        write_json(
            json_file,
            {name: value for name, value in without_format(record).items() if name != "host"},
        )
    if json_file == STANDARD:
        return 0
    for name, value in _lines(record).items():
        say_named(name, value, width=16)
    for warning in cores.warnings:
        say_named("warning", warning, width=16)
    say_named("kept", str(path), width=16)
    return 0


def _lines(record: FloorRecord) -> dict[str, str]:
    def times(prefix: str) -> str:
        parts = (("p50", "p50"), ("p99.9", "p999"), ("max", "max"))
        return ", ".join(
            f"{label} {'-' if value is None else duration_text(value)}"
            for label, name in parts
            for value in [getattr(record, f"{prefix}_{name}")]
        )

    believed, delay, stalls = record.believed_up_to, record.delay, record.stalls
    error = stalls.duration_error_ns_p99
    return {
        "floor": times("latency_ns"),
        "believed up to": "-" if believed is None else percentile_name(believed),
        "departure error": f"{times('departure_error_ns')} outside stalls",
        "known delay": f"{duration_text(delay.expected_ns)}, found"
        f" {duration_text(delay.found_ns)} more than without",
        "injected stalls": f"{count_text(stalls.found)} of {count_text(stalls.injected)}"
        f" found, duration within {'-' if error is None else duration_text(error)} at p99",
        "their queues": f"{count_text(stalls.queues_seen)} of"
        f" {count_text(stalls.queues_expected)} seen in the packets",
    }
