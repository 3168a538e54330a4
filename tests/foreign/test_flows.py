"""Flows and lost packets of captures by tcpdump: tshark says which packet is of which flow."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from runs import AS_ROOT, needed

from .catalogue import CASES
from .files import Packet, packet, pcap
from .frames import CLIENT, SERVER
from .kernel import LOSS, TOOLS, iperf3, ping, send_numbered
from .network import routed_network
from .stream import START_NS
from .tools import run as run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope

FIELDS = ("frame.time_epoch", "frame.len", "ip.id", "ip.proto", "ip.src", "ip.dst")
PORTS = ("tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport", "icmp.ident", "icmp.seq")
NAMES = {"6": "tcp", "17": "udp", "1": "icmp"}


class Seen:
    """A packet as tshark reads it."""

    def __init__(self, row: list[str]) -> None:
        epoch, size, ident, protocol, source, to, *ports = row
        seconds, rest = epoch.split(".")
        self.ts = int(seconds) * 10**9 + int(rest)
        self.size = int(size)
        tcp_from, tcp_to, udp_from, udp_to, echo, number = ports
        self.ends = source, to
        name = NAMES.get(protocol, "")
        if name == "icmp":
            self.flow = f"{source} > {to} icmp id {int(echo or 0)}"
        else:
            self.flow = f"{source}:{tcp_from or udp_from} > {to}:{tcp_to or udp_to} {name}"
        self.key = (self.flow, ident, self.size, number)


def seen_by_tshark(capture: Path) -> list[Seen]:
    """The packets of a capture from the client to the server, in order of time."""
    fields = [word for field in (*FIELDS, *PORTS) for word in ("-e", field)]
    wanted = f"ip.src == {CLIENT} && ip.dst == {SERVER}"
    first = ("-E", "occurrence=f")
    said = run_tool("tshark", "-r", capture, "-Y", wanted, "-T", "fields", *first, *fields)
    # An error message holds the packet that it is about.
    packets = [Seen(line.split("\t")) for line in said.splitlines()]
    forth = (packet for packet in packets if packet.ends == (CLIENT, SERVER))
    return sorted(forth, key=lambda one: one.ts)


@AS_ROOT
def test_flows_of_a_router_that_loses(tmp_path: Path, tailscope: Tailscope) -> None:
    needed(*TOOLS, "iperf3", "ping", "tshark")
    with routed_network(LOSS.format(which="udp dport 5001", every=37)) as net:
        with net.tapped(tmp_path) as taps:
            others = [
                threading.Thread(target=send, args=(net,))
                for send in (ping, lambda net: iperf3(net, "-n", "500K", "-b", "10M"))
            ]
            [thread.start() for thread in others]
            send_numbered(net, SERVER)
            [thread.join() for thread in others]
        dropped = net.dropped()
    before, behind = map(seen_by_tshark, taps)
    arrived = {one.key: one.ts for one in behind}
    latencies, lost = defaultdict(list), []
    for one in before:
        if one.key in arrived:
            latencies[one.flow].append(arrived[one.key] - one.ts)
        else:
            lost.append((one.ts, one.flow, one.size))
    out = tmp_path / "run"
    found = tailscope("analyze", *taps, "--out", out, "--by", "protocol", "--json", "-")
    summary = json.loads(found.stdout)

    table = pq.read_table(out / "lost.parquet").to_pydict()
    assert len(lost) == dropped > 10
    assert list(zip(table["pre_ns"], table["flow"], table["size_bytes"], strict=True)) == lost
    assert summary["lost"] == summary["lost_proven"] == dropped

    with (out / "flows.csv").open() as file:
        flows = {row["flow"]: row for row in csv.DictReader(file)}
    assert set(latencies) <= set(flows)
    for flow, ns in latencies.items():
        p50, p99 = (np.quantile(ns, q, method="inverted_cdf") for q in (0.5, 0.99))
        row = flows[flow]
        assert int(row["matched"]) == len(ns)
        assert int(row["lost"]) == sum(1 for _, of, _ in lost if of == flow)
        got = [int(row[f"latency_ns_{name}"]) for name in ("p50", "p99", "max")]
        assert got == [p50, p99, max(ns)]
    packets = pq.read_table(out / "latency.parquet").to_pydict()
    rows = zip(packets["pre_ns"], packets["flow"], packets["size_bytes"], strict=True)
    sent = [(one.ts, one.flow, one.size) for one in before if one.key in arrived]
    from_client = [row for row in rows if row[1] in latencies]
    assert from_client == sent
    protocols = {group["name"]: group["sent"] for group in summary["groups"]["protocol"]}
    for name in ("tcp", "udp", "icmp"):
        assert protocols[name] >= sum(1 for one in before if one.flow.split()[3] == name)


def datagram(flow: int, number: int) -> bytes:
    """A datagram of one of some flows, without a checksum."""
    payload = number.to_bytes(4, "big") + bytes(40)
    udp = bytes([0x10, flow, 0x01, 0xBB]) + (8 + len(payload)).to_bytes(2, "big") + bytes(2)
    length = (20 + len(udp) + len(payload)).to_bytes(2, "big")
    header = bytearray(
        bytes([0x45, 0]) + length + number.to_bytes(2, "big") + bytes([0x40, 0, 64, 17, 0, 0])
    )
    header += bytes([10, 0, 0, 1, 10, 0, 0, 2])
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = (~(total + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
    return bytes(12) + b"\x08\x00" + bytes(header) + udp + payload


def pair_without(
    tmp_path: Path, is_missing: object, packets: int = 3000
) -> tuple[tuple[Path, Path], list[int]]:
    """Three flows by turns; what is missing behind the device, by number."""
    before: list[Packet] = []
    behind: list[Packet] = []
    missing = []
    for number in range(packets):
        ts = START_NS + 100_000 * number
        frame = datagram(number % 3, number)
        before.append(packet(ts, frame))
        if is_missing(number):  # type: ignore[operator]
            missing.append(number)
        else:
            behind.append(packet(ts + 50_000 + number % 100, frame))
    paths = tmp_path / "before.pcap", tmp_path / "behind.pcap"
    for path, all_packets in zip(paths, (before, behind), strict=True):
        path.write_bytes(pcap(all_packets))
    return paths, missing


def test_a_flow_behind_another_port_is_not_proven_to_be_lost(
    tmp_path: Path, tailscope: Tailscope
) -> None:
    pair, missing = pair_without(tmp_path, lambda number: number % 3 == 1)
    summary = json.loads(tailscope("analyze", *pair, "--by", "flow", "--json", "-").stdout)
    assert (summary["lost"], summary["lost_proven"]) == (len(missing), 0)
    unseen = {group["name"]: group["unseen"] for group in summary["groups"]["flow"]}
    assert sorted(unseen.values()) == [0, 0, len(missing)]
    assert unseen["10.0.0.1:4097 > 10.0.0.2:443 udp"] == len(missing)


@pytest.mark.parametrize(
    ("is_missing", "runs"),
    [
        # The link is down for a while: whatever was sent then is lost.
        (lambda number: 1000 <= number < 1300, [("", 300), (1, 100), (2, 100), (0, 100)]),
        # One flow has an outage.
        (lambda number: 1000 <= number < 1300 and number % 3 == 2, [(2, 100)]),
        # Losses by chance, and some in a row, but not many.
        (lambda number: number % 97 == 5 or 500 <= number < 509, []),
    ],
)
def test_runs_of_losses_are_told(
    is_missing: object, runs: list[tuple[int | str, int]], tmp_path: Path, tailscope: Tailscope
) -> None:
    pair, missing = pair_without(tmp_path, is_missing)
    out = tmp_path / "run"
    found = tailscope("analyze", *pair, "--out", out, "--json", "-")
    summary = json.loads(found.stdout)
    assert summary["lost"] == summary["lost_proven"] == len(missing)
    lost = pq.read_table(out / "lost.parquet").to_pydict()
    assert lost["seq"] == missing
    with (out / "loss_runs.csv").open() as file:
        told = [(row["flow"], int(row["lost"])) for row in csv.DictReader(file)]
    names = {flow: f"10.0.0.1:{4096 + flow} > 10.0.0.2:443 udp" for flow in range(3)}
    assert told == [(names.get(flow, ""), count) for flow, count in runs]  # type: ignore[call-overload]


def test_a_flow_that_lived_while_the_link_was_down_is_lost(
    tmp_path: Path, tailscope: Tailscope
) -> None:
    """All that was sent then is lost, so it went nowhere else."""
    before, behind = [], []
    for number in range(2000):
        ts = START_NS + 100_000 * number
        is_down = 900 <= number < 1000
        frame = datagram(9 if is_down else 1, number)
        before.append(packet(ts, frame))
        if not is_down:
            behind.append(packet(ts + 50_000 + number % 100, frame))
    paths = tmp_path / "before.pcap", tmp_path / "behind.pcap"
    for path, packets in zip(paths, (before, behind), strict=True):
        path.write_bytes(pcap(packets))
    summary = json.loads(tailscope("analyze", *paths, "--json", "-").stdout)
    assert summary["lost"] == summary["lost_proven"] == 100


def test_protocols_have_a_median_each_unless_one_is_asked_for(
    tmp_path: Path, tailscope: Tailscope
) -> None:
    made = CASES["UDP, ping and TCP through a router"].make(tmp_path)
    first, *rest = tailscope("analyze", *made.arguments).stdout.splitlines()
    medians = dict(re.findall(r"(udp|icmp|tcp) ([\d.]+) µs", first))
    assert [*medians] == ["udp", "icmp", "tcp"]
    table = {
        name: re.findall(r"[\d.]+ µs", line)[0]
        for line in rest
        for name in medians
        if line.startswith(name)
    }
    assert {name: f"{value} µs" for name, value in medians.items()} == table
    first, *_ = tailscope("analyze", *made.arguments, "--by", "size").stdout.splitlines()
    assert len(re.findall(r"Median [\d.]+ µs", first)) == 1
