"""``tailscope compare``: runs in, which differences are real out."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import code_of, raises
from synthetic import PACKETS, write_campaign, write_run
from wording import assert_wording

from tailscope.cli import application
from tailscope.compare.compare import compare, error_of
from tailscope.compare.figures import figures_with
from tailscope.compare.limits import parse_limit
from tailscope.compare.sources import pairs_of, read_source
from tailscope.exceptions import UsageError
from tailscope.report.brief import brief
from tailscope.report.differences import difference_pictures
from tailscope.report.drawing import write_grid
from tailscope.report.picture import difference_ticks, gathered, spread
from tailscope.units import duration_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

Run = Callable[..., Any]

SUPPORTED = ("p50", "p90", "p99", "p99.9", "lost")
UNSUPPORTED = ("p99.99", "p99.999", "max")


def queued(seed: int, factor: float = 1.0) -> NDArray[np.int64]:
    """Latencies that vary from the first packet on."""
    values = 2_000 + np.random.default_rng(seed).exponential(4_000 * factor, PACKETS)
    return np.rint(values).astype(np.int64)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same law three times, one twice as slow, one that loses, one of few packets."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("a", "b", "c")):
        write_run(folder / name, queued(seed))
    write_run(folder / "slow", queued(7, 2.0))
    late = np.arange(PACKETS) % 33 == 5
    write_run(folder / "late", np.where(late, 6_000_000_000, queued(8)))
    write_run(folder / "lossy", queued(8), lost=600)
    stalled = np.arange(PACKETS) % 100 == 50
    write_run(
        folder / "tainted", np.where(stalled, 90_000, queued(9)), stalled=stalled, stall_ns=88_000
    )
    write_run(
        folder / "elsewhere",
        queued(10),
        host={"kernel_command_line": "quiet isolcpus=1"},
        info={"partial": ["interrupted"], "platform": {"name": "bare", "representative": False}},
        rate_pps=20_000,
        size_bytes=512,
    )
    write_run(folder / "few", queued(11)[:15])
    return folder


def compared(*arguments: object, expected: int = 0) -> dict[str, Any]:
    """What `--json` says, by the same path as the command but for the process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        words = ["compare", *map(str, arguments), "--json", str(file)]
        assert application()(words, standalone_mode=False) == expected
        found: dict[str, Any] = json.loads(file.read_text())
    return found


def figures(found: dict[str, Any]) -> dict[str, Any]:
    [comparison] = found["comparisons"]
    return {each["figure"]: each for each in comparison["figures"]}


def test_runs_of_one_law_do_not_differ(tailscope: Run, runs: Path) -> None:
    found = compared(runs / "a", runs / "b")
    assert found["verdict"] is None and found["left_out"] == []
    by_name = figures(found)
    for name in SUPPORTED:
        each = by_name[name]
        assert each["verdict"] == "no difference"
        assert each["difference_ci_low"] <= 0 <= each["difference_ci_high"]
        assert each["noticeable"] > 0
    for name in UNSUPPORTED:
        assert by_name[name]["verdict"] == "no estimate" and by_name[name]["difference"] is None
    assert "worth" in by_name["p99.99"]["reason"]
    text = tailscope("compare", runs / "a", runs / "b")
    assert text.returncode == 0
    said = {line.split()[0]: line for line in text.stdout.splitlines() if line}
    assert "  ≥ " in said["p99.99"] and said["p99.99"].endswith("no estimate")
    assert_wording("compare/no-difference", f"{said['p50']}\n{said['warning']}")


def test_a_slower_run_is_called_slower(tailscope: Run, runs: Path) -> None:
    by_name = figures(compared(runs / "a", runs / "slow"))
    for name in ("p50", "p90", "p99", "p99.9"):
        each = by_name[name]
        assert each["verdict"] == "higher"
        assert 0 < each["difference_ci_low"] < each["difference"] < each["difference_ci_high"]
        assert each["difference"] == pytest.approx(each["candidate"] - each["baseline"])
        assert each["relative"] == pytest.approx(each["difference"] / each["baseline"])
        assert each["baseline_ci_high"] < each["candidate_ci_low"]
    done = tailscope("compare", runs / "slow", runs / "a", runs / "b")
    assert done.stdout.count("  faster\n") >= 6
    bounds = [line for line in done.stdout.splitlines() if line.startswith("p99.99 ")]
    assert len(bounds) == 2 and all("≥ " in line for line in bounds)


def test_every_field_is_documented(tailscope: Run, runs: Path) -> None:
    options = ("--fail-on", "p99>+10%", "--fail-on", "lost>+1%")
    found = compared(runs / "a", runs / "elsewhere", *options, expected=3)
    [comparison] = found["comparisons"]
    rows = (*comparison["figures"], *comparison["others"], *comparison["limits"])
    for names in (found, comparison, *rows):
        assert not undocumented(names, "compare.md")


def test_what_else_differs_is_said(tailscope: Run, runs: Path) -> None:
    found = compared(runs / "a", runs / "elsewhere")
    [comparison] = found["comparisons"]
    others = {each["name"]: (each["baseline"], each["candidate"]) for each in comparison["others"]}
    assert others.pop("measured rate")[1].startswith("20,00")
    assert others == {
        "plan: rate_pps": ("10000", "20000"),
        "plan: size_bytes": ("64", "512"),
        "host: kernel_command_line": ("quiet", "quiet isolcpus=1"),
        "platform: representative": ("-", "no"),
        "partial": ("no", "interrupted"),
        "EMULATED": ("no", "yes"),
    }
    warnings = "\n".join(comparison["warnings"])
    assert_wording("compare/warnings", warnings.replace(f"{runs}/", ""))


def test_captures_beside_a_measurement_are_another_instrument(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    pair = captures.pair(tmp_path / "pair", queued(1).tolist(), gap=100_000)
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    done = tailscope("compare", runs / "a", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "clock: source" not in done.stdout
    assert re.search(r"^note +\d+ ", done.stdout, re.M)
    listed = tailscope("compare", runs / "a", tmp_path / "run", "-v").stdout
    assert "clock: source: tsc → capture-file" in listed


@pytest.mark.parametrize(
    ("candidate", "limit", "status", "verdict"),
    [
        ("slow", "p99>+10%", 2, "fail"),
        ("slow", "p99>+5us", 2, "fail"),
        ("slow", "p99>+10ms", 0, "pass"),
        ("slow", "p99>+300%", 0, "pass"),
        ("b", "p50>+10%", 0, "pass"),
        ("b", "p50>+0.01%", 3, "inconclusive"),
        ("slow", "p99.99>+10%", 3, "inconclusive"),
        ("lossy", "lost>+0.1%", 3, "inconclusive"),
        ("lossy", "lost>+50%", 0, "pass"),
        ("tainted", "p99>+10%", 3, "inconclusive"),
    ],
)
def test_the_exit_status_is_the_verdict(
    capsys: pytest.CaptureFixture[str],
    runs: Path,
    candidate: str,
    limit: str,
    status: int,
    verdict: str,
) -> None:
    options = ("--single", "--fail-on", limit)
    found = compared(runs / "a", runs / candidate, *options, expected=status)
    [judged] = found["comparisons"][0]["limits"]
    assert found["verdict"] == judged["verdict"] == verdict
    assert judged["limit"] == limit
    if verdict == "fail":
        assert judged["excess_ci_low"] > 0
    if verdict == "pass":
        assert judged["excess_ci_high"] <= 0
    assert re.search(rf"^{verdict} +{re.escape(limit)}: ", capsys.readouterr().out, re.M)


def test_what_would_settle_it_is_said(tailscope: Run, runs: Path) -> None:
    limits = ("--single", "--fail-on", "p50>+0.01%", "--fail-on", "p99.99>+10%")
    found = compared(runs / "a", runs / "b", *limits, expected=3)
    near, deep = found["comparisons"][0]["limits"]
    assert near["packets"] > PACKETS and near["runs"] is None
    assert deep["packets"] >= 100_000
    assert_wording("compare/more-packets", f"{near['reasons'][-1]}\n{deep['reasons'][-1]}")


def test_an_end_that_there_is_none_of_is_unbounded(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    """Two packets lie at or below p0.01: the true one may be below all of them."""
    found = compared(runs / "a", runs / "b", "--single", "--fail-on", "p0.01>+10%", expected=3)
    each = figures(found)["p0.01"]
    assert each["difference_ci_low"] is each["difference_ci_high"] is each["noticeable"] is None
    [judged] = found["comparisons"][0]["limits"]
    [reason] = judged["reasons"]
    assert judged["packets"] is None
    said = capsys.readouterr().out
    assert reason in " ".join(said.split())
    [row] = [line for line in said.splitlines() if line.startswith("p0.01 ")]
    assert_wording("compare/unbounded", row)


@pytest.mark.parametrize("candidate", ["b", "slow"])
def test_one_run_a_side_decides_only_if_it_is_to(runs: Path, candidate: str) -> None:
    words = (runs / "a", runs / candidate, "--fail-on", "p50>+10%")
    [judged] = compared(*words, expected=3)["comparisons"][0]["limits"]
    assert judged["verdict"] == "inconclusive"
    assert "--single" in judged["reasons"][0]
    compared(*words, "--single", expected=0 if candidate == "b" else 2)


def test_the_worst_limit_decides(tailscope: Run, runs: Path) -> None:
    options = ("--single", "--fail-on", "p50>+900%, p99.99>+1%", "--fail-on", "p90>+1%")
    found = compared(runs / "a", runs / "slow", *options, expected=2)
    verdicts = [each["verdict"] for each in found["comparisons"][0]["limits"]]
    assert (found["verdict"], verdicts) == ("fail", ["pass", "inconclusive", "fail"])


def test_what_never_came_passes_no_limit(runs: Path) -> None:
    words = (runs / "a", runs / "late", "--single", "--fail-on", "p99>+6s, p50>+50%")
    judged, came = compared(*words, expected=3)["comparisons"][0]["limits"]
    assert (judged["verdict"], came["verdict"]) == ("inconclusive", "pass")
    assert any("never came" in reason for reason in judged["reasons"])


def test_a_run_stands_on_one_side(tailscope: Run, runs: Path) -> None:
    for sides in ((runs, runs / "b"), (runs / "b", runs)):
        done = tailscope("compare", *sides)
        assert (done.returncode, code_of(done)) == (1, "run-on-both-sides")


def test_intervals_in_the_table_are_those_of_the_file(tailscope: Run, runs: Path) -> None:
    by_name = figures(compared(runs / "lossy", runs / "a"))
    said = tailscope("compare", runs / "lossy", runs / "a").stdout
    found = re.search(r"^lost .* (-[\d.]+) % to ", said, re.M)
    assert found is not None
    least = -by_name["lost"]["baseline_ci_high"]
    assert least < -600 / PACKETS
    shown = max(least, by_name["lost"]["difference_ci_low"])
    assert float(found[1]) == pytest.approx(100 * shown, rel=1e-3)


def test_a_device_does_not_get_faster_by_dropping(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    """Of all packets that were sent 3 % never came in time: p99 is the whole window."""
    by_name = figures(compared(runs / "a", runs / "late"))
    said = capsys.readouterr().out
    assert re.search(r"^p99 .* µs +\d.* µs † .*\+5\.000 s.*  slower$", said, re.M)
    assert by_name["p99"]["candidate"] is by_name["p99"]["candidate_ci_high"] is None
    assert by_name["p99"]["difference"] is by_name["p99"]["relative"] is None
    assert by_name["p99"]["verdict"] == "higher"


def test_packets_that_never_came_do_not_differ_by_the_window(
    capsys: pytest.CaptureFixture[str], tailscope: Run, tmp_path: Path
) -> None:
    """The same captures, of which 2 % never came, looked at with two windows."""
    options = ("--seed", 1, "--packets", PACKETS, "--loss", "0.02")
    assert tailscope("simulate", tmp_path / "in", *options).returncode == 0
    (pre,), (post,) = ((tmp_path / "in").glob(f"*-{side}-*") for side in ("pre", "post"))
    for window in ("1s", "5s"):
        done = tailscope("analyze", pre, post, "--window", window, "--out", tmp_path / window)
        assert done.returncode == 0, done.stderr
    for order in (("1s", "5s"), ("5s", "1s")):
        by_name = figures(compared(*(tmp_path / window for window in order)))
        assert by_name["p99"]["baseline"] is by_name["p99"]["candidate"] is None
        assert by_name["p99"]["verdict"] == "no difference"
        said = " ".join(capsys.readouterr().out.split())
        assert re.search(
            r"† of the packets that came; .*: A (\d+) never came.*B \1 never came", said
        )


def test_a_single_burst_of_lost_packets_is_one_event(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    """The other run may have had the same and met none."""
    by_name = figures(compared(runs / "a", runs / "lossy", "--label", f"lossy={runs / 'lossy'}"))
    assert by_name["lost"]["candidate"] == pytest.approx(600 / PACKETS)
    assert by_name["lost"]["verdict"] == "unclear"
    assert_wording("compare/unclear-losses", by_name["lost"]["reason"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Whether lossy loses more or fewer packets cannot be told." in said


def test_lost_packets_are_said_to_count_where_they_do(tailscope: Run, runs: Path) -> None:
    shown = tailscope("compare", runs / "a", runs / "lossy").stdout
    lines = {line.split(" ")[0]: line for line in shown.splitlines()}
    by_name = figures(compared(runs / "a", runs / "lossy"))
    assert by_name["p99"]["candidate"] is None
    assert by_name["p99"]["candidate_of_those_that_came"] < 1e6
    assert_wording("compare/never-came", f"{lines['p99']}\n{lines['†']}")
    assert "†" not in lines["lost"] and "†" not in lines["transfer"]
    unspoilt = tailscope("compare", runs / "a", runs / "b").stdout
    assert "†" not in unspoilt


def test_a_difference_that_the_instrument_made_is_unclear(tailscope: Run, runs: Path) -> None:
    by_name = figures(compared(runs / "a", runs / "tainted"))
    each = by_name["p99.9"]
    assert each["verdict"] == "unclear" and each["difference"] > 50_000
    assert_wording("compare/unclear", each["reason"])
    assert each["difference_ci_low"] < 0 < 50_000 < each["difference_ci_high"]
    assert by_name["p50"]["verdict"] == "no difference"


def test_what_stalls_hide_is_not_called_no_difference(tailscope: Run, tmp_path: Path) -> None:
    """A program 30 times as slow; delays of both come in so few stretches that none decides."""
    chance = np.random.default_rng(3)
    for name, ns in (("fast", 37_000), ("slow", 1_300_000)):
        busy = np.repeat(chance.random(40) < 0.55, PACKETS // 40)
        latency_ns = np.where(busy, 4 * ns, ns // 40)
        write_run(tmp_path / name, latency_ns, stalled=busy, stall_ns=2 * ns)
    found = figures(compared(tmp_path / "fast", tmp_path / "slow"))
    assert not any(
        each["verdict"] == "no difference" and each["unit"] == "ns" for each in found.values()
    )
    done = tailscope("compare", tmp_path / "fast", tmp_path / "slow", "--fail-on", "p50>+10%")
    assert "No difference" not in done.stdout
    assert found["p50"]["verdict"] == "unclear", found["p50"]


def repeated(folder: Path, speeds: list[float], seed: int) -> Path:
    for number, speed in enumerate(speeds):
        write_run(folder / f"run-{number}", queued(seed + number, speed))
    return folder


def test_what_differs_from_run_to_run_is_no_difference(tailscope: Run, tmp_path: Path) -> None:
    one = repeated(tmp_path / "one", [1.0, 1.3, 0.8], 20)
    other = repeated(tmp_path / "other", [1.2, 0.9, 1.1], 30)
    by_name = figures(compared(one, other))
    assert {by_name[name]["verdict"] for name in ("p50", "p90", "p99")} == {"no difference"}
    single = figures(compared(one / "run-2", other / "run-0"))
    assert single["p50"]["verdict"] == "higher", "single runs know nothing of others"
    options = ("--single", "--fail-on", "p50>+5%")
    found = compared(one, other, *options, expected=3)
    [comparison] = found["comparisons"]
    assert comparison["limits"][0]["runs"] > 3
    assert len(comparison["baseline_runs"]) == len(comparison["candidate_runs"]) == 3
    mixed = compared(one, other / "run-0")["comparisons"][0]
    (warning,) = mixed["warnings"]
    assert_wording("compare/a-single-run", warning.removeprefix(f"{other}/"))


def cell(name: str, repeat: int, **values: str) -> dict[str, Any]:
    return {"name": name, "values": values, "repeat": repeat, "runs": [name]}


def test_campaigns_are_compared_cell_by_cell(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    for campaign, fast, slow in (("one", "ab", "c"), ("other", "cb", "slow")):
        folder = tmp_path / campaign
        cells = []
        for number, source in enumerate(fast, 1):
            shutil.copytree(runs / source, folder / f"rate=1k,{number}")
            cells.append(cell(f"rate=1k,{number}", number, rate="1k"))
        shutil.copytree(runs / slow, folder / "rate=2k,1")
        cells.append(cell("rate=2k,1", 1, rate="2k"))
        write_campaign(folder, cells)
    found = compared(tmp_path / "one", tmp_path / "other")
    first, second = found["comparisons"]
    assert (first["cell"], second["cell"]) == ("rate=1k", "rate=2k")
    assert len(first["baseline_runs"]) == 2 and len(second["baseline_runs"]) == 1
    assert first["figures"][0]["verdict"] == "no difference"
    assert second["figures"][0]["verdict"] == "higher"
    assert found["statements"] == 2 * len(first["figures"])
    missing = {**cell("rate=3k,1", 1, rate="3k"), "runs": [], "state": "failed", "reason": "no"}
    write_campaign(tmp_path / "one", [cell("rate=2k,1", 1, rate="2k"), missing])
    write_campaign(tmp_path / "other", [cell("rate=2k,1", 1, rate="2k"), cell("x", 1, rate="4k")])
    options = ("--single", "--fail-on", "p50>+900%")
    partly = compared(tmp_path / "one", tmp_path / "other", *options, expected=3)
    assert partly["comparisons"][0]["limits"][0]["verdict"] == "pass"
    left_out = [text.partition(": ")[2] for text in partly["left_out"]]
    assert_wording("compare/left-out-cells", "\n".join(left_out))


def failed(name: str, repeat: int, **values: str) -> dict[str, Any]:
    return {**cell(name, repeat, **values), "runs": [], "state": "failed", "reason": "no"}


def write_cells(folder: Path, run: Path, cells: list[dict[str, Any]]) -> Path:
    """A campaign, of which each finished cell has the same run."""
    for each in cells:
        for name in each["runs"]:
            shutil.copytree(run, folder / name)
    folder.mkdir(exist_ok=True)
    return write_campaign(folder, cells)


def test_cells_that_are_left_are_compared_by_their_values(runs: Path, tmp_path: Path) -> None:
    """What each campaign has finished of two cells is not the same cell."""
    slow, fast = cell("rate=10k,1", 1, rate="10k"), cell("rate=50k,1", 1, rate="50k")
    no_slow, no_fast = failed("rate=10k,1", 1, rate="10k"), failed("rate=50k,1", 1, rate="50k")
    one = write_cells(tmp_path / "one", runs / "a", [slow, no_fast])
    other = write_cells(tmp_path / "other", runs / "slow", [no_slow, fast])
    with raises(UsageError, "no-common-values"):
        compared(one, other)
    [with_run] = compared(one, runs / "b")["comparisons"]
    assert with_run["cell"] == "rate=10k"
    single = write_cells(tmp_path / "single", runs / "slow", [fast])
    half = write_cells(tmp_path / "half", runs / "a", [slow, failed("rate=10k,2", 2, rate="10k")])
    assert len(compared(half, single)["comparisons"]) == 1, "each is of one cell"


def test_every_unfinished_repeat_is_left_out(runs: Path, tmp_path: Path) -> None:
    repeats = [failed(f"rate=1k,{number}", number, rate="1k") for number in (2, 3)]
    campaign = write_cells(
        tmp_path / "campaign", runs / "a", [cell("rate=1k,1", 1, rate="1k"), *repeats]
    )
    found = compared(campaign, runs / "b")
    assert [text.split(": ")[1:] for text in found["left_out"]] == [
        [f"rate=1k,{number}", "failed", "no"] for number in (2, 3)
    ]


def test_too_few_packets_are_refused(tailscope: Run, runs: Path) -> None:
    done = tailscope("compare", runs / "a", runs / "few")
    assert (done.returncode, code_of(done)) == (3, "no-comparable-quantile")
    assert {"7.0", "10"} <= {*re.findall(r"[\d.]+", done.stderr)}


def test_limits_decide_where_no_quantile_can_be_compared(
    capsys: pytest.CaptureFixture[str], runs: Path, tmp_path: Path
) -> None:
    """Six of fifteen are lost: beyond a limit by its bound, though not by one of ten intervals."""
    few = write_run(tmp_path / "few-lossy", queued(12)[:15], lost=6)
    found = compared(runs / "few", few, "--single", "--fail-on", "lost>+0.1%", expected=2)
    assert found["verdict"] == "fail"
    assert {each["verdict"] for each in figures(found).values()} == {
        "no estimate",
        "unclear",
    }
    assert "fail      lost>+0.1%: " in capsys.readouterr().out


def test_junit_has_a_case_for_each_limit(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "<x>&\x1b[31m"
    shutil.copytree(runs / "slow", hostile)
    file = tmp_path / "found.xml"
    limits = (
        "--single",
        "--fail-on",
        "p50>+900%",
        "--fail-on",
        "p99.99>+1%",
        "--fail-on",
        "p90>+1%",
    )
    done = tailscope("compare", runs / "a", hostile, *limits, "--junit", file)
    assert done.returncode == 2, done.stderr
    assert "\x1b" not in done.stdout
    [suite] = ET.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [case[0].tag for case in suite] == ["system-out", "error", "failure"]


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("max>+10%", "limit-maximum"),
        ("p99<1ms", "limit-term"),
        ("p0>+1%", "limit-figure"),
        ("jitter>+1%", "limit-figure"),
        ("p99>+soon", "duration"),
        ("p99>+0us", "duration"),
        ("lost>+5us", "limit-value"),
        ("lost>+100%", "limit-value"),
    ],
)
def test_limits_that_mean_nothing_are_refused(limit: str, code: str) -> None:
    with raises(UsageError, code) as refused:
        parse_limit(limit)
    assert str(refused.value).startswith("--fail-on: ")
    assert limit in str(refused.value)


def test_limits_are_read_as_they_are_written() -> None:
    relative, absolute, lost = map(parse_limit, ("p99.90 > + 10%", "p50>+5us", "lost>+0.1%"))
    assert (relative.figure.name, relative.figure.quantile) == ("p99.9", 0.999)
    assert (relative.share, relative.added) == (0.1, 0)
    assert (absolute.figure.quantile, absolute.share, absolute.added) == (0.5, 0, 5_000)
    assert (lost.figure.name, lost.added) == ("lost", pytest.approx(0.001))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a"], "one-run"),
        (["a", "a"], "runs"),
        (["a", "b", "--junit", "x.xml"], "requires-fail-on"),
        (["a", "b", "--single"], "requires-fail-on"),
        (["a", "nowhere"], "not-a-run"),
    ],
)
def test_bad_arguments(tailscope: Run, runs: Path, arguments: list[str], code: str) -> None:
    done = tailscope("compare", *arguments, cwd=runs)
    assert (done.returncode, code_of(done)) == (1, code)


def test_campaigns_without_common_values_are_refused(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    for name, rates in (("one", ("1k", "2k")), ("other", ("3k", "4k"))):
        cells = [cell(f"rate={rate}", 1, rate=rate) for rate in rates]
        for each in cells:
            shutil.copytree(runs / "a", tmp_path / name / each["name"])
        write_campaign(tmp_path / name, cells)
    done = tailscope("compare", tmp_path / "one", tmp_path / "other")
    assert (done.returncode, code_of(done)) == (1, "no-common-values")


def test_no_latency_is_said_to_be_below_zero(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few runs that differ much have a wide interval."""
    for side, names in (("one", ("a", "slow")), ("other", ("b", "slow"))):
        for name in names:
            shutil.copytree(runs / name, tmp_path / side / name)
    compared(tmp_path / "one", tmp_path / "other")
    said = capsys.readouterr().out
    (bounds,) = (line for line in said.splitlines() if line.startswith("p99.99 "))
    assert bounds.count("≥ ") == 2
    assert "≥ -" not in said


def test_latencies_are_those_of_the_run(tailscope: Run, runs: Path) -> None:
    """Without loss they are the figures of its table."""
    summary = json.loads((runs / "a" / "summary.json").read_text())
    by_name = figures(compared(runs / "a", runs / "b"))
    for name in ("p50", "p99", "p99.9"):
        flat = f"latency_ns_{name.replace('.', '')}"
        assert by_name[name]["baseline"] == summary[flat]
    assert by_name["max"]["baseline"] == summary["latency_ns_max"]
    assert by_name["transfer"]["baseline"] == summary["transfer_rate"]
    assert by_name["rate"]["baseline"] == summary["post_rate_pps"]


def test_a_page_shows_it_above_shared_figures(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    labels = ("--label", f"before={runs / 'a'}", "--label", f"after={runs / 'slow'}")
    limit = ("--single", "--fail-on", "p99>+10%")
    found = compared(runs / "a", runs / "slow", *labels, *limit, "--out", page, expected=2)
    assert found["comparisons"][0]["candidate"] == "after"
    text = page.read_text()
    assert "<h1>before → after</h1>" in text
    (answer,) = re.findall(r'<p class="answer">(.*)</p>', text)
    assert_wording("compare/heading", answer)
    assert '<p class="fail"><b>fail</b>: p99&gt;+10%: ' in text
    said, drawn = text.index("<td>slower</td>"), text.index('id="figure-difference-1"')
    assert drawn < said < text.index('id="figure-percentiles"')
    (p99,) = (each for each in found["comparisons"][0]["figures"] if each["figure"] == "p99")
    cells = "</td><td>".join(brief(duration_text(p99[side])) for side in ("baseline", "candidate"))
    assert f'<tr><th scope="row">p99</th><td>{cells}</td>' in text
    assert str(runs) not in text
    assert len(text.encode()) < 2 * 1024 * 1024


def test_a_label_is_of_a_run_that_is_compared(runs: Path) -> None:
    pair = ("compare", str(runs / "a"), str(runs / "b"))
    for label, code in ((f"x={runs / 'c'}", "label-run"), ("x", "name-value")):
        with raises(UsageError, code):
            application()([*pair, "--label", label], standalone_mode=False)
    twice = ("--label", f"x={runs / 'a'}", "--label", f"y={runs / 'a'}")
    with raises(UsageError, "label-twice"):
        application()([*pair, *twice], standalone_mode=False)


def test_differences_are_drawn_as_they_were_found(runs: Path, tmp_path: Path) -> None:
    """Every estimate, its interval, and which are real; one that has no end reaches the edge."""
    figures = figures_with()
    sources = [read_source(runs / name) for name in ("a", "slow", "late")]
    comparisons = {
        f"pair {at}": compare(pair, figures, error_of(2 * len(figures)))
        for at, pair in enumerate(pairs_of(sources)[0])
    }
    drawn = difference_pictures(comparisons)
    for title, comparison in comparisons.items():
        told = {
            odds: ends
            for layer in drawn[title].layers
            for odds, *ends in zip(
                *(layer.columns[role] for role in ("x", "y", "low", "high")), strict=True
            )
        }
        wanted = {
            1 / (1 - each.figure.quantile): [end / 1e3 for end in each.difference]
            for each in comparison.findings
            if each.figure.quantile is not None and each.difference is not None
        }
        assert told == wanted
        real = {
            odds
            for layer in drawn[title].layers
            if layer.mark == "points"
            for odds in layer.columns["x"]
        }
        assert len(real) == sum(
            each.verdict in ("higher", "lower") and each.figure.quantile is not None
            for each in comparison.findings
        )
    first, second = drawn.values()
    assert first.y == second.y, "they stand beside each other"
    ticks = np.array(difference_ticks(first.y))
    assert 0 in ticks and np.array_equal(ticks, -ticks[::-1])
    linear_us = first.y.linear_up_to
    assert linear_us is not None
    assert np.allclose(gathered(spread(ticks, linear_us), linear_us), ticks)
    endless = replace(
        first.layers[0], columns={**first.layers[0].columns, "high": np.full(4, np.inf)}
    )
    write_grid([tmp_path / "drawn.svg"], [replace(first, layers=(endless,))])
    svg = (tmp_path / "drawn.svg").read_text()
    assert ">difference<" in svg and " µs<" in svg
