"""Differences between the figures of runs, and which of them are real."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tailscope.compare.figures import MAX
from tailscope.compare.sample import lost_alike, read_samples
from tailscope.compare.surroundings import surroundings
from tailscope.models.differences import Bounds, difference, mean
from tailscope.models.estimate import LEVEL
from tailscope.units import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.compare.figures import Figure
    from tailscope.compare.measured import MeasuredFigure, RunFigures
    from tailscope.compare.sources import ComparedRuns
    from tailscope.compare.surroundings import Other


class Verdict(StrEnum):
    """The verdict on a difference."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "no difference"
    UNCLEAR = "unclear"
    NO_ESTIMATE = "no estimate"


@dataclass(frozen=True)
class FigureChange:
    """The comparison of one figure."""

    figure: Figure
    verdict: Verdict
    baseline: Bounds
    candidate: Bounds
    """The mean of the runs; where it is no estimate, with the lower end as its bound."""
    difference: Bounds | None = None
    """Candidate less baseline; None where there is no estimate."""
    lacks: str | None = None
    """Reason why there is no estimate, or why it is unclear."""
    of_those_that_came: tuple[float, float] = (math.nan, math.nan)
    """The same quantile, on both sides, of the packets that came back alone."""
    never_came: tuple[bool, bool] = (False, False)
    """True if the figure of a side, or of one of its runs, is a packet that never came."""
    window_ns: float = math.inf
    """Latency that such a packet counts as, and no other reaches."""

    @property
    def relative(self) -> float | None:
        """The difference as a share of the baseline."""
        base = self.baseline.value
        return self.difference.value / base if self.difference and base else None

    @property
    def noticeable(self) -> float | None:
        """The smallest difference that would not have been missed."""
        if self.difference is None:
            return None
        value, low, high = self.difference
        return max(value - low, high - value)

    def record(self) -> dict[str, object]:
        """Return the comparison as JSON has it."""
        baseline, candidate = (
            self._known(*side)
            for side in zip((self.baseline, self.candidate), self.never_came, strict=True)
        )
        bounds, relative, noticeable = self.difference, self.relative, self.noticeable
        if bounds is None or any(self.never_came):
            bounds, relative, noticeable = Bounds(math.nan, -math.inf, math.inf), None, None
        low = bounds.low if math.isfinite(baseline.high) else -math.inf
        high = bounds.high if math.isfinite(candidate.high) else math.inf
        return {
            "figure": self.figure.name,
            "unit": self.figure.unit,
            "verdict": str(self.verdict),
            **_record("baseline", baseline),
            **_record("candidate", candidate),
            **_record("difference", Bounds(bounds.value, low, high)),
            "relative": relative,
            "noticeable": None if noticeable is None else _finite(noticeable),
            "baseline_of_those_that_came": _finite(self.of_those_that_came[0]),
            "candidate_of_those_that_came": _finite(self.of_those_that_came[1]),
            "reason": self.lacks,
        }

    def _known(self, side: Bounds, never_came: bool) -> Bounds:
        """Return a side without what only stands for packets that never came."""
        if not self.figure.is_time:
            return side
        low, high = (end if end < self.window_ns else math.inf for end in side[1:])
        return Bounds(math.nan if never_came else side.value, low, high)


@dataclass(frozen=True)
class Sides:
    """Runs that are compared, read."""

    baseline: tuple[RunFigures, ...]
    candidate: tuple[RunFigures, ...]

    @property
    def samples(self) -> tuple[RunFigures, ...]:
        """Samples of both sides."""
        return (*self.baseline, *self.candidate)

    @property
    def resolution_ns(self) -> int:
        """Resolution of the coarsest timestamps, in nanoseconds."""
        return max(sample.resolution_ns for sample in self.samples)

    @property
    def window_ns(self) -> float:
        """Latency that a packet counts as that never came; infinite for imports alone."""
        return min(sample.window_ns for sample in self.samples)

    def measured(self, figure: Figure) -> tuple[list[MeasuredFigure], list[MeasuredFigure]]:
        """Return a figure of the runs as they are."""
        return _of(self.baseline, figure, False), _of(self.candidate, figure, False)

    def lacks(self, figure: Figure) -> str | None:
        """Return the reason why a figure is no estimate in one of the runs."""
        for sample in self.samples:
            for reading in filter(None, (sample.as_is, sample.least)):
                if (why := reading[figure.name].lacks) is not None:
                    return why if figure == MAX else f"{sample.name}: {why}"
        return None

    def never_came(self, figure: Figure) -> tuple[bool, bool]:
        """Return whether the figure of a run of either side is a packet that never came."""
        baseline, candidate = (
            figure.is_time
            and any(
                measured.value >= sample.window_ns
                for sample, measured in zip(samples, side, strict=True)
            )
            for samples, side in zip(
                (self.baseline, self.candidate), self.measured(figure), strict=True
            )
        )
        return baseline, candidate

    def differences(self, figure: Figure, error: float, factor: float = 1.0) -> list[Bounds]:
        """Candidate less baseline: as they are, the least it can be, and the most.

        It is the least if the instrument's stalls, or neighbours, delayed the candidate's packets
        alone, and the most if they delayed the baseline's alone. Latencies are widened by the
        resolution of the timestamps, and by what clocks may drift.
        """
        ends = [(False, False)]
        if any(sample.least is not None for sample in self.samples):
            ends += [(False, True), (True, False)]
        return [self._difference(figure, error, factor, least=end) for end in ends]

    def _difference(
        self, figure: Figure, error: float, factor: float, *, least: tuple[bool, bool]
    ) -> Bounds:
        baseline, candidate = (
            [each.ends[error] for each in _of(samples, figure, is_least)]
            for samples, is_least in zip((self.baseline, self.candidate), least, strict=True)
        )
        value, low, high = difference(baseline, candidate, error, factor)
        off = self.off(figure, factor)
        return Bounds(value, low - off, high + off)

    def off(self, figure: Figure, factor: float = 1.0) -> float:
        """Return by how much a difference may be off by timestamps and clocks, in its unit."""
        if not figure.is_time:
            return 0.0
        return self.resolution_ns + factor * _drift_ns(self.baseline) + _drift_ns(self.candidate)


@dataclass(frozen=True)
class Comparison:
    """The comparison of a pair."""

    pair: ComparedRuns
    sides: Sides
    findings: tuple[FigureChange, ...]
    others: tuple[Other, ...]
    """Settings and facts that differ between them."""
    warnings: tuple[str, ...]

    def record(self) -> dict[str, object]:
        """Return the comparison as JSON has it."""
        pair = self.pair
        return {
            "cell": pair.cell or None,
            "baseline": pair.baseline,
            "candidate": pair.candidate,
            "baseline_runs": [str(path) for path in pair.baseline_runs],
            "candidate_runs": [str(path) for path in pair.candidate_runs],
            "figures": [finding.record() for finding in self.findings],
            "others": [other._asdict() for other in self.others],
            "warnings": list(self.warnings),
        }


def error_of(statements: int) -> float:
    """Return the error rate of each end that lets so many intervals hold together (Bonferroni)."""
    return (1 - LEVEL) / 2 / max(1, statements)


def compare(
    pair: ComparedRuns, figures: Sequence[Figure], error: float, more_errors: Sequence[float] = ()
) -> Comparison:
    """Compare runs."""
    errors = tuple(dict.fromkeys((error, *more_errors)))
    samples = read_samples(pair.names, figures, errors)
    return compare_figures(pair, samples, figures, error)


def compare_figures(
    pair: ComparedRuns, samples: Sequence[RunFigures], figures: Sequence[Figure], error: float
) -> Comparison:
    """Compare runs that were read."""
    samples = tuple(lost_alike(samples))
    first = len(pair.baseline_runs)
    sides = Sides(samples[:first], samples[first:])
    findings = tuple(
        replace(_find(figure, sides, error), of_those_that_came=_of_those_that_came(figure, sides))
        for figure in figures
    )
    others = surroundings(sides.baseline, sides.candidate)
    return Comparison(pair, sides, findings, tuple(others), tuple(_warnings(pair, sides)))


def _find(figure: Figure, sides: Sides, error: float) -> FigureChange:
    baseline, candidate = (
        mean([each.ends[error] for each in measured], error) for measured in sides.measured(figure)
    )
    change = FigureChange(
        figure,
        Verdict.NO_ESTIMATE,
        baseline,
        candidate,
        lacks=sides.lacks(figure),
        never_came=sides.never_came(figure),
        window_ns=sides.window_ns,
    )
    if change.lacks is not None:
        return change
    found = sides.differences(figure, error)
    verdicts = list(dict.fromkeys(_verdict(each) for each in found))
    most = Bounds(found[0].value, min(each.low for each in found), max(each.high for each in found))
    change = replace(change, difference=most)
    apart = [sample.name for sample in sides.samples if sample.is_relative]
    if apart and figure.is_time:
        lacks = f"the offset of the clocks of {' and '.join(apart)} is not known"
        return replace(change, verdict=Verdict.UNCLEAR, lacks=lacks)
    if len(verdicts) == 1:
        [verdict] = verdicts
        why = _hidden(change) if verdict is Verdict.NONE else None
        return replace(change, verdict=Verdict.UNCLEAR if why else verdict, lacks=why)
    spoilt = "; ".join(dict.fromkeys(sample.spoilt for sample in sides.samples if sample.spoilt))
    outcomes = " or ".join(map(str, verdicts))
    why = f"it depends on {spoilt}: {outcomes} within these bounds"
    return replace(change, verdict=Verdict.UNCLEAR, lacks=why)


def _hidden(change: FigureChange) -> str | None:
    """Say why no difference can be told where even a doubling would not have been noticed.

    Where no packet of either side is lost, that is no difference, however few packets there are.
    """
    noticeable, baseline = change.noticeable, abs(change.baseline.value)
    assert noticeable is not None
    if math.isinf(noticeable):
        return "too few independent packets for both ends of its interval"
    if noticeable <= baseline or baseline == change.candidate.value == 0:
        return None
    if not baseline:
        return "the baseline is 0, and what the other has may be chance"
    return "even twice the baseline would not have been noticed"


def _of_those_that_came(figure: Figure, sides: Sides) -> tuple[float, float]:
    baseline, candidate = (
        sum(each.of_those_that_came for each in measured) / len(measured)
        for measured in sides.measured(figure)
    )
    return baseline, candidate


def _drift_ns(samples: Sequence[RunFigures]) -> float:
    """Return by how much the mean of runs may be off, as their clocks may drift."""
    return sum(sample.drift_ns for sample in samples) / len(samples)


def _verdict(bounds: Bounds) -> Verdict:
    if bounds.low > 0:
        return Verdict.HIGHER
    return Verdict.LOWER if bounds.high < 0 else Verdict.NONE


def _of(samples: Sequence[RunFigures], figure: Figure, least: bool) -> list[MeasuredFigure]:
    readings: list[Mapping[str, MeasuredFigure]] = [
        sample.least if least and sample.least is not None else sample.as_is for sample in samples
    ]
    return [reading[figure.name] for reading in readings]


def _warnings(pair: ComparedRuns, sides: Sides) -> Iterator[str]:
    single = [
        name
        for name, runs in (
            (pair.baseline, sides.baseline),
            (pair.candidate, sides.candidate),
        )
        if len(runs) == 1
    ]
    if len(single) == 2:
        yield "one run each: no interval covers differences from run to run; repeat the runs"
    elif single:
        yield f"{single[0]}: a single run, assumed to vary from run to run like the others"
    for sample in sides.samples:
        for doubt in (*sample.doubts, *sample.time_doubts):
            yield f"{sample.name}: {doubt.reason}"
        if sample.drift_ns:
            yield (
                f"{sample.name}: its clocks may drift, so that latencies are off by up to"
                f" {duration_text(sample.drift_ns)}: differences are as uncertain"
            )


def _record(name: str, bounds: Bounds) -> dict[str, float | None]:
    return {
        name: _finite(bounds.value),
        f"{name}_ci_low": _finite(bounds.low),
        f"{name}_ci_high": _finite(bounds.high),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
