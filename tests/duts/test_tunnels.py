"""Real tunnels: packets come out as they went in, and no key or program is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND
from errors import code_of, raises
from measurements import quick
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.duts.catalogue import dut_named
from tailscope.duts.ipsec import counts_of
from tailscope.exceptions import UsageError
from tailscope.store.reader import read_run
from tailscope.store.records.dataplane import EspCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[..., dict[str, Any]]

RATE = ("--rate", "1k")
PROGRAM = ("--dut", "wireguard", "--dut-option", "implementation=wireguard-go")
KEY = re.compile(r"[A-Za-z0-9+/]{43}=|0x[0-9a-f]{40}")
"""Keys as wg and ip print them."""
STARTED_S = 30.0

LISTED = """\
src 198.18.0.2 dst 198.18.0.1
    proto esp spi 0x00000002(2) reqid 2(0x00000002) mode tunnel
    replay-window 32 seq 0x00000000 flag  (0x00000000)
    aead rfc4106(gcm(aes)) <<Keys hidden>> 128
    anti-replay context: seq 0x0, oseq 0x0, bitmap 0x00000000
    sel src 0.0.0.0/0 dst 0.0.0.0/0 uid 0
    lifetime config:
      limit: soft (INF)(bytes), hard (INF)(bytes)
      limit: soft (INF)(packets), hard (INF)(packets)
      expire add: soft 0(sec), hard 0(sec)
      expire use: soft 0(sec), hard 0(sec)
    lifetime current:
      0(bytes), 0(packets)
      add 2026-11-23 16:56:12 use -
    stats:
      replay-window 0 replay 0 failed 0
src 198.18.0.1 dst 198.18.0.2
    proto esp spi 0x00000001(1) reqid 1(0x00000001) mode tunnel
    replay-window 32 seq 0x00000000 flag  (0x00000000)
    aead rfc4106(gcm(aes)) <<Keys hidden>> 128
    anti-replay context: seq 0x5e0, oseq 0x0, bitmap 0xffffffff
    sel src 0.0.0.0/0 dst 0.0.0.0/0 uid 0
    lifetime config:
      limit: soft (INF)(bytes), hard (INF)(bytes)
      limit: soft (INF)(packets), hard (INF)(packets)
      expire add: soft 0(sec), hard 0(sec)
      expire use: soft 0(sec), hard 0(sec)
    lifetime current:
      69184(bytes), 1504(packets)
      add 2026-11-23 16:56:11 use 2026-11-23 16:56:11
    stats:
      replay-window 1 replay 2 failed 4
"""
"""States of one end by iproute2 6.1 on Linux 6.1; the last line was all 0, and is edited."""


@pytest.fixture
def wireguard() -> None:
    needed("wg", "wireguard-go")


@AS_ROOT
@pytest.mark.usefixtures("wireguard")
def test_packets_go_through_wireguard_encrypted(measure: Measure) -> None:
    figures = measure(*PROGRAM, *RATE, "--noise", "auto")
    device = sound(figures["out"])["dut"]
    assert figures["count"] == figures["sent"]
    assert re.match(r"Linux .*, wireguard-go v.*, wireguard-tools v", device["version"])
    result = device["result"]
    assert result["links"]["wg0"]["tx_packets"] >= figures["sent"]
    assert result["links"]["wg1"]["rx_packets"] >= figures["sent"]
    # IP has 46 bytes, padded to 48; WireGuard adds 32, and a few for the handshake.
    in_packets = 80 * result["links"]["wg0"]["tx_packets"]
    assert in_packets < result["near"]["tx_bytes"] < in_packets + 1000
    assert in_packets < result["far"]["rx_bytes"] <= result["near"]["tx_bytes"]
    assert abs(result["far"]["last_handshake_unix_s"] - time.time()) < 300
    assert not KEY.search((figures["out"] / "run.json").read_text())
    assert not Path("/run/wireguard/wg0.sock").exists()
    assert not left_behind()


@AS_ROOT
@pytest.mark.usefixtures("wireguard", "dataplane")
def test_largest_packets_go_both_ways(tailscope: Any, place: Any) -> None:
    out = place.path / "out"
    options = (
        *PROGRAM,
        *quick("--rate", "2k"),
        "--direction",
        "both",
        "--size",
        "1518",
        "--out",
        out,
    )
    done = tailscope("run", *options, env=place.environment)
    assert done.returncode == 0, done.stderr
    for way in ("forth", "back"):
        ends = sound(out / way)["dut"]["result"]
        count = read_run(out / way).summary["count"]
        assert count > 100
        assert ends["near"]["rx_bytes"] > 1500 * count < ends["far"]["rx_bytes"]


@AS_ROOT
@pytest.mark.parametrize(
    ("dut", "code", "value"),
    [
        ("wireguard", "no-wireguard", "Unknown device type."),
        ("ipsec", "no-esp", "rfc4106(gcm(aes))"),
    ],
)
@pytest.mark.usefixtures("wireguard")
def test_the_kernel_has_tunnels_or_says_what_it_lacks(
    tailscope: Any, place: Any, dut: str, code: str, value: str
) -> None:
    out = place.path / "out"
    options = ("--duration", "200ms", "--warm-up", "100ms", *RATE, "--out", out)
    done = tailscope("run", "--dut", dut, *options, env=place.environment)
    if done.returncode == 0:
        assert sound(out)["dut"]["result"]["program"] == dut
    else:
        assert code_of(done) == code and value in done.stderr
        assert "--platform vm" in done.stderr
        assert not KEY.search(done.stderr)
        assert not out.exists()
    assert not left_behind()


@AS_ROOT
@pytest.mark.usefixtures("wireguard", "dataplane")
@pytest.mark.parametrize(
    ("stage", "ending"),
    [
        ("tailscope-dp", signal.SIGKILL),
        pytest.param("wireguard-go", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("wireguard-go", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("tailscope-dp", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_programs_end_with_the_measurement(
    tailscope: Any, place: Any, stage: str, ending: signal.Signals
) -> None:
    """The signal comes while the tunnel is made, or while packets are sent."""
    with started(place.path / "out", place.environment) as process:
        mark = mark_of(process, stage)
        process.send_signal(ending)
        process.communicate(timeout=STARTED_S)
    tailscope("runs", "clean", env=place.environment)
    assert mark not in str(left_behind())
    assert not programs(mark, "wireguard-go")
    assert not Path("/run/wireguard/wg0.sock").exists()


@AS_ROOT
@pytest.mark.usefixtures("wireguard", "dataplane")
def test_a_program_that_dies_is_named(place: Any) -> None:
    with started(place.path / "out", place.environment) as process:
        mark = mark_of(process, "tailscope-dp")
        [near] = (pid for pid in programs(mark, "wireguard-go") if b"wg0" in read(pid, "cmdline"))
        os.kill(near, signal.SIGKILL)
        _, errors = process.communicate(timeout=STARTED_S)
    assert "wireguard-go wg0" in errors and "SIGKILL" in errors
    assert mark not in str(left_behind())


def started(out: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a long measurement."""
    command = [COMMAND, "run", *PROGRAM, *RATE, "--duration", "60s", "--out", out]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def mark_of(process: subprocess.Popen[str], program: str) -> str:
    """Wait until a measurement runs a program, and return the mark of its processes."""
    deadline_s = time.monotonic() + STARTED_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None
        for child in children(process.pid):
            mark = re.search(rb"TAILSCOPE_MEASUREMENT=([^\0]+)", read(child, "environ"))
            if mark and programs(mark[1].decode(), program):
                return mark[1].decode()
        time.sleep(0.05)
    raise AssertionError(f"no {program}")


def programs(mark: str, name: str) -> list[int]:
    """Return the processes of a measurement that run a program."""
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if read(int(path.name), "comm") == f"{name}\n".encode()
        and mark.encode() in read(int(path.name), "environ")
    ]


def children(pid: int) -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if f"PPid:\t{pid}\n".encode() in read(int(path.name), "status")
    ]


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def test_what_ip_lists_of_states_is_read() -> None:
    assert counts_of(LISTED) == {
        "2": EspCounts(packets=0, bytes=0, replayed=0, failed=0),
        "1": EspCounts(packets=1504, bytes=69184, replayed=3, failed=4),
    }


def test_what_a_tunnel_cannot_do_is_refused() -> None:
    with raises(UsageError, "dut-option") as error:
        dut_named("wireguard", {"implementation": "rust"}, "veth")
    assert "--dut-option implementation: got 'rust'" in str(error.value)
    for dut in ("wireguard", "ipsec"):
        with raises(UsageError, "dut-wire"):
            dut_named(dut, {}, "pci")
