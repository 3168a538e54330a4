"""The overload model, given runs: reading its inputs, and what is to be said about them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct, structs

from tailscope.duts.catalogue import DUTS
from tailscope.duts.dataplane import LOOP
from tailscope.exceptions import EvidenceError, ModelError
from tailscope.experiment.run.execute import execute_whole
from tailscope.models.estimate import Estimate
from tailscope.models.overload.noise import Interruption, as_given, noise_of, noise_over_time
from tailscope.models.overload.prediction import Prediction, predict
from tailscope.models.overload.queued import FEWEST_QUEUES, Queues, queued_time, queues_of
from tailscope.noise.taken import of_run, taken_by, taken_from_instrument, taken_within
from tailscope.registry import offered
from tailscope.store import layout
from tailscope.store.info import is_emulated
from tailscope.store.reader import open_packets, read_run
from tailscope.store.records.base import convert, read_json
from tailscope.store.records.overload import InterruptionRecord, OverloadFigures, OverloadRecord
from tailscope.store.records.plan import MeasurementPlan
from tailscope.units import count_text, duration_text
from tailscope.verdict.trust import Grade, trust_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tailscope.experiment.plan import RunPlan
    from tailscope.noise.taken import TimeTaken
    from tailscope.store.directory import Draw
    from tailscope.store.run import Run
    from tailscope.testbed.cores import Cores

    Integers = NDArray[np.int64]

_LOW_LOAD_PPS, _LOW_LOAD_NS = 10_000, 5_000_000_000
_OTHER_RATE_PPS = 3_000
_BURST = 128
"""Packets back to back, where they are to queue: more than devices accept at once."""
_LOW_LOAD, _QUEUED_LOAD = 0.2, 0.5
"""Shares of R_max: with more than the first, packets begin to queue; with more than the second, the
median one may."""

_OTHER_RATE, _SAME_MEDIAN = 2.0, 0.1
"""How far two rates are apart at least, and by which share two equal medians may differ."""

_TOLD = 2.0
"""Ratio of the ends of an interval up to which a rate counts as known."""

_NOTABLE = 0.01
"""A share of samples, or a difference of rates, from which on it is said."""

_LOOKED_AT, _LATE = 0.1, 0.03
"""Shares of a queue's time: how far before its ends stalls of the instrument matter; how much."""
_JUST_NOW_NS = 10_000
"""After a stall, what came meanwhile is received within this time."""

_SAME_HOST = ("cpu_model", "cpu_count", "kernel", "kernel_command_line")
_SAME_PATH = ("wire", "platform", "size_bytes", "size_mix", "protocol", "vlan", "encap")
_HINT_NO_NOISE = (
    "the noise of the device's CPU is not known, and counted as 0: it takes its share of R_max"
    " (--noise takes a run of it, or a folder of `tailscope noise --out`)"
)
_HINT_NO_QUEUE = (
    "no packets were seen that queued: if the function holds several packets at the same time, its"
    " highest rate is above R_max by any factor; if it works on one at a time, it is lower by the"
    " work that the forwarder does for a packet, too, which counts as transfer, and by what is done"
    " after a packet has left: the distances at which queued packets leave would show both"
)
_NOISE_INCLUDED = (
    "the noise of the device's CPU is not known: the time of packets that queued includes it"
)


class TailRate(NamedTuple):
    """The rate up to which packets meet a limit of their latency."""

    limit: str
    """The limit as a service level."""
    rate_pps: Estimate | None
    """None where the runs do not tell."""
    arrivals: Literal["even", "random", "bursts"] | None = None
    """How packets came in the function's run: the rate is that of packets that come alike."""

    @property
    def is_told(self) -> bool:
        """Return True if the runs tell the rate to within a factor of two."""
        rate = self.rate_pps
        return rate is not None and rate.ci_high <= _TOLD * rate.ci_low


@dataclass(frozen=True)
class Forecast:
    """The model's forecast from two runs."""

    forwarder: str
    function: str
    """The names of the two runs."""
    queues: str
    """The name of the run whose packets queued."""
    prediction: Prediction
    noise: KnownNoise | None
    """The noise on the CPU; None where nobody knows."""
    warnings: tuple[str, ...]
    tail: TailRate | None = None

    def figures(self) -> OverloadFigures:
        """Its figures as a search keeps them."""
        return OverloadFigures(**self._fields())

    def record(self) -> OverloadRecord:
        """Return the forecast as it is kept in a run."""
        return OverloadRecord(**self._fields())

    def _fields(self) -> dict[str, Any]:
        found, noise, queued = self.prediction, self.noise, self.prediction.queued_cpu_ns
        return {
            "forwarder": self.forwarder,
            "function": self.function,
            "queues": None if queued is None else self.queues,
            **found.transfer_ns.record("transfer_ns"),
            **found.e2e_ns.record("e2e_ns"),
            **_record(found.cpu_ns, "cpu_ns"),
            **_record(queued, "queued_cpu_ns"),
            "queued_packets": 0 if queued is None else queued.n,
            **_record(found.noise_ns_per_s, "noise_ns_per_s"),
            "noise_source": None if noise is None else noise.source,
            **_record(found.rate_max_pps, "rate_max_pps"),
            **_record(found.rate_alone_pps, "rate_alone_pps"),
            "tail_limit": None if self.tail is None else self.tail.limit,
            **_record(None if self.tail is None else self.tail.rate_pps, "tail_rate_pps"),
            "tail_arrivals": None if self.tail is None else self.tail.arrivals,
            "is_upper_bound": self.is_upper_bound,
            "level": found.rate_max_pps.level,
            "method": found.rate_max_pps.method,
            "interruptions": () if noise is None else noise.interruptions,
            "warnings": self.warnings,
        }

    @property
    def is_upper_bound(self) -> bool:
        """True if noise of unknown size is still to be taken off."""
        return self.noise is None and not self.prediction.is_bounded


def _record(value: Estimate | None, name: str) -> dict[str, float | None]:
    """A figure as JSON has it; an end that is not known is null."""
    if value is None:
        return {name: None, f"{name}_ci_low": None, f"{name}_ci_high": None}
    return {each: end if math.isfinite(end) else None for each, end in value.record(name).items()}


@dataclass(frozen=True)
class KnownNoise:
    """Noise that takes time from the function's CPU, and how that is known."""

    ns_per_s: Estimate
    interruptions: tuple[InterruptionRecord, ...]
    """The interruptions that take it."""
    source: Literal["recorded", "aliasing", "given"]
    """``recorded``, ``aliasing`` or ``given``."""
    cpus: tuple[str, ...] = ()
    """CPUs on which it was recorded."""


def _recorded(*runs: TimeTaken) -> KnownNoise:
    """The noise of runs; what differs from run to run widens the interval."""
    each = [noise_over_time(taken.ns_per_s) for taken in runs]
    mean = noise_over_time(np.concatenate([taken.ns_per_s for taken in runs]))
    noise = replace(
        mean,
        ci_low=min(estimate.ci_low for estimate in (*each, mean)),
        ci_high=max(estimate.ci_high for estimate in (*each, mean)),
    )
    taken = runs[0]
    rows = (
        InterruptionRecord(
            cause=cause.cause,
            rate_hz=cause.rate_hz,
            duration_ns=cause.total_ns / cause.count,
            ns_per_s=cause.share * 1e9,
        )
        for cause in taken.causes
    )
    return KnownNoise(noise, tuple(rows), "recorded", taken.cpus)


def _summed(rows: Sequence[Interruption], source: Literal["aliasing", "given"]) -> KnownNoise:
    records = tuple(
        InterruptionRecord(
            cause=row.cause,
            rate_hz=row.rate_hz.estimate,
            duration_ns=row.duration_ns.estimate,
            ns_per_s=row.rate_hz.estimate * row.duration_ns.estimate,
        )
        for row in rows
    )
    return KnownNoise(noise_of(rows), records, source)


class _Clock(Struct, frozen=True, kw_only=True):
    """A source in what ``tailscope model aliasing --json`` writes: the part that matters here."""

    rate_hz: float
    duration_ns: float
    rate_hz_ci_low: float | None = None
    rate_hz_ci_high: float | None = None
    duration_ns_ci_low: float | None = None
    duration_ns_ci_high: float | None = None

    def interruption(self) -> Interruption:
        rate = _between(self.rate_hz, self.rate_hz_ci_low, self.rate_hz_ci_high)
        duration = _between(self.duration_ns, self.duration_ns_ci_low, self.duration_ns_ci_high)
        return Interruption(f"{self.rate_hz:.4f} Hz", rate, duration)


class _Clocks(Struct, frozen=True, kw_only=True):
    """The output of ``tailscope model aliasing --json``."""

    sources: tuple[_Clock, ...]
    reason: str | None = None
    """Why there are none."""


def _between(value: float, low: float | None, high: float | None) -> Estimate:
    if low is None or high is None:
        return as_given(value)
    return Estimate(estimate=value, ci_low=low, ci_high=high, n=1, method="as found")


def _of_aliasing(file: Path) -> KnownNoise:
    """Read what ``tailscope model aliasing --json`` has written."""
    found = convert(read_json(file.read_bytes(), file), _Clocks, file)
    if not found.sources:
        raise ModelError(
            f"--noise: {file}: no clock was found, which is not to say that nothing interrupts:"
            f" {found.reason}",
            code="noise-unknown",
            hint="leave --noise out, or give what interrupts the device, such as 250:30us",
        )
    return _summed([each.interruption() for each in found.sources], "aliasing")


def _known_noise(
    given: Path | Sequence[Interruption] | None, runs: Mapping[Path, Run]
) -> KnownNoise | None:
    if isinstance(given, Path):
        if given.is_file():
            return _of_aliasing(given)
        taken = taken_by(given)
        if taken is None:
            raise ModelError(
                f"--noise: {given}: the device's CPU was not recorded in this run",
                code="dut-not-recorded",
                hint="measure as root, or a device with loops of ours, or use `tailscope noise"
                " --out`",
            )
        return _recorded(taken)
    if given is not None:
        return _summed(given, "given")
    recorded = [taken for path, run in runs.items() if (taken := of_run(path, run)) is not None]
    return _recorded(*recorded) if recorded else None


def _is_late(path: Path, run: Run, queues: Queues, at_ns: Integers) -> NDArray[np.bool_]:
    """Say whether the instrument saw an end of a queue so late that it matters.

    What comes during a stall of the instrument is received, and stamped, right after it.
    """
    lasted_ns = queues.end_ns - queues.begin_ns
    looked_at_ns = np.ceil(_LOOKED_AT * lasted_ns).astype(np.int64)
    stalled_ns = taken_from_instrument(path, run, at_ns - looked_at_ns, at_ns)
    just_now = taken_from_instrument(path, run, at_ns - _JUST_NOW_NS, at_ns) > 0
    return just_now & (stalled_ns > _LATE * lasted_ns)


def queues_in(path: Path, run: Run, transfer: Estimate) -> tuple[Integers, Queues]:
    """Return the departures of a run's packets, in order, and its queues.

    Those are left out whose ends the instrument saw late.
    """
    with open_packets(path, run.info) as packets:
        seq, pre_ns, latency_ns = packets.columns("seq", "pre_ns", "latency_ns")
    queues = queues_of(seq, pre_ns, latency_ns, transfer.ci_high)
    late = _is_late(path, run, queues, queues.begin_ns) | _is_late(path, run, queues, queues.end_ns)
    left_ns = np.maximum.accumulate((pre_ns + latency_ns).astype(np.int64))
    return left_ns, queues.where(~late)


def _queued(path: Path, run: Run, transfer: Estimate) -> tuple[Estimate | None, bool]:
    """The time on the CPU by the packets of a run that queued, and whether noise is taken off.

    None where too few did.
    """
    if layout.LATENCY not in run.info.files:
        return None, False
    _, queues = queues_in(path, run, transfer)
    taken_ns = taken_within(path, run, queues.begin_ns, queues.end_ns)
    return queued_time(queues, taken_ns), taken_ns is not None


def forecast(
    forwarder: Path,
    function: Path,
    noise: Path | Sequence[Interruption] | None = None,
    bursts: Path | None = None,
    other_rate: Path | None = None,
) -> Forecast:
    """Predict from runs at low load the highest rate of a function.

    `other_rate` is a run of the function at another rate, where its median has to be the same.
    """
    runs = {"forwarder": read_run(forwarder), "function": read_run(function)}
    of_function = {function: runs["function"]}
    if bursts is not None:
        of_function[bursts] = runs["bursts"] = read_run(bursts)
    transfer, e2e = (_median(role, runs[role]) for role in ("forwarder", "function"))
    known = _known_noise(noise, of_function)
    names = runs["forwarder"].label, runs["function"].label
    for overloaded in offered("overloaded"):
        if (carried := overloaded(function, runs["function"], transfer)) is not None:
            rate, said = carried
            noise_ns_per_s = None if known is None else known.ns_per_s
            prediction = Prediction(transfer, e2e, None, None, noise_ns_per_s, rate, rate)
            warnings = (said, *_warnings(runs, prediction))
            return Forecast(*names, names[1], prediction, known, warnings)
    _check_rates(runs["function"], None if other_rate is None else read_run(other_rate))
    queueing = "function" if bursts is None else "bursts"
    queued, is_net = _queued(bursts or function, runs[queueing], transfer)
    try:
        prediction = predict(
            transfer,
            e2e,
            None if known is None else known.ns_per_s,
            queued,
            is_queued_net=is_net,
            means_ns=_means_ns(runs),
        )
        if queued is None:
            _refuse_without_queues(runs["function"], runs.get("bursts"))
    except EvidenceError as error:
        trust = trust_in(list(runs.values()))
        if trust is None or trust.grade is not Grade.RED:
            if loaded := _loaded_too_much(runs["function"], queued):
                hint = "; ".join(filter(None, (loaded, error.hint)))
                raise EvidenceError(str(error), code=error.code, hint=hint) from error
            raise
        raise EvidenceError(
            f"the runs are not believed ({trust.label}: {trust.reason}): {error}",
            code="machine-busy",
            hint="; ".join(
                filter(None, ("measure again while nothing else runs on the machine", error.hint))
            ),
        ) from error
    warnings = (*_warnings(runs, prediction), *_noise_warnings(runs["function"], known, queued))
    return Forecast(*names, runs[queueing].label, prediction, known, warnings)


def _loaded_too_much(function: Run, queued: Estimate | None) -> str | None:
    """Say that the median may hold queues; None at a load that makes none."""
    if queued is None:
        return None
    rate_pps, left_pps = float(function.summary["pre_rate_pps"] or 0), 1e9 / queued.estimate
    if rate_pps <= _QUEUED_LOAD * left_pps:
        return None
    return (
        f"if it works on one packet at a time, {count_text(round(rate_pps))} packets/s, which are"
        f" {rate_pps / left_pps:.0%} of what left queues, made the median packet wait: measure it"
        " at a fifth of that rate, and name this run behind it, as the one whose packets queue"
    )


def _check_rates(function: Run, other: Run | None) -> None:
    """Refuse where the median follows the rate, or may and nothing shows that it does not.

    Devices of the kernel take packets in softirqs, which moderated interrupts begin: how long a
    packet waits for one depends on the rate, and takes none of the CPU.
    """
    plan = function.info.plan
    if other is None:
        kind = plan.dut if isinstance(plan, MeasurementPlan) else None
        if kind in DUTS and DUTS[kind].in_softirqs:
            raise EvidenceError(
                f"{function.label}: the median of a device of the kernel may depend on the rate, as"
                " its interrupts are moderated",
                code="second-rate",
                hint="measure the function once more at a third of the rate, and name that run:"
                " --other-rate RUN; or measure its highest rate with `tailscope search`",
            )
        return
    rates = sorted(float(run.summary["pre_rate_pps"] or 0) for run in (function, other))
    if rates[1] < _OTHER_RATE * rates[0]:
        raise EvidenceError(
            f"--other-rate: got {rates[0]:,.0f} and {rates[1]:,.0f} packets/s, expected rates at"
            f" least {_OTHER_RATE:g} times apart",
            code="second-rate-alike",
            hint="measure the function once more at a third of the rate",
        )
    one, two = _median("function", function), _median("other rate", other)
    apart = max(one.ci_low, two.ci_low) > min(one.ci_high, two.ci_high)
    if apart and abs(one.estimate - two.estimate) > _SAME_MEDIAN * one.estimate:
        raise EvidenceError(
            f"{function.label}: its median is {duration_text(one.estimate)}, and"
            f" {duration_text(two.estimate)} at the other rate ({rates[0]:,.0f} and"
            f" {rates[1]:,.0f} packets/s): it does not say how long a packet takes",
            code="median-follows-rate",
            hint="moderated interrupts, batches that wait to be full, and sleeping CPUs do that:"
            " measure the highest rate with `tailscope search`",
        )


def _means_ns(runs: Mapping[str, Run]) -> tuple[float, float] | None:
    """Return the mean latencies of the forwarder and the function; None without them."""
    means = (runs[role].summary.get("latency_ns_mean") for role in ("forwarder", "function"))
    forwarder, function = (each if isinstance(each, int | float) else None for each in means)
    return None if forwarder is None or function is None else (float(forwarder), float(function))


def _refuse_without_queues(function: Run, bursts: Run | None) -> None:
    """Refuse where the device can be measured once more, or where bursts were given in vain."""
    said = f"packets queued fewer than {FEWEST_QUEUES} times"
    nothing = "nothing shows that the function works on one packet at a time"
    if bursts is not None:
        raise EvidenceError(
            f"{bursts.label}: {said}: {nothing}",
            code="bursts-not-queued",
            hint="longer bursts at the same rate make packets queue; a device that holds packets of"
            " a burst side by side has no R_max: measure the rate with `tailscope search`",
        )
    if isinstance(function.info.plan, MeasurementPlan):
        raise EvidenceError(
            f"{function.label}: {said}: {nothing}",
            code="packets-not-queued",
            hint="measure the function once more, with more packets back to back than it accepts at"
            f" once, such as --burst {_BURST}, and name that run last: tailscope model overload"
            " FORWARDER FUNCTION BURSTS",
        )


def at_low_load(plan: RunPlan) -> RunPlan:
    """Return the plan at a rate at which packets do not queue, for as long as medians need."""
    return structs.replace(plan, rate_pps=_LOW_LOAD_PPS, duration_ns=_LOW_LOAD_NS)


def measured_forecast(
    forwarder: RunPlan,
    function: RunPlan,
    cores: Cores,
    folder: Path,
    draw: Draw,
    tell: Callable[[RunPlan], None],
) -> Forecast:
    """Measure both devices at low load, the function with bursts too, and predict."""
    low = at_low_load(function)
    plans = {"forwarder": at_low_load(forwarder), "function": low}
    plans["bursts"] = structs.replace(low, burst=_BURST)
    if function.dut in DUTS and DUTS[function.dut].in_softirqs:
        plans["other"] = structs.replace(low, rate_pps=_OTHER_RATE_PPS)
    for name, plan in plans.items():
        tell(plan)
        execute_whole(plan, cores, out=folder / name, draw=draw)
    return forecast(
        folder / "forwarder",
        folder / "function",
        bursts=folder / "bursts",
        other_rate=folder / "other" if "other" in plans else None,
    )


def _median(role: str, run: Run) -> Estimate:
    """A run's median with its exact interval."""
    names = ("latency_ns_p50", "latency_ns_p50_ci_low", "latency_ns_p50_ci_high", "count")
    value, low, high, count = (run.summary.get(name) for name in names)
    if not isinstance(value, int | float) or not isinstance(low, int | float):
        raise EvidenceError(
            f"{role}: {run.label}: {names[0]}: got {count} packets, too few for an interval",
            code="packets-few",
            hint="measure for longer",
        )
    if not isinstance(high, int | float):
        raise ModelError(
            f"{role}: {run.label}: {names[2]}: got {high!r}, expected a number",
            code="median-interval",
        )
    return Estimate(
        estimate=value, ci_low=low, ci_high=high, n=int(count or 0), method="order statistics"
    )


def _warnings(runs: Mapping[str, Run], prediction: Prediction) -> Iterator[str]:
    """Yield reasons why the two medians are less than the model takes them for."""
    rates = {
        role: float(runs[role].summary["pre_rate_pps"] or 0) for role in ("forwarder", "function")
    }
    low, high = sorted(rates.values())
    if high - low > _NOTABLE * high:
        texts = (f"{role} at {count_text(round(rate))}" for role, rate in rates.items())
        yield f"the runs are at different rates: {', '.join(texts)} packets/s"
    most = _LOW_LOAD * prediction.rate_max_pps.estimate
    if rates["function"] > most and prediction.cpu_ns is not None:
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
        f"the runs differ in {where}: {name}: {' and '.join(dict.fromkeys(map(str, values)))}"
        for name, values in pairs.items()
        if any(value != values[0] for value in values)
    ]


def _doubts(role: str, run: Run) -> Iterator[str]:
    """Yield reasons to doubt a run's median."""
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


def _noise_warnings(
    function: Run, noise: KnownNoise | None, queued: Estimate | None
) -> Iterator[str]:
    if queued is None:
        yield _HINT_NO_QUEUE
    if noise is None:
        yield _HINT_NO_NOISE if queued is None else _NOISE_INCLUDED
        return
    instrument = function.info.instrument
    cpus = None if instrument is None else instrument.cpus.get("DuT")
    if cpus is None:
        return
    used = tuple(dict.fromkeys(cpus.split(",")))
    if noise.cpus and used != noise.cpus:
        yield f"the noise is of CPU {', '.join(noise.cpus)}, the function ran on {', '.join(used)}"
    if len(used) > 1:
        yield f"the function has {len(used)} CPUs: R_max is that of one, if it works on all packets"
