"""`which-command.md` and the first pages of `docs/extra` lead to every command there is."""

from __future__ import annotations

import re

from docs.reference.cli import commands
from pages import ROOT

PAGES = [ROOT / "docs" / "which-command.md", *sorted((ROOT / "docs" / "extra").glob("*/index.md"))]
LINES = [line for page in PAGES for line in page.read_text().splitlines()]
HEADERS = ("| question | command | page |", "|---")
ROW = re.compile(r"^\| (.+?) \| `(tailscope [^`]+)`[^|]* \| \[[^]]+\]\([^)]+\) \|$")


def test_every_row_has_a_question_a_command_and_a_page() -> None:
    rows = [line for line in PAGES[0].read_text().splitlines() if line.startswith("|")]
    rows = [line for line in rows if not line.startswith(HEADERS)]
    assert len(rows) > 30
    assert not [line for line in rows if not ROW.match(line)]


def test_every_command_answers_a_question() -> None:
    shown = [found[2] for found in map(ROW.match, LINES) if found]
    known = {name for name, _ in commands()}
    assert not {
        name for name in known if not any(f"{line} ".startswith(f"{name} ") for line in shown)
    }
