"""Text that fits the width of a terminal."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GAP = "  "
"""Between the parts of a line, and the columns of a table."""

_USUAL_COLUMNS = 80
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

    Examples
    --------
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
    """Print a line on standard output, broken between words where a terminal is narrower."""
    print(wrapped(text, columns_of(sys.stdout)))
