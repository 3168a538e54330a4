"""Text for people: as wide as the terminal, with as many digits as they need."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from tailscope.cli.status import LEVELS
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from tailscope.cli.status import Level
    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import Cores

GAP = "  "
"""Between the parts of a line, and the columns of a table."""

_COLOURS = {"pass": "32", "warning": "33", "error": "31"}
_LEVELS: Mapping[str, Level] = {
    **LEVELS,
    "error": "error",
    **dict.fromkeys(("lacking", "left out", "missing", "partial", "unclear", "warning"), "warning"),
}
"""How serious it is what a line begins with."""

_JOINT = "\0"
"""Stands for a blank at which no line is broken; no text has one."""
_TOGETHER = re.compile(
    r"`[^`]+`|\d (?:[nµm]?s|min|h|d|%|[kMG]?B|[kMG]?bit/s|[kM]?Hz|bytes|packets/s|[nµm]?[WJ])(?!\w)"
)
"""What no line is broken in."""

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


def columns_on(stream: TextIO) -> int:
    """Return the width of lines on a stream, in columns."""
    return columns_of(stream) or _PIPE_COLUMNS


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


def fitted(parts: Mapping[str, str], importance: Iterable[str], columns: int) -> str:
    """Join the parts of a line, without those that there is no room for."""
    widths = {name: width_of(text) for name, text in parts.items()}
    shown = fitting(widths, importance, columns)
    return cut(GAP.join(text for name, text in parts.items() if name in shown), columns)


def wrapped(text: str, columns: int, indent: int = 4) -> str:
    """Break a line between words, and set the others in.

    What is copied stays whole, a path or a command between backquotes, as does a number with its
    unit.
    """
    if width_of(text) <= columns:
        return text
    lines = textwrap.wrap(
        _TOGETHER.sub(lambda part: _joined(part[0], columns - indent), text),
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_JOINT, " ")


def _joined(part: str, columns: int) -> str:
    return part.replace(" ", _JOINT) if len(part) <= columns else part


def say(text: str, level: Level = "note", *, indent: int = 4, stream: TextIO | None = None) -> None:
    """Print a line, on standard output by default, broken between words where it is too wide."""
    stream = stream or sys.stdout
    shown = wrapped(printable(text), columns_on(stream), indent)
    print(painted(shown, level, stream), file=stream, flush=True)


def say_named(name: str, text: object, *, width: int = 10) -> None:
    """Print a line of results that begins with what it is, in the colour that this has."""
    head = printable(name)
    shown = wrapped(f"{head:<{width - 1}} {printable(str(text))}", columns_on(sys.stdout))
    print(f"{painted(head, _LEVELS.get(name, 'note'), sys.stdout)}{shown[len(head) :]}")


def say_plan(
    described: Mapping[str, object], warnings: Iterable[str] = (), missing: Iterable[str] = ()
) -> None:
    """Print what would be done, what is to be known of it, and what this machine lacks for it."""
    for name, text in described.items():
        say_named(name, text)
    for warning in warnings:
        say_named("warning", warning)
    for lack in missing:
        say_named("missing", lack)


def tell(name: str, text: str) -> None:
    """Print what is no result on standard error: an error, a warning, a hint or a note."""
    shown = wrapped(f"{name}: {printable(text)}", columns_on(sys.stderr))
    head = painted(name, _LEVELS.get(name, "note"), sys.stderr)
    print(f"{head}{shown[len(name) :]}", file=sys.stderr, flush=True)


def say_command(name: str, command: str) -> None:
    """Print a command below its name, so that it can be copied from several lines."""
    whole = re.sub("'[^']*'", lambda quoted: quoted[0].replace(" ", _JOINT), printable(command))
    lines = wrapped(f"  {whole}", columns_on(sys.stdout) - len(" \\"))
    print(name)
    print(lines.replace("\n", " \\\n").replace(_JOINT, " "))


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print each line behind its name."""
    for name, text in lines:
        say_named(name, text)


def print_plan(
    plan: RunPlan,
    cores: Cores,
    lines: Iterable[tuple[str, str]] = (),
    only: Container[str] | None = None,
) -> None:
    """Print what a plan says, or only some of it; then further lines, doubts, and what lacks."""
    from tailscope.doctor.measurable import lacks_of

    print_lines(each for each in plan.describe(cores).items() if only is None or each[0] in only)
    print_lines(lines)
    say_plan({}, cores.warnings, lacks_of(plan, cores))


def painted(text: str, level: Level, stream: TextIO) -> str:
    """Colour a text by how serious it is, on terminals that show colours."""
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    colour = _COLOURS.get(level)
    return text if plain or colour is None else f"\x1b[{colour}m{text}\x1b[0m"
