"""``tailscope doctor``: what this machine can measure, how far, and how to add what is missing."""

from __future__ import annotations

from tailscope.cli.options import STANDARD, JsonFile, write_json
from tailscope.cli.terminal import say

EXAMPLE = "tailscope doctor"

_WIDEST = 100
_TITLE = 17


def command(json_file: JsonFile = None) -> int:
    """Everything is tried, and nothing of it is kept. Takes about 5 s, and no privileges."""
    from tailscope.doctor.answer import lacks, lines
    from tailscope.doctor.examination import examine_machine
    from tailscope.store.records.base import as_content

    record = examine_machine()
    write_json(json_file, as_content(record))
    if json_file == STANDARD:
        return 0
    say(record.answer, indent=0)
    print()
    for title, text in lines(record):
        say(f"{title:<{_TITLE}}{text}", indent=_TITLE)
    missing = [*lacks(record)]
    if missing:
        print("\nMissing, and what adds it:")
    for reason, remedy in missing:
        say(f"  {reason}", indent=2)
        if remedy is not None:
            say(f"    {remedy}")
    return 0
