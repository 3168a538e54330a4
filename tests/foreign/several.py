"""Captures in several files: rings, one file for each port, a file that is missing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case
from .files import pcap, read_pcapng
from .frames import SERVER, routed_frame, udp_frame
from .kernel import LOSS, TOOLS, captured_truth, send_numbered
from .network import DRAINED_S, end, routed_network
from .stream import ROUTED, middle, stream
from .truth import exactly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .files import Packet

FILES = 10


def ring(
    folder: Path, side: str, packets: Sequence[Packet], missing: int | None = None
) -> list[Path]:
    """Write packets as files of as many each; their names do not say the order."""
    size = -(-len(packets) // FILES)
    paths = []
    for number in range(FILES):
        path = folder / f"{side}_{number * 7 % FILES:05d}.pcap"
        if number != missing:
            path.write_bytes(pcap(packets[number * size : (number + 1) * size]))
            paths.append(path)
    return paths


@case("rings of ten files")
def rings(folder: Path) -> Made:
    traffic = stream(901)
    ring(folder, "in", traffic.before(udp_frame))
    behind = ring(folder, "out", traffic.behind(routed_frame))
    words = ("--pre", folder / "in_*.pcap", "--post", *behind)
    return Made(words, traffic.truth(ROUTED))


@case("a ring of which a file is missing behind")
def ring_with_a_gap(folder: Path) -> Made:
    """What came out meanwhile is not known: none of it is lost."""
    traffic = stream(902)
    ring(folder, "in", traffic.before(udp_frame))
    behind = traffic.behind(routed_frame)
    ring(folder, "out", behind, missing=4)
    size = -(-len(behind) // FILES)
    hidden = traffic.arrived[4 * size : 5 * size]
    first, last = behind[4 * size - 1].ts, behind[5 * size].ts
    slowest = int(traffic.latency_ns[~traffic.lost].max())
    around = (traffic.sent_ns >= first - slowest) & (traffic.sent_ns <= last)
    lost = int((traffic.lost & ~around).sum())
    seen = np.setdiff1d(traffic.arrived, hidden)
    truth = traffic.truth(
        ROUTED,
        count=exactly(len(seen)),
        # The slowest packet before the gap may be a little faster than that of all.
        lost=(lost, lost + 1),
        outside=(len(traffic.lost) - len(seen) - lost - 1, len(traffic.lost) - len(seen) - lost),
        latency_ns_p50=middle(traffic.latency_ns[seen]),
        warns="1 gap between files",
    )
    return Made(("--pre", folder / "in_*.pcap", "--post", folder / "out_*.pcap"), truth)


@case("one file for each port behind")
def ports(folder: Path) -> Made:
    """A load balancer: files that overlap in time."""
    traffic = stream(903)
    before = folder / "in.pcap"
    before.write_bytes(pcap(traffic.before(udp_frame)))
    behind = traffic.behind(routed_frame)
    paths = [folder / f"port{port}.pcap" for port in range(3)]
    for port, path in enumerate(paths):
        path.write_bytes(pcap(behind[port::3]))
    truth = replace(traffic.truth(ROUTED), warns="2 files overlap")
    return Made(("--pre", before, "--post", *paths), truth)


@case("kernel router, rings of dumpcap", programs=(*TOOLS, "dumpcap"), as_root=True)
def rings_of_dumpcap(folder: Path) -> Made:
    with routed_network(LOSS.format(which="udp dport 5001", every=97)) as net:
        capturing = [
            net.start(
                "router", "dumpcap", "-i", link, "-q", "-b", "packets:80",
                "-w", folder / f"{link}.pcapng", ready="File:",
            )
            for link in ("tap-in", "tap-out")
        ]  # fmt: skip
        send_numbered(net, SERVER)
        time.sleep(DRAINED_S)
        [end(process) for process in capturing]
        dropped = net.dropped()
    files = {link: sorted(folder.glob(f"{link}_*.pcapng")) for link in ("tap-in", "tap-out")}
    taps = {
        link: [packet for path in paths for packet in read_pcapng(path)[link]]
        for link, paths in files.items()
    }
    truth = captured_truth(taps["tap-in"], taps["tap-out"], ROUTED)
    assert truth.lost[0] + truth.outside[0] == dropped
    assert len(files["tap-in"]) > 5
    return Made((folder / "tap-in_*.pcapng", folder / "tap-out_*.pcapng"), truth)
