"""``tailscope simulate``: a pair of captures whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailscope.cli.fields import option_of
from tailscope.units import count_text, duration_text, positive_duration_ns, printable, rate_pps

EXAMPLE = "tailscope simulate captures --seed 1"

_Latency = Annotated[
    str | None,
    typer.Option(
        "--latency",
        metavar="LAW",
        help="constant:TIME, uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA"
        " or bimodal:LOW,HIGH,P_HIGH,SIGMA; by default that of a forwarder, 3.1 µs.",
    ),
]
_Service = Annotated[
    str,
    typer.Option(
        "--service", metavar="TIME", help="Time that a packet keeps the next one waiting."
    ),
]
_Batch = Annotated[
    int,
    typer.Option(
        "--batch", min=1, metavar="N", help="Largest batch that the device takes at a time."
    ),
]
_StallDuration = Annotated[
    str | None,
    typer.Option(
        "--stall-duration",
        metavar="TIME",
        help="Duration of a stall of the device; 0ns is none;"
        " by default 7.75 µs, each third 10.25 µs.",
    ),
]
_Duplication = Annotated[
    float,
    typer.Option(
        "--duplication", min=0.0, max=1.0, metavar="P", help="Share of packets sent twice."
    ),
]
_Reordering = Annotated[
    float,
    typer.Option("--reordering", min=0.0, max=1.0, metavar="P", help="Share of packets held back."),
]


def command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder for the captures and truth.json.")
    ],
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=0, max=2**64 - 1, metavar="N", help="The same seed gives the same bytes."
        ),
    ],
    packets: Annotated[
        int, typer.Option("--packets", min=1, metavar="N", help="Number of packets to send.")
    ] = 300_000,
    rate: Annotated[str, option_of("rate", own_default=True)] = "10k",
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="NAME", help="cbr, poisson or burst:SIZE,GAP.")
    ] = "cbr",
    size: Annotated[
        int, typer.Option("--size", min=64, metavar="BYTES", help="Frame length on the wire.")
    ] = 64,
    latency: _Latency = None,
    service: _Service = "70ns",
    batch: _Batch = 1,
    stall_period: Annotated[
        str, typer.Option("--stall-period", metavar="TIME", help="Time between stalls.")
    ] = "4ms",
    stall_duration: _StallDuration = None,
    loss: Annotated[
        float, typer.Option("--loss", min=0.0, max=1.0, metavar="P", help="Share of packets lost.")
    ] = 0.0,
    duplication: _Duplication = 0.0,
    reordering: _Reordering = 0.0,
    clock_offset: Annotated[
        int,
        typer.Option("--clock-offset", metavar="NS", help="Lead of the second clock."),
    ] = 0,
    clock_drift: Annotated[
        int,
        typer.Option("--clock-drift", metavar="PPB", help="Drift of the second clock."),
    ] = 0,
    cut_bytes: Annotated[
        int,
        typer.Option("--cut-bytes", min=0, metavar="N", help="Bytes to cut off the post capture."),
    ] = 0,
    suffix: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help="pcap, pcap.zst, pcapng or pcapng.zst."),
    ] = "pcap",
) -> int:
    from tailscope.units import duration_ns

    settings: dict[str, object] = {
        "seed": seed,
        "packets": packets,
        "rate_pps": rate_pps(rate, "--rate"),
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
    from tailscope.units import duration_ns

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
        print(f"{name.replace('_ns_', ' ').replace('_', ' '):<14}{text}")
