"""A baseline as a file: runs reduced to what others are compared with, written and read back."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import tailscope._engine as _engine
from tailscope.compare.compare import compare_figures, error_of
from tailscope.compare.figures import LOST, RATE, TRANSFER, figures_with, quantile_figure
from tailscope.compare.limits import limit_error
from tailscope.compare.measured import MeasuredFigure, OwnFigure, RunFigures
from tailscope.compare.sample import read_samples
from tailscope.compare.sources import ComparedRuns
from tailscope.exceptions import RunCorruptError, RunError, UsageError
from tailscope.models.differences import Bounds
from tailscope.models.estimate import LEVEL
from tailscope.store.atomic import write_text
from tailscope.store.files import MOST_RECORD_BYTES, read_file
from tailscope.store.records.base import (
    check_format,
    check_lines,
    convert,
    encode,
    format_of,
    read_json,
)
from tailscope.store.records.baseline import (
    BASELINE_FORMAT,
    BaselineDoubt,
    BaselineFigure,
    BaselineLatency,
    BaselineRecord,
    BaselineRun,
)
from tailscope.units import counted
from tailscope.verdict.evidence import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.compare.compare import Comparison
    from tailscope.compare.figures import Figure
    from tailscope.compare.limits import Limit

FIGURES = figures_with(quantile_figure(q) for q in (0.75, 0.95, 0.995, 0.9995, 0.99995))
"""Figures of a baseline: those that are compared, and quantiles that a limit may name."""

_PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 22, 24, 26, 28, 30, 32, 48, 64)
_ERRORS = tuple((1 - LEVEL) / parts for parts in _PARTS)
"""Error rates of the intervals in a baseline: those that one, two, … limits take, and those of the
figures of a comparison.
"""

_SAME_PLAN = (
    *("dut", "wire", "platform", "direction", "rate_pps", "pattern", "burst", "size_bytes"),
    *("size_mix", "flows"),
)
_SAME_MACHINE = ("cpu_model", "kernel_release", "kernel_flavour")
"""Facts without which figures of two runs differ anyway."""

_UNTOLD = (
    "nothing tells by which device and on which machine these captures were made, so it was not"
    " checked that they are of the same ones; `tailscope analyze --about FILE` tells"
)

_MOST = 2.0**63
"""Largest value of a figure: more nanoseconds than any run has."""

_AGAIN = "`tailscope compare save RUN... --out FILE` writes one"


def save_baseline(runs: Mapping[Path, str], out: Path) -> list[RunFigures]:
    """Write what runs are compared by."""
    samples = read_samples(runs, FIGURES, _ERRORS)
    for sample in samples[1:]:
        for name, value, other in _differing(samples[0], sample):
            raise UsageError(
                f"{sample.name}: {name}: got {other}, expected {value} as in {samples[0].name}:"
                " a baseline is of runs that repeat each other",
                code="runs-not-repeats",
                hint="save one baseline for each set-up and machine",
            )
    record = BaselineRecord(
        tailscope_version=_engine.VERSION,
        written_unix_ns=time.time_ns(),
        errors=_ERRORS,
        runs=tuple(map(_run, samples)),
    )
    write_text(out, encode(record))
    return samples


def read_baseline(path: Path) -> BaselineRecord:
    """Read a baseline."""
    place = path.resolve()
    try:
        content = read_file(place.parent, place.name, most_bytes=MOST_RECORD_BYTES)
        fields = read_json(content, path)
        for name in ("errors", "runs"):
            if name not in fields:
                raise RunCorruptError(f"{path}: {name}: missing", code="baseline-field")
        check_format(format_of(fields, path), BASELINE_FORMAT, path)
        record = convert(fields, BaselineRecord, path)
        check_lines(content, path)
        _check(record, path)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            f"{path}: no such file or folder", code="no-such-file", hint=_AGAIN
        ) from None
    except RunCorruptError as error:
        raise RunCorruptError(
            f"no baseline, or a damaged one: {error}", code=error.code, hint=_AGAIN
        ) from None
    return record


def compare_with(
    record: BaselineRecord,
    path: Path,
    runs: Mapping[Path, str],
    name: str,
    limits: Sequence[Limit],
) -> tuple[Comparison, float]:
    """Compare runs with a baseline; without its machine or plan, no limit is decided."""
    figures = figures_with(limit.figure for limit in limits)
    has = record.runs[0].as_is
    for figure in figures:
        if figure.name not in has:
            raise UsageError(
                f"--fail-on: got {figure.name}, expected a figure of the baseline {path}:"
                f" {', '.join(name for name in has if name.startswith('p') or name == LOST.name)}",
                code="baseline-figure",
            )
    error, own = error_of(len(figures)), limit_error(len(limits), 1)
    errors = (error, own) if limits else (error,)
    for each in errors:
        if each < record.errors[-1]:
            raise UsageError(
                f"--fail-on: got {counted(len(limits), 'limit')}, expected fewer: {path} has"
                f" intervals down to an error of {record.errors[-1]:g}, and {each:g} is needed",
                code="too-many-limits",
            )
    baseline = [_figures(run, record.errors, figures, errors) for run in record.runs]
    candidate = read_samples(runs, figures, errors)
    candidate = list(_doubted(baseline[0], candidate))
    _check_windows(baseline[0], candidate, path)
    pair = ComparedRuns(
        cell="",
        baseline=str(path),
        candidate=name,
        baseline_runs=tuple(Path(run.name) for run in record.runs),
        candidate_runs=tuple(runs),
        names={},
    )
    comparison = compare_figures(pair, [*baseline, *candidate], figures, error)
    if not any(_tells(sample) for sample in (*baseline, *candidate)):
        comparison = replace(comparison, warnings=(*comparison.warnings, _UNTOLD))
    return comparison, own


def _tells(sample: RunFigures) -> bool:
    """Return whether the facts that all runs of a baseline share are known."""
    facts = (fact.partition(": ")[2] for fact, value in sample.facts.items() if value != "-")
    return any(field in (*_SAME_PLAN, *_SAME_MACHINE) for field in facts)


def _differing(baseline: RunFigures, other: RunFigures) -> Iterator[tuple[str, str, str]]:
    """Return the facts that differ in both, and without which figures differ anyway."""
    for fact in {**baseline.facts, **other.facts}:
        section, _, field = fact.partition(": ")
        of_plan = section == "plan"
        if field in (_SAME_PLAN if of_plan else _SAME_MACHINE):
            values = baseline.facts.get(fact, "-"), other.facts.get(fact, "-")
            if values[0] != values[1]:
                yield fact, *values


def _doubted(baseline: RunFigures, samples: Sequence[RunFigures]) -> Iterator[RunFigures]:
    """Return runs with the doubts that another machine or plan raises."""
    warned = set()
    for sample in samples:
        doubts = []
        for fact, expected, got in _differing(baseline, sample):
            if (fact, got) not in warned:
                warned.add((fact, got))
                doubts.append(Doubt(f"{fact}: got {got}, and the baseline has {expected}"))
        yield replace(sample, doubts=(*sample.doubts, *doubts))


def _check_windows(baseline: RunFigures, samples: Sequence[RunFigures], path: Path) -> None:
    """See that packets that never came count alike."""
    windows_ns = {each.window_ns for each in (baseline, *samples) if math.isfinite(each.window_ns)}
    if len(windows_ns) > 1:
        got = next(sample for sample in samples if sample.window_ns != baseline.window_ns)
        raise UsageError(
            f"{got.name}: window_ns: got {got.window_ns:.0f}, expected {baseline.window_ns:.0f} as"
            f" in {path}",
            code="window",
            hint="analyse with the same --window, or save the baseline again",
        )


def _run(sample: RunFigures) -> BaselineRun:
    def kept(reading: Mapping[str, MeasuredFigure]) -> dict[str, BaselineFigure]:
        return {name: _figure(each) for name, each in reading.items()}

    def kept_doubts(doubts: Sequence[Doubt]) -> tuple[BaselineDoubt, ...]:
        return tuple(
            BaselineDoubt(reason=doubt.reason, of_met=doubt.of_pass, of_missed=doubt.of_fail)
            for doubt in doubts
        )

    return BaselineRun(
        name=sample.name,
        facts=dict(sample.facts),
        rate_pps=sample.rate_pps,
        tainted_share=sample.tainted_share,
        is_foreign=sample.is_foreign,
        spoilt=sample.spoilt,
        window_ns=int(sample.window_ns) if math.isfinite(sample.window_ns) else None,
        resolution_ns=sample.resolution_ns,
        as_is=kept(sample.as_is),
        least=None if sample.least is None else kept(sample.least),
        doubts=kept_doubts(sample.doubts),
        time_doubts=kept_doubts(sample.time_doubts),
        own={name: BaselineLatency(**own._asdict()) for name, own in sample.own.items()},
        fastest_ns=sample.fastest_ns,
        drift_ns=sample.drift_ns,
        is_relative=sample.is_relative,
        never_came=sample.never_came,
        unsent=sample.unsent,
    )


def _figure(measured: MeasuredFigure) -> BaselineFigure:
    return BaselineFigure(
        value=_finite(measured.value),
        ci_low=tuple(_finite(measured.ends[error].low) for error in _ERRORS),
        ci_high=tuple(_finite(measured.ends[error].high) for error in _ERRORS),
        lacks=measured.lacks,
        packets=measured.packets,
        packets_to_support=measured.packets_to_support,
        design_effect=measured.design,
        of_those_that_came=_finite(measured.of_those_that_came),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _figures(
    run: BaselineRun,
    kept_errors: Sequence[float],
    figures: Sequence[Figure],
    errors: Sequence[float],
) -> RunFigures:
    """Return a run of a baseline in the form of a run that was read.

    An error that the baseline has no ends for gets those of the next smaller one.
    """

    def read(reading: Mapping[str, BaselineFigure]) -> dict[str, MeasuredFigure]:
        return {figure.name: measured(reading[figure.name]) for figure in figures}

    def measured(figure: BaselineFigure) -> MeasuredFigure:
        ends = {}
        for error in errors:
            at = next(place for place, each in enumerate(kept_errors) if each <= error)
            ends[error] = Bounds(
                math.nan if figure.value is None else figure.value,
                -math.inf if (low := figure.ci_low[at]) is None else low,
                math.inf if (high := figure.ci_high[at]) is None else high,
            )
        came = figure.of_those_that_came
        return MeasuredFigure(
            ends,
            figure.lacks,
            figure.packets,
            figure.packets_to_support,
            figure.design_effect,
            math.nan if came is None else came,
        )

    def doubts(kept_doubts: Sequence[BaselineDoubt]) -> tuple[Doubt, ...]:
        return tuple(Doubt(doubt.reason, doubt.of_met, doubt.of_missed) for doubt in kept_doubts)

    return RunFigures(
        name=run.name,
        facts=run.facts,
        rate_pps=run.rate_pps,
        tainted_share=run.tainted_share,
        is_foreign=run.is_foreign,
        as_is=read(run.as_is),
        least=None if run.least is None else read(run.least),
        spoilt=run.spoilt,
        window_ns=math.inf if run.window_ns is None else run.window_ns,
        resolution_ns=run.resolution_ns,
        doubts=doubts(run.doubts),
        time_doubts=doubts(run.time_doubts),
        own={
            name: OwnFigure(own.least_ns, own.latency_ns, own.bound_ns)
            for name, own in run.own.items()
        },
        fastest_ns=run.fastest_ns,
        drift_ns=run.drift_ns,
        is_relative=run.is_relative,
        never_came=run.never_came,
        unsent=run.unsent,
    )


def _check(record: BaselineRecord, path: Path) -> None:
    """See that a record is one that can be compared, whoever wrote it."""
    errors = record.errors
    if not errors or errors[-1] <= 0 or any(one <= other for one, other in pairwise(errors)):
        raise RunCorruptError(
            f"{path}: errors: expected falling numbers above 0, got {errors}",
            code="baseline-errors",
        )
    if not record.runs:
        raise RunCorruptError(f"{path}: runs: expected one or more, got none", code="baseline-runs")
    for number, run in enumerate(record.runs):
        for kind, reading in (("as_is", run.as_is), ("least", run.least)):
            where = f"{path}: runs[{number}].{kind}"
            missing = {LOST.name, TRANSFER.name, RATE.name} - (reading or run.as_is).keys()
            if missing or (reading is not None and reading.keys() != record.runs[0].as_is.keys()):
                raise RunCorruptError(
                    f"{where}: expected the figures {', '.join(record.runs[0].as_is)}, got"
                    f" {', '.join(reading or ()) or 'none'}",
                    code="baseline-figures",
                )
            for name, figure in (reading or {}).items():
                _check_figure(figure, len(errors), f"{where}.{name}")


def _check_figure(figure: BaselineFigure, ends: int, where: str) -> None:
    if {len(figure.ci_low), len(figure.ci_high)} != {ends}:
        raise RunCorruptError(
            f"{where}: expected {ends} ends of each kind, got {len(figure.ci_low)} and"
            f" {len(figure.ci_high)}",
            code="baseline-ends",
        )
    value = figure.value
    if value is None and figure.lacks is None:
        raise RunCorruptError(f"{where}.value: expected a number, got null", code="baseline-value")
    for low, high in zip(figure.ci_low, figure.ci_high, strict=True):
        ascending = [each for each in (low, value, high) if each is not None]
        if ascending != sorted(ascending) or any(abs(each) > _MOST for each in ascending):
            raise RunCorruptError(
                f"{where}: expected ci_low, value and ci_high in this order, within {_MOST:g}, got"
                f" {', '.join(f'{each:g}' for each in ascending)}",
                code="baseline-order",
            )
    if not 1 <= figure.design_effect <= _MOST:
        raise RunCorruptError(
            f"{where}.design_effect: expected 1 or more, got {figure.design_effect:g}",
            code="baseline-design-effect",
        )
