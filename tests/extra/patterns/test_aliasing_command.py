"""``tailscope model aliasing``: a run in, its interruptions out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import code_of, unwrapped
from runs import read_packets
from wording import assert_wording

from tailscope.cli import application, terminal
from tailscope.extra.patterns.models.aliasing.simulation import Periodic, simulate
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

GAP_NS, PACKETS, BASE_NS = 100_013, 60_000, 3_000
CLOCK = Periodic(4_000_195, 7_000, 1_000_000)
EXAMPLE = "rate=249.98781,duration=7us,phase=1ms"


@pytest.fixture(scope="module")
def runs(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of 6 s: one that a clock interrupts, one that none does."""
    folder = tmp_path_factory.mktemp("runs")
    noise = np.random.default_rng(1).integers(0, 150, PACKETS)
    for name, sources in (("ticking", [CLOCK]), ("quiet", [])):
        sent = np.arange(PACKETS) * GAP_NS
        latencies = simulate(sent, sources, base_ns=BASE_NS) + noise
        pair = captures.pair(folder / f"{name} pair", latencies.tolist(), gap=GAP_NS)
        done = tailscope("analyze", *pair, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


def figures(tailscope: Run, run: Path, *options: object) -> dict[str, Any]:
    done = tailscope("model", "aliasing", run, "--json", "-", *options)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def names(record: dict[str, Any]) -> set[str]:
    """Return every name, including those within objects."""
    return set(record).union(
        *record["sources"],
        record["measured"],
        *([record["predicted"]] if record["predicted"] else []),
    )


def test_a_clock_is_found(tailscope: Run, runs: Path) -> None:
    record = figures(tailscope, runs / "ticking")
    (source,) = record["sources"]
    assert source["rate_hz"] == pytest.approx(249.98781, abs=0.001)
    assert source["rate_hz_ci_low"] <= source["rate_hz"] <= source["rate_hz_ci_high"]
    assert source["period_ns"] == pytest.approx(CLOCK.period_ns, abs=10)
    assert source["duration_ns"] == pytest.approx(CLOCK.duration_ns, abs=300)
    assert source["latency_ns"] == source["duration_ns"] + record["base_latency_ns"]
    assert source["phase_ns"] == pytest.approx(CLOCK.phase_ns, abs=300)
    assert (source["every"], source["teeth"]) == (1, [0])
    assert source["packets"] <= record["delayed"] <= record["packets"] == PACKETS
    assert source["explained"] == pytest.approx(source["packets"] / record["delayed"])
    assert record["explained"] > 0.95
    assert record["agreement"] > 0.9
    assert record["reason"] is None
    summary = json.loads((runs / "ticking" / "summary.json").read_text())
    for name, value in record["measured"].items():
        assert value == (record["delayed"] if name == "delayed" else summary[name])
    assert set(record["predicted"]) == set(record["measured"])


def test_no_clock_is_a_reason(tailscope: Run, runs: Path) -> None:
    record = figures(tailscope, runs / "quiet")
    assert record["sources"] == []
    assert_wording("aliasing/no-clock", record["reason"])
    for name in ("delayed", "explained", "predicted", "agreement", "threshold_ns", "tolerance_ns"):
        assert record[name] is None
    assert record["measured"]["delayed"] is None
    done = tailscope("model", "aliasing", runs / "quiet")
    assert done.returncode == 0
    assert unwrapped(done.stdout).startswith(record["reason"])


def test_sources_can_be_given(tailscope: Run, runs: Path) -> None:
    record = figures(
        tailscope,
        runs / "ticking",
        "--simulate",
        EXAMPLE,
        "--simulate",
        "rate=250,latency=10us,every=3,teeth=0+2,phase=3us",
    )
    first, second = record["sources"]
    assert first["rate_hz"] == pytest.approx(249.98781)
    assert (first["duration_ns"], first["phase_ns"], first["teeth"]) == (7_000, 1_000_000, [0])
    assert second["rate_hz"] == pytest.approx(500 / 3)
    assert second["latency_ns"] == 10_000 == second["duration_ns"] + record["base_latency_ns"]
    assert (second["every"], second["teeth"]) == (3, [0, 2])
    assert first["packets"] is first["explained"] is first["rate_hz_ci_low"] is None
    assert record["predicted"]["delayed"] > 0
    alone = figures(tailscope, runs / "ticking", "--simulate", EXAMPLE)
    assert alone["agreement"] > 0.6
    assert alone["predicted"]["latency_ns_max"] == pytest.approx(
        alone["measured"]["latency_ns_max"], abs=200
    )
    quiet = figures(tailscope, runs / "quiet", "--simulate", EXAMPLE)
    assert quiet["predicted"]["latency_ns_max"] > quiet["measured"]["latency_ns_max"] + 3_000


def test_every_figure_is_documented(tailscope: Run, runs: Path) -> None:
    record = [figures(tailscope, runs / name) for name in ("ticking", "quiet")]
    record.append(figures(tailscope, runs / "ticking", "--simulate", EXAMPLE))
    for each in record:
        assert set(each) == set(record[0])
        assert not undocumented(names(each), "extra/patterns/aliasing.md")
    assert set(record[0]["sources"][0]) == set(record[2]["sources"][0])


def test_words_say_the_same(tailscope: Run, runs: Path) -> None:
    record = figures(tailscope, runs / "ticking")
    text = tailscope("model", "aliasing", runs / "ticking").stdout
    (source,) = record["sources"]
    assert f"{source['rate_hz']:.4f} Hz" in text
    assert "0 of 1" in text
    assert re.search(rf"delayed\s+{record['delayed']}\s+100\.0%", text)
    assert re.search(r"p99\.99\s+\d+\.\d{3} µs\s+\d+\.\d{3} µs", text)
    assert f"{record['agreement']:.1%}" in text


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        ("svg", b"<?xml"),
        pytest.param("png", b"\x89PNG", marks=pytest.mark.long),
        pytest.param("pdf", b"%PDF", marks=pytest.mark.long),
    ],
)
def test_the_figure_comes_in_every_format(
    tailscope: Run, runs: Path, tmp_path: Path, suffix: str, start: bytes
) -> None:
    done = tailscope("model", "aliasing", runs / "ticking", "--figure", tmp_path / f"f.{suffix}")
    assert done.returncode == 0, done.stderr
    content = (tmp_path / f"f.{suffix}").read_bytes()
    assert content.startswith(start)
    if suffix == "svg":
        for word in ("measured", "predicted", ">latency<", " µs<", "ticking"):
            assert word in content.decode()


def test_the_figure_of_a_quiet_run_is_what_was_measured(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    tailscope("model", "aliasing", runs / "quiet", "--figure", tmp_path / "f.svg")
    content = (tmp_path / "f.svg").read_text()
    assert "measured" in content
    assert "predicted" not in content


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("rate=250", "one of latency and duration"),
        ("latency=9us", "expected rate"),
        ("rate=250,latency=9us,duration=9us", "one of latency and duration"),
        ("rate=0,duration=9us", "'0'"),
        ("rate=nan,duration=9us", "'nan'"),
        ("rate=250,duration=9", "duration"),
        ("rate=250,duration=9us,rate=1", "'rate=1'"),
        ("rate=250,duration=9us,tooth=1", "'tooth=1'"),
        ("rate=250,duration=9us,every=0", "every=0"),
        ("rate=250,duration=9us,every=2,teeth=2", "teeth=2"),
        ("rate=250,duration=9us,every=2,teeth=0+", "''"),
        ("rate=250,latency=1us", "3."),
        ("rate=250,duration=5ms", "125%"),
    ],
)
def test_sources_that_cannot_be_are_refused(
    tailscope: Run, runs: Path, source: str, said: str
) -> None:
    done = tailscope("model", "aliasing", runs / "ticking", "--simulate", source)
    assert done.returncode == 1
    assert done.stderr.startswith("error: --simulate: ")
    assert said in done.stderr


def test_what_is_no_run_is_refused(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    done = tailscope("model", "aliasing", tmp_path)
    assert done.returncode == 1
    assert code_of(done) is not None and f"{tmp_path}: " in done.stderr
    done = tailscope("model", "aliasing", runs / "ticking", "--figure", tmp_path / "f.gif")
    assert done.returncode == 1
    assert "f.gif" in done.stderr
    assert tailscope("model").returncode == 0
    for command in (["model", "-h"], ["model", "aliasing", "-h"]):
        assert tailscope(*command).stdout.startswith("Usage")


def test_packets_that_changed_since_are_refused(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs / "quiet", tmp_path / "run")
    path = tmp_path / "run" / "latency.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    done = tailscope("model", "aliasing", tmp_path / "run")
    assert done.returncode == 1
    assert "latency.parquet: sha256" in done.stderr


def test_packets_are_read_as_they_were_written(runs: Path) -> None:
    run = read_run(runs / "ticking")
    series = read_packets(runs / "ticking")
    assert np.array_equal(np.diff(series.pre_ns.astype(np.int64)), [GAP_NS] * (PACKETS - 1))
    assert series.latency_ns.max() == run.summary["latency_ns_max"]
    assert series.intended_ns is None
    assert series.tainted is None and series.instrument_stall_ns is None


def test_clocks_of_captures_are_noise_of_a_prediction(
    tailscope: Run, data: Path, scratch: Path
) -> None:
    for name in ("dpdk-l2fwd/hw", "snort-filter/hw"):
        folder = data / "noms2020" / name
        (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
        out = scratch / name.partition("/")[0]
        done = tailscope("analyze", pre, post, "--trim", "1s", "--out", out)
        assert done.returncode == 0, done.stderr
    clocks, predicted = scratch / "clocks.json", scratch / "overload.json"
    done = tailscope("model", "aliasing", scratch / "dpdk-l2fwd", "--json", clocks)
    assert done.returncode == 0, done.stderr
    both = (scratch / "dpdk-l2fwd", scratch / "snort-filter")
    tailscope("model", "overload", *both, "--noise", clocks, "--json", predicted)
    record = json.loads(predicted.read_text())
    assert record["noise_source"] == "aliasing"
    # Table V gives 69,968; it counts the way of the packet that met an interrupt as part of it.
    assert record["rate_max_pps"] == pytest.approx(69_968, rel=0.002)


@pytest.mark.parametrize("columns", [80, 120])
def test_what_it_says_fits_the_terminal(
    runs: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "columns_of", lambda _: columns)
    application()(["model", "aliasing", str(runs / "quiet")], standalone_mode=False)
    text = capsys.readouterr().out
    assert max(map(terminal.width_of, text.splitlines())) <= columns, text


def test_only_the_first_five_minutes_are_searched(tailscope: Run, tmp_path: Path) -> None:
    """Time takes memory, however few packets come in it."""
    pair = captures.pair(tmp_path / "pair", [BASE_NS] * 50, gap=10 * 10**9)
    assert tailscope("analyze", *pair, "--out", tmp_path / "slow").returncode == 0
    record = figures(tailscope, tmp_path / "slow")
    assert (record["packets"], record["beyond"]) == (31, 19)
    given = figures(tailscope, tmp_path / "slow", "--simulate", EXAMPLE)
    assert (given["packets"], given["beyond"]) == (50, 0)
