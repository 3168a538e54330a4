"""``tailscope trend``: how figures change from run to run, and since when."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import STANDARD, JsonFile, JunitFile, argument, option, write_json
from tailscope.cli.status import OF_VERDICTS
from tailscope.cli.table import print_table
from tailscope.cli.terminal import say, say_named, tell
from tailscope.exceptions import EvidenceError, UsageError
from tailscope.registry import require, service
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.compare.figures import Figure
    from tailscope.compare.limits import Limit
    from tailscope.extra.trend.changes import Trend
    from tailscope.extra.trend.series import Order
    from tailscope.store.catalogue import Catalogue, RowSource
    from tailscope.store.filters import Filter
    from tailscope.verdict.verdict import Outcome

EXAMPLE = "tailscope trend dut=suricata --by commit --fail-on 'p99>+10%'"

_METRICS = ("p50", "p99", "p99.9", "lost")
_MOST_LEFT_OUT = 10
_SCHEMA = "tailscope"


def command(
    arguments: Annotated[
        list[str] | None,
        argument(
            "[DIR...] [FILTER...]",
            "Folders (./runs by default), and filters as of `tailscope runs list`.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        option(
            "--from",
            "DATABASE",
            "Runs in PostgreSQL instead of folders: postgresql://USER@HOST/DATABASE, or"
            " service=NAME.",
        ),
    ] = None,
    schema: Annotated[str, option("--schema", "NAME", "Schema of the tables there.")] = _SCHEMA,
    by: Annotated[
        str,
        option(
            "--by",
            "ORDER",
            "time: each run is a step; commit: runs with the same tag commit:NAME are one;"
            " tag:PREFIX: runs with the same tag that begins so.",
        ),
    ] = "time",
    metric: Annotated[
        list[str] | None,
        option(
            "--metric",
            "NAME",
            f"p50, p90, ... p99.9999, max or lost; repeatable.  [default: {', '.join(_METRICS)}]",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        option(
            "--fail-on",
            "LIMIT",
            "How much worse the last change may be, such as"
            " 'p99>+10%, p99>+5us, lost>+0.1%'; repeatable.",
        ),
    ] = None,
    json_file: JsonFile = None,
    junit_file: JunitFile = None,
    out: Annotated[Path | None, option("--out -o", "FILE", "Write a page with all series.")] = None,
) -> int:
    """Exit status 2: a limit of --fail-on is exceeded; 3: there is not enough evidence."""
    return _run(
        _plan(
            arguments or [],
            source,
            schema,
            by,
            metric or [],
            fail_on or [],
            (json_file, junit_file, out),
        )
    )


@dataclass(frozen=True)
class TrendRequest:
    """A request for a trend: runs, their order, figures, and limits that must not be exceeded."""

    folders: tuple[Path, ...]
    filters: tuple[Filter, ...]
    source: RowSource | None
    order: Order
    figures: tuple[Figure, ...]
    limits: tuple[Limit, ...]
    json_file: str | None
    junit_file: Path | None
    out: Path | None


def _plan(
    arguments: list[str],
    source: str | None,
    schema: str,
    by: str,
    metric: list[str],
    fail_on: list[str],
    files: tuple[str | None, Path | None, Path | None],
) -> TrendRequest:
    from tailscope.compare.limits import parse_limits
    from tailscope.extra.trend.metrics import metric_named
    from tailscope.extra.trend.series import parse_order
    from tailscope.store.filters import is_filter, parse_filter
    from tailscope.store.folders import RUNS

    folders = tuple(Path(each) for each in arguments if not is_filter(each))
    if source is not None and folders:
        raise UsageError(
            f"--from and folders cannot be combined; got {folders[0]}", code="options-exclusive"
        )
    if source is None and schema != _SCHEMA:
        raise UsageError("--schema requires --from", code="requires-from")
    order = parse_order(by)
    if source is not None and order.prefix is not None:
        raise UsageError("--by: expected time with --from: databases have no tags", code="no-tags")
    limits = parse_limits(fail_on)
    json_file, junit_file, out = files
    if junit_file is not None and not limits:
        raise UsageError("--junit requires --fail-on", code="requires-fail-on")
    figures = [metric_named(name, "--metric") for name in metric or _METRICS]
    figures += [metric_named(limit.figure.name, "--fail-on") for limit in limits]
    return TrendRequest(
        folders=folders or (RUNS,),
        filters=tuple(parse_filter(each) for each in arguments if is_filter(each)),
        source=None if source is None else service("database_runs", "--from")(source, schema),
        order=order,
        figures=tuple(dict.fromkeys(figures)),
        limits=limits,
        json_file=json_file,
        junit_file=junit_file,
        out=out,
    )


def _run(plan: TrendRequest) -> int:
    from tailscope.extra.trend.changes import trends_of
    from tailscope.extra.trend.series import experiments_of
    from tailscope.store.filters import choose
    from tailscope.verdict.verdict import worst

    require("trend")
    with _catalogue(plan) as catalogue:
        rows = choose(catalogue, plan.filters)
    for unread in catalogue.found.unread:
        tell("warning", f"not searched: {unread}")
    experiments, left_out = experiments_of(rows, plan.order)
    if not experiments:
        raise EvidenceError(
            "no two runs of the same experiment match, or no two steps",
            code="no-series",
            hint="; ".join(left_out[:_MOST_LEFT_OUT]) or f"{len(rows)} runs match the filters",
        )
    trends = trends_of(experiments, plan.figures, plan.limits)
    findings = [finding for trend in trends for finding in trend.findings]
    outcome = worst(finding.outcome for finding in findings) if plan.limits else None
    write_json(plan.json_file, _record(trends, left_out, outcome))
    if plan.junit_file is not None:
        _write_junit(plan.junit_file, trends)
    if plan.out is not None:
        from tailscope.extra.trend.page import trend_page
        from tailscope.store.atomic import write_text

        write_text(plan.out, trend_page(trends, left_out))
    if plan.json_file != STANDARD:
        _print(trends, left_out)
    if all(trend.is_short for trend in trends):
        longest = max(len(trend.series.steps) for trend in trends)
        raise EvidenceError(
            f"too few steps to see any change: got {longest} at most, expected"
            f" {trends[0].fewest} or more",
            code="too-few-steps",
            hint="fewer --metric, and filters that leave fewer experiments, need fewer steps",
        )
    return 0 if outcome is None else OF_VERDICTS[outcome]


@contextmanager
def _catalogue(plan: TrendRequest) -> Iterator[Catalogue]:
    from tailscope.store.catalogue import catalogue_of, catalogue_of_records

    if plan.source is None:
        with catalogue_of(plan.folders) as catalogue:
            yield catalogue
        return
    with catalogue_of_records(plan.source.rows()) as catalogue:
        yield catalogue


def _record(
    trends: Sequence[Trend], left_out: Sequence[str], outcome: Outcome | None
) -> dict[str, object]:
    from tailscope.models.estimate import LEVEL

    return {
        "level": LEVEL,
        "verdict": None if outcome is None else str(outcome),
        "series": [trend.record() for trend in trends],
        "left_out": list(left_out),
    }


def _write_junit(file: Path, trends: Sequence[Trend]) -> None:
    from tailscope.extra.trend.words import finding_text
    from tailscope.store.atomic import write_text
    from tailscope.verdict.junit import Case, Suite, junit

    by_title: dict[str, list[Case]] = {}
    for trend in trends:
        for each in trend.findings:
            case = Case(each.limit.text, each.outcome, finding_text(each))
            by_title.setdefault(trend.experiment.title, []).append(case)
    write_text(file, junit("tailscope trend", [Suite(*each) for each in by_title.items()]))


def _print(trends: Sequence[Trend], left_out: Sequence[str]) -> None:
    from tailscope.extra.trend.words import HEADER, change_rows, finding_text, notes, span

    by_title: dict[str, list[Trend]] = {}
    for trend in trends:
        by_title.setdefault(trend.experiment.title, []).append(trend)
    for title, own in by_title.items():
        say(f"{title}: {span(own[0])}")
        rows = [tuple(map(printable, row)) for trend in own for row in change_rows(trend)]
        print_table(HEADER, [rows])
        said = [f"  {note}" for note in notes(own)]
        said += [
            f"  {each.limit.text}: {each.outcome}: {finding_text(each)}"
            for trend in own
            for each in trend.findings
        ]
        for line in said:
            say(line)
        if said:
            print()
    for text in left_out[:_MOST_LEFT_OUT]:
        say_named("left out", text)
    if len(left_out) > _MOST_LEFT_OUT:
        say_named("left out", f"{len(left_out) - _MOST_LEFT_OUT} more: --json lists them")
    say(
        "series that do not change show a change with at most 5 %, all of them together; an"
        " interval is that of one change"
    )
