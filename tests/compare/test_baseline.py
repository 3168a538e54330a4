"""``compare save`` and ``compare baseline``: runs kept as a file, and compared with later ones."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from docs.reference import files
from documentation import undescribed
from forked import whole_lines
from shelves import edited
from synthetic import captured_runs, write_run
from wording import assert_wording

from tailscope.cli import main
from tailscope.compare.baseline import FIGURES
from tailscope.compare.figures import figures_with

if TYPE_CHECKING:
    from pathlib import Path

PACKETS = 20_000


def queued(path: Path, seed: int, factor: float = 1.0, **fields: Any) -> Path:
    values = 2_000 + np.random.default_rng(seed).exponential(4_000, PACKETS)
    late = np.arange(PACKETS) % 100 == 50
    latency_ns = np.rint(values * factor).astype(np.int64)
    return write_run(path, latency_ns, stalled=late, stall_ns=200, lost=3, **fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs before, two after, slow ones, and one of another rate on another processor."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        queued(folder / "before" / str(seed), seed)
    for seed in (3, 4):
        queued(folder / "after" / str(seed), seed)
        queued(folder / "slow" / str(seed), seed, 1.5)
    elsewhere = queued(folder / "elsewhere", 5, rate_pps=20_000)
    host = json.loads((elsewhere / "run.json").read_text())["host"]
    edited(elsewhere, host={**host, "cpu_model": "another one"})
    return folder


@pytest.fixture(scope="module")
def baseline(runs: Path) -> Path:
    path = runs / "baseline.json"
    assert main(["compare", "save", str(runs / "before"), "-o", str(path)]) == 0
    return path


def said(file: Path, *arguments: object, expected: int = 0) -> dict[str, Any]:
    words = [*map(str, arguments), "--json", str(file)]
    assert main(words) == expected
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize(("name", "status"), [("after", 0), ("slow", 2)])
def test_a_baseline_says_what_its_runs_would_say(
    runs: Path, baseline: Path, tmp_path: Path, name: str, status: int
) -> None:
    """Figures, intervals with and without the instrument's stalls, loss, and verdicts."""
    limits = ("--fail-on", "p90>+30%", "--fail-on", "lost>+1%")
    words = ("compare", "baseline", baseline, runs / name, *limits)
    ours = said(tmp_path / "ours.json", *words, expected=status)
    words = ("compare", runs / "before", runs / name, *limits)
    theirs = said(tmp_path / "theirs.json", *words, expected=status)
    [one], [other] = ours["comparisons"], theirs["comparisons"]
    for part in ("figures", "others", "limits"):
        assert one[part] == other[part]
    assert (ours["verdict"], ours["statements"]) == (theirs["verdict"], theirs["statements"])
    assert any(figure["verdict"] == "no estimate" for figure in one["figures"])


def test_a_baseline_is_shown_as_its_runs_are(
    runs: Path, baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What each figure was among the packets that came, not with others as slow as the window."""
    tables = []
    for first in (("baseline", baseline), (runs / "before",)):
        capsys.readouterr()
        assert main(["compare", *map(str, first), str(runs / "after")]) == 0
        printed = capsys.readouterr().out
        tables.append([line for line in printed.splitlines() if line.startswith(("p", "max"))])
    assert tables[0] == tables[1] != []


def test_the_settings_that_differ_are_listed(
    capsys: pytest.CaptureFixture[str], runs: Path, baseline: Path
) -> None:
    """What was measured differs between any two runs, and is no setting."""
    assert main(["compare", "baseline", str(baseline), str(runs / "elsewhere")]) == 0
    short = " ".join(capsys.readouterr().out.split())
    assert "2 settings differ, too (-v lists)" in short
    assert main(["compare", "baseline", str(baseline), str(runs / "elsewhere"), "-v"]) == 0
    at_length = capsys.readouterr().out
    assert "cpu_model" in at_length and "measured rate" in at_length


def test_limits_of_other_quantiles_are_judged(
    runs: Path, baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "found.xml"
    words = ["compare", "baseline", str(baseline), str(runs / "slow"), "--fail-on", "p95>+10%"]
    assert main([*words, "--junit", str(junit)]) == 2
    assert "\nfail      p95>+10%: " in capsys.readouterr().out
    assert "<failure" in junit.read_text()
    assert main([*words[:-2], "--single"]) == 1
    assert "[requires-fail-on]" in capsys.readouterr().err
    assert main([*words, "--fail-on", "p97>+1%"]) == 1
    error = capsys.readouterr().err
    assert "got p97" in error and "[baseline-figure]" in error
    many = [word for number in range(65) for word in ("--fail-on", f"p50>+{number + 1}%")]
    assert main([*words, *many]) == 1
    error = capsys.readouterr().err
    assert "got 66 limits" in error and "[too-many-limits]" in error


def test_another_machine_or_rate_is_named_and_decides_nothing(
    runs: Path, baseline: Path, tmp_path: Path
) -> None:
    words = ("compare", "baseline", baseline, runs / "elsewhere", "--fail-on", "p50>+90%")
    found = said(tmp_path / "found.json", *words, expected=3)
    [comparison] = found["comparisons"]
    warnings = "\n".join(comparison["warnings"])
    assert_wording("baseline/another-machine", warnings.replace(f"{runs}/", ""))
    assert "cpu_model" in " ".join(comparison["limits"][0]["reasons"])


def test_captures_that_tell_nothing_of_their_machine_are_compared_with_a_warning(
    tmp_path: Path,
) -> None:
    untold = captured_runs(tmp_path, 2)
    assert main(["compare", "save", str(untold[0]), "-o", str(tmp_path / "baseline.json")]) == 0
    words = ("compare", "baseline", tmp_path / "baseline.json", untold[1])
    [comparison] = said(tmp_path / "found.json", *words)["comparisons"]
    assert_wording("baseline/nothing-tells", comparison["warnings"][-1])


def test_runs_that_do_not_repeat_each_other_are_no_baseline(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "baseline.json"
    save = ["compare", "save", "-o", str(out)]
    assert main([*save, str(runs / "before"), str(runs / "elsewhere")]) == 1
    error = capsys.readouterr().err
    named = ("plan: rate_pps: ", "got 20000", "[runs-not-repeats]")
    assert all(text in error for text in named)
    assert not out.exists()
    assert main([*save, str(runs / "after"), str(runs / "after")]) == 1
    assert "[runs]" in capsys.readouterr().err


def test_the_file_is_small_described_and_without_packets(baseline: Path, tmp_path: Path) -> None:
    (tmp_path / baseline.name).write_bytes(baseline.read_bytes())
    assert not undescribed(tmp_path, files.BASELINE)
    assert baseline.stat().st_size < 3 * 50_000
    assert {each.name for each in figures_with()} < {each.name for each in FIGURES}


def damaged(baseline: Path, change: Any, *, is_signed: bool) -> str:
    """A baseline that says something else, with the checksum of its lines or without."""
    content = json.loads(baseline.read_text())
    old = content.pop("lines_sha256")
    change(content)
    lines = json.dumps(content, indent=2).removesuffix("\n}") + ",\n"
    digest = hashlib.sha256(lines.encode()).hexdigest() if is_signed else old
    return f'{lines}  "lines_sha256": "{digest}"\n}}\n'


@pytest.mark.parametrize(
    ("change", "is_signed", "field", "code"),
    [
        (
            lambda each: each["runs"][0].update(rate_pps=1.0),
            False,
            "lines_sha256",
            None,
        ),
        (
            lambda each: each["runs"][1].update(rate_pps="fast"),
            True,
            "runs[1].rate_pps",
            None,
        ),
        (lambda each: each.update(runs=[]), True, "runs", "baseline-runs"),
        (lambda each: each["errors"].reverse(), True, "errors", "baseline-errors"),
        (
            lambda each: each["runs"][2]["as_is"].pop("p50"),
            True,
            "runs[2].as_is",
            "baseline-figures",
        ),
        (
            lambda each: each["runs"][0]["least"].pop("p50"),
            True,
            "runs[0].least",
            "baseline-figures",
        ),
        (
            lambda each: each["runs"][0]["as_is"]["p50"]["ci_low"].pop(),
            True,
            "runs[0].as_is.p50",
            "baseline-ends",
        ),
        (
            lambda each: each["runs"][0]["as_is"]["p50"].update(value=None),
            True,
            "runs[0].as_is.p50.value",
            "baseline-value",
        ),
        (
            lambda each: each["runs"][0]["as_is"]["p50"].update(design_effect=0.0),
            True,
            "runs[0].as_is.p50.design_effect",
            "baseline-design-effect",
        ),
        (
            lambda each: each["runs"][0]["as_is"]["lost"].update(value=1e300),
            True,
            "runs[0].as_is.lost",
            "baseline-order",
        ),
        (lambda each: each.update(format=2), True, "format", None),
        (lambda each: each.update(more=1), True, "more", None),
        (lambda each: each.pop("errors"), True, "errors", "baseline-field"),
    ],
)
def test_a_damaged_baseline_is_refused_by_its_field(
    runs: Path,
    baseline: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Any,
    is_signed: bool,
    field: str,
    code: str | None,
) -> None:
    other = tmp_path / "other.json"
    other.write_text(damaged(baseline, change, is_signed=is_signed))
    assert main(["compare", "baseline", str(other), str(runs / "after")]) == 1
    error = whole_lines(capsys.readouterr().err)
    assert f"{field}: " in error and str(other) in error
    assert code is None or f"[{code}]" in error


@pytest.mark.parametrize("name", ["missing", "folder", "text", "before/0/run.json"])
def test_what_is_no_baseline_is_named(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no baseline\n")
    file = runs / name if "/" in name else tmp_path / name
    assert main(["compare", "baseline", str(file), str(runs / "after")]) == 1
    error = capsys.readouterr().err
    assert str(file) in error and "\nhint: " in error
    assert "tailscope compare save" in error.partition("\nhint: ")[2]


def test_another_window_is_refused(
    runs: Path, baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packets that never came would count as another latency."""
    other = tmp_path / "other.json"

    def shorter(content: dict[str, Any]) -> None:
        for run in content["runs"]:
            run["window_ns"] = 1_000_000_000

    other.write_text(damaged(baseline, shorter, is_signed=True))
    assert main(["compare", "baseline", str(other), str(runs / "after")]) == 1
    error = capsys.readouterr().err
    named = ("got 5000000000", "expected 1000000000", "[window]")
    assert all(text in error for text in named)
