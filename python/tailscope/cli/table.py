"""The figures of one pair for a person: a table, or one line."""

from __future__ import annotations

import re
import sys
import textwrap
from datetime import UTC, datetime
from itertools import repeat, zip_longest
from typing import TYPE_CHECKING

from tailscope.cli.terminal import GAP, columns_of, say, width_of
from tailscope.store.records.plan import AnalysisPlan
from tailscope.units import printable
from tailscope.words.figures import (
    BOUND_NOTE,
    count_rows,
    energy_rows,
    has_bounds,
    instrument_rows,
    latency_rows,
    provenance,
    sentence,
)
from tailscope.words.neighbours import unusable_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tailscope.engine.analysis import Analysis
    from tailscope.experiment.run.pair import Figures
    from tailscope.store.records.notes import Note
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run

    Row = Sequence[str]


def print_table(
    analysis: Analysis | Figures | Run,
    about: RunInfo | AnalysisPlan,
    written: Iterable[Path | None] = (),
) -> None:
    """Print all figures of one pair on standard output."""
    sections = [
        count_rows(analysis.summary),
        latency_rows(analysis.summary),
    ]
    info = None if isinstance(about, AnalysisPlan) else about
    if info is not None:
        if doubt := unusable_text(info):
            say(f"{printable(doubt)}.")
        sections += [instrument_rows(analysis.summary, info), energy_rows(info)]
    for line in aligned(_HEADER, sections):
        print(line)
    if has_bounds(analysis.summary):
        say(BOUND_NOTE)
    for name, value in provenance(analysis.summary, about).items():
        say(f"{name:<10}{printable(value)}")
    for folder in filter(None, written):
        say(f"{'written':<10}{printable(str(folder))}")
    for warning in [*(() if info is None else info.warnings), *analysis.warnings]:
        say(f"warning   {printable(warning)}")
    for reason in () if info is None else info.partial:
        say(f"partial   {printable(reason)}")


_UNBROKEN = "\u00a0"
_WITH_UNIT = re.compile(r"(?<=\d) (?=[nµm]?s\b)")
"""Between a time and its unit, which stay together."""
_OF_NAMES = 3
"""Cost of a broken name, relative to a broken figure."""
_HEADER = ("packets, latency", "value", "95 % interval", "samples beyond")


def aligned(header: Row, sections: Sequence[Iterable[Row]]) -> Iterator[str]:
    """Align a table: names left, figures right, and a blank line behind each section.

    Where standard output is a terminal, cells are broken between words so that lines fit it.

    By hand, because laying out a table with rich takes longer than the whole analysis.
    """
    parts = [
        [tuple(_WITH_UNIT.sub(_UNBROKEN, cell) for cell in row) for row in section]
        for section in sections
    ]
    rows = [tuple(header), *(row for section in parts for row in section)]
    widths = _narrowed(list(zip_longest(*rows, fillvalue="")), columns_of(sys.stdout))

    def lines(row: Row) -> Iterator[str]:
        broken = (
            textwrap.wrap(cell, width, break_on_hyphens=False) if width_of(cell) > width else [cell]
            for cell, width in zip(row, widths, strict=False)
        )
        for cells in zip_longest(*broken, fillvalue=""):
            padded = zip(cells, widths, strict=False)
            blanks = [" " * (width - width_of(cell)) for cell, width in padded]
            figures = map("".join, zip(repeat(GAP), blanks[1:], cells[1:], strict=False))
            yield f"{cells[0]}{blanks[0]}{''.join(figures)}".rstrip().replace(_UNBROKEN, " ")

    yield from lines(header)
    yield "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    for section in filter(None, parts):
        for row in section:
            yield from lines(row)
        yield ""


def _narrowed(columns: Sequence[Row], most: int | None) -> list[int]:
    """Return the widths of columns, with the widest narrowed until they fit the terminal.

    No word is broken for that: where words alone are too wide, columns are as wide as without it.
    """
    widths = [max(map(width_of, column)) for column in columns]
    if most is None:
        return widths
    least = [
        max(width_of(word) for cell in column for word in cell.split(" ")) for column in columns
    ]
    most -= len(GAP) * (len(widths) - 1)
    if sum(least) > most:
        return widths
    cells = [[width_of(cell) for cell in column] for column in columns]

    def harm(at: int) -> tuple[int, int]:
        """Return the lines that a narrower column adds, and its width."""
        now, then = (
            sum(-(-cell // width) for cell in cells[at]) for width in (widths[at], widths[at] - 1)
        )
        # Names are what is looked for.
        return (then - now) * (_OF_NAMES if at == 0 else 1), -widths[at]

    while sum(widths) > most:
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


def one_line(name: str, analysis: Analysis | Figures | Run) -> str:
    """Say the most important figures of one pair on one line."""
    warnings = "".join(f" Warning: {warning}." for warning in analysis.warnings)
    return printable(f"{name}: {sentence(analysis.summary)}{warnings}")
