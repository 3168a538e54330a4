"""Lines between the machines of a laboratory, for ``python -m fuzz.python`` and the corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from tailscope.exceptions import TailscopeError
from tailscope.extra.laboratory.protocol import Role, read_message, read_order

if TYPE_CHECKING:
    from pathlib import Path


def laboratory_line(content: bytes, _folder: Path) -> None:
    """A message of each role, or an order."""
    line = content.decode(errors="replace")
    for role in get_args(Role):
        try:
            read_message(role, line)
        except TailscopeError:
            continue
    read_order(line)


TARGETS = {"laboratory-line": laboratory_line}
