"""A timeline beside a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
from errors import code_of

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]


def analysed(tailscope: Run, folder: Path, name: str, scale: int = 1) -> Path:
    latencies = [scale * (1_000 + at * at % 977) for at in range(2_000)]
    pair = captures.pair(folder / f"captures of {name}", latencies)
    done = tailscope("analyze", *pair, "--out", folder / name)
    assert done.returncode == 0, done.stderr
    return folder / name


def test_a_timeline_is_written_beside_its_page(tailscope: Run, tmp_path: Path) -> None:
    run, page = analysed(tailscope, tmp_path, "run"), tmp_path / "a page.html"
    done = tailscope("report", run, "--out", page, "--format", "perfetto")
    assert done.returncode == 0, done.stderr
    timeline = tmp_path / "a page.pftrace"
    assert done.stdout.splitlines() == [str(timeline), str(page)]
    text = page.read_text()
    assert '<a href="./a%20page.pftrace" download>' in text
    names = re.findall(r'<a class="moment"[^>]*>(packet \d+)</a>', text)
    assert len(names) == 3
    assert all(name.encode() in timeline.read_bytes() for name in names)
    refused = tailscope("report", run, "--figures", tmp_path / "figures", "--trace")
    assert (refused.returncode, code_of(refused)) == (1, "requires-single-run")
