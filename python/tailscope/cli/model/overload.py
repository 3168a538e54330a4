"""``tailscope model overload``: the rate at which a function overloads, from runs at low load."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.model.conclusion import conclude
from tailscope.cli.options import (
    JsonFile,
    Keep,
    argument,
    option,
    without_format,
)
from tailscope.cli.status import UNDECIDED
from tailscope.cli.table import print_table
from tailscope.cli.terminal import print_lines
from tailscope.exceptions import UsageError
from tailscope.units import count_text, duration_text, positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.experiment.search.overload import Forecast
    from tailscope.models.estimate import Estimate
    from tailscope.models.overload.noise import Interruption

EXAMPLE = "tailscope model overload runs/forwarder runs/function runs/bursts"

_HEADER = ("", "median, or mean", "95 % interval")
_NOTHING = "-"
_PAIRS = "166.7:10.9us,83.3:13.6us"
_EXPERIENCE = (
    "in the paper it predicts three of four scenarios, and the fourth overloads a little above"
)
_TAIL = (
    "the rate up to which it holds is that of packets that come {}, as in the function's run:"
    " the more unevenly they come, the lower it is"
)
_ARRIVALS = {"even": "evenly", "random": "at random", "bursts": "in bursts"}


def command(
    context: typer.Context,
    forwarder: Annotated[
        Path, argument("FORWARDER_RUN", "Run of the simplest forwarder, at low load.")
    ],
    function: Annotated[Path, argument("FUNCTION_RUN", "Run of the function, at the same load.")],
    bursts: Annotated[
        Path | None,
        argument(
            "[BURSTS_RUN]",
            "Run of the function with bursts, whose packets queue.  [default: the function's run]",
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        str | None,
        option(
            "--noise",
            "SOURCE",
            "Noise of the device's CPU: a run, a folder of `tailscope noise --out`, a file of"
            f" `model aliasing --json`, or interrupts such as {_PAIRS}."
            "  [default: the function's run]",
        ),
    ] = None,
    other_rate: Annotated[
        Path | None,
        option(
            "--other-rate",
            "RUN",
            "Run of the function at another low rate, where its median must be the same; required"
            " for devices of the kernel.",
        ),
    ] = None,
    slo: Annotated[
        str | None,
        option(
            "--slo",
            "LEVEL",
            "Limit of the packets' latency: up to which rate do they meet it?"
            "  [default: p99.9 within ten medians of the function]",
        ),
    ] = None,
    json_file: JsonFile = None,
    keep: Keep = False,
) -> int:
    """Exit status 3: no prediction, or one for one packet at a time only, or --slo is not clear."""
    from tailscope.experiment.search.overload import forecast
    from tailscope.registry import offered, service
    from tailscope.verdict.slo import parse_level

    noise_source = None if noise is None else noise_given(noise)
    level = None if slo is None else parse_level(slo)
    predicted = forecast(forwarder, function, noise_source, bursts, other_rate)
    for tail_rate in offered("tail_rate") if level is None else [service("tail_rate", "--slo")]:
        predicted = tail_rate(predicted, function, bursts, level)
    if keep:
        _keep(function, predicted, context.obj or ())
    conclude(
        json_file,
        without_format(predicted.record()),
        filter(None, (forwarder, function, bursts, other_rate)),
        partial(print_forecast, predicted),
    )
    tail = predicted.tail
    is_told = level is None or (tail is not None and tail.is_told)
    return 0 if is_told and predicted.prediction.is_bounded else UNDECIDED


def noise_given(text: str) -> Path | tuple[Interruption, ...]:
    """Read ``--noise``: a path, or interrupts as pairs of a rate in Hz and a duration."""
    path = Path(text)
    if path.exists() or ":" not in text:
        return path
    return tuple(map(_pair, text.split(",")))


def _pair(text: str) -> Interruption:
    from tailscope.models.overload.noise import Interruption, as_given

    rate, _, duration = text.partition(":")
    try:
        rate_hz = float(rate)
    except ValueError:
        rate_hz = math.nan
    if not 0 < rate_hz < math.inf:
        raise UsageError(
            f"--noise: got {text!r}, expected a path, or RATE:DURATION with a rate in Hz",
            code="noise",
            hint=f"such as --noise {_PAIRS}",
        )
    ns = positive_duration_ns(duration, f"--noise {text}")
    return Interruption(f"{rate} Hz", as_given(rate_hz), as_given(ns))


def _keep(function: Path, predicted: Forecast, command: Sequence[str]) -> None:
    """Keep it in the function's run."""
    from tailscope.store import kept, layout
    from tailscope.store.reader import read_info

    info = read_info(function)
    kept.keep(function, info, layout.OVERLOAD, predicted.record(), command=command)


def print_forecast(predicted: Forecast) -> None:
    """Print what the model says, and what there is to say about it."""
    from tailscope.words.promises import kept

    prediction = predicted.prediction
    rate, noise, queued = (
        prediction.rate_max_pps,
        prediction.noise_ns_per_s,
        prediction.queued_cpu_ns,
    )

    def times(name: str, value: Estimate | None, suffix: str = "") -> tuple[str, str, str]:
        if value is None:
            return name, _NOTHING, _NOTHING
        low, high = (f"{duration_text(end)}{suffix}" for end in (value.ci_low, value.ci_high))
        return name, f"{duration_text(value.estimate)}{suffix}", f"{low} to {high}"

    rows = [
        times("2t_transfer, the forwarder", prediction.transfer_ns),
        times("t_e2e, the function", prediction.e2e_ns),
        times("t_CPU, a packet, by medians", prediction.cpu_ns),
        times("t_CPU, a packet, by queues", queued),
        times("d_Σ, interrupts", noise, " a second"),
        (
            "R_max" if prediction.is_bounded else "R_max, one at a time",
            f"{round(rate.estimate):,} packets/s",
            interval_text(rate) if prediction.is_bounded else _if_so(prediction.rate_alone_pps),
        ),
    ]
    if predicted.tail is not None:
        tail = predicted.tail.rate_pps
        value = _NOTHING if tail is None else f"{round(tail.estimate):,} packets/s"
        within = _NOTHING if tail is None else interval_text(tail)
        rows.append((f"{predicted.tail.limit} up to", value, within))
    print_table(_HEADER, [rows])
    lines = [("function", predicted.function), ("forwarder", predicted.forwarder)]
    if queued is not None:
        lines.append(("queues", f"{predicted.queues}, {count_text(queued.n)} packets queued"))
    if noise is not None and prediction.cpu_ns is not None:
        lines.append(("meaning", _EXPERIENCE))
    if predicted.tail is not None and (arrivals := predicted.tail.arrivals) is not None:
        lines.append(("tail", _TAIL.format(_ARRIVALS[arrivals])))
    print_lines([*lines, *(("warning", warning) for warning in predicted.warnings)])
    print(kept("overload"))


def _if_so(alone: Estimate) -> str:
    return f"{round(alone.ci_low):,} to {round(alone.ci_high):,}, if so"


def interval_text(rate: Estimate) -> str:
    """Return the interval of a highest rate, which may have none."""
    low, high = rate.ci_low, rate.ci_high
    return f"{round(low):,} to {round(high):,}" if math.isfinite(high) else "not known"
