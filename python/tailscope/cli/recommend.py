"""``tailscope recommend``: what to choose, by the evidence of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import STANDARD, JsonFile, labelled, write_json
from tailscope.cli.status import UNDECIDED

if TYPE_CHECKING:
    from tailscope.recommend.evidence import Evidence, LeftOut
    from tailscope.recommend.rule import Rule, RuleAnswer
    from tailscope.recommend.tables import TailTables

EXAMPLE = "tailscope recommend runs/mine"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="CAMPAIGN_OR_RUN...", help="Campaigns, run directories, or folders of them."
        ),
    ],
    json_file: JsonFile = None,
) -> int:
    """Exit status 3: there is no evidence for any recommendation."""
    return _run(_plan(runs), json_file)


@dataclass(frozen=True)
class RecommendRequest:
    """The runs to read, by name, and the cells without a run."""

    runs: dict[str, Path]
    left_out: list[LeftOut]


def _plan(given: list[Path]) -> RecommendRequest:
    from tailscope.recommend.evidence import runs_in

    paths: list[Path] = []
    left_out: list[LeftOut] = []
    for each in given:
        runs, left = runs_in(each)
        paths += runs
        left_out += left
    return RecommendRequest(labelled(paths), left_out)


def _run(plan: RecommendRequest, json_file: str | None) -> int:
    from tailscope.recommend.evidence import read_evidence
    from tailscope.recommend.rules import RULES
    from tailscope.recommend.tables import tables

    evidence = read_evidence(plan.runs, plan.left_out)
    tail_tables = tables(evidence)
    answers = [(rule, rule.answer(evidence)) for rule in RULES]
    if json_file is not None:
        write_json(json_file, _record(evidence, tail_tables, answers))
    if json_file != STANDARD:
        for table in tail_tables:
            _print_table(table)
        _print_answers(answers)
        _print_runs(evidence)
    spoken = any(answer.recommendation is not None for _, answer in answers)
    return 0 if spoken else UNDECIDED


def _record(
    evidence: Evidence, tail_tables: list[TailTables], answers: list[tuple[Rule, RuleAnswer]]
) -> dict[str, object]:
    return {
        "recommendations": [
            answer.recommendation.record() for _, answer in answers if answer.recommendation
        ],
        "unsaid": [
            {"id": rule.id, "title": rule.title, "source": rule.source, "reasons": answer.unsaid}
            for rule, answer in answers
            if answer.unsaid
        ],
        "tables": [table.record() for table in tail_tables],
        "runs": [case.record() for case in evidence.cases],
        "left_out": [left._asdict() for left in evidence.left_out],
    }


def _print_table(table: TailTables) -> None:
    from tailscope.cli.table import aligned
    from tailscope.recommend.wording import (
        RANK_HEADER,
        TAIL_HEADER,
        rank_row,
        rank_title,
        tail_row,
        tail_title,
    )
    from tailscope.units import printable

    print(printable(tail_title(table)))
    print()
    for line in aligned(TAIL_HEADER, [map(tail_row, table.cells)]):
        print(printable(line))
    print(printable(rank_title(table)))
    print()
    for line in aligned(RANK_HEADER, [map(rank_row, table.ranks)]):
        print(printable(line))


def _print_answers(answers: list[tuple[Rule, RuleAnswer]]) -> None:
    from tailscope.units import printable
    from tailscope.words.promises import kept

    for rule, answer in answers:
        if answer.recommendation is not None:
            print(f"{rule.id}. {rule.title} ({rule.source}): {rule.advice}")
            for finding in answer.recommendation.findings:
                print(printable(f"  - {finding.text}"))
    for rule, answer in answers:
        if answer.unsaid:
            more = len(answer.unsaid) - 1
            rest = f" (and {more} more: --json lists them)" if more else ""
            print(printable(f"no evidence: {rule.id}. {rule.title}: {answer.unsaid[0]}{rest}"))
    if any(answer.recommendation is not None for _, answer in answers):
        print(kept("recommendation"))


def _print_runs(evidence: Evidence) -> None:
    from tailscope.units import printable

    print()
    for case in evidence.cases:
        unsaid = f" (taken to be alike, not said: {', '.join(case.unsaid)})" if case.unsaid else ""
        print(printable(f"[{case.number}] {case.name}{unsaid}"))
    for left in evidence.left_out:
        print(printable(f"left out: {left.name}: {left.reason}"))
