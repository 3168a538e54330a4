"""The packets of a flow in this machine's kernel, against the kernel's own counters."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from foreign.kernel import LOSS, SENDER
from foreign.network import Network, routed_network
from measurements import children
from runs import AS_ROOT, needed

from tailscope.exceptions import TestbedError, UsageError
from tailscope.extra.stages.follower import check_rights, compiled_flow
from tailscope.testbed import stage_recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "10.2.0.2"
MOST_KIB, MOST_UNSEEN = 128 << 10, 20
FLUSH = "flush ruleset\n"
LONG = 2000
"""Rules that a packet passes in a long chain."""
RECEIVER = """
import socket, sys, time
host, wait_s, buffer = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if buffer:
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
receiver.bind((host, 5001))
print("ready", flush=True)
while True:
    time.sleep(wait_s)
    receiver.recv(2048)
"""
STREAM = """
import socket, sys, threading, time
def serve(listener):
    one, _ = listener.accept()
    time.sleep(0.05)
    while one.recv(3000):
        pass
if sys.argv[1] == "serve":
    listener = socket.create_server((sys.argv[2], 5002))
    print("ready", flush=True)
    serve(listener)
else:
    with socket.create_connection((sys.argv[2], 5002)) as one:
        one.sendall(bytes(300_000))
        time.sleep(0.3)
"""


def most_memory_kib(pid: int) -> int:
    """Return the most memory that a process has held."""
    [line] = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(line)


class Follower:
    """The command, on this machine."""

    def __init__(self, file: Path, flow: str) -> None:
        self._json = file
        command = [sys.executable, "-m", "tailscope", "stages", "--flow", flow]
        self._process = subprocess.Popen(
            [*command, "--json", str(self._json)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        first = self._process.stderr.readline()
        if "following" not in first:
            said = first + self._process.communicate()[1]
            assert not os.environ.get("CI"), said
            pytest.skip(f"no stages here: {said}")

    def end(self) -> dict[str, Any]:
        """End it as Ctrl-C does; everything that it has found."""
        time.sleep(0.1)
        for pid in (self._process.pid, *children(self._process.pid).values()):
            assert 0 < most_memory_kib(pid) < MOST_KIB
        self._process.send_signal(signal.SIGINT)
        _, said = self._process.communicate(timeout=30)
        assert self._process.returncode == 0, said
        found: dict[str, Any] = json.loads(self._json.read_text())
        for way in found["flow"]["ways"]:
            assert sum(stage["ns_total"] for stage in way["stages"]) == way["latency_ns_total"]
            assert way["packets"] - way["whole"] <= MOST_UNSEEN
        assert found["cost"]["lost"] == 0
        return found


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    needed("ip", "ethtool", "nft", "tcpdump", "tc")
    with routed_network(LOSS.format(which="udp dport 5001", every=10)) as found:
        yield found


def ways_of(found: dict[str, Any]) -> dict[str, Any]:
    return {way["way"]: way for way in found["flow"]["ways"]}


def stages_of(way: dict[str, Any]) -> dict[str, Any]:
    return {stage["stage"]: stage for stage in way["stages"]}


def drops_of(found: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(drop["reason"], drop["stage"]): drop["packets"] for drop in found["flow"]["drops"]}


def agree(found: dict[str, Any], counts: dict[Any, int], kernel: dict[Any, int]) -> None:
    """Check counts against the kernel's: they are the same but for packets of which points lack.

    Some kernels call no program while certain processes have the CPU.
    """
    unseen = found["flow"]["late"] + found["flow"]["unended"]
    assert unseen <= MOST_UNSEEN
    assert counts.keys() == kernel.keys()
    for name, count in kernel.items():
        # Of a packet that met such a process on all its way nothing is known.
        fewest = count - unseen - count // 20
        assert fewest <= counts[name] <= count, (name, counts, kernel, unseen)


def packets_of(found: dict[str, Any]) -> dict[str, int]:
    return {name: way["packets"] for name, way in ways_of(found).items()}


def send(net: Network, packets: int) -> None:
    net.run("client", sys.executable, "-c", SENDER, SERVER, packets)


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_every_packet_is_followed_to_its_reader_or_its_drop(net: Network, tmp_path: Path) -> None:
    """A rule of the router drops every tenth; the reader takes one each 2 ms."""
    receiver = net.start("server", sys.executable, "-c", RECEIVER, SERVER, 0.002, 0, ready="ready")
    dropped = net.dropped()
    follower = Follower(tmp_path / "all.json", "udp port 5001")
    some = Follower(tmp_path / "some.json", "udp port 5001 and udp[8] & 3 = 1 and len = 78")
    send(net, 200)
    time.sleep(0.5)
    found, quarter = follower.end(), some.end()
    dropped = net.dropped() - dropped
    receiver.kill()
    ways = ways_of(found)
    assert dropped == 20
    agree(quarter, {"sent": packets_of(quarter)["sent"]}, {"sent": 50})
    agree(found, drops_of(found), {("NETFILTER_DROP", "stack"): dropped})
    agree(found, packets_of(found), {"received": 180, "forwarded": 180, "sent": 200})
    assert stages_of(ways["received"])["socket queue"]["ns_max"] > 10_000_000
    assert stages_of(ways["forwarded"])["stack"]["ns_quantiles"][0] < 10_000_000
    assert 0 < found["cost"]["ns_total"] < found["cost"]["calls"] * 10_000


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_drops_of_queues_are_those_that_the_kernel_counts(net: Network, tmp_path: Path) -> None:
    """The router has a token bucket, and nobody reads."""
    net.run("router", "nft", "flush", "ruleset")
    receiver = net.start(
        "server", sys.executable, "-c", RECEIVER, SERVER, 1000, 4000, ready="ready"
    )
    tbf = "rate 200kbit burst 1500 limit 1500"
    net.run("router", "tc", "qdisc", "add", "dev", "tap-out", "root", "tbf", *tbf.split())
    try:
        follower = Follower(tmp_path / "all.json", "udp port 5001")
        send(net, 200)
        time.sleep(0.3)
        found = follower.end()
        queue = json.loads(net.run("router", "tc", "-s", "-j", "qdisc", "show", "dev", "tap-out"))
        errors = net.run("server", "nstat", "-az", "UdpRcvbufErrors").split()[-2]
    finally:
        net.run("router", "tc", "qdisc", "del", "dev", "tap-out", "root")
        receiver.kill()
    ways, drops = ways_of(found), drops_of(found)
    lost = queue[0]["drops"]
    agree(
        found,
        drops,
        {("QDISC_DROP", "qdisc"): lost, ("SOCKET_RCVBUFF", "stack"): int(errors)},
    )
    assert min(drops.values()) > 0
    agree(found, packets_of(found), {"sent": 200, "forwarded": 200 - lost})
    waiting = {"waiting": 200 - lost - int(errors)}
    agree(found, {"waiting": found["flow"]["waiting"]}, waiting)
    assert stages_of(ways["forwarded"])["qdisc"]["ns_max"] > 10_000_000


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_long_ruleset_is_a_stage_of_its_own(net: Network, tmp_path: Path) -> None:
    """What thousands of rules take is no part of the stack, which takes no longer than without."""
    receiver = net.start("server", sys.executable, "-c", RECEIVER, SERVER, 0, 4000, ready="ready")
    forwarded = []
    try:
        for rules in (0, LONG):
            each = "".join(f"udp dport {10_000 + number} drop\n" for number in range(rules))
            chain = f"chain long {{ type filter hook forward priority 1;\n{each}}}\n"
            net.run("router", "nft", "-f", "-", given=f"{FLUSH}table ip long {{\n{chain}}}\n")
            follower = Follower(tmp_path / f"{rules}.json", "udp port 5001")
            send(net, 200)
            time.sleep(0.3)
            found = follower.end()
            agree(found, packets_of(found), {"received": 200, "forwarded": 200, "sent": 200})
            if "nf_hook_slow" in found["cost"]["lacking"]:
                pytest.skip("this kernel calls no programs from functions")
            forwarded.append(stages_of(ways_of(found)["forwarded"]))
    finally:
        net.run("router", "nft", "flush", "ruleset")
        receiver.kill()
    without, with_rules = (
        {stage: stages[stage]["ns_quantiles"][0] for stage in ("stack", "netfilter")}
        for stages in forwarded
    )
    print("medians of a forwarded packet:", without, with_rules)
    assert with_rules["netfilter"] > 10 * without["netfilter"] > 0
    assert with_rules["netfilter"] > LONG
    assert with_rules["stack"] < 2 * without["stack"]


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_stream_waits_in_its_socket_until_it_is_read(net: Network, tmp_path: Path) -> None:
    server = net.start("server", sys.executable, "-c", STREAM, "serve", SERVER, ready="ready")
    follower = Follower(tmp_path / "all.json", f"tcp dst port 5002 and dst host {SERVER}")
    net.run("client", sys.executable, "-c", STREAM, "send", SERVER)
    found = follower.end()
    server.wait(10)
    ways = ways_of(found)
    assert ways["received"]["packets"] >= 10
    assert stages_of(ways["received"])["socket queue"]["ns_max"] > 20_000_000
    assert found["flow"]["waiting"] == 0
    assert ways["sent"]["packets"] >= 10
    assert sum(stage["ns_total"] for stage in ways["sent"]["stages"]) > 0


@pytest.mark.parametrize(
    ("flow", "code"), [("udp prot 443", "filter"), ("vlan 5", "filter"), ("arp", "filter")]
)
def test_a_flow_that_nobody_can_follow_is_refused(flow: str, code: str) -> None:
    needed("tcpdump")
    with raises(UsageError, code):
        compiled_flow(flow)


def test_without_rights_or_types_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tailscope.testbed.rights._effective", frozenset)
    with raises(TestbedError, "missing-capability"):
        check_rights()
    monkeypatch.undo()
    monkeypatch.setattr(stage_recorder, "require", lambda *_, **__: None)
    monkeypatch.setattr(stage_recorder, "_TYPES", tmp_path / "vmlinux")
    with raises(TestbedError, "no-kernel-types"):
        check_rights()
