"""The page with all tables and figures of the papers, and the command of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.extra.papers.papers import PAPERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.extra.papers.part import Paper

_NOTE = "*Generated from the code by `make docs`: change it there.*"
_ABOUT = """\
Every table and figure of the five papers has a line: the command that makes it here, and what that
needs beyond this machine, or how the result differs from the paper's.
`--dry-run` of an experiment tells how many cells of each run on your machine, and why the others
wait. RUN stands for a run directory of yours."""


def pages() -> Mapping[str, str]:
    """Return the page, by its place below ``docs/extra``."""
    return {"papers/tables.md": "\n\n".join(_blocks()) + "\n"}


def _blocks() -> Iterator[str]:
    yield "# All tables and figures of the papers"
    yield _NOTE
    yield _ABOUT
    for paper in PAPERS:
        yield f"## {paper.name}"
        yield f"*{paper.title}*: [its page](../../papers/{paper.page})."
        yield "\n".join(_rows(paper))


def _rows(paper: Paper) -> Iterator[str]:
    yield "| in the paper | what it shows | command | needs, or differs |"
    yield "|---|---|---|---|"
    for part in paper.parts:
        command = f"`{part.command}`" if part.command else "none"
        yield f"| {part.name} | {part.shows} | {command} | {part.needs} |"
