"""Runs whose packets are explained, and `tailscope explain`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from documentation import undocumented
from errors import code_of
from measurements import Place, started
from runs import AS_ROOT, needed, sound

from tailscope.host.kernel import running_kernel
from tailscope.noise.attribution import EARLIER, REST_OF_BATCH
from tailscope.noise.counters import SAMPLING_WARNING
from tailscope.testbed.tracefs import instances, tracefs

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.usefixtures("dataplane")

Measure = Callable[..., dict[str, Any]]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

STALLS = (
    *("--dut", "delay", "--dut-option", "stall-duration=5ms,8ms"),
    *("--dut-option", "stall-period=50ms", "--duration", "3s", "--rate", "50k"),
)
OWN = "task tailscope-dp"
BUSY_METER = "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo 1'"
LONG = ("--rate", "100k", "--duration", "60s", "--warm-up", "0s")
PARTS = ("service_ns", "dut_ns", "queue_ns", "instrument_ns", "unexplained_ns")
NOISES = ("auto", "events", "stalls")


def explanation(out: Path) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((out / "explanation.json").read_text())
    return measured


@contextmanager
def on(cpus: list[int]) -> Iterator[None]:
    """Have no other CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture(scope="module")
def stalled(alone: None, tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose device stalls on purpose: as root with names, as a user by stalls alone."""
    out = tmp_path_factory.mktemp("stalled") / "out"
    done = tailscope("run", *STALLS, "--warm-up", "200ms", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_tail_is_explained_in_full(stalled: Path) -> None:
    out = stalled
    sound(out)
    tail = explanation(out)
    # 150 were all packets sent; a generator that others stall sends fewer.
    assert tail["packets"] > 10
    assert sum(tail["parts_ns"].values()) == tail["latency_ns"]
    assert sum(cause["total_ns"] for cause in tail["causes"]) == tail["excess_ns"]
    assert tail["parts_ns"]["unexplained"] < 0.02 * tail["excess_ns"]
    injected = [cause for cause in tail["causes"] if cause["cause"] == "injected stall"]
    assert injected[0]["part"] == "dut"
    # Less what else ran on its CPU meanwhile.
    assert injected[0]["largest_ns"] > 1_000_000
    worst = {
        name: np.array(column)
        for name, column in pq.read_table(out / "worst.parquet").to_pydict().items()
    }
    assert (sum(worst[part] for part in PARTS) == worst["latency_ns"]).all()
    assert all((worst[part] >= 0).all() for part in PARTS)
    waited_ns = worst["dut_ns"] + worst["queue_ns"] + worst["instrument_ns"]
    named = (waited_ns > 0) & (worst["unexplained_ns"] == 0)
    assert (worst["cause"][named] != "").all()


def test_a_packet_has_a_story(stalled: Path, tailscope: Run) -> None:
    out = stalled
    worst = pq.read_table(out / "worst.parquet").to_pydict()
    seq, latency_ns = worst["pre_seq"][7], worst["latency_ns"][7]
    done = tailscope("explain", out, "--packet", seq, "--json", "-")
    assert done.returncode == 0, done.stderr
    story = json.loads(done.stdout)["packet"]
    assert (story["seq"], story["latency_ns"]) == (seq, latency_ns)
    waited = [line["waited_ns"] for line in story["lines"]]
    assert sum(waited) == latency_ns
    assert waited == sorted(waited, reverse=True)
    parts = dict.fromkeys(PARTS, 0)
    for line in story["lines"]:
        parts[f"{line['part']}_ns"] += line["waited_ns"]
    assert parts == {part: worst[part][7] for part in PARTS}
    words = tailscope("explain", out, "--packet", seq).stdout
    assert words.startswith(f"packet {seq}, sent ")
    assert "total" in words
    everything = tailscope("explain", out)
    assert "lie beyond p99.9" in everything.stdout
    assert "DuT: injected stall" in everything.stdout
    other = json.loads(tailscope("explain", out, "--quantile", "0.99", "--json", "-").stdout)
    assert other["tail"]["packets"] > explanation(out)["packets"]
    assert {"format", "kept", *other["tail"]} == set(explanation(out))


def test_bad_arguments_of_explain(stalled: Path, tailscope: Run) -> None:
    out = stalled
    done = tailscope("explain", out, "--packet", "99999999")
    assert done.returncode == 1 and code_of(done) == "packet-unknown"
    assert "99999999" in done.stderr
    done = tailscope("explain", out, "--quantile", "1")
    assert done.returncode == 1 and done.stderr.startswith("error: --quantile: ")


def test_stalls_alone_have_places_and_no_names(measure: Measure, tailscope: Run) -> None:
    out = measure("--dut", "delay", "--noise", "stalls")["out"]
    causes = {cause["cause"] for cause in explanation(out)["causes"]}
    assert causes <= {"stall", "injected stall", EARLIER, REST_OF_BATCH, ""}
    why_not = json.loads((out / "run.json").read_text())["noise"]["events_missing_because"]
    assert why_not == "not requested" and why_not in tailscope("explain", out).stdout


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_a_disturbed_device_is_told_by_name(measure: Measure, tailscope: Run) -> None:
    """Packets that waited for what was done on purpose, by name; a busy task holds many."""
    disturb = ("--dut-option", "disturb=busy", "--dut-option", "disturb-duration=300us")
    options = (*disturb, "--noise", "events")
    out = measure("--dut", "delay", *options, "--duration", "2s", "--rate", "50k")["out"]
    assert json.loads((out / "run.json").read_text())["noise"]["events"]["clock"]
    done = tailscope("explain", out, "--quantile", "0.9", "--json", "-")
    tail = json.loads(done.stdout)["tail"]
    busy = [cause for cause in tail["causes"] if cause["cause"] == "task disturb"]
    assert busy[0]["part"] == "dut"
    assert busy[0]["packets"] > 10
    table = pq.read_table(out / "noise.parquet").to_pydict()
    truth = [
        (start, start + lasted)
        for start, lasted, kind, cause in zip(
            table["start_ns"], table["duration_ns"], table["kind"], table["cause"], strict=True
        )
        if (kind, cause) == ("injected", "busy")
    ]
    assert len(truth) > 100
    latency = pq.read_table(out / "latency.parquet").to_pydict()
    pre = np.array(latency["pre_ns"], np.int64)
    post = pre + np.array(latency["latency_ns"], np.int64)
    held = []
    for start, end in truth:
        waited = (pre >= start) & (pre < end - 10_000)
        held += (post[waited] >= end - 1000).tolist()
    # Now and then the scheduler lets the device run in between.
    assert np.mean(held) > 0.5


@AS_ROOT
def test_a_device_of_the_kernel_is_not_noise_to_itself(measure: Measure) -> None:
    options = ("--wire", "veth", "--counter-interval", "100ms", "--duration", "200ms")
    measured = measure("--dut", "bridge", *options, "--noise", "events")
    info = sound(measured["out"])
    assert info["noise"]["own_work"] == {
        "instrument": ["softirq NET_"],
        "dut": ["softirq NET_", "task ", "tailscope's "],
    }
    assert info["noise"]["counter_samples"] > 4
    assert SAMPLING_WARNING in measured["warnings"]
    causes = {
        cause["cause"] for cause in explanation(measured["out"])["causes"] if cause["part"] == "dut"
    }
    assert not any(cause.startswith("softirq NET") for cause in causes)
    # A task held packets up only where the kernel had left them to a task of its own.
    tasks = {cause for cause in causes if cause.startswith("task ")}
    events = pq.read_table(measured["out"] / "noise.parquet", columns=["cause"])
    seen = set(events["cause"].to_pylist())
    assert not tasks or any(cause.startswith("task ksoftirqd/") for cause in seen)
    samples = pq.read_table(measured["out"] / "interrupts.parquet").to_pydict()
    assert len(set(samples["unix_ns"])) == info["noise"]["counter_samples"]


@AS_ROOT
def test_what_tailscope_does_on_the_device_s_cpu_is_the_instrument_s(
    measure: Measure, tailscope: Run
) -> None:
    """On two CPUs everything else shares those that poll: readings of power, for one."""
    cpus = sorted(os.sched_getaffinity(0))[-2:]
    meter = ("--power", f"command:{BUSY_METER}", "--power-phase", "100ms")
    options = ("--cpus", ",".join(map(str, cpus)), "--duration", "3s", "--noise", "events")
    with on(cpus):
        measured = measure("--dut", "l2fwd", "--rate", "50k", *options, *meter)
    table = pq.read_table(measured["out"] / "noise.parquet").to_pydict()
    own = [
        (start, start + lasted)
        for source, cause, start, lasted in zip(
            *(table[name] for name in ("source", "cause", "start_ns", "duration_ns")), strict=True
        )
        if source == "dut" and cause.startswith("tailscope's ")
    ]
    causes = {cause for cause in table["cause"] if cause.startswith("tailscope's ")}
    assert any(cause.endswith(" power") for cause in causes)
    packets = pq.read_table(measured["out"] / "latency.parquet").to_pydict()
    pre, latency = (np.array(packets[name], np.int64) for name in ("pre_ns", "latency_ns"))
    met = np.zeros(len(pre), np.int64)
    for start, end in own:
        met += np.maximum(np.minimum(pre + latency, end) - np.maximum(pre, start), 0)
    assert met.any()
    assert np.array(packets["tainted"])[2 * met > latency].all()
    done = tailscope("explain", measured["out"], "--quantile", "0", "--json", "-")
    parts = {
        cause["part"]
        for cause in json.loads(done.stdout)["tail"]["causes"]
        if cause["cause"].startswith("tailscope's ")
    }
    assert "instrument" in parts and "dut" not in parts
    assert (
        "instrument: tailscope's "
        in tailscope("explain", measured["out"], "--quantile", "0", "-v").stdout
    )
    sound(measured["out"])


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_a_device_in_a_container_is_not_noise_to_itself(measure: Measure) -> None:
    """Its loop has another number there than the kernel's events have.

    Loops of other tests would have its name.
    """
    needed("lxc-execute")
    measured = measure(
        "--dut", "l2fwd", "--platform", "lxc", "--noise", "events", "--duration", "600ms"
    )
    sound(measured["out"])
    table = pq.read_table(measured["out"] / "noise.parquet").to_pydict()
    rows = zip(table["source"], table["cause"], table["duration_ns"], strict=True)
    own_ns = sum(lasted for source, cause, lasted in rows if (source, cause) == ("dut", OWN))
    assert own_ns < 300_000_000


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_a_killed_run_leaves_no_tracer_once_cleaned(place: Place, tailscope: Run) -> None:
    out = place.path / "out"
    process = started(place, "run", "--dut", "l2fwd", *LONG, "--out", str(out))
    with tracefs() as root:
        here = [name for name in instances(root) if name.startswith("tailscope-")]
        assert len(here) == 2
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done = tailscope("runs", "clean", env=place.environment)
        assert all(f"kernel tracer {name}" in done.stdout for name in here)
        assert not set(here) & set(instances(root))


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_an_interrupted_run_leaves_no_tracer(place: Place) -> None:
    out = place.path / "out"
    process = started(place, "run", "--dut", "l2fwd", *LONG, "--out", str(out))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    # A busy machine may have held more than one packet in a thousand for equally long.
    assert explanation(out)["threshold_ns"] > 0
    with tracefs() as root:
        assert not [name for name in instances(root) if name.startswith("tailscope-")]


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_a_run_is_tuned_and_the_host_is_as_it_was(measure: Measure) -> None:
    knob = Path("/proc/sys/vm/compaction_proactiveness")
    before = knob.read_text()
    knob.write_text("7")
    try:
        measured = measure("--dut", "l2fwd", "--tune")
        assert knob.read_text() == "7\n"
    finally:
        knob.write_text(before)
    info = json.loads((measured["out"] / "run.json").read_text())
    assert info["knobs"]["compaction"] == "0"
    assert "stat-interval" not in {each["knob"] for each in info["tuning"]}
    outcomes = info["tuning"]
    [ahead] = [each for each in outcomes if each["knob"] == "compaction"]
    assert (ahead["original"], ahead["wanted"], ahead["refused"]) == ("7\n", "0", None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_only_root_may_insist(measure: Measure, tailscope: Run, place: Place) -> None:
    out = place.path / "out"
    for option, named in ((["--noise", "events"], "cap_dac_override"), (["--tune"], "root")):
        done = tailscope("run", "--dut", "l2fwd", *option, "--out", out, env=place.environment)
        assert done.returncode == 1
        assert named in done.stderr
    assert code_of(done) == "root-required"


def test_bad_arguments_of_noise(tailscope: Run, place: Place, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    for options, named in (
        (["--cpus", "999"], ["--cpus: ", "CPU 999"]),
        (["--cpus", "x"], ["--cpus: got 'x', ", "[cpu-list]"]),
        (["--duration", "0s"], ["--duration: ", "1ns"]),
        (["--noise", "all"], ["--noise: ", "'all'", *NOISES]),
        (["--disturb", "coffee"], ["--disturb: got 'coffee', ", "tlb, call"]),
        (["--out", str(tmp_path)], ["--out: ", f"{tmp_path} "]),
    ):
        done = tailscope("noise", *options, env=place.environment)
        assert done.returncode == 1, options
        assert all(name in done.stderr for name in named), done.stderr
    done = tailscope("run", "--dut", "l2fwd", "--noise", "all", env=place.environment)
    assert all(name in done.stderr for name in ("--noise: ", "'all'", *NOISES))


def test_every_figure_of_noise_is_documented(tailscope: Run, place: Place) -> None:
    done = tailscope("noise", "--duration", "1s", "--json", "-", env=place.environment)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert not undocumented(measured, "noise.md")
    inner = {name for cause in measured["causes"] for name in cause} - {"cause"}
    inner |= set(measured["stalls"]) | set(measured["cost"] or {})
    assert not undocumented(inner)
    assert tailscope("noise", "--dry-run").returncode == 0


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_the_timer_s_own_rate_is_found(measure: Measure) -> None:
    """A CPU that is busy ticks as often as its kernel was built to, unless it has no ticks."""
    measured = measure("--dut", "l2fwd", "--noise", "events")
    kernel = running_kernel()
    table = pq.read_table(measured["out"] / "noise.parquet").to_pydict()
    rows = zip(table["source"], table["cause"], table["event"], table["start_ns"], strict=True)
    begun: dict[int, int] = {}
    for source, cause, event, start in rows:
        if (source, cause) == ("dut", "local timer"):
            begun.setdefault(event, start)
    if kernel.tick != "full":
        period_ns = np.median(np.diff(sorted(begun.values())))
        assert period_ns == pytest.approx(1e9 / kernel.hz, rel=0.05)
