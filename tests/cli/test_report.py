"""Reports: one page that needs nothing else, and figures in every format."""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import html
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from command import COMMAND
from errors import code_of
from synthetic import write_run
from wording import assert_wording

from tailscope.store.reader import read_run
from tailscope.words.figures import reading

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]


def analysed(tailscope: Run, folder: Path, name: str, scale: int = 1) -> Path:
    latencies = [scale * (1_000 + at * at % 977) for at in range(2_000)]
    pair = captures.pair(folder / f"captures of {name}", latencies)
    done = tailscope("analyze", *pair, "--out", folder / name)
    assert done.returncode == 0, done.stderr
    return folder / name


def check_page(page: str) -> None:
    assert len(page.encode()) < 2 * 1024 * 1024
    assert page.lstrip().lower().startswith("<!doctype html>")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    allowed = html.unescape(policy[1])
    assert allowed.startswith("default-src 'none'; script-src ")
    assert "unsafe-eval" not in allowed
    for script in re.findall(r"<script>(.*?)</script>", page, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed
    page = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for reference in re.findall(r"""(?:src|href)=["']?([^"'> ]*)""", page):
        assert reference.startswith(("#", "data:")), f"{reference} is asked for from elsewhere"
    assert not re.search(r"url\((?!['\"]?(#|data:))|@import", page)
    identifiers = re.findall(r'\bid="([^"]*)"', page)
    assert len(identifiers) == len(set(identifiers)), "figures must not borrow from each other"
    assert "prefers-color-scheme" in page
    assert "@media print" in page


def test_a_run_without_a_match_has_no_median(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", np.full(40, 1_000), lost=40))
    said = reading([(run.summary, run.info)])
    assert "no packet was matched, 40 of 40 packets lost. How far" in said


def test_a_run_has_its_report(tailscope: Run, tmp_path: Path) -> None:
    page = (analysed(tailscope, tmp_path, "one") / "report.html").read_text()
    check_page(page)
    assert page.count("<figure") >= 7
    assert "2,000" in page
    assert "p99.9999" in page
    assert "≥" in page
    (answer,) = re.findall(r'<p class="answer">(.*)</p>', page)
    assert_wording("report/heading", answer)
    head = page[page.index("<header>") : page.index("</header>")]
    assert re.findall(r"<(title|h1)>one: captures\b", page) == ["title", "h1"]
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d UTC", head)
    assert "<b>unknown</b>" in head
    linked = re.findall(r'href="#([^"]*)"', head)
    assert linked == ["The-tail", "Over-time", "Distribution", "Tables"]
    assert all(f'id="{name}"' in page for name in linked)


def test_runs_share_their_figures(tailscope: Run, tmp_path: Path) -> None:
    runs = [analysed(tailscope, tmp_path, "first"), analysed(tailscope, tmp_path, "second", 3)]
    done = tailscope("report", *runs, "--out", tmp_path / "both.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "both.html").read_text()
    check_page(page)
    single = (runs[0] / "report.html").read_text()
    # All but those of one run alone.
    assert single.count("<figure") - page.count("<figure") == 1
    assert "first" in page
    assert "second" in page
    labels = ("--label", f"before={runs[0]}", "--label", f"after={runs[1]}")
    done = tailscope("report", *runs, *labels, "--out", tmp_path / "both.html")
    assert done.returncode == 0, done.stderr
    (title,) = re.findall(r"<title>(.*) · ", (tmp_path / "both.html").read_text())
    assert title.split(", ") == ["before", "after"]
    done = tailscope("report", *runs, "--label", f"second={runs[0]}", "--figures", tmp_path / "x")
    assert (done.returncode, code_of(done)) == (1, "label-taken")


def test_a_file_that_nobody_named_is_not_replaced(tailscope: Run, tmp_path: Path) -> None:
    run = analysed(tailscope, tmp_path, "run")
    page = tmp_path / "report.html"
    for content, status in (("of another tool", 1), ((run / "report.html").read_text(), 0)):
        page.write_text(content)
        done = tailscope("report", run, cwd=tmp_path)
        assert done.returncode == status
        assert ("other-page" in done.stderr, page.read_text() == content) == (status == 1, True)
    page.write_text("of another tool")
    assert tailscope("report", run, "--out", page).returncode == 0
    check_page(page.read_text())


@pytest.mark.long
def test_figures_come_in_every_format(tailscope: Run, tmp_path: Path) -> None:
    run = analysed(tailscope, tmp_path, "run")
    done = tailscope("report", run, "--figures", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    files = {path.name: path for path in (tmp_path / "figures").iterdir()}
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    stems = {path.stem for path in files.values() if path.suffix == ".svg"}
    assert len(stems) >= 5
    for stem in stems:
        for suffix, start in magic.items():
            assert files[f"{stem}.{suffix}"].read_bytes().startswith(start)
        with files[f"{stem}.csv"].open(newline="") as file:
            assert len(list(csv.reader(file))) > 1
    assert not (tmp_path / "report.html").exists()


def test_figures_for_a_paper_carry_their_fonts(tailscope: Run, tmp_path: Path) -> None:
    run, out = analysed(tailscope, tmp_path, "run"), tmp_path / "figures"
    options = ("--figures", out, "--style", "paper", "--format", "pdf,svg")
    done = tailscope("report", run, *options)
    assert done.returncode == 0, done.stderr
    pdf, svg = (out / "percentiles.pdf").read_bytes(), (out / "percentiles.svg").read_text()
    assert b"/FontFile2" in pdf
    assert "<text" not in svg
    width_pt = re.search(r'width="([\d.]+)pt"', svg)
    assert width_pt is not None
    assert float(width_pt[1]) < 252, "wider than a column"
    refused = tailscope("report", run, "--figures", out, "--style", "poster")
    assert (refused.returncode, code_of(refused)) == (1, "style")
    assert "got 'poster'" in refused.stderr


def test_one_format_may_be_enough(tailscope: Run, tmp_path: Path) -> None:
    run = analysed(tailscope, tmp_path, "run")
    done = tailscope("report", run, "--figures", tmp_path / "figures", "--format", "png")
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".csv"}
    refused = tailscope("report", run, "--figures", tmp_path / "figures", "--format", "gif")
    assert (refused.returncode, code_of(refused)) == (1, "format")
    assert "got 'gif'" in refused.stderr


def test_names_in_a_page_are_text(tailscope: Run, tmp_path: Path) -> None:
    run = analysed(tailscope, tmp_path, "<img src=x onerror=alert(1)>&amp;")
    page = (run / "report.html").read_text()
    assert "<img src=x" not in page
    drawn = ("--figures", tmp_path / "svg", "--format", "svg")
    done = tailscope("report", run, *drawn, "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "<img src=x" not in (tmp_path / "page.html").read_text()
    for svg in (tmp_path / "svg").glob("*.svg"):
        assert "<img src=x" not in svg.read_text()


def test_a_run_without_a_single_match_can_be_drawn(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / "pre").write_bytes(captures.pcap(captures.stream([1_000, 2_000])))
    (tmp_path / "post").write_bytes(captures.pcap(captures.stream([1_500, 2_500])))
    trimmed = ("--trim", "1s", "--out", tmp_path / "run")
    done = tailscope("analyze", tmp_path / "pre", tmp_path / "post", *trimmed)
    assert done.returncode == 0, done.stderr
    check_page((tmp_path / "run" / "report.html").read_text())
    drawn = ("--figures", tmp_path / "figures", "--format", "svg")
    assert tailscope("report", tmp_path / "run", *drawn).returncode == 0


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_what_is_no_run_is_refused(tailscope: Run, tmp_path: Path, what: str) -> None:
    (tmp_path / "empty").mkdir()
    done = tailscope("report", tmp_path / what, "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert what in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_full_disk_is_said_and_leaves_nothing(tailscope: Run, tmp_path: Path) -> None:
    run = analysed(tailscope, tmp_path, "run")
    done = tailscope("report", run, "--out", "/dev/full")
    assert (done.returncode, code_of(done)) == (1, "system")
    assert os.strerror(errno.ENOSPC) in done.stderr
    full = tmp_path / "full"
    full.mkdir()
    limited = f'ulimit -f 100 && exec "$0" "$@" --out {shlex.quote(str(full / "page.html"))}'
    bash = ("bash", "-c", limited, COMMAND, "report", run)
    refused = subprocess.run(bash, capture_output=True, text=True, check=False)
    assert (refused.returncode, code_of(refused)) == (1, "system")
    assert f"page.html: {os.strerror(errno.EFBIG)}" in refused.stderr
    assert list(full.iterdir()) == []


@pytest.mark.parametrize("name", ["latency.parquet", "percentiles.csv", "worst.parquet"])
def test_a_run_that_is_not_what_it_was_is_refused(
    tailscope: Run, tmp_path: Path, name: str
) -> None:
    run = analysed(tailscope, tmp_path, "run")
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = tailscope("report", run, "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert f"{name}: sha256: " in done.stderr
    (run / name).unlink()
    done = tailscope("report", run, "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert f"{name}: missing" in done.stderr
    mark = (run / "run.json").read_text()
    (run / "run.json").write_text(mark.replace('"format": 3', '"format": 4', 1))
    done = tailscope("report", run, "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert f"{run}/run.json: format: " in done.stderr and "got 4" in done.stderr
    assert not (tmp_path / "page.html").exists()
