"""The reference is what the code says, and the code says what is in files."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from documentation import DOCS, undescribed, undocumented

from tailscope.store import contents

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope


def test_generated_pages_are_what_the_code_says() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "docs.reference", "--check"],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


def test_a_page_that_was_edited_is_named_with_what_renews_it(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(DOCS / "reference", tmp_path / "docs" / "reference")
    page = tmp_path / "docs" / "reference" / "cli.md"
    page.write_text(page.read_text() + "by hand\n")
    checked = subprocess.run(
        [sys.executable, "-m", "docs.reference", "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 1
    assert "docs/reference/cli.md is not what the code says" in checked.stderr
    assert "hint: `make docs`" in checked.stderr


def test_files_of_an_analysis_are_described(tailscope: Tailscope, tmp_path: Path) -> None:
    assert tailscope("simulate", tmp_path / "pair", "--seed", 1, "--packets", 500).returncode == 0
    done = tailscope("analyze", tmp_path / "pair", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert not undescribed(run, contents.RUN)


def test_what_is_not_described_is_found() -> None:
    assert not undocumented(["latency_ns_p50", "post_gap_ns_max", "reasons", "phases", "watts"])
    assert undocumented(["latency_ns_median", "nothing"]) == ["latency_ns_median", "nothing"]
