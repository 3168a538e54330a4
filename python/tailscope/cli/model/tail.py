"""``tailscope model tail``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import (
    STANDARD,
    JsonFile,
    Keep,
    checked_figure,
    without_format,
    write_json,
)
from tailscope.cli.status import UNDECIDED
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.models.estimate import Estimate
    from tailscope.models.tail.diagnostics import At
    from tailscope.models.tail.excesses import Excesses
    from tailscope.models.tail.model import Candidate, Horizon, Settings, TailModel
    from tailscope.store.records.tail import TailHorizon, TailRecord, TriedThreshold

__all__ = ["command"]

_NS_PER_S, _NS_PER_MS = 1e9, 1e6
_SPANS_S = {"h": 3600, "min": 60}
_SEED = 1
_FEWEST_RESAMPLES = 100


def command(
    context: typer.Context,
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)
    ] = None,
    worst: Annotated[
        Path | None,
        typer.Option(
            "--worst",
            metavar="FILE",
            help="Instead of a run, its worst packets: CSV with latency and prets in ns.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", help="Total packets behind --worst."),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="QUANTILE",
            help="Threshold of the model, such as p99.999.  [default: the best fit]",
        ),
    ] = None,
    split: Annotated[
        float,
        typer.Option(
            "--split",
            metavar="SHARE",
            help="Share of the run to fit; the rest checks the fit.",
        ),
    ] = 0.2,
    run_length: Annotated[
        str | None,
        typer.Option(
            "--run-length",
            metavar="TIME",
            help="Excesses closer than this form one burst.  [default: 1 ms, at least 10 packets]",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option("--horizon", metavar="TIME", help="Extrapolation horizon, such as 24h."),
    ] = None,
    interval: Annotated[
        str,
        typer.Option(
            "--interval", metavar="METHOD", help="Method: integrated, profile or bootstrap."
        ),
    ] = "integrated",
    resamples: Annotated[
        int, typer.Option("--resamples", metavar="N", help="Resamples of the bootstrap.")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Bootstrap seed.")] = _SEED,
    json_file: JsonFile = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Draw the diagnostics: svg, png or pdf."),
    ] = None,
    keep: Keep = False,
) -> int:
    """Exit status 3: there are too few bursts, or no prediction is possible."""
    plan = TailRequest(
        _source(run, worst, count),
        _settings(threshold, split, run_length, horizon, interval, resamples),
        seed,
        json_file,
        checked_figure(figure),
        (context.obj or ()) if keep else None,
    )
    return _run(plan)


@dataclass(frozen=True)
class LatencySource:
    """A run, or the worst packets of so many."""

    path: Path
    count: int | None


@dataclass(frozen=True)
class TailRequest:
    """What to model, how, and where to."""

    source: LatencySource
    settings: Settings
    seed: int
    json_file: str | None
    figure: Path | None
    kept_by: Sequence[str] | None
    """The command, where the figures are kept in the run."""

    def __post_init__(self) -> None:
        if self.kept_by is not None and self.source.count is not None:
            raise UsageError("--keep requires a run directory; --worst is only a table")


def _source(run: Path | None, worst: Path | None, count: int | None) -> LatencySource:
    if (run is None) == (worst is None):
        raise UsageError("expected a run directory, or --worst FILE with --count N")
    if (worst is None) != (count is None):
        raise UsageError("--worst and --count must be given together")
    if count is not None and count < 1:
        raise UsageError(f"--count: expected at least 1, got {count}")
    path = run or worst
    assert path is not None
    return LatencySource(path, count)


def _settings(
    threshold: str | None,
    split: float,
    run_length: str | None,
    horizon: str | None,
    interval: str,
    resamples: int,
) -> Settings:
    from tailscope.models.tail.fit import METHODS
    from tailscope.models.tail.model import CANDIDATES, Settings
    from tailscope.units import positive_duration_ns

    if not 0 < split <= 1:
        raise UsageError(f"--split: expected more than 0 and at most 1, got {split:g}")
    if interval not in METHODS:
        raise UsageError(f"--interval: expected one of {', '.join(METHODS)}, got {interval!r}")
    if resamples < _FEWEST_RESAMPLES:
        raise UsageError(f"--resamples: expected at least {_FEWEST_RESAMPLES}, got {resamples}")
    return Settings(
        split=split,
        thresholds=CANDIDATES if threshold is None else (_quantile(threshold),),
        run_length_ns=None
        if run_length is None
        else positive_duration_ns(run_length, "--run-length"),
        method=interval,
        resamples=resamples,
        horizon_ns=None if horizon is None else positive_duration_ns(horizon, "--horizon"),
    )


def _quantile(text: str) -> float:
    from tailscope.models.tail.model import LOWEST
    from tailscope.units import quantile_of

    found = quantile_of(text, "--threshold")
    if not LOWEST <= found < 1:
        raise UsageError(f"--threshold: expected a quantile from {LOWEST} to below 1, got {text!r}")
    return found


def _run(plan: TailRequest) -> int:
    import numpy as np

    from tailscope.models.tail.model import model

    excesses, tainted = _excesses(plan.source, plan.settings.split)
    found = model(excesses, plan.settings, np.random.default_rng(plan.seed))
    if any(each is not None for each in (plan.json_file, plan.figure, plan.kept_by)):
        _write(plan, found, tainted)
    if plan.json_file != STANDARD:
        _print(found, tainted)
    return 0 if found.refused is None else UNDECIDED


def _write(plan: TailRequest, found: TailModel, tainted: int) -> None:
    from tailscope.models.tail.diagnostics import stability

    part, _ = found.excesses.split(plan.settings.split)
    thresholds = stability(part, found.run_length_ns, plan.settings.level)
    record = _record(found, tainted, thresholds)
    if plan.json_file is not None:
        write_json(plan.json_file, without_format(record))
    if plan.kept_by is not None:
        _keep(plan.source.path, record, plan.kept_by)
    if plan.figure is not None:
        from tailscope.report.drawing import write_grid
        from tailscope.report.figures.conclusions import tail_pictures

        label = plan.source.path.name
        write_grid([plan.figure], tail_pictures(label, record), columns=2, title=label)


def _excesses(source: LatencySource, split: float) -> tuple[Excesses, int]:
    """What lies beyond, and how many packets the instrument delayed itself: those are left out."""
    import numpy as np

    from tailscope.models.tail.excesses import of_worst, select
    from tailscope.models.tail.model import LOWEST
    from tailscope.store.authors import read_worst
    from tailscope.store.layout import WORST
    from tailscope.store.reader import check_held, read_packets, read_run
    from tailscope.store.run import foreign_text

    if source.count is not None:
        return of_worst(*read_worst(source.path), source.count), 0
    run = read_run(source.path)
    if foreign_text(run.info) is not None:
        check_held(source.path, run.info, WORST, "the worst packets and their times")
        found = of_worst(run.worst.pre_ns, run.worst.latency_ns, int(run.summary["count"] or 0))
        return found, 0
    series = read_packets(source.path, run.info)
    stall_ns = series.instrument_stall_ns
    if stall_ns is None or series.tainted is None:
        return select(series.pre_ns, series.latency_ns, LOWEST, split), 0
    tainted = int(np.count_nonzero(series.tainted))
    return select(series.pre_ns, series.latency_ns - stall_ns, LOWEST, split), tainted


def _record(found: TailModel, tainted: int, thresholds: Sequence[At]) -> TailRecord:
    from tailscope.models.tail.diagnostics import levels_ahead, quantile_pairs
    from tailscope.store.records.tail import (
        LevelAhead,
        QuantilePair,
        StabilityAt,
        TailIntervals,
        TailRecord,
        TestedStationarity,
    )

    fit, excesses, check = found.fit, found.excesses, found.check
    estimates = found.estimates()
    ahead = levels_ahead(fit, found.settings.level)
    columns = (each.tolist() for each in ahead)
    pairs = (each.tolist() for each in quantile_pairs(fit))
    return TailRecord(
        count=excesses.count,
        tainted=tainted,
        duration_s=excesses.duration_ns / _NS_PER_S,
        split=found.settings.split,
        fit_packets=fit.packets,
        threshold=found.chosen.quantile,
        threshold_ns=fit.threshold_ns,
        threshold_lowered_from=found.lowered_from,
        run_length_ns=found.run_length_ns,
        excesses=int(fit.bursts.packets.sum()),
        bursts=len(fit.bursts),
        extremal_index=fit.bursts.extremal_index,
        extremal_index_intervals=found.extremal_index_intervals,
        xi=estimates["xi"].estimate,
        xi_ci_low=estimates["xi"].ci_low,
        xi_ci_high=estimates["xi"].ci_high,
        sigma_ns=estimates["sigma_ns"].estimate,
        sigma_ns_ci_low=estimates["sigma_ns"].ci_low,
        sigma_ns_ci_high=estimates["sigma_ns"].ci_high,
        return_packets=found.level_packets,
        return_level_ns=estimates["return_level_ns"].estimate,
        return_level_ns_ci_low=estimates["return_level_ns"].ci_low,
        return_level_ns_ci_high=estimates["return_level_ns"].ci_high,
        return_level_ns_most_likely=fit.best_level_ns(found.level_packets),
        level=found.settings.level,
        method=found.settings.method,
        intervals={
            method: TailIntervals(**each._asdict()) for method, each in found.intervals.items()
        },
        bounded=bool(fit.best.xi < 0),
        limit_ns=fit.limit_ns,
        js_divergence_bits=fit.divergence_bits,
        exceedances_packets=None if check is None else check.exceedances_packets,
        exceedances_bursts=None if check is None else check.exceedances_bursts,
        exceedances_p_value=None if check is None else check.p_value,
        stationary=bool(found.stationarity.holds),
        adf=TestedStationarity(**found.stationarity.adf._asdict()),
        kpss=TestedStationarity(**found.stationarity.kpss._asdict()),
        candidates=tuple(map(_tried, found.candidates)),
        horizon=None if found.horizon is None else _horizon(found.horizon),
        refused=found.refused,
        latency_ns_max=int(excesses.latency_ns.max()),
        stability=tuple(StabilityAt(**each._asdict()) for each in thresholds),
        levels_ahead=tuple(
            LevelAhead(
                packets=packets,
                return_level_ns=level,
                return_level_ns_ci_low=low,
                return_level_ns_ci_high=high,
            )
            for packets, level, low, high in zip(*columns, strict=True)
        ),
        quantile_pairs=tuple(
            QuantilePair(law_ns=law, measured_ns=measured)
            for law, measured in zip(*pairs, strict=True)
        ),
    )


def _tried(candidate: Candidate) -> TriedThreshold:
    from tailscope.store.records.tail import TriedThreshold

    fit = candidate.fit
    return TriedThreshold(
        threshold=candidate.quantile,
        threshold_ns=candidate.threshold_ns,
        bursts=None if fit is None else len(fit.bursts),
        xi=None if fit is None else fit.best.xi,
        sigma_ns=None if fit is None else fit.best.sigma,
        js_divergence_bits=None if fit is None else fit.divergence_bits,
        js_by_chance_bits=None if fit is None else fit.divergence_by_chance_bits,
        refused=candidate.refused,
    )


def _horizon(horizon: Horizon) -> TailHorizon:
    from tailscope.store.records.tail import TailHorizon

    return TailHorizon(
        duration_s=horizon.duration_ns / _NS_PER_S,
        packets=horizon.packets,
        **horizon.level_ns.record("return_level_ns"),
        bounded=horizon.limit_ns is not None,
        limit_ns=horizon.limit_ns,
    )


def _keep(path: Path, record: TailRecord, command: Sequence[str]) -> None:
    from tailscope.store import kept, layout
    from tailscope.store.reader import read_info

    kept.keep(path, read_info(path), layout.TAIL, record, command=command)


def _print(found: TailModel, tainted: int) -> None:
    from tailscope.cli.table import aligned
    from tailscope.units import count_text, duration_text, percentile_name

    fit, check = found.fit, found.check
    estimates = found.estimates()
    xi, sigma, level = (estimates[name] for name in ("xi", "sigma_ns", "return_level_ns"))
    length = f"{found.run_length_ns / _NS_PER_MS:g} ms"
    rows = [
        ("threshold", duration_text(fit.threshold_ns), percentile_name(found.chosen.quantile)),
        (
            "excesses",
            count_text(int(fit.bursts.packets.sum())),
            f"in {len(fit.bursts)} bursts,"
            f" {length} apart; extremal index {fit.bursts.extremal_index:.3f}",
        ),
        ("shape ξ", f"{xi.estimate:.3f}", f"{xi.ci_low:.3f} to {xi.ci_high:.3f}"),
        ("scale σ", duration_text(sigma.estimate), _between(sigma)),
        (
            "return level",
            duration_text(level.estimate),
            f"{_between(level)}; one burst in {count_text(round(found.level_packets))} packets",
        ),
        ("limit", *_limit(fit.limit_ns)),
    ]
    if check is not None:
        rows.append(
            (
                "exceeded by",
                count_text(check.exceedances_packets),
                "packets of the rest, in"
                f" {count_text(check.exceedances_bursts)} bursts; 1 is expected",
            )
        )
    for line in aligned(("beyond", "", f"{found.settings.level:.0%} interval"), [rows]):
        print(line)
    if found.lowered_from is not None:
        print(
            f"{percentile_name(found.lowered_from)} leaves too few bursts:"
            f" {percentile_name(found.chosen.quantile)} was taken"
        )
    if tainted:
        print(
            f"{count_text(tainted)} packets were under way while the instrument itself stalled:"
            " they count with the least that they can have taken"
        )
    if found.refused is not None:
        print(f"no prediction: {found.refused}")
    elif found.horizon is not None:
        ahead = found.horizon
        print(
            f"in {_span(ahead.duration_ns)} at this rate expect one burst of packets above"
            f" {duration_text(ahead.level_ns.estimate)} ({found.settings.level:.0%}:"
            f" {_between(ahead.level_ns)})"
        )


def _span(duration_ns: int) -> str:
    """How far somebody looks ahead, in the unit in which people say it."""
    seconds = duration_ns / _NS_PER_S
    unit = next((unit for unit, size in _SPANS_S.items() if seconds % size == 0), "s")
    return f"{seconds / _SPANS_S.get(unit, 1):g} {unit}"


def _between(estimate: Estimate) -> str:
    from tailscope.units import duration_text

    return f"{duration_text(estimate.ci_low)} to {duration_text(estimate.ci_high)}"


def _limit(limit_ns: float | None) -> tuple[str, str]:
    from tailscope.units import duration_text

    if limit_ns is None:
        return "none", "by the most likely law, which has no bound"
    return duration_text(limit_ns), "by the most likely law"
