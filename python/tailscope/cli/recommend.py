"""``tailscope recommend``: what to choose, by the evidence of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailscope.cli.options import STANDARD, UNDECIDED, JsonFile, labelled, write_json

if TYPE_CHECKING:
    from tailscope.verdict.recommendation.evidence import Evidence, LeftOut
    from tailscope.verdict.recommendation.rule import Answer, Rule
    from tailscope.verdict.recommendation.tables import Cell, Ranked, Table

__all__ = ["command"]

_NOTHING = "-"
_TAIL_HEADER = (
    *("technology", "device", "kernel", "optimised", "tail", "95 % interval"),
    *("without tainted", "max", "packets", "lost", "runs"),
)
_RANK_HEADER = (
    *("technology", "device", "kernel", "optimised", "cache", "latency", "by"),
    *("security", "resources", "runs"),
)


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="CAMPAIGN_OR_RUN...", help="Campaigns, or run directories."),
    ],
    json_file: JsonFile = None,
) -> int:
    """Say what to choose: the papers' recommendations that these runs give evidence for.

    Exit status 3: there is no evidence for any of them.
    """
    return _run(_plan(runs), json_file)


@dataclass(frozen=True)
class Plan:
    """What will be read: run directories by name, and cells without a run."""

    runs: dict[str, Path]
    left_out: list[LeftOut]


def _plan(given: list[Path]) -> Plan:
    from tailscope.verdict.recommendation.evidence import runs_in

    paths: list[Path] = []
    left_out: list[LeftOut] = []
    for each in given:
        found, left = runs_in(each)
        paths += found
        left_out += left
    return Plan(labelled(paths), left_out)


def _run(plan: Plan, json_file: str | None) -> int:
    from tailscope.verdict.recommendation.evidence import read_evidence
    from tailscope.verdict.recommendation.rules import RULES
    from tailscope.verdict.recommendation.tables import tables

    evidence = read_evidence(plan.runs, plan.left_out)
    found = tables(evidence)
    answers = [(rule, rule.answer(evidence)) for rule in RULES]
    if json_file is not None:
        write_json(json_file, _record(evidence, found, answers))
    if json_file != STANDARD:
        for table in found:
            _print_table(table)
        _print_answers(answers)
        _print_runs(evidence)
    spoken = any(answer.recommendation is not None for _, answer in answers)
    return 0 if spoken else UNDECIDED


def _record(
    evidence: Evidence, found: list[Table], answers: list[tuple[Rule, Answer]]
) -> dict[str, Any]:
    return {
        "recommendations": [
            answer.recommendation.record() for _, answer in answers if answer.recommendation
        ],
        "unsaid": [
            {"id": rule.id, "title": rule.title, "source": rule.source, "reasons": answer.unsaid}
            for rule, answer in answers
            if answer.unsaid
        ],
        "tables": [table.record() for table in found],
        "runs": [case.record() for case in evidence.cases],
        "left_out": [left._asdict() for left in evidence.left_out],
    }


def _print_table(table: Table) -> None:
    from tailscope.cli.table import aligned
    from tailscope.text import printable
    from tailscope.verdict.recommendation.tables import STATIC_SOURCE

    print(printable(f"Table 6: the tail {_traffic(table)} (after containers2024 Table 6)"))
    print()
    for line in aligned(_TAIL_HEADER, [map(_cell_row, table.cells)]):
        print(printable(line))
    print(printable(f"Table 7: ranks {_traffic(table)} (security, resources: {STATIC_SOURCE})"))
    print()
    for line in aligned(_RANK_HEADER, [map(_rank_row, table.ranks)]):
        print(printable(line))


def _traffic(table: Table) -> str:
    from tailscope.text import count_text

    facts = table.facts
    burst = f" in bursts of {facts.burst}" if facts.burst > 1 else ""
    beside = ""
    if facts.neighbours:
        named = ", ".join(f"{workers} {kind}" for kind, workers in facts.neighbours[0])
        beside = f", beside co-runners ({named})"
    rate = f"{count_text(facts.rate_pps)} packets/s {facts.pattern}"
    recorded = ", with kernel events recorded" if facts.recorded[0] else ""
    return f"at {rate}{burst}, {facts.size_bytes} B{beside}{recorded}"


def _cell_row(cell: Cell) -> tuple[str, ...]:
    from tailscope.text import count_text, duration_text, percentile_name
    from tailscope.verdict.recommendation.compare import cited

    place = cell.setting
    tail = (_NOTHING,) * 3
    if cell.tail is not None:
        value = cell.tail.latency_ns
        tail = (
            f"{percentile_name(cell.tail.quantile)} {duration_text(value.estimate)}",
            f"{duration_text(value.ci_low)} to {duration_text(value.ci_high)}",
            duration_text(cell.tail.untainted_ns[1]),
        )
    return (
        f"{place.technology or 'unknown'}, {place.networking}",
        place.device or _NOTHING,
        place.kernel or "unknown",
        _yes_no(place.optimised),
        *tail,
        _NOTHING if cell.max_ns is None else duration_text(cell.max_ns),
        count_text(cell.tail.latency_ns.n) if cell.tail else _NOTHING,
        count_text(cell.lost) if cell.runs else _NOTHING,
        cited(cell.runs) or _NOTHING,
    )


def _rank_row(row: Ranked) -> tuple[str, ...]:
    from tailscope.text import percentile_name
    from tailscope.verdict.recommendation.compare import cited

    return (
        row.technology or "unknown",
        row.device or _NOTHING,
        row.kernel or _NOTHING,
        _yes_no(row.optimised),
        row.cache or _NOTHING,
        _NOTHING if row.rank is None else str(row.rank),
        _NOTHING if row.tail is None else percentile_name(row.tail.quantile),
        " or ".join(row.security) or _NOTHING,
        row.resources or _NOTHING,
        cited(row.runs) or _NOTHING,
    )


def _yes_no(value: bool | None) -> str:
    return {None: "unknown", True: "yes", False: "no"}[value]


def _print_answers(answers: list[tuple[Rule, Answer]]) -> None:
    from tailscope.text import printable

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


def _print_runs(evidence: Evidence) -> None:
    from tailscope.text import printable

    print()
    for case in evidence.cases:
        print(printable(f"[{case.number}] {case.name}"))
    for left in evidence.left_out:
        print(printable(f"left out: {left.name}: {left.reason}"))
