"""``tailscope recommend``: what to choose, by the evidence of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import STANDARD, Exact, JsonFile, Verbose, argument, labelled, write_json
from tailscope.cli.status import UNDECIDED
from tailscope.cli.view import View

if TYPE_CHECKING:
    from tailscope.extra.recommend.evidence import Evidence, LeftOut
    from tailscope.extra.recommend.rule import Rule, RuleAnswer
    from tailscope.extra.recommend.tables import TailTables

EXAMPLE = "tailscope recommend runs/mine"
_TAIL_GIVE_WAY = ("packets", "lost", "max", "optimised", "kernel", "95 % interval", "technology")
_RANK_GIVE_WAY = ("resources", "security", "cache", "optimised", "kernel", "technology")
"""Columns that there may be no room for; the first ones go first."""


def command(
    runs: Annotated[
        list[Path],
        argument("CAMPAIGN_OR_RUN...", "Campaigns, run directories, or folders of them."),
    ],
    json_file: JsonFile = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Exit status 3: there is no evidence for any recommendation."""
    return _run(_plan(runs), json_file, View(exact, verbose))


@dataclass(frozen=True)
class RecommendRequest:
    """The runs to read, by name, and the cells without a run."""

    runs: dict[str, Path]
    left_out: list[LeftOut]


def _plan(given: list[Path]) -> RecommendRequest:
    from tailscope.extra.recommend.evidence import runs_in

    paths: list[Path] = []
    left_out: list[LeftOut] = []
    for each in given:
        runs, left = runs_in(each)
        paths += runs
        left_out += left
    return RecommendRequest(labelled(paths), left_out)


def _run(plan: RecommendRequest, json_file: str | None, view: View) -> int:
    from tailscope.extra.recommend.evidence import read_evidence
    from tailscope.extra.recommend.rules import RULES
    from tailscope.extra.recommend.tables import tables

    evidence = read_evidence(plan.runs, plan.left_out)
    tail_tables = tables(evidence)
    answers = [(rule, rule.answer(evidence)) for rule in RULES]
    write_json(json_file, _record(evidence, tail_tables, answers))
    if json_file != STANDARD:
        _print_answers(answers, view)
        for table in tail_tables:
            _print_table(table, view)
        _print_runs(evidence, view)
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


def _print_table(table: TailTables, view: View) -> None:
    from tailscope.extra.recommend.wording import (
        RANK_HEADER,
        TAIL_HEADER,
        rank_row,
        rank_title,
        tail_row,
        tail_title,
    )

    cells = [cell for cell in table.cells if view.verbose or cell.runs]
    ranks = [rank for rank in table.ranks if view.verbose or rank.runs]
    for title, header, rows, all_rows, give_way in (
        (tail_title(table), TAIL_HEADER, list(map(tail_row, cells)), table.cells, _TAIL_GIVE_WAY),
        (rank_title(table), RANK_HEADER, list(map(rank_row, ranks)), table.ranks, _RANK_GIVE_WAY),
    ):
        view.say(title)
        left_out = len(all_rows) - len(rows)
        notes = [f"{left_out} rows of the paper have no run here (-v lists them)"] * bool(left_out)
        if rows:
            print()
            view.print_table(header, [rows], give_way, notes)
        else:
            view.say(f"  {notes[0]}")
            print()


def _print_answers(answers: list[tuple[Rule, RuleAnswer]], view: View) -> None:
    from tailscope.words.promises import kept

    spoken = [(rule, answer.recommendation) for rule, answer in answers if answer.recommendation]
    rest = "rests" if len(spoken) == 1 else "rest"
    view.say(f"{len(spoken)} of {len(answers)} recommendations {rest} on evidence of these runs.")
    print()
    for rule, recommendation in spoken:
        view.say(f"{rule.id}. {rule.title} ({rule.source}): {rule.advice}")
        for finding in recommendation.findings:
            view.say(f"  - {finding.text}")
    for rule, answer in answers:
        for reason in answer.unsaid if view.verbose else answer.unsaid[:1]:
            more = len(answer.unsaid) - 1
            rest = f" (and {more} more: -v lists them)" if more and not view.verbose else ""
            view.say(f"no evidence: {rule.id}. {rule.title}: {reason}{rest}")
    if spoken and view.verbose:
        view.say(kept("recommendation"))
    print()


def _print_runs(evidence: Evidence, view: View) -> None:
    for case in evidence.cases:
        unsaid = f" (taken to be alike, not said: {', '.join(case.unsaid)})" if case.unsaid else ""
        view.say(f"[{case.number}] {case.name}{unsaid}")
    for left in evidence.left_out:
        view.say(f"left out: {left.name}: {left.reason}")
