"""``tailscope compare``: what differs between runs, and which differences are real."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import STANDARD, JsonFile, write_json
from tailscope.cli.status import OF_VERDICTS
from tailscope.exceptions import EvidenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.compare.compare import Comparison, FigureChange
    from tailscope.compare.figures import Figure
    from tailscope.compare.limits import Judgement, Limit
    from tailscope.compare.sources import ComparedRuns
    from tailscope.verdict.verdict import Outcome

__all__ = ["command"]

_WORDS = {
    ("ns", "higher"): "slower",
    ("ns", "lower"): "faster",
    ("share", "higher"): "more",
    ("share", "lower"): "fewer",
}
_NOTHING = "-"
_NO_END = "unbounded"
_DRAWN = 6
"""As many runs as there are colours."""

_MANY = 1000
"""Times that something grew: from there on a percentage says nothing to anybody."""


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B...",
            help="Runs, folders of repeated runs, or campaigns; A is the baseline.",
        ),
    ],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="LIMIT",
            help="Regression to fail on: 'p99.99>+10%', 'p99.9>+5us', 'lost>+0.1%'; repeatable.",
        ),
    ] = None,
    json_file: JsonFile = None,
    junit_file: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Write verdicts as JUnit XML."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write a page with the differences and shared figures."
        ),
    ] = None,
) -> int:
    """Exit status 2: a limit of --fail-on is exceeded; 3: there is not enough evidence."""
    return _run(_plan(runs, fail_on or [], json_file, junit_file, out))


@dataclass(frozen=True)
class CompareRequest:
    """Which runs are compared, by which figures, and what must not be exceeded."""

    pairs: tuple[ComparedRuns, ...]
    left_out: tuple[str, ...]
    figures: tuple[Figure, ...]
    limits: tuple[Limit, ...]
    json_file: str | None
    junit_file: Path | None
    out: Path | None

    @property
    def statements(self) -> int:
        """How many intervals hold together."""
        return len(self.pairs) * len(self.figures)


def _plan(
    runs: list[Path],
    fail_on: list[str],
    json_file: str | None,
    junit_file: Path | None,
    out: Path | None,
) -> CompareRequest:
    from tailscope.compare.figures import figures_with
    from tailscope.compare.limits import parse_limit
    from tailscope.compare.sources import pairs_of, read_source

    if len(runs) == 1:
        raise UsageError(
            f"got {runs[0]} only, expected two runs or more; the first is the baseline",
            hint="`tailscope show RUN` shows the figures of one run",
        )
    if len({run.resolve() for run in runs}) < max(2, len(runs)):
        raise UsageError("expected two runs or more, each named once; the first is the baseline")
    limits = tuple(map(parse_limit, fail_on))
    if junit_file is not None and not limits:
        raise UsageError("--junit requires --fail-on")
    pairs, left_out = pairs_of([read_source(run) for run in runs])
    if not pairs:
        raise UsageError(
            "no runs can be compared: they have no values in common",
            hint="; ".join(left_out),
        )
    figures = figures_with(limit.figure for limit in limits)
    return CompareRequest(
        tuple(pairs), tuple(left_out), figures, limits, json_file, junit_file, out
    )


def _run(plan: CompareRequest) -> int:
    from tailscope.compare.compare import compare, error_of
    from tailscope.compare.limits import all_together, judge, limit_error

    error = error_of(plan.statements)
    own = limit_error(len(plan.limits), len(plan.pairs))
    found = []
    for pair in plan.pairs:
        comparison = compare(pair, plan.figures, error, (own,) if plan.limits else ())
        found.append((comparison, [judge(each, comparison, own) for each in plan.limits]))
    judgements = [each for _, judged in found for each in judged]
    outcome = all_together(judgements, not plan.left_out) if plan.limits else None
    if plan.json_file is not None:
        write_json(plan.json_file, _record(plan, found, outcome))
    if plan.junit_file is not None:
        _write_junit(plan.junit_file, plan, found)
    if plan.out is not None:
        _write_page(plan.out, found)
    if not plan.limits:
        _check([comparison for comparison, _ in found])
    if plan.json_file != STANDARD:
        _print(plan, found)
    return 0 if outcome is None else OF_VERDICTS[outcome]


def _check(found: Sequence[Comparison]) -> None:
    """See that anything can be said at all.

    Raises
    ------
    EvidenceError
        If no quantile is an estimate anywhere, and nothing else differs.
    """
    from tailscope.store.run import foreign_text

    findings = [finding for each in found for finding in each.findings]
    if not any(
        finding.verdict in ("higher", "lower")
        or (finding.figure.quantile is not None and finding.difference is not None)
        for finding in findings
    ):
        first = findings[0]
        samples = [sample for each in found for sample in each.sides.samples]
        hint = "measure for longer: packets that are delayed together count as few"
        if any(foreign_text(sample.info) is not None for sample in samples):
            hint = (
                "`tailscope analyze` keeps the order of packets; `tailscope show` shows quantiles"
            )
        raise EvidenceError(
            f"no quantile can be compared: {first.figure.name}: {first.lacks}", hint=hint
        )


def _record(
    plan: CompareRequest,
    found: Sequence[tuple[Comparison, Sequence[Judgement]]],
    outcome: Outcome | None,
) -> dict[str, object]:
    from tailscope.models.estimate import LEVEL

    return {
        "level": LEVEL,
        "statements": plan.statements,
        "verdict": None if outcome is None else str(outcome),
        "comparisons": [
            {**comparison.record(), "limits": [each.record() for each in judged]}
            for comparison, judged in found
        ],
        "left_out": list(plan.left_out),
    }


def _write_junit(
    file: Path, plan: CompareRequest, found: Sequence[tuple[Comparison, Sequence[Judgement]]]
) -> None:
    from tailscope.store.atomic import write_text
    from tailscope.verdict.junit import Case, Suite, junit
    from tailscope.verdict.verdict import Outcome

    suites = [
        Suite(
            _title(comparison),
            [Case(each.limit.text, each.outcome, _judged(each)) for each in judged],
        )
        for comparison, judged in found
    ]
    suites += [
        Suite(text, [Case("compared", Outcome.INCONCLUSIVE, "no run")]) for text in plan.left_out
    ]
    limits = " ".join(limit.text for limit in plan.limits)
    write_text(file, junit(f"tailscope compare {limits}", suites))


def _write_page(out: Path, found: Sequence[tuple[Comparison, Sequence[Judgement]]]) -> None:
    from tailscope.cli.options import labelled
    from tailscope.report.page import page
    from tailscope.store.atomic import write_text
    from tailscope.store.reader import read_run

    pairs = [comparison.pair for comparison, _ in found]
    paths = [path for pair in pairs for path in (*pair.baseline_runs, *pair.candidate_runs)]
    every = labelled(list(dict.fromkeys(paths)))
    drawn = dict(list(every.items())[:_DRAWN])
    statements = {
        _title(comparison): [line.strip() for line in list(_lines(comparison, judged))[1:]]
        for comparison, judged in found
    }
    if len(every) > _DRAWN:
        statements["drawn"] = [f"the first {_DRAWN} of {len(every)} runs"]
    runs = [read_run(path, label=label) for label, path in drawn.items()]
    write_text(out, page(runs, statements=statements))


def _print(plan: CompareRequest, found: Sequence[tuple[Comparison, Sequence[Judgement]]]) -> None:
    from tailscope.units import printable

    for comparison, judged in found:
        for line in _lines(comparison, judged):
            print(printable(line))
        print()
    for text in plan.left_out:
        print(printable(f"left out  {text}"))
    print(
        f"the intervals of all {plan.statements} differences hold together with 95 % (Bonferroni);"
        " bursts are taken into account"
    )


def _title(comparison: Comparison) -> str:
    pair = comparison.pair
    cell = f"{pair.cell}: " if pair.cell else ""
    sizes = len(pair.baseline_runs), len(pair.candidate_runs)
    runs = f" ({sizes[0]} and {sizes[1]} runs)" if max(sizes) > 1 else ""
    return f"{cell}{pair.baseline} → {pair.candidate}{runs}"


def _lines(comparison: Comparison, judged: Sequence[Judgement]) -> Iterator[str]:
    yield _title(comparison)
    width = max(len(finding.figure.name) for finding in comparison.findings)
    window_ns = comparison.sides.samples[0].window_ns
    for finding in comparison.findings:
        said = _said(finding, window_ns) + _lost_ones(finding, window_ns)
        yield f"  {finding.figure.name + ':':<{width + 1}} {said}"
    if comparison.others:
        yield "  what else differs:"
        width = max(len(other.name) for other in comparison.others)
        for other in comparison.others:
            yield f"    {other.name:<{width}}  {other.baseline} → {other.candidate}"
    for warning in comparison.warnings:
        yield f"  warning   {warning}"
    for each in judged:
        yield f"  {each.limit.text}: {each.outcome}: {_judged(each)}"


def _said(finding: FigureChange, window_ns: float) -> str:
    """A finding in a sentence; a packet that never came counts as the window."""
    unit, found = finding.figure.unit, finding.difference

    def side(value: float) -> str:
        return "never came" if unit == "ns" and value >= window_ns else _text(value, unit)

    if found is None:
        bound = "≥ " if finding.figure.quantile is not None else ""
        texts = (
            side(each.low if bound and math.isfinite(each.low) else each.value)
            for each in (finding.baseline, finding.candidate)
        )
        return f"{' → '.join(bound + text for text in texts)}: no estimate ({finding.lacks})"
    values = f"{side(finding.baseline.value)} → {side(finding.candidate.value)}"
    relative = finding.relative
    share = "" if relative is None or relative > _MANY else f" ({relative:+.1%})"
    said = (
        f"{values}, {_signed(found.value, unit)}{share},"
        f" 95 % interval {_signed(found.low, unit)} to {_signed(found.high, unit)}"
    )
    if finding.verdict == "no difference":
        said += ": no difference can be seen"
        noticeable = finding.noticeable
        if noticeable and math.isfinite(noticeable):
            said += f"; one below {_text(noticeable, unit)} would not be noticed"
        return said
    word = _WORDS.get((unit, finding.verdict), str(finding.verdict))
    return f"{said}: {word}" + ("" if finding.lacks is None else f": {finding.lacks}")


def _lost_ones(finding: FigureChange, window_ns: float) -> str:
    """Say how packets that never came count, where that changes a figure."""
    if finding.figure.quantile is None or not math.isfinite(window_ns):
        return ""
    from tailscope.units import typed_duration

    shown = [_text(each.value, "ns") for each in (finding.baseline, finding.candidate)]
    came = [_text(each, "ns") for each in finding.of_those_that_came]
    if shown == came:
        return ""
    return (
        f"; packets that never came count as {typed_duration(round(window_ns))} each, those that"
        f" came have {' → '.join(came)}"
    )


def _judged(judgement: Judgement) -> str:
    """A judgement in a sentence."""
    parts = list(judgement.reasons)
    excess, unit = judgement.excess, judgement.limit.figure.unit
    if excess is not None:
        side = "beyond" if excess.value > 0 else "below"
        parts.insert(
            0,
            f"{_text(abs(excess.value), unit)} {side} the limit"
            f" ({_signed(excess.low, unit)} to {_signed(excess.high, unit)})",
        )
    return "; ".join(parts)


def _signed(value: float, unit: str) -> str:
    """A difference, or an end of its interval; there may be none."""
    if math.isinf(value):
        return _NO_END
    return f"+{_text(value, unit)}" if value > 0 else _text(value, unit)


def _text(value: float, unit: str) -> str:
    from tailscope.units import duration_text

    if not math.isfinite(value):
        return _NOTHING
    if unit == "ns":
        return duration_text(value)
    return f"{value:.4%}" if unit == "share" else f"{value:,.2f} packets/s"
