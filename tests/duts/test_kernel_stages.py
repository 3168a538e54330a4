"""Stages of packets in this machine's kernel, over veth."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from errors import raises
from measurements import quick
from runs import AS_ROOT, left_behind, sound

from tailscope import open as open_run
from tailscope.exceptions import TestbedError
from tailscope.noise.stages import divide, read_stages
from tailscope.store.reader import open_packets, read_run
from tailscope.testbed import stage_recorder
from tailscope.testbed.stage_recorder import check_stages

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[..., dict[str, Any]]

pytestmark = AS_ROOT

PACKETS = ("seq", "pre_ns", "latency_ns")

SLOW = """
ip link add name b0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
ip link set dev $1 master b0
ip link set dev $2 master b0
ip link set dev b0 up
tc qdisc add dev $2 root tbf rate 4mbit burst 2000 limit 2000
echo ready
exec sleep 1000
"""
"""A bridge with a slow exit, whose queue is soon full."""


@pytest.fixture(scope="session")
def bpf(dataplane: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test unless this kernel accepts the recorder's programs."""
    folder = tmp_path_factory.mktemp("stages")
    namespace = Path("/proc/self/ns/net").stat().st_ino
    command = [dataplane, "stages", "--", f"--namespace={namespace}", f"--record={folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        event = json.loads(process.stdout.readline())
        process.terminate()
    if event["event"] != "ready":
        pytest.skip(f"no stages here: {event['message']}")


@pytest.mark.usefixtures("bpf")
@pytest.mark.parametrize(
    "dut",
    [
        "router",
        "mirred",
        *(pytest.param(dut, marks=pytest.mark.long) for dut in ("bridge", "nftables")),
    ],
)
def test_stages_sum_to_the_latency_of_every_packet(measure: Measure, dut: str) -> None:
    figures = measure("--dut", dut, "--rate", "2k", "--stages", "on", "--noise", "auto")
    recorded = sound(figures["out"])["noise"]["stages"]
    assert (recorded["every"], recorded["lost"]) == (1, 0)
    assert recorded["clock_error_ns"] < 10_000
    run = read_run(figures["out"])
    stages = read_stages(figures["out"], run.info)
    assert stages is not None
    with open_packets(figures["out"], run.info) as packets:
        seq, pre_ns, latency_ns = (column.view("i8") for column in packets.columns(*PACKETS))
    divided = divide(stages, seq, pre_ns, latency_ns)
    # Some kernels call no program of a tracepoint in every task; those of links they do.
    assert divided.is_whole.mean() > 0.99
    whole = divided.stages_ns[divided.is_whole]
    assert (whole.sum(axis=1) == latency_ns[divided.is_whole]).all()
    assert (whole.sum(axis=0) > 0).all()
    assert run.explanation is not None
    assert run.explanation.stages is not None
    assert run.explanation.stages.packets == divided.is_whole.sum()
    opened = open_run(figures["out"])
    assert opened.stages.num_rows == len(stages.passed.seq)
    assert opened.explain(0.5).record.stages.packets == run.explanation.stages.packets
    assert not left_behind()


@pytest.mark.usefixtures("bpf")
def test_packets_of_a_full_queue_have_the_kernels_reason(
    measure: Measure, tailscope: Any, place: Any
) -> None:
    script = place.path / "slow.sh"
    script.write_text(SLOW)
    run = f"run=sh {script} {{link0}} {{link1}}"
    options = ("--dut", "command", "--dut-option", run, "--dut-option", "ready=ready")
    figures = measure(*options, "--wire", "veth", "--rate", "20k", "--stages", "on")
    assert figures["lost"] > 0
    explanation = read_run(figures["out"]).explanation
    assert explanation is not None
    assert explanation.stages is not None
    [drop] = explanation.stages.drops
    assert drop.reason == "QDISC_DROP"
    assert figures["lost"] * 0.9 <= drop.packets <= figures["lost"]
    waits = {stage.stage: stage.ns_p50 or 0 for stage in explanation.stages.stages}
    assert waits["qdisc"] > waits["stack"]
    explained = tailscope("explain", figures["out"], env=place.environment)
    assert explained.returncode == 0, explained.stderr
    assert "QDISC_DROP" in explained.stdout
    assert "wire in" in explained.stdout


@pytest.mark.usefixtures("bpf")
def test_of_many_packets_some_have_stages_in_both_directions(tailscope: Any, place: Any) -> None:
    options = ("--dut", "bridge", "--rate", "20k", "--direction", "both", "--stages", "auto")
    out = place.path / "out"
    done = tailscope("run", *quick(*options), "--out", out, env=place.environment)
    assert done.returncode == 0, done.stderr
    for direction in ("forth", "back"):
        assert sound(out / direction)["noise"]["stages"]["every"] == 2
        seq = pq.read_table(out / direction / "stages.parquet")["seq"].to_numpy()
        assert (seq % 2 == 0).all()
        explanation = read_run(out / direction).explanation
        assert explanation is not None
        assert explanation.stages is not None
        assert 0 < explanation.stages.packets <= len(seq)


def test_where_nobody_can_say_auto_says_why_not(tailscope: Any, place: Any) -> None:
    out = place.path / "out"
    options = ("--dut", "loop", "--stages", "auto", "--rate", "2k", "--out", out)
    done = tailscope("run", *quick(*options), env=place.environment)
    assert done.returncode == 0, done.stderr
    noise = sound(out)["noise"]
    assert noise["stages"] is None
    assert "kernel's stack" in noise["stages_missing_because"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dut", "loop"), "kernel's stack"),
        (("--dut", "xdp", "--wire", "veth"), "kernel's stack"),
        (("--dut", "wireguard"), "encrypted"),
        (("--dut", "l2fwd", "--platform", "vm"), "another clock"),
    ],
)
def test_what_has_no_stages_is_refused(
    tailscope: Any, place: Any, options: tuple[str, ...], reason: str
) -> None:
    done = tailscope("run", *options, "--stages", "on", "--dry-run", env=place.environment)
    assert done.returncode == 1
    assert "--stages" in done.stderr and reason in done.stderr


def test_what_the_kernel_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_stages()
    monkeypatch.setattr(stage_recorder, "_TYPES", tmp_path / "vmlinux")
    with raises(TestbedError, "no-kernel-types"):
        check_stages()
