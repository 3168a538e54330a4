"""How much of its results a command prints, and how."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.cli.table import fitted_table
from tailscope.cli.terminal import GAP, painted, say, say_named
from tailscope.units import printable, rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.cli.status import Level

MARK = "~"
"""Stands behind a figure that the instrument's own stalls may have changed."""
MARK_NOTE = f"{MARK} tainted: the instrument itself stalled (from without to with its stalls)"
_SAID_OF_TAINT = re.compile(r" \((?:instrument|tainted)\)")
_MARKED = re.compile(f" {MARK}(?: |$)")
_VERDICTS: dict[str, Level] = {
    "pass": "pass",
    "fail": "error",
    "slower": "error",
    "faster": "pass",
    "more": "error",
    "fewer": "pass",
    "inconclusive": "warning",
    "unclear": "warning",
}


@dataclass(frozen=True)
class View:
    """How much of its results a command prints."""

    exact: bool = False
    """True if all digits are shown."""
    verbose: bool = False
    """True if nothing is left out."""

    def text(self, text: str) -> str:
        """Return a text as it is shown: rounded, with a mark in place of words about taint."""
        text = _SAID_OF_TAINT.sub(f" {MARK}", printable(text))
        return text if self.exact else rounded(text)

    def say(self, text: str, level: Level = "note") -> None:
        """Print a line as it is shown; only what is more serious than a note has a colour."""
        say(self.text(text), level)

    def say_named(self, name: str, text: str) -> None:
        """Print a line that begins with what it is."""
        say_named(name, self.text(text))

    def print_table(
        self,
        header: Sequence[str],
        sections: Sequence[Iterable[Sequence[str]]],
        give_way: Sequence[str] = (),
        notes: Sequence[str] = (),
        mark_note: str = MARK_NOTE,
    ) -> None:
        """Print a table, notes below it, and a blank line.

        Where there is no room for them, columns of `give_way` go, in order.
        """
        shown = [[tuple(map(self.text, row)) for row in section] for section in sections]
        lines, left_out = fitted_table(header, shown, () if self.verbose else give_way)
        for line in lines:
            print(_with_verdict(line))
        notes = [*([mark_note] if any(map(_MARKED.search, lines)) else ()), *notes]
        if left_out:
            notes.append(f"no room for {', '.join(left_out)}: -v shows more, --json all")
        for note in notes:
            say(note)
        if notes:
            print()


def _with_verdict(line: str) -> str:
    """Colour the verdict at the end of a row."""
    before, gap, last = line.rpartition(GAP)
    level = _VERDICTS.get(last)
    return line if level is None else f"{before}{gap}{painted(last, level, sys.stdout)}"
