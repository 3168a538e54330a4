"""Tables and text of generated pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOTE = "*Generated from the code by `make docs`: change it there.*"


def joined(blocks: Iterable[str]) -> str:
    """A page of paragraphs, tables and headings."""
    return "\n\n".join(block for block in blocks if block) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing without rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(header), "|---" * len(header) + "|", *lines]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def code(text: str) -> str:
    """Text as code."""
    return f"`{text}`"


def codes(names: str) -> str:
    """Names with commas between, each as code."""
    return ", ".join(map(code, names.split(", ")))
