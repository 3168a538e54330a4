"""`tailscope run` over memif, from start to end."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from documentation import undocumented
from measurements import NOBODY, children, quick, replaced, said_to_nobody, started

from tailscope.cli.status import UNDECIDED
from tailscope.host.cpus import parse_cpus

if TYPE_CHECKING:
    import subprocess

    from measurements import Place

Measure = Callable[..., dict[str, Any]]
Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("dataplane")

IN_BACKGROUND = ("sh", "-c", 'trap "" INT && exec "$@"', "sh")
"""Words that start a job as a shell does with ``&``, so that it ignores Ctrl-C."""

# Figures that captures do not have, or that have other names there.
ONLY_LIVE = ("_file", "_format", "_resolution", "clock", "warnings", "partial", "out")
ONLY_CAPTURED = ("_ci_low", "_ci_high", "_dropped", "resolution_ns", "span_start_s", "span_s")


def test_live_figures_are_those_of_the_captures(measure: Measure, figures: Run) -> None:
    live = measure("--dut", "l2fwd", "--captures", "--flows", 7)
    folder = live["out"] / "captures"
    captured = figures(folder / "pre.pcapng.zst", folder / "post.pcapng.zst")
    shared = {name for name in captured if not name.endswith((*ONLY_LIVE, *ONLY_CAPTURED))}
    assert {"latency_ns_p999", "count", "ipdv_ns_max", "pre_gap_ns_max"} <= shared
    assert {name: live[name] for name in shared} == {name: captured[name] for name in shared}


def test_every_figure_is_documented(measure: Measure) -> None:
    figures = set(measure("--dut", "l2fwd", "--noise", "auto")) - {"out"}
    assert not undocumented(figures, "analyze.md", "run.md", "energy.md")


def test_every_packet_is_accounted_for(measure: Measure) -> None:
    figures = measure("--dut", "l2fwd")
    assert figures["sent"] + figures["unsent"] == 2_000
    assert (
        figures["sent"] == figures["count"] + figures["lost"] + figures["late"] + figures["corrupt"]
    )
    parts = ("lost_in_dut", "lost_in_instrument", "lost_where_unknown")
    assert figures["lost"] == sum(figures[part] for part in parts)
    assert figures["lost_in_dut"] == 0


def test_a_run_directory_holds_packets_and_noise(measure: Measure, tailscope: Run) -> None:
    figures = measure("--dut", "delay", "--dut-option", "stall-duration=1ms")
    latency = pq.read_table(figures["out"] / "latency.parquet")
    assert latency.num_rows == figures["count"]
    assert sum(latency["tainted"].to_pylist()) == figures["tainted"]
    pre, intended = latency["pre_ns"].to_numpy(), latency["intended_ns"].to_numpy()
    assert (pre >= intended).all()
    noise = pq.read_table(figures["out"] / "noise.parquet").to_pydict()
    kinds = set(zip(noise["source"], noise["kind"], strict=True))
    assert {("dut", "injected"), ("dut", "stall")} <= kinds
    assert noise["start_ns"] == sorted(noise["start_ns"])
    injected = [
        (start, duration)
        for start, duration, kind in zip(
            noise["start_ns"], noise["duration_ns"], noise["kind"], strict=True
        )
        if kind == "injected" and pre[0] < start < pre[-1] - 2_000_000
    ]
    arrival = pre + latency["latency_ns"].to_numpy()
    assert injected
    for start, duration in injected:
        waiting = (pre > start) & (pre < start + duration)
        assert (arrival[waiting] >= start + duration).all()
    page = figures["out"].parent / "page.html"
    assert tailscope("report", figures["out"], "--out", page).returncode == 0


@pytest.mark.parametrize(
    "law",
    [
        pytest.param("fixed:50us", marks=pytest.mark.long),
        "uniform:50us,60us",
        "bimodal:50us,1ms,0.5",
    ],
)
def test_a_law_of_delay_is_a_lower_bound(measure: Measure, law: str) -> None:
    figures = measure("--dut", "delay", "--dut-option", f"law={law}")
    assert figures["latency_ns_min"] >= 50_000
    if law.startswith("bimodal"):
        assert figures["latency_ns_p90"] >= 1_000_000


def test_the_generator_alone_is_the_floor(measure: Measure) -> None:
    loop = measure("--dut", "loop")
    assert loop["count"] + loop["lost_in_instrument"] == loop["sent"]


@pytest.mark.parametrize(
    "options",
    [
        ("--pattern", "poisson", "--dut-option", "batch=1", "--dut-option", "mac-updating=off"),
        ("--burst", 32, "--size", 1518),
        ("--burst", 512, "--dut-option", "batch=512"),
        ("--dut-option", "tx-drain=50us"),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_traffic_and_forwarder_take_their_options(measure: Measure, options: Any) -> None:
    figures = measure("--dut", "l2fwd", *options)
    assert figures["count"] == figures["sent"] - figures["lost"] > 0
    assert figures["lost_in_dut"] == 0


def test_more_than_the_wire_carries_is_unsent_not_lost(measure: Measure) -> None:
    figures = measure("--dut", "l2fwd", "--rate", "50M", "--duration", "50ms", expected=UNDECIDED)
    assert figures["unsent"] > figures["sent"]
    assert figures["unsent_generator"] <= figures["unsent"]
    reasons = ("the generator stalled", "the generator is too slow", "took fewer than were due")
    parts = [
        warning.partition(" packets could not be sent within 10 ms of their time: ")
        for warning in figures["warnings"]
    ]
    blamed = {why: int(count.replace(",", "")) for count, _, why in parts if why}
    assert sum(blamed.values()) == figures["unsent"]
    assert all(any(reason in why for reason in reasons) for why in blamed)
    assert figures["lost_in_dut"] == 0


def test_runs_are_repeated(tailscope: Run, place: Place) -> None:
    out = place.path / "out"
    done = tailscope(
        "run", "--dut", "l2fwd", *quick(), "--repeat", 2, "--out", out, env=place.environment
    )
    assert done.returncode == 0, done.stderr
    assert all((out / f"run-{number}" / "report.html").exists() for number in (1, 2))


@pytest.mark.long
def test_an_interrupted_run_is_not_repeated(place: Place) -> None:
    process = running(place, "--repeat", "3")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert [path.name for path in (place.path / "out").iterdir()] == ["run-1"]


def test_a_dry_run_starts_nothing(tailscope: Run, place: Place) -> None:
    arguments = ("run", "--dut", "l2fwd", "--rate", "100k", "--dry-run")
    done = tailscope(*arguments, env=place.environment, cwd=place.path)
    assert done.returncode == 0
    assert "100,000 packets/s" in done.stdout
    planned = json.loads(tailscope(*arguments, "--json", "-", cwd=place.path).stdout)
    assert planned["rate_pps"] == 100_000
    assert [path.name for path in place.path.iterdir()] == ["run"]


def running(place: Place, *options: str) -> subprocess.Popen[str]:
    usual = {"--rate": "20k", "--warm-up": "0s", "--duration": "60s"}
    arguments = ("--dut", "l2fwd", *replaced(usual, *options))
    return started(place, "run", *arguments, "--out", str(place.path / "out"))


@pytest.mark.parametrize(
    ("signum", "prefix"),
    [
        (signal.SIGINT, ()),
        pytest.param(signal.SIGTERM, (), marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, IN_BACKGROUND, marks=pytest.mark.long),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM in the background"],
)
def test_the_first_signal_ends_the_traffic_and_keeps_the_rest(
    place: Place, signum: int, prefix: tuple[str, ...]
) -> None:
    process = running(replace(place, prefix=prefix))
    process.send_signal(signum)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "partial   ended after" in output
    mark = json.loads((place.path / "out/run.json").read_text())
    assert mark["complete"] and mark["partial"]


def woken(pid: int) -> int:
    """Count how often the threads of a process have gone to sleep."""
    sleeps = 0
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):
            counted = re.search(
                r"^voluntary_ctxt_switches:\s+(\d+)", path.read_text(), re.MULTILINE
            )
            sleeps += int(counted[1]) if counted else 0
    return sleeps


def test_the_supervisor_sleeps_while_packets_fly(place: Place) -> None:
    """It may share a CPU: it wakes once a second for progress, four times for neighbours."""
    process = running(place)
    # What it does first is not counted.
    time.sleep(2)
    began_s, before = time.monotonic(), woken(process.pid)
    time.sleep(1)
    often, lasted_s = woken(process.pid) - before, time.monotonic() - began_s
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert 0 < often < 12 * lasted_s


def test_a_device_that_hands_on_nothing_is_said_and_kept(tailscope: Run, place: Place) -> None:
    routes, out = place.path / "routes", place.path / "out"
    routes.write_text("")
    options = ("--dut", "l3fwd", "--dut-option", f"routes={routes}", *quick())
    done = tailscope("run", *options, "--out", out, env=place.environment)
    assert done.returncode == 1, done.stderr
    partial = re.search(r"^partial   (.*)", done.stdout, re.M)
    assert partial
    info, summary = (json.loads((out / name).read_text()) for name in ("run.json", "summary.json"))
    assert info["partial"] == [partial[1]]
    assert f"{summary['sent']:,}" in partial[1]
    assert summary["count"] == 0 and summary["lost"] == summary["sent"] > 0
    assert summary["lost_in_dut"] == summary["dropped_by_dut"] == summary["sent"]
    assert partial[1].partition(";")[0] in (out / "report.html").read_text()
    shown = tailscope("runs", "show", out, env=place.environment)
    assert shown.returncode == 0 and partial[1] in shown.stdout


def test_a_signal_during_the_warm_up_leaves_nothing(place: Place) -> None:
    process = running(place, "--warm-up", "60s")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "error: interrupted"
    assert not (place.path / "out").exists()


def test_a_device_that_dies_ends_the_traffic_and_leaves_a_partial_result(place: Place) -> None:
    process = running(place, "--duration", "10min")
    os.kill(children(process.pid)["l2fwd"], signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "SIGKILL" in output
    summary = json.loads((place.path / "out/summary.json").read_text())
    assert summary["count"] > 0
    assert "SIGKILL" in (place.path / "out/report.html").read_text()


def test_a_device_that_is_not_pinned_may_run_anywhere(place: Place) -> None:
    process = running(place, "--duration", "1s", "--cpus", "dut=any")
    allowed = {name: os.sched_getaffinity(pid) for name, pid in children(process.pid).items()}
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert allowed["l2fwd"] == os.sched_getaffinity(0)
    assert len(allowed["gen"]) == 1
    info = json.loads((place.path / "out/run.json").read_text())
    assert any("pinned" in text for text in info["warnings"])
    assert parse_cpus(info["instrument"]["cpus"]["DuT"]) == sorted(allowed["l2fwd"])


def test_a_program_that_pins_itself_is_not_left_to_the_scheduler(tailscope: Run) -> None:
    done = tailscope("run", "--dut", "suricata", "--cpus", "dut=any", "--dry-run")
    assert done.returncode == 1
    assert all(text in done.stderr for text in ("--cpus", "dut=any", "--dut suricata"))


def test_a_generator_that_dies_before_it_records_is_an_error(place: Place) -> None:
    process = running(place, "--warm-up", "60s")
    os.kill(children(process.pid)["gen"], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: generator: " in errors and "SIGKILL" in errors
    assert "[program-ended]" in errors
    assert not (place.path / "out").exists()


@pytest.mark.usefixtures("alone")
def test_what_a_crash_leaves_behind_is_cleaned(tailscope: Run, place: Place) -> None:
    process = running(place)
    left = children(process.pid)
    live = tailscope("runs", "clean", env=place.environment)
    [name] = [path.name for path in place.path.glob("run/tailscope-*")]
    assert name not in live.stdout
    assert children(process.pid) == left
    process.kill()
    process.communicate()
    deadline_s = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in left.values()):
        assert time.monotonic() < deadline_s, "they outlive who started them"
        time.sleep(0.02)
    assert len(place.left()) == 1
    assert "would remove" in tailscope("runs", "clean", "--dry-run", env=place.environment).stdout
    assert len(place.left()) == 1
    assert "removed" in tailscope("runs", "clean", env=place.environment).stdout


@pytest.fixture(params=[False, True], ids=["no hugepages", "hugepages"])
def hugepages(alone: None, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Give the machine enough hugepages for both ends, or none."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    before = setting.read_text()
    if int(before):
        pytest.skip("this machine keeps hugepages for others")
    setting.write_text("560" if request.param else "0")
    try:
        if request.param and int(setting.read_text()) < 560:
            pytest.skip("memory is too fragmented for hugepages")
        yield request.param
    finally:
        setting.write_text(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="tests that run as an ordinary user do so anyway")
def test_an_ordinary_user_can_measure(place: Place, hugepages: bool) -> None:
    out = str(place.path / "out")
    output = said_to_nobody(place, "run", "--dut", "l2fwd", *quick(), "--out", out)
    assert "packets lost." in output
    assert (place.path / "out").stat().st_uid == NOBODY
    info = json.loads((place.path / "out" / "run.json").read_text())
    results = (info["instrument"]["generator"], info["dut"]["result"])
    assert [result["hugepages"] for result in results] == [hugepages, hugepages]
    meminfo = Path("/proc/meminfo").read_text()
    total, free = (re.search(f"HugePages_{name}: +(\\d+)", meminfo) for name in ("Total", "Free"))
    assert total and free and total[1] == free[1]
