"""``tailscope runs list``: the runs below folders, those that meet filters."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import STANDARD, Exact, JsonFile, argument, flag, option, write_json
from tailscope.cli.table import print_table
from tailscope.cli.terminal import say, tell
from tailscope.cli.view import View
from tailscope.units import count_text, counted, printable, shortened, typed_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tailscope.store.catalogue import QueriedRow
    from tailscope.store.filters import Filter

EXAMPLE = "tailscope runs list dut=suricata 'rate>=100k' 'p99.9<1ms' tag=paper"

_NOTHING = "-"
_NEVER_EMPTY = 1
_MOST_CHARACTERS = 200
_IMPORTANCE = (
    *("run", "state", "tail", "p50", "lost", "packets/s", "when", "device", "tags", "platform"),
    *("kernel", "lasts", "sent"),
)
"""Columns; the last ones go first where the terminal is narrow."""
_SHORTEST_NAME = 24
"""Columns for the names of runs, before another column goes in their place."""


def command(
    arguments: Annotated[
        list[str] | None,
        argument(
            "[DIR...] [FILTER...]",
            "Folders (./runs by default), and filters: a field, one of"
            " = != < <= > >= ~ (contains), and a value, such as 'rate>=100k'.",
        ),
    ] = None,
    sort: Annotated[
        str, option("--sort", "FIELD", "Sort by this field; -FIELD puts the largest first.")
    ] = "written",
    fields: Annotated[bool, flag("--fields", "List the fields instead of runs.")] = False,
    json_file: JsonFile = None,
    exact: Exact = False,
) -> int:
    if fields:
        _print_fields()
        return 0
    _run(_plan(arguments or [], sort, json_file), View(exact))
    return 0


@dataclass(frozen=True)
class ListRequest:
    """The folders to list, with filters and order."""

    folders: tuple[Path, ...]
    filters: tuple[Filter, ...]
    sort: str
    json_file: str | None


def _plan(arguments: list[str], sort: str, json_file: str | None) -> ListRequest:
    from tailscope.store.filters import field_named, is_filter, parse_filter
    from tailscope.store.folders import RUNS

    folders = tuple(Path(argument) for argument in arguments if not is_filter(argument))
    filters = tuple(parse_filter(each) for each in arguments if is_filter(each))
    descending = "-" if sort.startswith("-") else ""
    by = descending + field_named(sort.removeprefix("-"))
    return ListRequest(folders or (RUNS,), filters, by, json_file)


def _run(plan: ListRequest, view: View) -> None:
    from tailscope.store.catalogue import catalogue_of
    from tailscope.store.filters import choose

    with catalogue_of(plan.folders) as catalogue:
        runs = choose(catalogue, plan.filters, sort=plan.sort)
    for unread in catalogue.found.unread:
        tell("warning", f"not searched: {unread}")
    write_json(plan.json_file, {"runs": [_record(run) for run in runs]})
    if plan.json_file == STANDARD:
        return
    if runs:
        _print_runs(runs, view)
    else:
        say(f"no match among {len(catalogue.found.runs)} runs")


def _print_runs(runs: Sequence[QueriedRow], view: View) -> None:
    from tailscope.cli.terminal import GAP, columns_on, cut, fitting, width_of

    view.say(f"{counted(len(runs), 'run')}.")
    print()
    rows = [{name: view.text(cell) for name, cell in _row(run).items()} for run in runs]
    shown = [
        column
        for at, column in enumerate(rows[0])
        if at < _NEVER_EMPTY or any(row[column] != _NOTHING for row in rows)
    ]
    columns = columns_on(sys.stdout)
    widths = {name: max(map(width_of, [name, *(row[name] for row in rows)])) for name in shown}
    widths["run"] = min(widths["run"], _SHORTEST_NAME)
    chosen = fitting(widths, _IMPORTANCE, columns)
    left_out = [name for name in shown if name not in chosen]
    shown = [name for name in shown if name in chosen]
    others = sum(len(GAP) + widths[name] for name in shown if name != "run")
    for row in rows:
        row["run"] = cut(row["run"], columns - others)
    notes = [f"no room for {', '.join(left_out)}: --json has all"] * bool(left_out)
    view.print_table(shown, [[[row[column] for column in shown] for row in rows]], notes=notes)
    for run in runs:
        if run["problem"] is not None:
            view.say_named("warning", f"{run['run']}: {run['problem']}")


def _row(run: QueriedRow) -> dict[str, str]:
    """Return the columns of a run for a terminal."""
    from tailscope.cli.table import local_time
    from tailscope.words.figures import median_and_tail

    def said(name: str, show: Callable[..., str] = str) -> str:
        return _NOTHING if run[name] is None else cell(show(run[name]))

    def cell(text: str) -> str:
        return printable(shortened(text, _MOST_CHARACTERS))

    summary = run["summary"]
    median, tail = median_and_tail(summary)
    lost, sent = summary["lost"], summary["sent"]
    return {
        "run": printable(run["run"]),
        "when": said("written_utc", local_time),
        "device": said("dut"),
        "platform": said("platform"),
        "kernel": said("kernel"),
        "packets/s": said("rate_pps", count_text),
        "lasts": said("duration_ns", typed_duration),
        "sent": _NOTHING if sent is None else count_text(sent),
        "p50": median,
        "tail": tail,
        "lost": _NOTHING if lost is None else count_text(lost),
        "tags": cell(" ".join(run["tags"])) or _NOTHING,
        "state": " ".join(_marks(run)) or _NOTHING,
    }


def _marks(run: QueriedRow) -> Iterator[str]:
    """Return the marks that qualify the figures of a run, such as ``partial``."""
    from tailscope.store.info import EMULATED

    if run["state"] != "complete":
        yield run["state"]
    if run["emulated"]:
        yield EMULATED


def _record(run: QueriedRow) -> dict[str, object]:
    """Return A run as JSON has it."""
    notes = [{**note, "written_utc": note["written_utc"].isoformat()} for note in run["notes"]]
    written = run["written_utc"]
    return {**run, "written_utc": written and written.isoformat(), "notes": notes}


def _print_fields() -> None:
    from tailscope.store.filters import FIELDS, kind_of

    rows = [(name, kind_of(name)) for name in ("tag", "note", *FIELDS)]
    print_table(("field", "is"), [rows])
