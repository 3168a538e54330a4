"""The documentation as a site: `make site`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ELSEWHERE = re.compile(r'(?:src|href)="(?:https?:)?//[^"]*"')


def test_every_page_is_there_and_asks_nobody_else(tmp_path: Path) -> None:
    """Links and anchors that lead nowhere, and pages that are not found, end it."""
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {each.relative_to(site).as_posix() for each in site.rglob("*.html")}
    for source in (ROOT / "docs").rglob("*.md"):
        assert source.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in pages
    for page in pages:
        assert not ELSEWHERE.findall((site / page).read_text()), page
    first = (site / "index.html").read_text()
    assert first.index("guide/first-measurement.html") < first.index("reference/cli.html")
    assert (site / "search/search_index.json").stat().st_size > 100_000
