"""``tailscope runs sql``: questions about runs, and about their packets."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from contextlib import contextmanager
from datetime import date, time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from tailscope.cli.options import STANDARD, JsonFile, argument, option
from tailscope.cli.table import print_table
from tailscope.cli.terminal import columns_on, say, tell
from tailscope.exceptions import UsageError
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.extra.sql.query import QueryResult

EXAMPLE = "tailscope runs sql 'SELECT run, count(*) FROM worst GROUP BY run'"

_MOST_ROWS = 1000
"""Largest number of rows for a terminal; files have all."""
_FEWEST_COLUMNS_EACH = 12
"""Width that each column gets on a terminal; the last ones give way to that."""
_NOTHING = "-"


def command(
    query: Annotated[str, argument("QUERY", "A SELECT statement of DuckDB.")],
    folders: Annotated[
        list[Path] | None, argument("[DIR...]", "Folders of runs (./runs by default).")
    ] = None,
    json_file: JsonFile = None,
    csv_file: Annotated[
        str | None, option("--csv", "FILE", "Write all rows as CSV; - is standard output.")
    ] = None,
) -> int:
    """The tables latency, lost, worst, noise, interrupts and power are the files of these names.

    Nothing can be changed.
    """
    from tailscope.extra.sql.query import database_of
    from tailscope.store.folders import RUNS

    if json_file is not None and csv_file is not None:
        raise UsageError("--json, --csv: expected one of them, got both", code="options-exclusive")
    with database_of(folders or [RUNS]) as database:
        for warning in database.warnings:
            tell("warning", warning)
        answer = database.ask(query)
        if json_file is not None:
            with _opened(json_file) as text:
                _write_json(text, answer)
        elif csv_file is not None:
            with _opened(csv_file) as text:
                _write_csv(text, answer)
        else:
            _print(answer)
    return 0


def _print(answer: QueryResult) -> None:
    rows = [
        tuple(printable(_cell(value)) for value in row) for row in islice(answer.rows, _MOST_ROWS)
    ]
    names = [printable(name) for name in answer.columns]
    most = columns_on(sys.stdout) // _FEWEST_COLUMNS_EACH
    if left_out := print_table(names, [rows], names[: most - 1 : -1] if most else ()):
        say(f"no room for {', '.join(left_out[::-1])}: --csv and --json have all")
    if next(answer.rows, None) is not None:
        say(f"only the first {_MOST_ROWS} rows: --csv and --json write all")


def _cell(value: object) -> str:
    return _NOTHING if value is None else str(value)


def _json_value(value: object) -> object:
    """Return a value as JSON can hold it; a number that JSON lacks, such as infinity, is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _json_value(each) for name, each in value.items()}
    return value.isoformat() if isinstance(value, date | time) else str(value)


@contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    if file == STANDARD:
        yield sys.stdout
        return
    from tailscope.store.atomic import replacing

    with replacing(Path(file)) as binary:
        text = io.TextIOWrapper(binary, "utf-8", newline="")
        yield text
        text.detach()


def _write_json(text: TextIO, answer: QueryResult) -> None:
    """Write an answer a row at a time: it may be larger than memory."""
    between = f'{{"columns": {json.dumps(answer.columns)}, "rows": [\n'
    for row in answer.rows:
        values = [_json_value(value) for value in row]
        text.write(f"{between}{json.dumps(values, allow_nan=False)}")
        between = ",\n"
    text.write("\n]}\n" if between == ",\n" else f"{between}]}}\n")


def _write_csv(text: TextIO, answer: QueryResult) -> None:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)
