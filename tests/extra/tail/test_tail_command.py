"""``tailscope model tail``: a run or its worst packets in, what to expect out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import code_of

from tailscope.extra.tail.models.excesses import select
from tailscope.extra.tail.models.model import Settings, model
from tailscope.units import short_duration_text

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PAGE = "extra/tail/tail.md"
SETTINGS = {
    "bare-metal/rt-optimized": 173_801_115,
    "container/rt/optimized": 174_175_900,
    "container/vanilla/non-optimized": 174_364_052,
}
PACKETS, GAP_NS = 60_000, 1_000_000
DOES_NOT_SUFFICE = 3


def folder_of(data: Path, name: str) -> Path:
    (worst,) = (data / "containers2024" / name).glob("*.worst.csv.zst")
    return worst


@pytest.mark.parametrize("name", SETTINGS)
def test_a_fifth_of_a_run_foretells_the_rest(data: Path, tailscope: Run, name: str) -> None:
    """Scenario 1 of containers2024, where its models had 0.33 to 4.0 bursts for one expected."""
    arguments = ("--worst", folder_of(data, name), "--count", SETTINGS[name])
    done = tailscope("model", "tail", *arguments, "--threshold", "p99.999", "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["exceedances_bursts"] <= 2
    assert record["exceedances_packets"] >= record["exceedances_bursts"]
    assert record["rest_max_ns_ci_low"] <= record["rest_max_ns"]
    assert record["rest_max_ns"] <= record["rest_max_ns_ci_high"]
    assert record["bounded"] == (record["limit_ns"] is not None)
    assert record["xi"] < 0 or not record["bounded"]
    for figure in ("xi", "sigma_ns", "return_level_ns"):
        assert record[f"{figure}_ci_low"] <= record[figure] <= record[f"{figure}_ci_high"]
    assert record["threshold_ns"] < record["return_level_ns"]
    assert record["excesses"] > record["bursts"] >= 30
    assert record["extremal_index"] == pytest.approx(record["bursts"] / record["excesses"])
    lowered = name.startswith("container/vanilla")
    assert record["threshold_lowered_from"] == (0.99999 if lowered else None)


def test_a_plain_fit_of_packets_would_be_wrong(data: Path, tailscope: Run) -> None:
    """With each excess as a burst of its own, more exceed what one was expected to."""
    name = "bare-metal/rt-optimized"
    arguments = ("--worst", folder_of(data, name), "--count", SETTINGS[name], "--json", "-")
    plain = tailscope("model", "tail", *arguments, "--run-length", "1ns")
    record = json.loads(plain.stdout)
    assert record["extremal_index"] == 1
    assert record["return_level_ns_most_likely"] < 106_000
    assert record["return_level_ns"] > record["return_level_ns_most_likely"]


@pytest.fixture(scope="module")
def run(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tail")
    latencies = 3_000 + np.random.default_rng(4).exponential(20_000, PACKETS)
    pair = captures.pair(folder / "pair", np.rint(latencies).astype(int).tolist(), gap=GAP_NS)
    done = tailscope("analyze", *pair, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_says_what_to_expect(run: Path, tailscope: Run, tmp_path: Path) -> None:
    figure, file = tmp_path / "tail.svg", tmp_path / "tail.json"
    options = ("--split", "0.5", "--horizon", "1h", "--json", file, "--figure", figure)
    done = tailscope("model", "tail", run, *options)
    assert done.returncode == 0, done.stderr
    record = json.loads(file.read_text())
    [promise] = [line for line in done.stdout.splitlines() if line.startswith("in 1 h at ")]
    assert short_duration_text(record["horizon"]["return_level_ns"]) in promise
    assert not undocumented(record, PAGE)
    assert not undocumented(record["horizon"], PAGE)
    assert not undocumented(
        [name for each in record["candidates"] for name in each], "extra/tail/tail.md"
    )
    assert not undocumented(
        [name for each in record["stability"] for name in each], "extra/tail/tail.md"
    )
    assert not undocumented(record["rest_max_ns_regions"][0], PAGE)
    assert [each["fit_p_value"] >= 0.1 for each in record["candidates"][:-1]].count(False) == 0
    assert record["fit_p_value"] >= 0.1
    assert record["rest_max_ns_ci_low"] <= record["rest_max_ns"] <= record["rest_max_ns_ci_high"]
    ahead = record["horizon"]
    assert ahead["packets"] == pytest.approx(3600 * 1000, rel=0.01)
    # An exponential law: a packet among n exceeds 20 us times log n.
    truth_ns = 3_000 + 20_000 * np.log(ahead["packets"])
    assert ahead["known_max_ns_ci_low"] < truth_ns < ahead["known_max_ns_ci_high"]
    assert ahead["return_level_ns_ci_low"] < truth_ns
    assert ahead["rest_max_ns"] is None
    assert ahead["rest_max_ns_ci_low"] <= record["latency_ns_max"]
    assert ahead["return_level_ns_ci_high"] is ahead["rest_max_ns_ci_high"] is None, "60 times"
    assert record["xi_ci_low"] < 0 < record["xi_ci_high"]
    assert "mean excess" in figure.read_text()


def test_a_folder_of_repeats_is_its_runs(run: Path, tailscope: Run, tmp_path: Path) -> None:
    repeats = [tmp_path / "repeats" / name for name in ("1", "2")]
    for each in repeats:
        shutil.copytree(run, each)
    folder = tailscope("model", "tail", tmp_path / "repeats")
    assert folder.returncode == 0, folder.stderr
    assert "2 runs were taken together" in folder.stdout
    assert folder.stdout == tailscope("model", "tail", *repeats).stdout
    like = tailscope("model", "tail", repeats[0], "--like", tmp_path / "repeats")
    assert "1 other run of the setting" in like.stdout, like.stderr


def test_what_drifts_is_refused_with_the_reason(tailscope: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    latencies = 3_000 + rng.exponential(20_000, PACKETS) * np.linspace(1, 6, PACKETS)
    pair = captures.pair(tmp_path / "pair", np.rint(latencies).astype(int).tolist(), gap=GAP_NS)
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    file = tmp_path / "tail.json"
    done = tailscope("model", "tail", tmp_path / "run", "--horizon", "1h", "--json", file)
    assert done.returncode == 0, done.stderr
    assert "no return level: " in done.stdout
    assert "in 1 h at this rate" not in done.stdout
    found = json.loads(file.read_text())
    assert found["refused"]
    assert found["rest_max_ns_ci_low"] <= found["rest_max_ns"] <= found["rest_max_ns_ci_high"]


def test_a_queue_of_known_law() -> None:
    """M/M/1: sojourn times are exponential, and (1 - load)² bursts come per excess.

    One burst is promised beyond the level, and for so light a tail it errs on the safe side.
    """
    load, served_per_s, packets = 0.5, 1e6, 400_000
    per_ns = (1 - load) * served_per_s / 1e9
    held, exceeding, index = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        arrival = np.cumsum(rng.exponential(1e9 / (load * served_per_s), packets))
        work = np.cumsum(rng.exponential(1e9 / served_per_s, packets))
        idle = np.maximum.accumulate(arrival - np.concatenate([[0], work[:-1]]))
        latency = np.rint(work + idle - arrival).astype(np.int64)
        chosen = Settings(run_length_ns=50_000, split=0.4, threshold=0.995)
        record = model(select(np.rint(arrival).astype(np.int64), latency, 0.99), chosen, rng)
        bursts = record.packets * (1 - load) ** 2
        level = record.estimates()["return_level_ns"]
        held.append(level.ci_low <= np.log(bursts) / per_ns <= level.ci_high)
        exceeding.append(bursts * np.exp(-per_ns * level.estimate))
        index.append(record.fit.bursts.extremal_index)
    assert np.mean(index) == pytest.approx((1 - load) ** 2, rel=0.15)
    assert sum(held) >= 16
    assert 0.1 < np.mean(exceeding) < 1.2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["--worst", "--count"]),
        (["--worst", "x.csv"], ["--worst", "--count"]),
        (["RUN", "--count", "3"], ["--worst", "--count"]),
        (["RUN", "--law", "gumbel"], ["--law: ", "equation-1", "'gumbel'"]),
        (["RUN", "--split", "0"], ["--split: ", "got 0"]),
        (["RUN", "--split", "nan"], ["--split: ", "got nan"]),
        (["RUN", "--threshold", "0.5"], ["--threshold: ", "0.99"]),
        (["RUN", "--threshold", "p98"], ["--threshold: ", "0.99"]),
        (["RUN", "--threshold", "most"], ["--threshold: ", "'most'"]),
        (["RUN", "--interval", "guess"], ["--interval: ", "integrated, profile, boot"]),
        (["RUN", "--resamples", "3"], ["--resamples: ", "100", "got 3"]),
        (["RUN", "--horizon", "soon"], ["--horizon"]),
        (["RUN", "--figure", "tail.gif"], ["--figure: "]),
    ],
)
def test_bad_arguments(
    run: Path, tailscope: Run, arguments: list[str], expected: list[str]
) -> None:
    done = tailscope("model", "tail", *(run if text == "RUN" else text for text in arguments))
    assert done.returncode == 1 and code_of(done) is not None
    assert all(text in done.stderr for text in expected), done.stderr


@pytest.mark.parametrize(
    ("latencies", "code"),
    [
        ([5_000], "packets-few"),
        ([5_000] * 5_000, "bursts-few"),
        (np.random.default_rng(1).integers(3_000, 9_000, 2_000).tolist(), "bursts-few"),
    ],
)
def test_too_little_is_refused(
    tailscope: Run, tmp_path: Path, latencies: list[int], code: str
) -> None:
    """One sample, constant latencies, too few excesses."""
    pair = captures.pair(tmp_path / "pair", latencies, gap=GAP_NS)
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    done = tailscope("model", "tail", tmp_path / "run")
    assert done.returncode == DOES_NOT_SUFFICE
    assert code_of(done) == code and " 30 " in done.stderr


def test_a_table_of_the_authors_is_read_without_pandas(tmp_path: Path) -> None:
    table = tmp_path / "worst.csv"
    table.write_text("latency,prets\n2000,1\n1000,2\n")
    command = [sys.executable, "-X", "importtime", "-m", "tailscope", "model", "tail"]
    words = ["--worst", str(table), "--count", "100"]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == DOES_NOT_SUFFICE
    assert re.search(r"\| +numpy$", done.stderr, re.M)
    assert not re.search(r"\| +pandas$", done.stderr, re.M)
