"""``tailscope simulate``: a pair of captures whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tailscope.cli.fields import option_of
from tailscope.cli.options import argument, option, packet_rate
from tailscope.cli.terminal import say
from tailscope.units import (
    count_text,
    duration_ns,
    duration_text,
    positive_duration_ns,
    printable,
)

EXAMPLE = "tailscope simulate captures --seed 1"

_Latency = Annotated[
    str | None,
    option(
        "--latency",
        "LAW",
        "constant:TIME, uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA"
        " or bimodal:LOW,HIGH,P_HIGH,SIGMA; by default that of a forwarder, 3.1 µs.",
    ),
]
_Service = Annotated[
    str, option("--service", "TIME", "Time that a packet keeps the next one waiting.")
]
_Batch = Annotated[
    int, option("--batch", "N", "Largest batch that the device takes at a time.", min=1)
]
_StallDuration = Annotated[
    str | None,
    option(
        "--stall-duration",
        "TIME",
        "Duration of a stall of the device; 0ns is none; by default 7.75 µs, each third 10.25 µs.",
    ),
]
_Duplication = Annotated[
    float, option("--duplication", "P", "Share of packets sent twice.", min=0.0, max=1.0)
]
_Reordering = Annotated[
    float, option("--reordering", "P", "Share of packets held back.", min=0.0, max=1.0)
]


def command(
    out: Annotated[Path, argument("OUT", "Folder for the captures and truth.json.")],
    seed: Annotated[
        int, option("--seed", "N", "The same seed gives the same bytes.", min=0, max=2**64 - 1)
    ],
    packets: Annotated[
        int, option("--packets", "N", "Number of packets to send.", min=1)
    ] = 300_000,
    rate: Annotated[str, option_of("rate", own_default=True)] = "10k",
    pattern: Annotated[str, option("--pattern", "NAME", "cbr, poisson or burst:SIZE,GAP.")] = "cbr",
    size: Annotated[int, option("--size", "BYTES", "Frame length on the wire.", min=64)] = 64,
    latency: _Latency = None,
    service: _Service = "70ns",
    batch: _Batch = 1,
    stall_period: Annotated[str, option("--stall-period", "TIME", "Time between stalls.")] = "4ms",
    stall_duration: _StallDuration = None,
    loss: Annotated[float, option("--loss", "P", "Share of packets lost.", min=0.0, max=1.0)] = 0.0,
    duplication: _Duplication = 0.0,
    reordering: _Reordering = 0.0,
    clock_offset: Annotated[int, option("--clock-offset", "NS", "Lead of the second clock.")] = 0,
    clock_drift: Annotated[int, option("--clock-drift", "PPB", "Drift of the second clock.")] = 0,
    cut_bytes: Annotated[
        int, option("--cut-bytes", "N", "Bytes to cut off the post capture.", min=0)
    ] = 0,
    suffix: Annotated[
        str, option("--format", "NAME", "pcap, pcap.zst, pcapng or pcapng.zst.")
    ] = "pcap",
) -> int:
    settings: dict[str, object] = {
        "seed": seed,
        "packets": packets,
        "rate_pps": packet_rate(rate, frame_bytes=size),
        "pattern": pattern,
        "frame_bytes": size,
        "service_ns": duration_ns(service, "--service"),
        "batch": batch,
        "loss": loss,
        "duplication": duplication,
        "reordering": reordering,
        "clock_offset_ns": clock_offset,
        "clock_drift_ppb": clock_drift,
        "cut_bytes": cut_bytes,
    }
    if latency is not None:
        settings["latency"] = latency
    if stall_duration is not None:
        settings["stalls_ns"] = _stalls_ns(stall_period, stall_duration)
    _print(_run(out, suffix, settings))
    return 0


def _stalls_ns(period: str, duration: str) -> tuple[int, int]:
    return (
        positive_duration_ns(period, "--stall-period"),
        duration_ns(duration, "--stall-duration"),
    )


def _run(out: Path, suffix: str, settings: dict[str, object]) -> dict[str, str | int | None]:
    import tailscope._engine as _engine
    from tailscope.cli.progress import ProgressBar
    from tailscope.engine.analysis import engine_errors
    from tailscope.store.atomic import remove_leftovers

    remove_leftovers(out)
    with engine_errors(), ProgressBar("simulating", unit="packets") as bar:
        return _engine.simulate(str(out), suffix=suffix, progress=bar.callback, **settings)


def _print(truth: dict[str, str | int | None]) -> None:
    for name, value in truth.items():
        if value is None:
            text = "-"
        elif "_ns_" in name:
            text = duration_text(int(value))
        else:
            text = count_text(value) if isinstance(value, int) else printable(str(value))
        say(f"{name.replace('_ns_', ' ').replace('_', ' '):<14}{text}")
