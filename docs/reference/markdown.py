"""Tables and text of generated pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


def attributes(docstring: str) -> Iterator[tuple[str, str]]:
    """Names and descriptions of the attributes that a numpydoc docstring lists."""
    lines = docstring.partition("Attributes\n")[2].splitlines()[1:]
    indent = len(lines[0]) - len(lines[0].lstrip())
    name, about = "", []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) == indent:
            if name:
                yield name, " ".join(about)
            name, about = line.strip().partition(" : ")[0], []
        else:
            about.append(line.strip())
    if name:
        yield name, " ".join(about).strip()
