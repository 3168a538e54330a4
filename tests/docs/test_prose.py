"""One sentence a line, so that differences stay readable."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pages import PAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

GENERATED = {"reference", "reference.md", "calibration.md"}
WRITTEN = [
    path
    for path in (*PAGES, *sorted(ROOT.glob("crates/*/README.md")))
    if not GENERATED & {*path.parts}
]
WIDTH = 120
FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
ASIDE = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\([^()]*\)|\*[^*]+\*")
BETWEEN_SENTENCES = re.compile(r"[^\W_]{2}[.!?] (?:[A-Z`]|tailscope )")


def long_lines(text: str) -> list[str]:
    """Lines of prose that are too long and more than one sentence."""
    return [
        line
        for line in FENCED.sub("", text).splitlines()
        if len(line) > WIDTH
        and not line.lstrip().startswith(("|", "<"))
        and BETWEEN_SENTENCES.search(ASIDE.sub("xx", line))
    ]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_long_line_is_one_sentence(path: Path) -> None:
    assert not long_lines(path.read_text())


def test_long_lines_of_two_sentences_are_found() -> None:
    one = f"It looks{' again' * 30}, as e.g. `tailscope`. does (Twice. Or more.)"
    assert not long_lines(f"{one}.\n| {one}. It ends.\n```text\n{one}. It ends.\n```\n")
    assert long_lines(f"{one}. It ends.") == [f"{one}. It ends."]
    assert not long_lines("It looks. It ends.")
