"""Text for people: as wide as the terminal, with as many digits as they need."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import Cores

GAP = "  "
"""Between the parts of a line, and the columns of a table."""

Level: TypeAlias = Literal["pass", "note", "warning", "error"]
_COLOURS = {"pass": "32", "warning": "33", "error": "31"}

_USUAL_COLUMNS = 80
_PIPE_COLUMNS = 120
"""Width of what is written to a pipe or a file."""
_NARROW = re.compile("[\x00-\x7f\u00a0-\u00ac\u00ae-\u02ff≥]*")
"""Texts of characters that take one column each: tables mostly hold nothing else."""


def columns_of(stream: TextIO) -> int | None:
    """Return the current width of a stream's terminal, in columns."""
    if not stream.isatty():
        return None
    columns = 0
    with suppress(OSError):
        columns = os.get_terminal_size(stream.fileno()).columns
    return columns or _USUAL_COLUMNS


def width_of(text: str) -> int:
    """Return the columns that a text takes; some characters take two, or none."""
    if _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, columns: int) -> str:
    """Leave out the middle of a text that is wider than so many columns, and mark the cut.

    Names of runs and cells begin alike, or end alike.

    >>> cut("matrix/rate=10k-repeat=3", 15)
    'matrix/…epeat=3'
    """
    if width_of(text) <= columns:
        return text
    if columns < 1:
        return ""
    front = _front(text, columns // 2)
    back = _front(text[::-1], columns - 1 - width_of(front))[::-1]
    return f"{front}…{back}"


def _front(text: str, columns: int) -> str:
    taken = 0
    for at, char in enumerate(text):
        taken += width_of(char)
        if taken > columns:
            return text[:at]
    return text


def fitting(widths: Mapping[str, int], importance: Iterable[str], columns: int) -> set[str]:
    """Choose what is shown: the most important first, as long as there is room."""
    chosen: set[str] = set()
    taken = -len(GAP)
    for name in importance:
        if name not in widths:
            continue
        more = len(GAP) + widths[name]
        if not chosen or taken + more <= columns:
            chosen.add(name)
            taken += more
    return chosen


def fitted(parts: Mapping[str, str], importance: Iterable[str], columns: int | None) -> str:
    """Join the parts of a line, without those that there is no room for."""
    if columns is None:
        return GAP.join(parts.values())
    widths = {name: width_of(text) for name, text in parts.items()}
    shown = fitting(widths, importance, columns)
    return cut(GAP.join(text for name, text in parts.items() if name in shown), columns)


def wrapped(text: str, columns: int | None) -> str:
    """Break a line between words, and set the others in; None leaves it whole."""
    if columns is None or width_of(text) <= columns:
        return text
    # A path stays whole, as it is copied.
    lines = textwrap.wrap(
        text, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def say(text: str) -> None:
    """Print a line on standard output, broken between words where it is wider than that."""
    print(wrapped(text, output_columns()))


def say_command(name: str, command: str) -> None:
    """Print a command below its name, so that it can be copied from several lines."""
    columns = output_columns() - len(" \\")
    whole = re.sub("'[^']*'", lambda quoted: quoted[0].replace(" ", "\0"), printable(command))
    lines = textwrap.wrap(
        whole,
        columns,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    print(name)
    print(" \\\n".join(lines).replace("\0", " "))


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print each line behind its name."""
    for name, text in lines:
        print(f"{name:<10}{printable(text)}")


def print_plan(
    plan: RunPlan,
    cores: Cores,
    lines: Iterable[tuple[str, str]] = (),
    only: Container[str] | None = None,
) -> None:
    """Print what a plan says, or only some of it; then further lines, doubts, and what lacks."""
    print_lines(each for each in plan.describe(cores).items() if only is None or each[0] in only)
    print_lines(lines)
    print_lines(("warning", warning) for warning in cores.warnings)
    print_lines(("missing", lack) for lack in plan.missing())


def output_columns() -> int:
    """Return the width of standard output, in columns."""
    return columns_of(sys.stdout) or _PIPE_COLUMNS


def painted(text: str, level: Level, stream: TextIO) -> str:
    """Colour a text by how serious it is, on terminals that show colours."""
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    colour = _COLOURS.get(level)
    return text if plain or colour is None else f"\x1b[{colour}m{text}\x1b[0m"
