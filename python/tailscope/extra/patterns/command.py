"""``tailscope model aliasing``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tailscope.cli.model.conclusion import conclude
from tailscope.cli.options import (
    JsonFile,
    argument,
    checked_figure,
    flag,
    named_files,
    option,
)
from tailscope.cli.table import print_table
from tailscope.cli.terminal import say
from tailscope.exceptions import RunError, UsageError
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.extra.patterns.models.aliasing.prediction import Prediction
    from tailscope.extra.patterns.models.aliasing.simulation import Periodic, Times
    from tailscope.extra.patterns.models.aliasing.sources import Fit, FittedSource
    from tailscope.extra.patterns.records import UnnamedStalls
    from tailscope.store.records.run import RunInfo

EXAMPLE = "tailscope model aliasing runs/first"

_NS_PER_S = 1e9
_QUANTILES = {
    "latency_ns_p50": "p50",
    "latency_ns_p99": "p99",
    "latency_ns_p999": "p99.9",
    "latency_ns_p9999": "p99.99",
    "latency_ns_max": "max",
}
_NAMES = ("rate", "latency", "duration", "every", "teeth", "phase")
_SOURCE_HEADER = (
    "interruptions",
    "95 % interval",
    "reaches",
    "held for",
    "ticks",
    "a tick each",
    "first tick",
    "packets",
    "share",
)
_NOTHING = "-"
_EXAMPLE = "rate=250,latency=10.9us,every=3,teeth=0+1,phase=0ns"


def command(
    run: Annotated[Path, argument("RUN", "A run directory.")],
    simulate: Annotated[
        list[str] | None,
        option(
            "--simulate",
            "SOURCE",
            f"Interruptions to assume instead of searching: {_EXAMPLE}; repeatable.",
        ),
    ] = None,
    recorded: Annotated[
        bool, flag("--recorded", "Use the interruptions that the run has recorded instead.")
    ] = False,
    interrupts: Annotated[
        list[str] | None,
        option(
            "--interrupts",
            "[NAME=]FILE",
            "Interrupt counters that name the clocks: the authors' CSV, copies of"
            " /proc/interrupts, or .parquet; repeatable, for a host and its guest.",
        ),
    ] = None,
    json_file: JsonFile = None,
    figure: Annotated[
        Path | None, option("--figure", "FILE", "Draw the worst packets: svg, png or pdf.")
    ] = None,
) -> int:
    plan = _plan(run, simulate or [], interrupts or [], json_file, figure)
    if recorded and plan.asked:
        raise UsageError(
            "--simulate: got --recorded too, expected one of them", code="options-exclusive"
        )
    if recorded:
        _run_recorded(plan)
    else:
        _run(plan)
    return 0


@dataclass(frozen=True)
class SourceRequest:
    """A source as it is given; it has either a largest latency or a duration."""

    rate_hz: float
    latency_ns: int | None
    duration_ns: int | None
    every: int
    teeth: tuple[int, ...]
    phase_ns: int

    def periodic(self, base_ns: int) -> Periodic:
        """Return the interruptions, given the latency of a packet that meets none."""
        from tailscope.extra.patterns.models.aliasing.simulation import Periodic
        from tailscope.units import duration_text

        duration_ns = self.duration_ns
        if duration_ns is None:
            assert self.latency_ns is not None
            duration_ns = self.latency_ns - base_ns
            if duration_ns < 0:
                raise UsageError(
                    f"--simulate: latency: expected at least the median of the run,"
                    f" {duration_text(base_ns)}, got {duration_text(self.latency_ns)}",
                    code="simulate-latency",
                )
        return Periodic(
            _NS_PER_S / self.rate_hz, duration_ns, self.phase_ns, self.every, self.teeth
        )


@dataclass(frozen=True)
class AliasingRequest:
    """The run to model, with its sources and output."""

    run: Path
    asked: tuple[SourceRequest, ...]
    interrupts: dict[str, Path]
    json_file: str | None
    figure: Path | None


def _plan(
    run: Path,
    simulate: list[str],
    interrupts: list[str],
    json_file: str | None,
    figure: Path | None,
) -> AliasingRequest:
    counters = named_files(interrupts, "--interrupts")
    return AliasingRequest(
        run, tuple(map(_asked, simulate)), counters, json_file, checked_figure(figure)
    )


def _asked(text: str) -> SourceRequest:
    from tailscope.units import duration_ns

    values = _values(text)
    if "rate" not in values or ("latency" in values) == ("duration" in values):
        raise UsageError(
            f"--simulate: expected rate, and one of latency and duration, got {text!r}",
            code="simulate",
            hint=f"such as {_EXAMPLE}",
        )
    times = {
        name: duration_ns(values[name], f"--simulate: {name}")
        for name in ("latency", "duration", "phase")
        if name in values
    }
    every = _count(values.get("every", "1"), "every")
    teeth = tuple(_count(tooth, "teeth") for tooth in values.get("teeth", "0").split("+"))
    if every == 0 or max(teeth) >= every:
        raise UsageError(
            f"--simulate: expected every of at least 1, and teeth below it,"
            f" got every={every}, teeth={'+'.join(map(str, teeth))}",
            code="simulate-teeth",
        )
    return SourceRequest(
        _rate_hz(values["rate"]),
        times.get("latency"),
        times.get("duration"),
        every,
        teeth,
        times.get("phase", 0),
    )


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in _NAMES or not value or name in values:
            raise UsageError(
                f"--simulate: expected {', '.join(_NAMES)} as NAME=VALUE, each once at most,"
                f" got {part!r}",
                code="simulate-field",
                hint=f"such as {_EXAMPLE}",
            )
        values[name] = value
    return values


def _count(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"--simulate: {name}: expected a whole number, got {text!r}", code="simulate-number"
        )
    return int(text)


def _rate_hz(text: str) -> float:
    try:
        rate_hz = float(text)
    except ValueError:
        rate_hz = math.nan
    if not 0 < rate_hz < math.inf:
        raise UsageError(
            f"--simulate: rate: expected ticks per second, such as 250, got {text!r}",
            code="simulate-rate",
        )
    return rate_hz


def _run(plan: AliasingRequest) -> None:
    from msgspec import to_builtins

    from tailscope.extra.patterns.models.aliasing.fit import LONGEST_NS, MOST_PACKETS
    from tailscope.extra.patterns.models.aliasing.prediction import predict
    from tailscope.extra.patterns.words import stalls_text
    from tailscope.store.reader import read_run
    from tailscope.units import counted

    run = read_run(plan.run)
    limits = (None, None) if plan.asked else (MOST_PACKETS, LONGEST_NS)
    arrival_ns, latency_ns, tainted, beyond = _packets(plan.run, run.info, *limits)
    counters = _rates(plan.interrupts)
    fitted = _found(plan.asked, arrival_ns, latency_ns, counters)
    is_predicted = bool(fitted.sources) and not fitted.in_batches
    prediction = predict(fitted, arrival_ns, latency_ns) if is_predicted else None
    names = _names(fitted, counters)
    record = _record(fitted, prediction, arrival_ns, latency_ns, tainted)
    record["beyond"] = beyond
    stalls = None if plan.asked else _stalls(fitted, arrival_ns, latency_ns)
    record["stalls"] = None if stalls is None else to_builtins(stalls)
    for source, named in zip(record["sources"], names, strict=True):
        source["interrupts"] = named
    _draw(plan, run.label, arrival_ns, latency_ns, prediction)

    def show() -> None:
        _print(fitted, prediction)
        if stalls is not None:
            why = "no clock that was found explains them; `tailscope explain` looks at recordings"
            say(stalls_text(stalls, why))
        if fitted.in_batches:
            say("no latency is predicted: most packets leave in batches, and wait for each other")
        _print_left_out(tainted)
        if beyond:
            searched_s = (arrival_ns[-1] - arrival_ns[0]) / 1e9
            say(
                f"searched the first {counted(len(arrival_ns), 'packet')}, which came within"
                f" {searched_s:.3g} s; {beyond:,} came later"
            )
        for source, named in zip(fitted.sources, names, strict=True):
            if named is not None:
                named_text = printable(", ".join(named) or "no counter")
                say(f"{source.periodic.rate_hz:.4f} Hz is counted by: {named_text}")

    conclude(plan.json_file, record, [plan.run], show)


def _stalls(fitted: Fit, arrival_ns: Times, latency_ns: Times) -> UnnamedStalls | None:
    """Sum up the stalls that make the tail, if clocks that were found do not hold for as long."""
    from tailscope.extra.patterns.explain import stalls_beyond
    from tailscope.extra.patterns.models.holds import BEYOND_A_CLOCK
    from tailscope.extra.patterns.models.series import Series

    longest_ns = max((source.periodic.duration_ns for source in fitted.sources), default=0)
    return stalls_beyond(
        Series(arrival_ns - arrival_ns[0], latency_ns), BEYOND_A_CLOCK * longest_ns
    )


def _rates(interrupts: Mapping[str, Path]) -> dict[str, Mapping[str, Sequence[float]]]:
    """Return the rates of the counters of each machine."""
    from tailscope.noise.counters import rates_hz, read_samples

    return {name: rates_hz(read_samples(path), path) for name, path in interrupts.items()}


def _names(
    fitted: Fit, rates: Mapping[str, Mapping[str, Sequence[float]]]
) -> list[list[str] | None]:
    """Return, for each source, the interrupt counters of the same rate; None without counters."""
    if not rates:
        return [None for _ in fitted.sources]
    from tailscope.extra.patterns.models.aliasing.naming import counted_as

    named = counted_as([source.periodic for source in fitted.sources], rates)
    return [
        [counter if len(rates) == 1 else f"{machine}: {counter}" for machine, counter in each]
        for each in named
    ]


def _run_recorded(plan: AliasingRequest) -> None:
    from tailscope.extra.patterns.models.aliasing.prediction import predict_recorded
    from tailscope.extra.patterns.models.aliasing.simulation import RecordedInterruptions
    from tailscope.noise.table import read_blocked
    from tailscope.store.reader import read_run
    from tailscope.units import count_text

    run = read_run(plan.run)
    arrival_ns, latency_ns, tainted, _ = _packets(plan.run, run.info)
    blocked = read_blocked(plan.run, run.info)
    start_ns = blocked.start_ns[blocked.is_dut]
    recorded = RecordedInterruptions(start_ns, blocked.end_ns[blocked.is_dut] - start_ns)
    prediction = predict_recorded(recorded, arrival_ns, latency_ns)
    record: dict[str, Any] = {
        "packets": len(arrival_ns),
        "tainted": tainted,
        "first_packet_ns": int(arrival_ns[0]),
        "interruptions": len(start_ns),
        "stalls": None,
        "sources": [],
        "measured": prediction.measured,
        "predicted": prediction.predicted,
        "tolerance_ns": prediction.tolerance_ns,
        "agreement": prediction.agreement,
        "reason": None,
    }
    _draw(plan, run.label, arrival_ns, latency_ns, prediction)

    def show() -> None:
        say(f"{count_text(len(start_ns))} interruptions were recorded on the device's CPU\n")
        _print_beside(prediction)
        _print_left_out(tainted)

    conclude(plan.json_file, record, [plan.run], show)


def _print_left_out(tainted: int) -> None:
    from tailscope.units import counted

    if tainted:
        say(f"left out: {counted(tainted, 'packet')} that the instrument's stalls taint")


def _draw(
    plan: AliasingRequest,
    label: str,
    arrival_ns: Times,
    latency_ns: Times,
    prediction: Prediction | None,
) -> None:
    if plan.figure is None:
        return
    from tailscope.extra.patterns.pictures import worst_of
    from tailscope.report.drawing import write_grid

    series = {"measured": latency_ns}
    if prediction is not None:
        series["predicted"] = prediction.latency_ns
    write_grid([plan.figure], worst_of(arrival_ns, series), title=label)


def _packets(
    path: Path, info: RunInfo, most: int | None = None, longest_ns: int | None = None
) -> tuple[Times, Times, int, int]:
    """Read arrivals in order and latencies, without packets that the instrument delayed itself.

    Packets beyond so many, or later than so long after the first, are only counted.
    """
    import numpy as np

    from tailscope.store.reader import open_packets

    came_ns, latencies_ns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    tainted = read = 0
    with open_packets(path, info) as packets:
        every = len(packets)
        most = every if most is None else most
        for pre_ns, latency_ns, taints in packets.batches("pre_ns", "latency_ns", "tainted"):
            rest = slice(0, most - read)
            read += len(pre_ns[rest])
            is_own = slice(None) if taints is None else ~taints[rest]
            came_ns.append(pre_ns[rest].astype(np.int64)[is_own])
            latencies_ns.append(latency_ns[rest].astype(np.int64)[is_own])
            tainted += len(pre_ns[rest]) - len(came_ns[-1])
            if read == most:
                break
    arrival_ns, latency_ns = np.concatenate(came_ns), np.concatenate(latencies_ns)
    if not len(arrival_ns):
        raise RunError(
            f"{path}: no packet of this run has a latency that is the device's own",
            code="no-own-latency",
        )
    order = np.argsort(arrival_ns, kind="stable")
    arrival_ns, latency_ns = arrival_ns[order], latency_ns[order]
    until_ns = np.inf if longest_ns is None else arrival_ns[0] + longest_ns
    early = slice(0, np.searchsorted(arrival_ns, until_ns, "right"))
    late = len(arrival_ns) - len(arrival_ns[early])
    return arrival_ns[early], latency_ns[early], tainted, every - read + late


def _found(
    asked: Sequence[SourceRequest],
    arrival_ns: Times,
    latency_ns: Times,
    counters: Mapping[str, Mapping[str, Sequence[float]]],
) -> Fit:
    from tailscope.extra.patterns.models.aliasing.fit import fit, given
    from tailscope.extra.patterns.models.aliasing.naming import counted_rates
    from tailscope.extra.patterns.models.aliasing.sources import median_ns

    if not asked:
        return fit(arrival_ns, latency_ns, counted_rates(counters))
    base_ns = median_ns(latency_ns)
    sources = [source.periodic(base_ns) for source in asked]
    share = sum(source.share for source in sources)
    if share >= 1:
        raise UsageError(
            f"--simulate: expected sources that leave time, got {share:.0%} of it",
            code="simulate-share",
        )
    return given(arrival_ns, latency_ns, sources)


def _record(
    fitted: Fit, prediction: Prediction | None, arrival_ns: Times, latency_ns: Times, tainted: int
) -> dict[str, Any]:
    from tailscope.extra.patterns.models.aliasing.prediction import figures

    return {
        "packets": fitted.packets,
        "tainted": tainted,
        "first_packet_ns": int(arrival_ns[0]),
        "base_latency_ns": fitted.base_latency_ns,
        "threshold_ns": fitted.threshold_ns,
        "service_ns": fitted.service_ns,
        "delayed": fitted.delayed,
        "explained": fitted.explained,
        "sources": [source.record() for source in fitted.sources],
        "measured": {"delayed": fitted.delayed, **figures(latency_ns)},
        "predicted": None if prediction is None else prediction.predicted,
        "tolerance_ns": None if prediction is None else prediction.tolerance_ns,
        "agreement": None if prediction is None else prediction.agreement,
        "reason": fitted.reason,
    }


def _print(fitted: Fit, prediction: Prediction | None) -> None:
    from tailscope.units import counted, duration_text
    from tailscope.words.promises import kept

    if not fitted.sources:
        say(fitted.reason or "")
        say(
            f"latency without delays: {duration_text(fitted.base_latency_ns)}, the median of those"
            f" that found nothing ahead of them; {counted(fitted.packets, 'packet')} in all"
        )
        return
    largest_first = sorted(fitted.sources, key=lambda source: -(source.packets or 0))
    print_table(_SOURCE_HEADER, [map(_source_row, largest_first), _rest_rows(fitted)])
    if prediction is not None:
        _print_beside(prediction)
    p_values = [source.p_value for source in fitted.sources if source.p_value is not None]
    if p_values:
        say(f"packets without these clocks look like this with p <= {max(p_values):.2g}")
    if any(source.window_ns is not None for source in fitted.sources):
        say(
            "flat: packets that are done within this time from a tick do not wait for its end, but"
            " take longer by as much: it falls into their service, or leaves cold caches"
        )
    assert fitted.threshold_ns is not None
    say(f"packets count as delayed above {duration_text(fitted.threshold_ns)}")
    say(kept("aliasing"))


def _print_beside(prediction: Prediction) -> None:
    from tailscope.units import count_text, duration_text

    both = (prediction.measured, prediction.predicted)
    rows = [
        (label, *(duration_text(figures[name]) for figures in both))
        for name, label in _QUANTILES.items()
    ]
    rows.append(("delayed packets", *(count_text(figures["delayed"]) for figures in both)))
    print_table(("latency", "measured", "predicted"), [rows])
    if prediction.agreement is not None:
        say(
            f"{prediction.agreement:.1%} of the packets measured as delayed met the prediction,"
            f" within {duration_text(prediction.tolerance_ns)}"
        )


def _source_row(source: FittedSource) -> tuple[str, ...]:
    from tailscope.units import count_text, duration_text

    periodic = source.periodic
    ci_hz = source.rate_ci_hz
    return (
        f"{periodic.rate_hz:.4f} Hz",
        _NOTHING if ci_hz is None else f"{ci_hz.low:.6f} to {ci_hz.high:.6f}",
        duration_text(source.latency_ns),
        duration_text(periodic.duration_ns),
        f"{'+'.join(map(str, periodic.teeth))} of {periodic.every}"
        if source.window_ns is None
        else f"flat, {duration_text(source.window_ns)}",
        duration_text(periodic.period_ns),
        duration_text(periodic.phase_ns),
        _NOTHING if source.packets is None else count_text(source.packets),
        _NOTHING if source.explained is None else f"{source.explained:.1%}",
    )


def _rest_rows(fitted: Fit) -> list[tuple[str, ...]]:
    """Return rows of what the sources leave, and of the whole, if packets were counted."""
    from tailscope.units import count_text

    caught = [source.packets for source in fitted.sources if source.packets is not None]
    if not caught or not fitted.delayed:
        return []
    blank = ("",) * (len(_SOURCE_HEADER) - 3)
    rest = fitted.delayed - sum(caught)
    return [
        ("unexplained", *blank, count_text(rest), f"{rest / fitted.delayed:.1%}"),
        ("delayed", *blank, count_text(fitted.delayed), "100.0%"),
    ]
