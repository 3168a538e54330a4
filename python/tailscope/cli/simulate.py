"""``tailscope simulate``: a pair of captures whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailscope.text import count_text, printable

__all__ = ["command"]


def command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder for the captures and truth.json.")
    ],
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="The same seed gives the same bytes.")
    ],
    packets: Annotated[
        int, typer.Option("--packets", min=1, metavar="N", help="How many packets are sent.")
    ] = 300_000,
    rate: Annotated[
        str, typer.Option("--rate", metavar="PPS", help="Packets per second, such as 10k.")
    ] = "10k",
) -> int:
    """Simulate traffic through a device that stalls, and capture it on both sides."""
    from tailscope import _engine
    from tailscope.cli.options import rate_pps
    from tailscope.cli.progress import ProgressBar

    rate_pps_ = rate_pps(rate, "--rate")
    with ProgressBar("simulating", unit="packets") as bar:
        truth = _engine.simulate(
            str(out), seed=seed, packets=packets, rate_pps=rate_pps_, progress=bar.callback
        )
    for name, value in truth.items():
        text = count_text(value) if isinstance(value, int) else printable(str(value))
        print(f"{name.replace('_', ' '):<12} {text}")
    return 0
