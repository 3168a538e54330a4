"""The page of calibration, and what commands quote of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, get_args

import pytest
from documentation import DOCS

from tailscope.words.promises import Model, kept

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope


TITLES = ("Verdicts", "Recommendations", "Tails", "Aliasing", "Overload")


def rows(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def test_what_commands_quote_stands_on_the_page() -> None:
    page = (DOCS / "calibration.md").read_text()
    for model in get_args(Model):
        assert f"\n> {kept(model)}\n" in page, model


def test_the_page_has_every_part_with_figures() -> None:
    page = (DOCS / "calibration.md").read_text()
    parts = re.split(r"^## ", page, flags=re.M)[1:]
    assert [part.splitlines()[0] for part in parts] == list(TITLES)
    for part in parts:
        found = rows(part)
        for text in filter(rows, part.split("\n\n")):
            assert len({line.count(" | ") for line in text.splitlines() if " | " in line}) == 1
        assert sum(any(character.isdigit() for character in "".join(row[1:])) for row in found) > 5


@pytest.mark.long
def test_a_part_can_be_measured_again(tmp_path: Path) -> None:
    again = [sys.executable, "-m", "docs.calibration", "--only", "verdicts"]
    done = subprocess.run(
        [*again, "--runs", "10", "--data", tmp_path],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    easy = [row for row in rows(done.stdout) if row[0] == "independent packets"]
    assert [row[1:5] for row in easy if row[1] in {"0.5", "2"}] == [
        ["0.5", "10", "0%", "100%"],
        ["2", "10", "0%", "100%"],
    ]
    refused = subprocess.run(
        [*again, "--data", tmp_path / "none"], cwd=DOCS.parent, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "--data: got" in refused.stderr


def test_verify_says_what_its_verdicts_are_worth(tailscope: Tailscope, tmp_path: Path) -> None:
    assert tailscope("simulate", tmp_path / "pair", "--seed", 1, "--packets", 500).returncode == 0
    assert tailscope("analyze", tmp_path / "pair", "--out", tmp_path / "runs").returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    told = tailscope("verify", run, "--slo", "p50<1s", "-v").stdout
    assert kept("verdict") in " ".join(told.split())
    counted = tailscope("verify", run, "--slo", "reordered=0", "--json", "-")
    assert json.loads(counted.stdout)["slo"] == "reordered=0"
    told = tailscope("verify", run, "--slo", "reordered=0", "-v").stdout
    assert kept("verdict") not in " ".join(told.split())
