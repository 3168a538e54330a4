"""Tables that fit the width of the output."""

from __future__ import annotations

import re
import sys
import textwrap
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from tailscope.cli.terminal import GAP, columns_on, width_of
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tailscope.store.records.notes import Note

    Row = Sequence[str]

_UNBROKEN = "\u00a0"
_WITH_UNIT = re.compile(r"(?<=\d) (?=[nµm]?s\b)")
"""Between a time and its unit, which stay together."""
_OF_NAMES = 3
"""Cost of a broken name, relative to a broken figure."""


def print_table(
    header: Row, sections: Sequence[Iterable[Row]], give_way: Sequence[str] = (), *, left: int = 1
) -> list[str]:
    """Print a table that fits; the columns of `give_way` that there is no room for are returned."""
    lines, left_out = fitted_table(header, sections, give_way, left)
    for line in lines:
        print(printable(line))
    return left_out


def fitted_table(
    header: Row, sections: Sequence[Iterable[Row]], give_way: Sequence[str], left: int = 1
) -> tuple[list[str], list[str]]:
    """Align a table that fits, and name its columns of `give_way` that there is no room for.

    The first `left` columns are names, which begin in one column; figures end in one.

    By hand, because laying out a table with rich takes longer than the whole analysis.
    """
    parts = [
        [tuple(_WITH_UNIT.sub(_UNBROKEN, cell) for cell in row) for row in section]
        for section in sections
    ]
    columns = list(zip_longest(header, *(row for part in parts for row in part), fillvalue=""))
    most = columns_on(sys.stdout)
    left_out: list[str] = []
    for name in give_way:
        if _table_width([max(map(width_of, column)) for column in columns]) <= most:
            break
        columns = [column for column in columns if column[0] != name]
        left_out.append(name)
    # What is empty for every row says nothing.
    columns = [column for column in columns if column[0] or any(column)]
    widths = _narrowed(columns, most)
    rows = iter(list(zip(*columns, strict=True)))

    def lines(row: Row) -> Iterator[str]:
        broken = (
            textwrap.wrap(cell, width, break_on_hyphens=False) if width_of(cell) > width else [cell]
            for cell, width in zip(row, widths, strict=False)
        )
        for cells in zip_longest(*broken, fillvalue=""):
            padded = [
                cell + blank if at < left else blank + cell
                for at, (cell, width) in enumerate(zip(cells, widths, strict=False))
                for blank in (" " * (width - width_of(cell)),)
            ]
            yield GAP.join(padded).rstrip().replace(_UNBROKEN, " ")

    laid_out = [*lines(next(rows)), "─" * _table_width(widths)]
    for part in filter(None, parts):
        for _ in part:
            laid_out += lines(next(rows))
        laid_out.append("")
    return laid_out, left_out


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(columns: Sequence[Row], most: int) -> list[int]:
    """Return the widths of columns, with the widest narrowed until they fit.

    Words are broken only where they alone are too wide.
    """
    widths = [max(map(width_of, column)) for column in columns]
    least = [
        max(width_of(word) for cell in column for word in cell.split(" ")) for column in columns
    ]
    most -= len(GAP) * (len(widths) - 1)
    while sum(least) > most and max(least) > 1:
        least[least.index(max(least))] -= 1
    cells = [[width_of(cell) for cell in column] for column in columns]

    def harm(at: int) -> tuple[int, int]:
        """Return the lines that a narrower column adds, and its width."""
        now, then = (
            sum(-(-cell // width) for cell in cells[at]) for width in (widths[at], widths[at] - 1)
        )
        # Names are what is looked for.
        return (then - now) * (_OF_NAMES if at == 0 else 1), -widths[at]

    while sum(widths) > most and widths != least:
        widths[min((at for at in range(len(widths)) if widths[at] > least[at]), key=harm)] -= 1
    return widths


def local_time(utc: datetime) -> str:
    """Return a time in the local time zone."""
    return f"{utc.replace(tzinfo=UTC).astimezone():%Y-%m-%d %H:%M}"


def note_lines(notes: Iterable[Note]) -> Iterator[str]:
    """Notes with their times; further lines of one are set in."""
    for note in notes:
        when = local_time(datetime.fromtimestamp(note.written_unix_ns // 10**9, UTC))
        first, *others = note.text.splitlines() or [""]
        yield f"{when}  {printable(first)}"
        for other in others:
            yield f"{'':<{len(when)}}  {printable(other)}"
