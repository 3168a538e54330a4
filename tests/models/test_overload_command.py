"""``tailscope model overload``: two runs in, the rate at which the function overloads out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented

from tailscope.analysis import Clock
from tailscope.noise.table import columns, side_noise
from tailscope.noise.taken import taken_by
from tailscope.store.directory import write_noise
from tailscope.store.records.watched import WatchedRecord, WatchedStalls

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PACKETS = 2_000
FORWARDER_NS, FUNCTION_NS = 3_100, 14_500
STALL_NS, STALLS_HZ = 50_000, 100


@pytest.fixture(scope="module")
def runs(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of captures: a forwarder, functions of several kinds, and one without a packet."""
    folder = tmp_path_factory.mktemp("runs")
    noise = np.random.default_rng(1).integers(-50, 51, PACKETS)
    latencies = {
        "forwarder": (FORWARDER_NS + noise, 100_000),
        "function": (FUNCTION_NS + noise, 100_000),
        "faster": (FORWARDER_NS + noise[::-1], 50_000),
        "constant": (np.full(PACKETS, FUNCTION_NS), 100_000),
        "few": (FUNCTION_NS + noise[:1], 100_000),
    }
    for name, (values, gap) in latencies.items():
        pair = captures.pair(folder / f"{name} pair", values.tolist(), gap=gap)
        done = tailscope("analyze", *pair, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tailscope noise --out` writes: 2 s of CPU 3, one of them with stalls."""
    folder = tmp_path_factory.mktemp("watched")
    start = np.arange(STALLS_HZ) * (1_000_000_000 // STALLS_HZ)
    arrays = {"start_tsc": start, "duration_tsc": np.full(STALLS_HZ, STALL_NS)}
    for name, values in arrays.items():
        np.save(folder / f"stall_{name}.npy", values.astype(np.uint64))
    np.save(folder / "stall_lcore.npy", np.full(STALLS_HZ, 3, np.uint64))
    side = side_noise("watch", (3,), Clock(1_000_000_000, 0, 0), folder, None)
    samples = {"unix_ns": [1], "interrupt": ["LOC"], "cpu": [3], "count": [1]}
    path = folder / "noise"
    record = WatchedRecord(
        events=None,
        events_missing_because="not requested",
        interrupts={},
        counter_samples=1,
        steal_ns={},
        cpus=(3,),
        duration_s=2.0,
        stall_ns=1_000,
        stalls=WatchedStalls(
            count=STALLS_HZ, stall_ns_total=0, stall_ns_max=0, unrecorded=0, share=0.0
        ),
        causes=(),
        cpu_causes={},
        cost=None,
        warnings=(),
        partial=(),
    )
    write_noise(path, record, columns([side]), samples)
    return path


def figures(tailscope: Run, *options: object) -> dict[str, Any]:
    done = tailscope("model", "overload", *options, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_rate_follows_from_two_runs(tailscope: Run, runs: Path) -> None:
    found = figures(tailscope, runs / "forwarder", runs / "function")
    assert found["transfer_ns"] == pytest.approx(FORWARDER_NS, abs=10)
    assert found["e2e_ns"] == pytest.approx(FUNCTION_NS, abs=10)
    assert found["cpu_ns"] == found["e2e_ns"] - found["transfer_ns"]
    assert found["rate_max_pps"] == 1e9 / found["cpu_ns"]
    for name in ("transfer_ns", "e2e_ns", "cpu_ns", "rate_max_pps"):
        assert found[f"{name}_ci_low"] < found[name] < found[f"{name}_ci_high"]
    assert found["is_upper_bound"] and found["noise_ns_per_s"] is None
    assert found["interruptions"] == []
    assert any("an upper bound" in warning for warning in found["warnings"])


def test_noise_is_taken_off(tailscope: Run, runs: Path, watched: Path) -> None:
    found = figures(tailscope, runs / "forwarder", runs / "function", "--noise", watched)
    expected = STALLS_HZ * STALL_NS / 2
    assert found["noise_ns_per_s"] == pytest.approx(expected)
    assert found["noise_ns_per_s_ci_low"] < expected < found["noise_ns_per_s_ci_high"]
    assert found["rate_max_pps"] == pytest.approx((1e9 - expected) / found["cpu_ns"])
    assert not found["is_upper_bound"]
    [row] = found["interruptions"]
    assert row["cause"] == "stall" and row["rate_hz"] == pytest.approx(STALLS_HZ / 2)
    assert row["duration_ns"] == STALL_NS
    assert row["ns_per_s"] == pytest.approx(row["rate_hz"] * row["duration_ns"])


def test_noise_is_read_over_time(watched: Path) -> None:
    found = taken_by(watched)
    assert found is not None and found.cpus == ("3",) and found.duration_ns == 2_000_000_000
    assert found.ns_per_s.tolist() == pytest.approx([STALLS_HZ * STALL_NS] * 10 + [0] * 10)


def test_every_figure_is_documented(tailscope: Run, runs: Path, watched: Path) -> None:
    found = figures(tailscope, runs / "forwarder", runs / "function", "--noise", watched)
    names = {*found, *found["interruptions"][0]}
    assert not undocumented(sorted(names), "overload.md")


def test_the_table_says_what_it_is(tailscope: Run, runs: Path, watched: Path) -> None:
    arguments = ("model", "overload", runs / "forwarder", runs / "function")
    for options, known in ((("--noise", watched), True), ((), False)):
        done = tailscope(*arguments, *options)
        assert done.returncode == 0, done.stderr
        for name in ("2t_transfer", "t_e2e", "t_CPU", "d_Σ", "R_max"):
            assert name in done.stdout
        assert ("R_max, at most" in done.stdout) is not known
        assert ("predicts three of its four scenarios" in done.stdout) is known


def test_different_rates_are_said(tailscope: Run, runs: Path) -> None:
    done = tailscope("model", "overload", runs / "faster", runs / "function")
    assert done.returncode == 0, done.stderr
    assert "the runs are at different rates: forwarder at 20,000, function at 10,0" in done.stdout


def test_constant_latencies_have_a_rate(tailscope: Run, runs: Path) -> None:
    found = figures(tailscope, runs / "forwarder", runs / "constant")
    assert found["e2e_ns"] == FUNCTION_NS
    # The captures are of 1 ns, and so are both ends of a latency.
    assert (found["e2e_ns_ci_low"], found["e2e_ns_ci_high"]) == (FUNCTION_NS - 1, FUNCTION_NS + 1)


def test_the_authors_captures_predict_their_rate(tailscope: Run, data: Path, scratch: Path) -> None:
    """Of exact medians: 3137 and 17387 ns; Table IV has 69.7 from rounded ones, with noise."""
    for name in ("dpdk-l2fwd/hw", "snort-filter/hw"):
        folder = data / "noms2020" / name
        (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
        out = scratch / name.partition("/")[0]
        done = tailscope("analyze", pre, post, "--trim", "1s", "--out", out)
        assert done.returncode == 0, done.stderr
    found = figures(tailscope, scratch / "dpdk-l2fwd", scratch / "snort-filter")
    assert (found["transfer_ns"], found["e2e_ns"], found["cpu_ns"]) == (3_137, 17_387, 14_250)
    assert (1e9 - 2_949_900) / found["cpu_ns"] == pytest.approx(69_968, abs=1)
    assert found["rate_max_pps_ci_low"] <= found["rate_max_pps"] <= found["rate_max_pps_ci_high"]


def broken(path: Path, name: str, content: str) -> Path:
    path.mkdir()
    (path / name).write_text(content)
    return path


@pytest.mark.parametrize(
    ("forwarder", "function", "expected"),
    [
        ("function", "forwarder", "not measurably slower than the forwarder"),
        ("forwarder", "forwarder", "not measurably slower than the forwarder"),
        ("forwarder", "few", "got 1 packets, too few for an interval"),
        ("forwarder", "nothing", "not a run directory: no run.json in it"),
        ("forwarder", "forwarder pair", "not a run directory: no run.json in it"),
    ],
)
def test_what_says_nothing_is_refused(
    tailscope: Run, runs: Path, forwarder: str, function: str, expected: str
) -> None:
    done = tailscope("model", "overload", runs / forwarder, runs / function)
    too_little = "measurably" in expected or "too few" in expected
    assert done.returncode == (3 if too_little else 1) and not done.stdout
    assert expected in done.stderr and "hint: " in done.stderr


def test_what_is_no_noise_is_refused(
    tailscope: Run, runs: Path, watched: Path, tmp_path: Path
) -> None:
    record = json.loads((watched / "noise.json").read_text())
    folders = {
        runs / "function": "the device's CPU was not recorded in this run",
        tmp_path / "nothing": "not a run directory",
        broken(tmp_path / "list", "noise.json", "[]"): "noise.json: ",
        broken(tmp_path / "half", "noise.json", '{"cpus": [1]'): "noise.json: ",
        broken(tmp_path / "nan", "noise.json", '{"duration_s": NaN}'): "got NaN",
        broken(tmp_path / "alone", "noise.json", json.dumps(record)): "noise.parquet: missing",
        broken(tmp_path / "zero", "noise.json", json.dumps({**record, "cpus": []})): "got 0 CPUs",
    }
    for folder, expected in folders.items():
        done = tailscope(
            "model", "overload", runs / "forwarder", runs / "function", "--noise", folder
        )
        assert done.returncode == 1 and expected in done.stderr, done.stderr


def test_a_run_with_changed_figures_is_refused(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    pair = captures.pair(tmp_path / "pair", [5_000] * 100)
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(summary.read_text().replace("5000", "NaN"))
    done = tailscope("model", "overload", runs / "forwarder", tmp_path / "run")
    assert done.returncode == 1 and "summary.json: sha256" in done.stderr
