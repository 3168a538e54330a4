"""The overload model, given two runs: reading its inputs, and what is to be said about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailscope.duts.dataplane import LOOP
from tailscope.exceptions import EvidenceError, ModelError
from tailscope.experiment.run import execute_whole
from tailscope.models.estimate import Estimate
from tailscope.models.overload.noise import noise_over_time
from tailscope.models.overload.prediction import predict
from tailscope.noise.taken import of_run, taken_by
from tailscope.store.reader import read_run
from tailscope.store.records.overload import InterruptionRecord, OverloadFigures, OverloadRecord
from tailscope.store.run import is_emulated
from tailscope.units import count_text, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from msgspec import Struct

    from tailscope.experiment.plan import RunPlan
    from tailscope.models.overload.prediction import Prediction
    from tailscope.noise.taken import TimeTaken
    from tailscope.store.run import Run
    from tailscope.testbed.cores import Cores

__all__ = ["Forecast", "at_low_load", "forecast", "measured_forecast"]

_LOW_LOAD_PPS, _LOW_LOAD_NS = 10_000, 5_000_000_000
_LOW_LOAD = 0.2
"""Of R_max: with more, packets begin to queue."""

_NOTABLE = 0.01
"""A share of samples, or a difference of rates, from which on it is said."""

_SAME_HOST = ("cpu_model", "cpu_count", "kernel", "kernel_command_line")
_SAME_PATH = ("wire", "platform", "size_bytes")
_HINT_NO_NOISE = (
    "the noise of the device's CPU is not known, and counted as 0: R_max is an upper bound"
    " (--noise takes a run of it, or a folder of `tailscope noise --out`)"
)


@dataclass(frozen=True)
class Forecast:
    """What the model says of two runs.

    Attributes
    ----------
    forwarder, function : str
        What the runs are called.
    prediction : Prediction
    taken : Taken or None
        What was taken from the CPU; None where nobody knows.
    warnings : tuple of str
    """

    forwarder: str
    function: str
    prediction: Prediction
    taken: TimeTaken | None
    warnings: tuple[str, ...]

    def figures(self) -> OverloadFigures:
        """Its figures as a search keeps them."""
        return OverloadFigures(**self._fields())

    def record(self) -> OverloadRecord:
        """It as it is kept in a run."""
        return OverloadRecord(**self._fields())

    def _fields(self) -> dict[str, Any]:
        found, noise = self.prediction, self.prediction.noise_ns_per_s
        unknown = dict.fromkeys(f"noise_ns_per_s{end}" for end in ("", "_ci_low", "_ci_high"))
        causes = [] if self.taken is None else self.taken.causes
        return {
            "forwarder": self.forwarder,
            "function": self.function,
            **found.transfer_ns.record("transfer_ns"),
            **found.e2e_ns.record("e2e_ns"),
            **found.cpu_ns.record("cpu_ns"),
            **(unknown if noise is None else noise.record("noise_ns_per_s")),
            **found.rate_max_pps.record("rate_max_pps"),
            "is_upper_bound": noise is None,
            "level": found.rate_max_pps.level,
            "method": found.rate_max_pps.method,
            "interruptions": tuple(
                InterruptionRecord(
                    cause=cause.cause,
                    rate_hz=cause.rate_hz,
                    duration_ns=cause.total_ns / cause.count,
                    ns_per_s=cause.share * 1e9,
                )
                for cause in causes
            ),
            "warnings": self.warnings,
        }


def forecast(forwarder: Path, function: Path, noise: Path | None = None) -> Forecast:
    """Predict from two runs at low load the highest rate of a function.

    Parameters
    ----------
    forwarder, function : Path
        Run directories.
    noise : Path, optional
        What to read the noise of the device's CPU from: a run directory or one of ``tailscope noise
        --out``; the function's run by default.

    Raises
    ------
    RunError
        If one of them is none.
    ModelError
        If nothing follows from their figures.
    """
    runs = {"forwarder": read_run(forwarder), "function": read_run(function)}
    taken = of_run(function, runs["function"]) if noise is None else taken_by(noise)
    if noise is not None and taken is None:
        raise ModelError(
            f"--noise: {noise}: the device's CPU was not recorded in this run",
            hint="measure as root, or a device with loops of ours, or use `tailscope noise --out`",
        )
    prediction = predict(
        _median("forwarder", runs["forwarder"]),
        _median("function", runs["function"]),
        None if taken is None else noise_over_time(taken.ns_per_s),
    )
    warnings = (*_warnings(runs, prediction), *_noise_warnings(runs["function"], taken))
    return Forecast(runs["forwarder"].label, runs["function"].label, prediction, taken, warnings)


def at_low_load(plan: RunPlan) -> RunPlan:
    """The same at a rate at which packets do not queue, for as long as medians need."""
    return replace(plan, rate_pps=_LOW_LOAD_PPS, duration_ns=_LOW_LOAD_NS)


def measured_forecast(
    forwarder: RunPlan,
    function: RunPlan,
    cores: Cores,
    folder: Path,
    tell: Callable[[RunPlan], None],
) -> Forecast:
    """Measure both devices at low load, one right after the other, and predict.

    Parameters
    ----------
    forwarder, function : RunPlan
        Their rates and durations are not looked at.
    cores : Cores
    folder : Path
        The run directories ``forwarder`` and ``function`` are written there.
    tell : callable
        Receives each plan before it is carried out.

    Raises
    ------
    TestbedError
        If one of them cannot be measured.
    ModelError
        If nothing follows from their figures.
    """
    plans = {"forwarder": at_low_load(forwarder), "function": at_low_load(function)}
    for name, plan in plans.items():
        tell(plan)
        execute_whole(plan, cores, out=folder / name)
    return forecast(folder / "forwarder", folder / "function")


def _median(role: str, run: Run) -> Estimate:
    """A run's median with its exact interval."""
    names = ("latency_ns_p50", "latency_ns_p50_ci_low", "latency_ns_p50_ci_high", "count")
    value, low, high, count = (run.summary.get(name) for name in names)
    if not isinstance(value, int | float) or not isinstance(low, int | float):
        raise EvidenceError(
            f"{role}: {run.label}: {names[0]}: got {count} packets, too few for an interval",
            hint="measure for longer",
        )
    if not isinstance(high, int | float):
        raise ModelError(f"{role}: {run.label}: {names[2]}: got {high!r}, expected a number")
    return Estimate(
        estimate=value, ci_low=low, ci_high=high, n=int(count or 0), method="order statistics"
    )


def _warnings(runs: Mapping[str, Run], prediction: Prediction) -> Iterator[str]:
    """What makes the two medians less than the model takes them for."""
    rates = {role: float(run.summary["pre_rate_pps"] or 0) for role, run in runs.items()}
    low, high = sorted(rates.values())
    if high - low > _NOTABLE * high:
        texts = (f"{role} at {count_text(round(rate))}" for role, rate in rates.items())
        yield f"the runs are at different rates: {', '.join(texts)} packets/s"
    most = _LOW_LOAD * prediction.rate_max_pps.estimate
    if rates["function"] > most:
        yield (
            f"the function's run is not at low load: {count_text(round(rates['function']))}"
            f" packets/s are more than {_LOW_LOAD:.0%} of R_max: its median may hold queues"
        )
    both = list(runs.values())
    yield from _differences("host", [run.info.host for run in both], _SAME_HOST)
    yield from _differences("plan", [run.info.plan for run in both], _SAME_PATH)
    for role, run in runs.items():
        yield from _doubts(role, run)


def _differences(where: str, records: list[Struct], names: tuple[str, ...]) -> list[str]:
    pairs = {name: [getattr(each, name, None) for each in records] for name in names}
    return [
        f"the runs differ in {where}: {name}: {one} and {other}"
        for name, (one, other) in pairs.items()
        if one != other
    ]


def _doubts(role: str, run: Run) -> Iterator[str]:
    """What makes a run's median doubtful."""
    summary, info = run.summary, run.info
    if is_emulated(info):
        yield f"{role}: emulated: its times mean nothing"
    for reason in info.partial:
        yield f"{role}: a partial result: {reason}"
    count, tainted = int(summary["count"] or 0), int(summary.get("tainted") or 0)
    if tainted > _NOTABLE * count:
        yield f"{role}: {tainted / count:.1%} of its samples are tainted by the instrument's stalls"
    floor, median = info.floor, float(summary["latency_ns_p50"] or 0)
    is_loop = getattr(info.plan, "dut", None) == LOOP
    if floor is not None and not is_loop and median < floor.latency_ns_p50:
        yield (
            f"{role}: its median of {duration_text(median)} is below the instrument's floor,"
            f" {duration_text(floor.latency_ns_p50)}: calibrate again"
        )


def _noise_warnings(function: Run, taken: TimeTaken | None) -> Iterator[str]:
    if taken is None:
        yield _HINT_NO_NOISE
        return
    instrument = function.info.instrument
    cpus = None if instrument is None else instrument.cpus.get("DuT")
    if cpus is None:
        return
    used = tuple(dict.fromkeys(cpus.split(",")))
    if used != taken.cpus:
        yield f"the noise is of CPU {', '.join(taken.cpus)}, the function ran on {', '.join(used)}"
    if len(used) > 1:
        yield f"the function has {len(used)} CPUs: R_max is that of one, if it works on all packets"
