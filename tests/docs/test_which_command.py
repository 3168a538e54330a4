"""`docs/which-command.md` leads from a question to every command there is."""

from __future__ import annotations

import re

from docs.reference.cli import commands
from pages import ROOT

PAGE = (ROOT / "docs" / "which-command.md").read_text()
HEADERS = ("| question | command | page |", "|---")
ROW = re.compile(r"^\| (.+?) \| `(tailscope [^`]+)`[^|]* \| \[[^]]+\]\([^)]+\) \|$")


def test_every_row_has_a_question_a_command_and_a_page() -> None:
    lines = PAGE.splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith(HEADERS)]
    assert len(rows) > 40
    assert not [line for line in rows if not ROW.match(line)]


def test_every_command_answers_a_question() -> None:
    shown = [found[2] for found in map(ROW.match, PAGE.splitlines()) if found]
    known = {name for name, _ in commands()}
    assert not {
        name for name in known if not any(f"{line} ".startswith(f"{name} ") for line in shown)
    }
