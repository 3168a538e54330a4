"""``tailscope trend``: runs in, since when their figures are others out."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from browser import browser, opened
from documentation import undocumented
from shelves import edited
from synthetic import captured_runs, write_run
from wording import assert_wording

from tailscope.cli import application, main
from tailscope.compare.limits import parse_limit
from tailscope.extra.trend.changes import trends_of
from tailscope.extra.trend.metrics import METRICS
from tailscope.extra.trend.points import fewest_values
from tailscope.extra.trend.series import MOST_STEPS, Order, experiments_of, parse_order
from tailscope.store.catalogue import catalogue_of
from tailscope.store.filters import choose
from tailscope.store.notes import change_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RUNS, CHANGED, PACKETS = 12, 6, 1_500
HOUR_NS = 3_600_000_000_000
HOSTILE = "<img src=x onerror=alert(1)>"


def queued(seed: int, factor: float = 1.0) -> NDArray[np.int64]:
    values = 2_000 + np.random.default_rng(seed).exponential(4_000, PACKETS)
    return np.rint(values * factor).astype(np.int64)


def written(path: Path, hour: int, factor: float = 1.0, **fields: Any) -> Path:
    run = write_run(path, queued(hour, factor), **fields)
    host = json.loads((run / "run.json").read_text())["host"]
    host["kernel_release"] = "6.1" if hour < CHANGED else "6.12"
    return edited(run, written_unix_ns=1_760_000_000_000_000_000 + hour * HOUR_NS, host=host)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slower by a half from the seventh on, in the reverse order of their names; and others."""
    folder = tmp_path_factory.mktemp("trend") / "runs"
    folder.mkdir()
    for hour in range(RUNS):
        path = folder / f"night{RUNS - hour:02}"
        written(path, hour, 1.0 if hour < CHANGED else 1.5)
        change_tags(path, add=[f"commit:c{hour // 2}", "nightly"], remove=[])
    written(folder / "half", 3, info={"partial": ["interrupted"]})
    for hour in (1, 2):
        written(folder / f"fast{hour}", hour, rate_pps=100_000)
    written(folder / "once", 4, size_bytes=512)
    return folder


def found(*arguments: object, expected: int = 0) -> dict[str, Any]:
    """What `--json` says, by the same path as the command but for the process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        words = ["trend", *map(str, arguments), "--json", str(file)]
        assert application()(words, standalone_mode=False) == expected
        said: dict[str, Any] = json.loads(file.read_text())
    return said


def test_the_run_from_which_on_it_is_slower_is_named(runs: Path) -> None:
    said = found(runs, "rate=10k", "size=64")
    by_metric = {each["metric"]: each for each in said["series"]}
    for name in ("p50", "p99"):
        [change] = by_metric[name]["changes"]
        assert change["first_run"] == f"night{RUNS - CHANGED:02}"
        assert change["is_clear"] and change["relative"] == pytest.approx(0.5, abs=0.1)
        assert change["difference_ci_low"] < change["difference"] < change["difference_ci_high"]
        assert change["others"] == [{"name": "kernel_release", "before": "6.1", "after": "6.12"}]
    assert by_metric["lost"]["changes"] == []
    assert not by_metric["p99.9"]["steps"] and "10 are needed" in by_metric["p99.9"]["left_out"][0]
    assert said["left_out"] == ["half: partial: interrupted"]


def test_experiments_are_not_mixed(runs: Path) -> None:
    said = found(runs, "--metric", "p50")
    assert [len(each["steps"]) for each in said["series"]] == [RUNS, 2]
    titles = [each["experiment"] for each in said["series"]]
    assert "rate=10,000" in titles[0] and "rate=100,000" in titles[1]
    [once] = [reason for reason in said["left_out"] if reason.startswith("once: ")]
    assert_wording("trend/a-single-step", once)


def test_the_table_fits_a_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trend", str(runs), "rate=10k", "--metric", "p50"]) == 0
    text = capsys.readouterr().out
    head, rule, row = text.splitlines()[1:4]
    assert head.split()[:4] == ["metric", "since", "before", "after"]
    assert max(map(len, (head, rule, row))) <= 80
    below = [line for line in text.splitlines() if "night06 is" in line or "half: " in line]
    # Times are local.
    assert_wording(
        "trend/below-the-table", re.sub(r"since \S+ \S+:", "since TIME:", "\n".join(below))
    )


@pytest.mark.parametrize(
    ("limit", "status", "verdict"),
    [
        ("p50>+10%", 2, "fail"),
        ("p50>+1us", 2, "fail"),
        ("p50>+90%", 0, "pass"),
        ("p50>+50%", 3, "inconclusive"),
        ("lost>+5%", 0, "pass"),
        ("lost>+0.0001%", 3, "inconclusive"),
        ("p99.99>+10%", 3, "inconclusive"),
    ],
)
def test_the_exit_status_is_the_verdict(
    runs: Path, tmp_path: Path, limit: str, status: int, verdict: str
) -> None:
    junit = tmp_path / "found.xml"
    arguments = (runs, "rate=10k", "--metric", "p50", "--fail-on", limit, "--junit", junit)
    assert found(*arguments, expected=status)["verdict"] == verdict
    suites = ET.parse(junit).getroot()
    assert len(suites.findall(".//failure")) == (verdict == "fail")
    assert len(suites.findall(".//error")) == (verdict == "inconclusive")


def test_steps_may_be_commits(runs: Path) -> None:
    with catalogue_of([runs]) as catalogue:
        rows = choose(catalogue)
    [experiment], left_out = experiments_of(rows, parse_order("commit"))
    assert [step.name for step in experiment.steps] == [f"c{number}" for number in range(6)]
    assert [len(step.runs) for step in experiment.steps] == [2] * 6
    assert_wording("trend/no-such-tag", next(text for text in left_out if "fast1: " in text))
    rows[0]["tags"].append("commit:other")
    _experiments, left_out = experiments_of(rows, Order("commit:"))
    [several] = [text for text in left_out if text.startswith(f"{rows[0]['run']}: ")]
    assert_wording("trend/two-tags", several)
    rows[0]["tags"].pop()
    one = experiment.series(METRICS["p50"]).readings[0].as_is
    every = experiments_of(rows, Order())[0][0].series(METRICS["p50"]).readings
    assert one.value == pytest.approx(np.mean([each.as_is.value for each in every[:2]]))
    assert parse_order("tag:v") == Order("v")


def test_too_few_steps_tell_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trend", str(runs), "rate=100k", "--metric", "p50"]) == 3
    error = capsys.readouterr().err
    assert "[too-few-steps]" in error and "got 2 " in error and "expected 9 " in error
    assert main(["trend", str(runs), "run=once"]) == 3
    assert "[no-series]" in capsys.readouterr().err


def test_captures_that_tell_nothing_of_their_machine_may_be_of_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captured_runs(tmp_path, 2)
    assert main(["trend", str(tmp_path)]) == 3
    words = " ".join(capsys.readouterr().out.split())
    assert_wording(
        "trend/nothing-tells", words[words.index("nothing tells") :].partition(" apart ")[0]
    )


def test_noise_from_step_to_step_is_no_proof(runs: Path) -> None:
    """What a series cannot exclude does not pass, and what it does not show does not fail."""
    with catalogue_of([runs]) as catalogue:
        rows = [row for row in choose(catalogue) if row["run"].startswith("night")]
    chance = np.random.default_rng(4)
    for row in rows:
        row["summary"]["latency_ns_p50"] = int(1e6 * chance.lognormal(0, 1.0))
    experiments, _ = experiments_of(rows, Order())
    limits = [parse_limit("p50>+10%")]
    [trend] = trends_of(experiments, [METRICS["p50"]], limits)
    assert not trend.changes and len(trend.series.steps) >= fewest_values(0.05)
    [finding] = trend.findings
    assert finding.outcome == "inconclusive" and "vary too much" in finding.reason


def test_a_newest_step_without_a_figure_passes_nothing(runs: Path) -> None:
    with catalogue_of([runs]) as catalogue:
        rows = [row for row in choose(catalogue) if row["run"].startswith("night")]
    rows.sort(key=lambda row: row["written_utc"])
    for row in rows:
        same = {name for name in row["summary"] if re.fullmatch("(least_)?latency_ns_p50.*", name)}
        numbers = {name for name in same if isinstance(row["summary"][name], int)}
        row["summary"] |= dict.fromkeys(numbers, 5_000)
    limits = [parse_limit("p50>+10%")]
    outcomes = []
    for _ in range(2):
        experiments, _ = experiments_of(rows, Order())
        [trend] = trends_of(experiments, [METRICS["p50"]], limits)
        outcomes.append((trend.findings[0].outcome, "no such figure" in trend.findings[0].reason))
        rows[-1]["summary"]["latency_ns_p50"] = None
    assert outcomes == [("pass", False), ("inconclusive", True)]


def test_the_newest_steps_of_a_long_series_count(runs: Path) -> None:
    with catalogue_of([runs]) as catalogue:
        [row, *_] = choose(catalogue)
    rows = [{**row, "run": f"{number:04}"} for number in range(MOST_STEPS + 7)]
    [experiment], _ = experiments_of(rows, Order())
    series = experiment.series(METRICS["max"])
    assert len(series.steps) == MOST_STEPS and series.steps[0].runs == ["0007"]
    assert series.left_out[0].startswith("7 older steps")


def test_every_field_is_documented(runs: Path) -> None:
    said = found(runs, "rate=10k", "--fail-on", "p50>+10%", expected=2)

    def names(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
            value = list(value.values())
        for each in value if isinstance(value, list) else ():
            yield from names(each)

    assert not undocumented(names(said), "extra/trend/trend.md")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--metric", "p95"], "metric"),
        (["--fail-on", "max>+1%"], "limit-maximum"),
        (["--by", "commits"], "trend-order"),
        (["--schema", "lab"], "requires-from"),
        (["--junit", "found.xml"], "requires-fail-on"),
        (["--from", "service=lab", "--by", "commit"], "no-tags"),
        (["--from", "service=lab", "runs"], "options-exclusive"),
    ],
)
def test_bad_arguments(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trend", *arguments]) == 1
    assert f"[{code}]" in capsys.readouterr().err.splitlines()[0]


def test_a_database_needs_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trend", "--from", "no database"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --from: ") and "postgresql://" in error


def test_a_page_shows_series_and_names_as_text(tmp_path: Path) -> None:
    """Names of runs, and an option of all of them, that would be markup."""
    for hour in range(10):
        name = f"{hour}{HOSTILE}".replace("/", "")
        written(tmp_path / "runs" / name, hour, 1.0 if hour < 5 else 2.0, boot=HOSTILE)
    page = tmp_path / "trend.html"
    words = ["trend", str(tmp_path / "runs"), "--metric", "p50", "-o", str(page)]
    assert main([*words, "--fail-on", "p50>+10%"]) == 2
    assert HOSTILE not in page.read_text()
    with browser() as started, opened(started, page) as seen:
        assert seen.figures() == ["trend-1"]
        assert not seen.complaints
        text = seen.page.inner_text("body")
    assert f"5{HOSTILE} is the first run" in text
    assert "change point" in text and "fail: p50>+10%" in text


def test_a_missing_library_is_named_with_what_installs_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "otava.change_point_divisive.calculator", None)
    assert main(["trend", str(runs)]) == 1
    said = capsys.readouterr()
    assert not said.out
    assert "[not-installed]" in said.err
    assert "pip install --no-deps 'apache-otava" in said.err
