"""``tailscope model overload``: the rate at which a function overloads, from two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import STANDARD, JsonFile, Keep, without_format, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.experiment.overload import Forecast
    from tailscope.models.estimate import Estimate

__all__ = ["command", "print_forecast"]

_HEADER = ("", "median, or mean", "95 % interval")
_NOTHING = "-"
_EXPERIENCE = (
    "a lower bound in the paper's experience: it predicts three of its four scenarios, and the"
    " fourth overloads a little above"
)


def command(
    context: typer.Context,
    forwarder: Annotated[
        Path,
        typer.Argument(metavar="FORWARDER_RUN", help="Run of the simplest forwarder, at low load."),
    ],
    function: Annotated[
        Path, typer.Argument(metavar="FUNCTION_RUN", help="Run of the function, at the same load.")
    ],
    noise: Annotated[
        Path | None,
        typer.Option(
            "--noise",
            metavar="DIR",
            help="Noise of the device's CPU: a run, or a folder of `tailscope noise --out`."
            "  [default: the function's run]",
        ),
    ] = None,
    json_file: JsonFile = None,
    keep: Keep = False,
) -> int:
    """Exit status 3: these runs allow no prediction."""
    from tailscope.experiment.overload import forecast

    found = forecast(forwarder, function, noise)
    if json_file is not None:
        write_json(json_file, without_format(found.record()))
    if keep:
        _keep(function, found, context.obj or ())
    if json_file != STANDARD:
        print_forecast(found)
    return 0


def _keep(function: Path, found: Forecast, command: Sequence[str]) -> None:
    """Keep it in the function's run."""
    from tailscope.store import kept, layout
    from tailscope.store.reader import read_info

    info = read_info(function)
    kept.keep(function, info, layout.OVERLOAD, found.record(), command=command)


def print_forecast(found: Forecast) -> None:
    """Print what the model says, and what there is to say about it."""
    from tailscope.cli.table import aligned
    from tailscope.units import duration_text, printable

    prediction = found.prediction
    rate, noise = prediction.rate_max_pps, prediction.noise_ns_per_s

    def times(name: str, value: Estimate, each: str = "") -> tuple[str, str, str]:
        low, high = (f"{duration_text(end)}{each}" for end in (value.ci_low, value.ci_high))
        return name, f"{duration_text(value.estimate)}{each}", f"{low} to {high}"

    rows = [
        times("2t_transfer, the forwarder", prediction.transfer_ns),
        times("t_e2e, the function", prediction.e2e_ns),
        times("t_CPU, a packet", prediction.cpu_ns),
        ("d_Σ, interrupts", _NOTHING, _NOTHING)
        if noise is None
        else times("d_Σ, interrupts", noise, " a second"),
        (
            "R_max" if noise is not None else "R_max, at most",
            f"{round(rate.estimate):,} packets/s",
            f"{round(rate.ci_low):,} to {round(rate.ci_high):,}",
        ),
    ]
    for line in aligned(_HEADER, [rows]):
        print(line)
    print(f"{'function':<10}{printable(found.function)}")
    print(f"{'forwarder':<10}{printable(found.forwarder)}")
    if noise is not None:
        print(f"{'meaning':<10}{_EXPERIENCE}")
    for warning in found.warnings:
        print(f"{'warning':<10}{printable(warning)}")
