"""Queues, shapers and rules of the kernel: the command that makes one is the truth.

Run by itself, it prints what is said of each: ``python pattern_qdiscs.py``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from foreign.files import read_pcap
from foreign.frames import SERVER
from foreign.kernel import iperf3
from foreign.network import routed_network

from tailscope.extra.patterns.models.answer import Finding
from tailscope.extra.patterns.models.detect import detect
from tailscope.extra.patterns.models.series import Losses, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foreign.files import Packet
    from foreign.network import Network

    from tailscope.extra.patterns.models.detect import Detected

SENDER = """
import random, socket, struct, sys, time
host, kind, pps, size, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6])
chance = random.Random(int(sys.argv[6]))
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(6)]
number, due = 0, time.monotonic()
ends = due + seconds
while due < ends:
    burst, gap = {
        "even": (1, 1 / pps),
        "random": (1, chance.expovariate(pps)),
        "bursts": (chance.randint(30, 120), 0),
    }[kind]
    due += gap or burst / pps * chance.uniform(0.6, 1.4)
    if (rest := due - time.monotonic()) > 0:
        time.sleep(rest)
    for _ in range(burst):
        body = struct.pack("<I", number) + bytes(int(size) - 46)
        chance.choice(sockets).sendto(body, (host, 5001))
        number += 1
"""
POLICE = """
table inet police {{
    chain forward {{
        type filter hook forward priority 0;
        ip protocol udp {limit} counter drop
    }}
}}
"""


class Kind(NamedTuple):
    """A device of the kernel with traffic, and the truth."""

    name: str
    qdisc: tuple[str, ...]
    """Commands of `tc` on the port to the server."""
    rules: str
    """Rules of nftables for what is forwarded."""
    send: Callable[[Network], None]
    true: frozenset[str]
    wanted: frozenset[str]
    figures: dict[str, dict[str, float]]
    """Figures in truth, by pattern."""


def udp(kind: str, pps: float, size: int, seconds: float = 6) -> Callable[[Network], None]:
    """Numbered datagrams in frames of a size."""

    def send(net: Network) -> None:
        net.run("client", sys.executable, "-c", SENDER, SERVER, kind, pps, size, seconds, 1)

    return send


def by_iperf3(*options: object) -> Callable[[Network], None]:
    """Traffic of iperf3."""
    return lambda net: iperf3(net, *options)


def ping(net: Network) -> None:
    """Five hundred pings."""
    net.run("client", "ping", "-q", "-c", 500, "-i", 0.01, SERVER)


TBF = "root tbf rate {}mbit burst {}kb limit {}kb"
HTB = ("root handle 1: htb default 1", "parent 1: classid 1:1 htb rate {0}mbit burst {1}kb")
SHAPED = frozenset({"token bucket", "queue", "full queue"})


def kinds() -> Iterable[Kind]:
    """All of them; `kb` of `tc` are KiB."""
    nothing = frozenset[str]()
    for rate, burst, limit in ((8, 16, 64), (20, 32, 200)):
        rated = {"rate_bytes_per_s": rate * 1e6 / 8}
        bucket = rated | {"burst_bytes": burst * 1024}
        load = rate * 1e6 / 8 / 1000
        tbf = (TBF.format(rate, burst, limit),)
        yield Kind(
            f"tbf {rate} Mbit/s, bursts below it",
            tbf,
            "",
            udp("bursts", 0.6 * load, 1000),
            SHAPED,
            frozenset({"token bucket"}),
            {"token bucket": bucket, "queue": rated, "full queue": rated},
        )
        yield Kind(
            f"tbf {rate} Mbit/s, random above it",
            tbf,
            "",
            udp("random", 1.3 * load, 1000),
            SHAPED,
            frozenset({"full queue"}),
            {"full queue": rated | {"limit_bytes": limit * 1024}},
        )
        yield Kind(
            f"tbf {rate} Mbit/s, iperf3 UDP above it",
            tbf,
            "",
            by_iperf3("-u", "-b", f"{rate * 1.25}M", "-l", 958, "-t", 5),
            SHAPED,
            frozenset({"full queue"}),
            {"full queue": rated | {"limit_bytes": limit * 1024}},
        )
        yield Kind(
            f"tbf {rate} Mbit/s, iperf3 TCP",
            tbf,
            "",
            by_iperf3("-t", 5),
            SHAPED,
            frozenset({"full queue"}),
            {"full queue": rated | {"limit_bytes": limit * 1024}},
        )
        htb = tuple(each.format(rate, 4) for each in HTB)
        yield Kind(
            f"htb {rate} Mbit/s over pfifo 60, random above it",
            (*htb, "parent 1:1 handle 2: pfifo limit 60"),
            "",
            udp("random", 1.3 * load, 1000),
            SHAPED,
            frozenset({"full queue"}),
            {"full queue": rated | {"limit_packets": 60}},
        )
        yield Kind(
            f"htb {rate} Mbit/s over pfifo 60, iperf3 TCP",
            (*htb, "parent 1:1 handle 2: pfifo limit 60"),
            "",
            by_iperf3("-t", 5),
            SHAPED,
            frozenset({"full queue"}),
            {"full queue": rated | {"limit_packets": 60}},
        )
    for send in ("bursts", "random"):
        yield Kind(
            f"nft 1 MB/s, burst 30 kB, {send}",
            (),
            POLICE.format(limit="limit rate over 1000 kbytes/second burst 30 kbytes"),
            udp(send, 1500, 1014),
            frozenset({"policer"}),
            frozenset({"policer"}),
            # The kernel counts packets without their Ethernet header, and its bucket holds the
            # rate of a second beside the burst.
            {
                "policer": {
                    "rate_bytes_per_s": 1.024e6 * 1.014,
                    "burst_bytes": (1.024e6 + 30 * 1024) * 1.014,
                }
            },
        )
        yield Kind(
            f"nft 800 packets/s, burst 40, {send}",
            (),
            POLICE.format(limit="limit rate over 800/second burst 40 packets"),
            udp(send, 1200, 500),
            frozenset({"policer"}),
            frozenset({"policer"}),
            {"policer": {"rate_packets_per_s": 800, "burst_packets": 40}},
        )
    for name, rule in (("random", "numgen random mod 20 == 0"), ("even", "numgen inc mod 50 == 0")):
        for send in ("even", "bursts"):
            yield Kind(
                f"nft {name} loss, {send}",
                (),
                POLICE.format(limit=rule),
                udp(send, 1500, 500),
                nothing,
                nothing,
                {},
            )
    for name, sends in (
        ("even", udp("even", 2000, 300)),
        ("random", udp("random", 2000, 1000)),
        ("bursts", udp("bursts", 2000, 1000)),
        ("ping", ping),
        ("iperf3 TCP", by_iperf3("-t", 1, "-b", "50M")),
        ("iperf3 UDP", by_iperf3("-u", "-b", "20M", "-t", 3)),
    ):
        yield Kind(f"only forwarded, {name}", (), "", sends, nothing, nothing, {})


def captured(kind: Kind, folder: Path) -> Series:
    """Send the traffic through the device, and match both captures."""
    with routed_network(kind.rules) as net:
        for words in kind.qdisc:
            what = "class" if "classid" in words else "qdisc"
            net.run("router", "tc", what, "add", "dev", "tap-out", *words.split())
        with net.tapped(folder, "ip", "and", "dst", "host", SERVER) as (before, behind):
            kind.send(net)
        return matched(read_pcap(before), read_pcap(behind))


def matched(before: list[Packet], behind: list[Packet]) -> Series:
    """Match packets by all of their headers that a router keeps."""
    left: dict[bytes, list[int]] = {}
    for packet in behind:
        left.setdefault(_key(packet.data), []).append(packet.ts)
    rows, lost = [], []
    flows: dict[bytes, int] = {}
    for packet in before:
        times = left.get(_key(packet.data))
        flow = flows.setdefault(packet.data[23:24] + packet.data[26:38], len(flows))
        size = len(packet.data)
        if times:
            rows.append((packet.ts, times.pop(0) - packet.ts, size, flow))
        else:
            lost.append((packet.ts, size))
    arrival, latency, size, flow = np.array(rows, np.int64).T
    gone = np.array(lost, np.int64).reshape(-1, 2)
    start = arrival[0]
    return Series(arrival - start, latency, size, flow, Losses(gone[:, 0] - start, gone[:, 1]))


def _key(frame: bytes) -> bytes:
    """The bytes from the length of IPv4 on, but for time to live and checksum."""
    return frame[16:22] + frame[23:24] + frame[26:66]


def wrong(kind: Kind, detected: Detected) -> list[str]:
    """What is said that is not true, or off by more than a tenth."""
    said = []
    for answer in detected.answers:
        if not isinstance(answer, Finding):
            continue
        if answer.pattern not in kind.true:
            said.append(answer.pattern)
        for figure, value in kind.figures.get(answer.pattern, {}).items():
            found = answer.figures.get(figure)
            if isinstance(found, int | float) and abs(found / value - 1) > 0.1:
                said.append(f"{answer.pattern}: {figure} {found:.5g}, not {value:.5g}")
    return said


if __name__ == "__main__":
    for kind in kinds():
        with tempfile.TemporaryDirectory() as folder:
            detected = detect(captured(kind, Path(folder)))
        named = [each.pattern for each in detected.answers if isinstance(each, Finding)]
        off = wrong(kind, detected)
        verdict = "wrong" if off else "refused" if kind.wanted.difference(named) else "right"
        print(f"{kind.name:<48} {verdict:8}", ", ".join([*named, *off]) or "-", flush=True)
        for each in detected.answers:
            if isinstance(each, Finding):
                print("   ", dict(each.figures))
