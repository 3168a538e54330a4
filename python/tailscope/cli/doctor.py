"""``tailscope doctor``: what this machine can measure, how far, and how to add what is missing."""

from __future__ import annotations

import sys
import textwrap

from tailscope.cli.options import STANDARD, JsonFile, write_json
from tailscope.units import printable

EXAMPLE = "tailscope doctor"

_WIDEST = 100
_TITLE = 17


def command(json_file: JsonFile = None) -> int:
    """Everything is tried, and nothing of it is kept. Takes about 5 s, and no privileges."""
    from tailscope.doctor.answer import lacks, lines
    from tailscope.doctor.examination import examine_machine
    from tailscope.store.records.base import as_content

    record = examine_machine()
    if json_file is not None:
        write_json(json_file, as_content(record))
    if json_file == STANDARD:
        return 0
    _print(record.answer)
    print()
    for title, text in lines(record):
        _print(f"{title:<{_TITLE}}{text}", _TITLE)
    missing = [*lacks(record)]
    if missing:
        print("\nMissing, and what adds it:")
    for reason, remedy in missing:
        _print(f"  {reason}", 2)
        if remedy is not None:
            _print(f"    {remedy}", 4)
    return 0


def _print(text: str, indent: int = 0) -> None:
    """Print a text in lines that fit the terminal; further lines are indented."""
    from tailscope.cli.terminal import columns_of

    width = min(columns_of(sys.stdout) or _WIDEST, _WIDEST)
    print(
        textwrap.fill(
            printable(text),
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
