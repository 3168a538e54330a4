"""``tailscope compare``: what differs between runs, and which differences are real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.compared import Compared
from tailscope.cli.options import (
    Exact,
    FailOn,
    JsonFile,
    JunitFile,
    RunLabels,
    Single,
    Verbose,
    argument,
    given_labels,
    option,
)
from tailscope.cli.view import View
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.compare.compare import Comparison
    from tailscope.compare.figures import Figure
    from tailscope.compare.limits import Judgement, Limit
    from tailscope.compare.sources import ComparedRuns

EXAMPLE = "tailscope compare runs/1 runs/2"

COMMANDS = {
    "baseline": "Compare runs with a file that `compare save` wrote.",
    "save": "Write what runs are compared by as one small file, such as an artifact of CI.",
}
"""The commands below it, by name, with a summary of each."""

_DRAWN = 6
"""Largest number of runs in one figure: there are as many colours."""


def command(
    runs: Annotated[
        list[Path],
        argument("A B...", "Runs, folders of repeated runs, or campaigns; A is the baseline."),
    ],
    label: RunLabels = None,
    fail_on: FailOn = None,
    single: Single = False,
    json_file: JsonFile = None,
    junit_file: JunitFile = None,
    out: Annotated[
        Path | None,
        option("--out -o", "FILE", "Write a page with the differences and shared figures."),
    ] = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Exit status 2: a limit of --fail-on is exceeded; 3: there is not enough evidence."""
    if single and not fail_on:
        raise UsageError("--single requires --fail-on", code="requires-fail-on")
    plan = _plan(runs, label, fail_on or [], json_file, junit_file, out)
    return _run(plan, View(exact, verbose), single=single)


@dataclass(frozen=True)
class CompareRequest:
    """The runs to compare, the figures to compare them by, and the limits."""

    pairs: tuple[ComparedRuns, ...]
    left_out: tuple[str, ...]
    figures: tuple[Figure, ...]
    limits: tuple[Limit, ...]
    json_file: str | None
    junit_file: Path | None
    out: Path | None

    @property
    def statements(self) -> int:
        """Number of intervals that hold together."""
        return len(self.pairs) * len(self.figures)


def _plan(
    runs: list[Path],
    label: list[str] | None,
    fail_on: list[str],
    json_file: str | None,
    junit_file: Path | None,
    out: Path | None,
) -> CompareRequest:
    from tailscope.compare.figures import figures_with
    from tailscope.compare.limits import parse_limits
    from tailscope.compare.sources import pairs_of, read_source
    from tailscope.store.files import named_below

    if len(runs) == 1:
        raise UsageError(
            f"got {runs[0]} only, expected two runs or more; the first is the baseline",
            code="one-run",
            hint=named_below(runs[0], "`tailscope runs show RUN` shows the figures of one run"),
        )
    if len({run.resolve() for run in runs}) < max(2, len(runs)):
        raise UsageError(
            "expected two runs or more, each named once; the first is the baseline", code="runs"
        )
    limits = parse_limits(fail_on)
    if junit_file is not None and not limits:
        raise UsageError("--junit requires --fail-on", code="requires-fail-on")
    labels = given_labels(runs, label)
    pairs, left_out = pairs_of([read_source(run, labels.get(run)) for run in runs])
    if not pairs:
        raise UsageError(
            "no runs can be compared: they have no values in common",
            code="no-common-values",
            hint="; ".join(left_out),
        )
    figures = figures_with(limit.figure for limit in limits)
    return CompareRequest(
        tuple(pairs), tuple(left_out), figures, limits, json_file, junit_file, out
    )


def _run(plan: CompareRequest, view: View, *, single: bool) -> int:
    from tailscope.compare.compare import compare, error_of
    from tailscope.compare.limits import judge, limit_error

    error = error_of(plan.statements)
    own = limit_error(len(plan.limits), len(plan.pairs))
    comparisons = []
    for pair in plan.pairs:
        comparison = compare(pair, plan.figures, error, (own,) if plan.limits else ())
        judged = [judge(limit, comparison, own, single=single) for limit in plan.limits]
        comparisons.append((comparison, judged))
    if plan.out is not None:
        _write_page(plan.out, comparisons)
    compared = Compared(comparisons, plan.left_out, plan.limits, plan.statements)
    return compared.tell("compare", plan.json_file, plan.junit_file, view)


def _write_page(out: Path, comparisons: Sequence[tuple[Comparison, Sequence[Judgement]]]) -> None:
    from tailscope.compare.table import never_came_note, rows
    from tailscope.compare.words import headline, judgement_text, lines, title
    from tailscope.report.differences import MOST_DIFFERENCES, Difference, difference_pictures
    from tailscope.report.page import page
    from tailscope.store.atomic import write_text
    from tailscope.store.reader import read_figures, read_run
    from tailscope.verdict.trust import trust_in

    pictures = difference_pictures({title(comparison): comparison for comparison, _ in comparisons})
    differences = [
        Difference(
            title=title(comparison),
            headline=headline(comparison),
            rows=rows(comparison),
            notes=[note] if (note := never_came_note(comparison)) else [],
            all_lines=[line.strip() for line in list(lines(comparison, judged))[1:]],
            judgements=[
                (str(judgement.outcome), f"{judgement.limit.text}: {judgement_text(judgement)}")
                for judgement in judged
            ],
            baseline=comparison.pair.baseline,
            candidate=comparison.pair.candidate,
            others=comparison.others,
            warnings=comparison.warnings,
            picture=pictures.get(title(comparison)),
        )
        for comparison, judged in comparisons
    ]
    every = {
        path: name for comparison, _ in comparisons for path, name in comparison.pair.names.items()
    }
    drawn = list(every.items())[:_DRAWN]
    left_out = [f"The first {len(drawn)} of {len(every)} runs are drawn."] * (len(every) > _DRAWN)
    left_out += [
        f"The differences of the first {len(pictures)} of {len(comparisons)} pairs are drawn."
    ] * (len(comparisons) > len(pictures) >= MOST_DIFFERENCES)
    runs = [read_run(path, label=label) for path, label in drawn]
    trust = trust_in([read_figures(path) for path in every])
    text = page(runs, differences=differences, trust=trust, left_out=" ".join(left_out))
    write_text(out, text)
