"""Devices of the kernel, traffic by other programs, captured by tcpdump and dumpcap."""

from __future__ import annotations

import struct
import sys
import time
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case
from .files import Packet, pcap, read_pcap, read_pcapng
from .frames import CLIENT, CLIENT6, SERVER, SERVER6, TCP, UDP, udp_frame
from .headers import TAGGED
from .network import DRAINED_S, Network, end, network, routed_network
from .stream import REWRITTEN, ROUTED, TUNNELLED, UNCHANGED, middle, reordered, stream
from .truth import ANY_NUMBER, Truth, exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Key = tuple[bytes | int, ...]

TOOLS = ("ip", "ethtool", "nft", "tcpdump")
SENDER = """
import socket, struct, sys, time
host, packets = sys.argv[1], int(sys.argv[2])
kind = socket.AF_INET6 if ":" in host else socket.AF_INET
sender = socket.socket(kind, socket.SOCK_DGRAM)
for number in range(packets):
    sender.sendto(struct.pack("<I", number) + bytes(46), (host, 5001))
    time.sleep(0.0005)
"""
LOSS = """
table inet loss {{
    chain forward {{
        type filter hook forward priority 0;
        {which} numgen inc mod {every} == 5 counter drop
    }}
}}
"""
MASQUERADE = """
table ip translation {
    chain behind {
        type nat hook postrouting priority 100;
        oifname "tap-out" masquerade
    }
}
"""


def send_numbered(net: Network, host: str, packets: int = 600) -> None:
    """Send numbered datagrams from the client, by a few lines of Python."""
    net.run("client", sys.executable, "-c", SENDER, host, packets)


def iperf3(net: Network, *options: object) -> None:
    """Send from the client by iperf3, a server of which runs for one test."""
    net.start("server", "iperf3", "-s", "-1", "--forceflush", ready="Server listening")
    net.run("client", "iperf3", "-c", SERVER, *options)


# --- what is true of what was captured ----------------------------------------


def identity(data: bytes) -> tuple[str, str, Key] | None:
    """Source, destination and identity of an IP packet in an Ethernet frame; None of others."""
    kind, body = data[12:14], data[14:]
    if kind == b"\x08\x00":
        size = (body[0] & 15) * 4
        source, destination, protocol = body[12:16], body[16:20], body[9]
        ident, rest = body[4:6], body[size : struct.unpack_from(">H", body, 2)[0]]
    elif kind == b"\x86\xdd":
        source, destination, protocol, ident, rest = (
            body[8:24],
            body[24:40],
            body[6],
            b"",
            body[40:],
        )
    else:
        return None
    ends = str(ip_address(source)), str(ip_address(destination))
    return *ends, _key(protocol, ident, rest)


def _key(protocol: int, ident: bytes, rest: bytes) -> Key:
    """What no device changes, and no second packet of the traffic has."""
    if protocol == TCP:
        return TCP, ident, rest[4:14], len(rest) - (rest[12] >> 4) * 4
    return (protocol, rest[8:]) if protocol == UDP else (protocol, rest[4:8])


def travelling(
    packets: Sequence[Packet], ends: tuple[Sequence[str], Sequence[str]], inner: int = 0
) -> tuple[list[int], list[Key]]:
    """Times and keys of packets between two ends; `inner` bytes before each frame are skipped.

    They are in order of time: the kernel hands packets of several CPUs to a capture program in
    another order than it stamped them now and then.
    """
    times, keys = [], []
    for one in sorted(packets, key=lambda packet: packet.ts):
        found = identity(one.data[inner:])
        if found and found[0] in ends[0] and found[1] in ends[1]:
            times.append(one.ts)
            keys.append(found[2])
    return times, keys


def captured_truth(
    before: Sequence[Packet],
    behind: Sequence[Packet],
    keys: frozenset[str],
    *,
    server: Sequence[str] = (SERVER, SERVER6),
    client: Sequence[str] = (CLIENT, CLIENT6, "10.2.0.1"),
    inner: int = 0,
) -> Truth:
    """What is true of two captures, by the identities of the packets in them."""
    forth, back = (client, server), (server, client)
    sent_ns, sent = travelling(before, forth)
    seen_ns, seen = travelling(behind, forth, inner)
    number = {key: at for at, key in enumerate(sent)}
    assert len(number) == len(sent)
    assert len(set(seen)) == len(seen)
    arrived = np.array([number[key] for key in seen])
    latency_ns = np.array(seen_ns) - np.array(sent_ns)[arrived]
    missing_ns = [sent_ns[at] for at in sorted({*range(len(sent))} - {*arrived})]
    # Lost is what would have come while the capture behind looked, were it as slow as the slowest.
    first_ns, last_ns = min(one.ts for one in behind), max(one.ts for one in behind)
    slowest_ns = max(latency_ns, default=0)
    outside = sum(1 for at in missing_ns if at < first_ns or at + slowest_ns > last_ns)
    replies = len(travelling(behind, back, inner)[0]), len(travelling(before, back)[0])
    return Truth(
        keys,
        packets=len(sent),
        count=exactly(len(seen)),
        lost=exactly(len(missing_ns) - outside),
        outside=exactly(outside),
        reordered=exactly(reordered(arrived)),
        reverse=(min(replies), sum(replies)),
        local=ANY_NUMBER,
        latency_ns_p50=middle(latency_ns),
    )


def made(net: Network, taps: tuple[Path, Path], keys: frozenset[str]) -> Made:
    """The pair that was captured; the firewall must have dropped as many as are missing."""
    before, behind = map(read_pcap, taps)
    truth = captured_truth(before, behind, keys)
    assert truth.lost[0] + truth.outside[0] == net.dropped(), (truth, net.dropped())
    return Made(taps, truth if keys == ROUTED else without_empty(truth, before))


def without_empty(truth: Truth, before: Sequence[Packet]) -> Truth:
    """The truth where segments that carry nothing need not be told apart: no payload does."""
    found = (identity(one.data) for one in before)
    forth = [each[2] for each in found if each and each[1] == SERVER]
    empty = sum(1 for key in forth if key[0] == TCP and key[3] == 0)
    least = truth.count[0] - empty
    return replace(truth, count=(least, truth.count[1]), ambiguous=(0, empty))


def kernel_case(
    name: str, keys: frozenset[str], send: Callable[[Network], None], rules: str, *programs: str
) -> None:
    """Enter traffic through a router of the kernel, captured by tcpdump."""

    @case(name, programs=(*TOOLS, *programs), as_root=True)
    def make(folder: Path) -> Made:
        with routed_network(rules) as net:
            with net.tapped(folder):
                send(net)
            return made(net, (folder / "tap-in.pcap", folder / "tap-out.pcap"), keys)


def ping(net: Network) -> None:
    net.run("client", "ping", "-q", "-c", 200, "-i", "0.005", SERVER)


kernel_case(
    "kernel router, numbered UDP, tcpdump",
    ROUTED,
    partial(send_numbered, host=SERVER),
    LOSS.format(which="udp dport 5001", every=97),
)
kernel_case(
    "kernel router, numbered UDP over IPv6, tcpdump",
    ROUTED,
    partial(send_numbered, host=SERVER6),
    LOSS.format(which="udp dport 5001", every=97),
)
kernel_case("kernel router, ping, tcpdump", ROUTED, ping, "", "ping")
kernel_case(
    "kernel router, TCP of iperf3, tcpdump",
    ROUTED,
    lambda net: iperf3(net, "-n", "2M", "-b", "40M"),
    "",
    "iperf3",
)
kernel_case(
    "kernel router that loses TCP of iperf3, tcpdump",
    ROUTED,
    lambda net: iperf3(net, "-n", "2M", "-b", "40M"),
    LOSS.format(which="tcp dport 5201 meta length > 1000", every=211),
    "iperf3",
)
kernel_case(
    "NAT of nftables, numbered UDP, tcpdump",
    REWRITTEN,
    partial(send_numbered, host=SERVER),
    MASQUERADE + LOSS.format(which="udp dport 5001", every=97),
)
kernel_case(
    "NAT of nftables, UDP of iperf3, tcpdump",
    REWRITTEN,
    lambda net: iperf3(net, "-u", "-l", 200, "-b", "4M", "-n", "160K"),
    MASQUERADE,
    "iperf3",
)
kernel_case(
    "NAT of nftables, TCP of iperf3, tcpdump",
    REWRITTEN,
    lambda net: iperf3(net, "-n", "2M", "-b", "40M"),
    MASQUERADE,
    "iperf3",
)


@case("kernel router, dumpcap on both ports", programs=(*TOOLS, "dumpcap"), as_root=True)
def both_by_dumpcap(folder: Path) -> Made:
    """One pcapng with two interfaces, as dumpcap writes it."""
    path = folder / "both.pcapng"
    with routed_network(LOSS.format(which="udp dport 5001", every=97)) as net:
        interfaces = ("-i", "tap-in", "-i", "tap-out")
        dumpcap = net.start("router", "dumpcap", *interfaces, "-q", "-w", path, ready="File:")
        send_numbered(net, SERVER)
        time.sleep(DRAINED_S)
        end(dumpcap)
        dropped = net.dropped()
    taps = read_pcapng(path)
    truth = captured_truth(taps["tap-in"], taps["tap-out"], ROUTED)
    assert truth.lost[0] + truth.outside[0] == dropped
    return Made((path,), truth)


def bridged(net: Network, *links: str) -> None:
    """Join ports of the router to a bridge."""
    commands = ["link add name bridge type bridge mcast_snooping 0", "link set bridge up"]
    net.configure(
        "router", "\n".join([*commands, *(f"link set {link} master bridge" for link in links)])
    )


@case("kernel bridge, tcpreplay, tcpdump", programs=(*TOOLS, "tcpreplay"), as_root=True)
def replayed(folder: Path) -> Made:
    traffic = stream(700, packets=600, lost=0)
    file = folder / "replayed.pcap"
    file.write_bytes(pcap(traffic.before(udp_frame), unit_ns=1000))
    with network(quiet=True) as net:
        bridged(net, "tap-in", "tap-out")
        with net.tapped(folder) as taps:
            net.run("client", "tcpreplay", "-q", "-i", "eth0", "--pps=4000", file)
    before, behind = map(read_pcap, taps)
    return Made(taps, captured_truth(before, behind, UNCHANGED))


FAR_SERVER = "10.1.0.3"
MACS = {"client": "02:00:00:00:00:01", "server": "02:00:00:00:00:02"}
UNDERLAY = {"near": "172.16.0.1", "far": "172.16.0.2"}
OVERLAYS = {
    "VXLAN": ("vxlan id 42 dstport 4789 local {local} remote {remote}", 50),
    "GENEVE": ("geneve id 42 remote {remote}", 50),
    "GRE of frames": ("gretap local {local} remote {remote}", 38),
}
"""What `ip link add` is told, and the bytes that come before the inner frame."""


def overlay_ends(net: Network, near: str, far: str) -> None:
    """A tunnel from a bridge on the router to the server."""
    net.configure("router", f"addr add {UNDERLAY['near']}/24 dev tap-out")
    net.configure("server", f"addr add {UNDERLAY['far']}/24 dev eth0")
    net.add_link("router", f"name tunnel type {near}")
    net.add_link("server", f"name tunnel type {far}")


def through_tunnel(folder: Path, net: Network) -> tuple[Path, Path]:
    """Send from the client to the other end of a tunnel; neither need ask for the other."""
    net.configure("router", "link set tunnel up")
    bridged(net, "tap-in", "tunnel")
    ends = {"client": (CLIENT, "eth0"), "server": (FAR_SERVER, "tunnel")}
    for role, (address, link) in ends.items():
        net.configure(role, f"link set {link} address {MACS[role]} up")
        net.configure(role, f"addr add {address}/24 dev {link}")
    for role, other in (("client", "server"), ("server", "client")):
        known = f"{ends[other][0]} lladdr {MACS[other]} dev {ends[role][1]}"
        net.configure(role, f"neigh add {known} nud permanent")
    with net.tapped(folder) as taps:
        send_numbered(net, FAR_SERVER)
    return taps


def overlay(kind: str) -> None:
    """Enter a bridge of the kernel that puts frames into a tunnel."""
    description, size = OVERLAYS[kind]

    @case(f"{kind} by ip link, tcpdump", programs=TOOLS, as_root=True)
    def make(folder: Path) -> Made:
        near, far = UNDERLAY["near"], UNDERLAY["far"]
        with network(quiet=True) as net:
            overlay_ends(
                net,
                description.format(local=near, remote=far),
                description.format(local=far, remote=near),
            )
            taps = through_tunnel(folder, net)
        before, behind = map(read_pcap, taps)
        truth = captured_truth(
            before, behind, TUNNELLED, server=[FAR_SERVER], client=[CLIENT], inner=size
        )
        return Made(taps, truth)


for kind in OVERLAYS:
    overlay(kind)


@case("VLAN by ip link, tcpdump", programs=TOOLS, as_root=True)
def vlan(folder: Path) -> Made:
    with network(quiet=True) as net:
        net.add_link("router", "link tap-out name tunnel type vlan id 5")
        net.add_link("server", "link eth0 name tunnel type vlan id 5")
        taps = through_tunnel(folder, net)
    before, behind = map(read_pcap, taps)
    untagged = [one._replace(data=one.data[:12] + one.data[16:]) for one in behind]
    truth = captured_truth(before, untagged, TAGGED, server=[FAR_SERVER], client=[CLIENT])
    return Made(taps, truth)
