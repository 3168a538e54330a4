"""Conclusions kept in a run: beside its figures, and never beside others."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import raises

import tailscope as package
from tailscope.exceptions import RunCorruptError, RunError
from tailscope.store import layout
from tailscope.store.kept import Conclusions, keep, kept
from tailscope.store.reader import read_info, read_run
from tailscope.store.records.base import as_content
from tailscope.store.records.verdict import VerdictRecord

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PACKETS, GAP_NS = 20_000, 100_000
LATENCIES = 3_000 + np.random.default_rng(4).exponential(20_000, PACKETS)


@pytest.fixture(scope="module")
def original(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for name, base in (("run", 0), ("slower", 30_000)):
        values = np.rint(LATENCIES + base).astype(int).tolist()
        pair = captures.pair(folder / f"{name} pair", values, gap=GAP_NS)
        done = tailscope("analyze", *pair, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def runs(original: Path, tmp_path: Path) -> Path:
    for name in ("run", "slower"):
        shutil.copytree(original / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "run", "name"),
    [
        ("model overload run slower", "slower", "overload.json"),
        ("verify run --slo p99<1us", "run", "verdict.json"),
    ],
)
def test_a_conclusion_is_kept_as_json_has_it(
    tailscope: Run, runs: Path, arguments: str, run: str, name: str
) -> None:
    before = {path: path.read_bytes() for path in (runs / run).iterdir()}
    command = (*shlex.split(arguments), "--keep", "--json", "-")
    done = tailscope(*command, cwd=runs)
    assert done.returncode in (0, 2, 3), done.stderr
    content = json.loads((runs / run / name).read_text())
    origin = content.pop("kept")
    assert content.pop("format") == 2
    printed = json.loads(done.stdout)
    # Models say how far runs can be trusted; captures do not tell.
    assert printed.pop("trust", None) is None
    assert content == printed
    summary = (runs / run / "summary.json").read_bytes()
    assert origin["summary_sha256"] == hashlib.sha256(summary).hexdigest()
    assert origin["tailscope_version"] == package.__version__
    assert origin["command"] == ["tailscope", *command]
    assert not undocumented(["kept", *origin], "analyze.md")
    assert before.items() <= {path: path.read_bytes() for path in (runs / run).iterdir()}.items()
    found = read_run(runs / run)
    kept_as = {file: as_content(each) for file, each in found.kept.items()}
    assert kept_as == {name: {"format": 2, **content, "kept": origin}}
    assert not [text for text in found.warnings if "left out" in text]


def test_a_campaigns_runs_each_keep_their_own_verdict(tailscope: Run, runs: Path) -> None:
    done = tailscope("verify", "run", "slower", "--slo", "p50<30us", "--keep", cwd=runs)
    assert done.returncode == 2, done.stderr
    for name, verdict in (("run", "pass"), ("slower", "fail")):
        content = read_run(runs / name).kept.verdict
        assert content is not None
        assert [each.run for each in content.runs] == [name]
        assert content.verdict == content.runs[0].verdict == verdict


def test_one_of_other_figures_is_left_out_with_a_warning(runs: Path) -> None:
    other, run = read_info(runs / "slower"), runs / "run"
    judged = VerdictRecord(slo="p99<1us", verdict="pass", level=0.95, runs=())
    keep(run, other, layout.VERDICT, judged, command=["tailscope"])
    with raises(RunCorruptError, "other-figures") as refused:
        kept(run, read_info(run), layout.VERDICT)
    assert "verdict.json: " in str(refused.value)
    found = read_run(run)
    assert found.kept == Conclusions()
    assert any("verdict.json" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "json"),
        (b"[]", "json-object"),
        (b"{}", "format-older"),
        (b'{"kept": 1}', "format-older"),
        (b"\xff", "json"),
    ],
)
def test_one_that_is_none_is_left_out_with_a_warning(runs: Path, content: bytes, code: str) -> None:
    run = runs / "run"
    (run / layout.VERDICT).write_bytes(content)
    with raises(RunError, code) as refused:
        kept(run, read_info(run), layout.VERDICT)
    assert "verdict.json: " in str(refused.value)
    found = read_run(run)
    assert found.kept == Conclusions()
    assert any("verdict.json" in text for text in found.warnings)


def test_without_one_there_is_nothing_to_say(runs: Path) -> None:
    run = runs / "run"
    assert kept(run, read_info(run), layout.OVERLOAD) is None
    assert read_run(run).kept == Conclusions()
    assert not [text for text in read_run(run).warnings if "left out" in text]
