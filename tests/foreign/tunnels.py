"""Tunnels on one side of a device; scapy builds the outer headers."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from .case import Made, case, in_files
from .frames import tcp_frame, udp6_frame, udp_frame
from .stream import TUNNELLED, seed_of, stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scapy.packet import Packet as Layers

    Frame = Callable[[int], bytes]

LABELLED = frozenset({"frame", "l3", "payload", "inner"})
"""Keys that may be found behind MPLS labels: they hide no second header."""


def outer(kind: str) -> Layers:
    """The headers around a packet; where they are of UDP, without a checksum."""
    from scapy.contrib.geneve import GENEVE
    from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
    from scapy.contrib.mpls import MPLS
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import GRE, Ether
    from scapy.layers.vxlan import VXLAN

    link = Ether(src="02:cc:00:00:00:02", dst="02:cc:00:00:00:01")
    host = link / IP(src="172.16.0.1", dst="172.16.0.2", id=0, flags="DF")
    carrying = {"IP in IP": 4, "6in4": 41}
    if kind in carrying:
        return link / IP(src="172.16.0.1", dst="172.16.0.2", proto=carrying[kind])
    gtp = host / UDP(sport=2152, dport=2152, chksum=0)
    session = gtp / GTP_U_Header(teid=7, gtp_type=255, E=1, next_ex=0x85)
    layers: dict[str, Callable[[], Layers]] = {
        "VXLAN": lambda: host / UDP(sport=50_123, dport=4789, chksum=0) / VXLAN(vni=42),
        "VXLAN of another network": lambda: (
            host / UDP(sport=51_321, dport=4789, chksum=0) / VXLAN(vni=77)
        ),
        "GENEVE": lambda: (
            host / UDP(sport=50_123, dport=6081, chksum=0) / GENEVE(vni=42, proto=0x6558)
        ),
        "GTP-U": lambda: gtp / GTP_U_Header(teid=7, gtp_type=255),
        "GTP-U of 5G, up": lambda: session / GTPPDUSessionContainer(type=1, QFI=9),
        "GTP-U of 5G, down": lambda: session / GTPPDUSessionContainer(type=0, QFI=9, P=1, PPI=3),
        "GRE": lambda: host / GRE(proto=0x0800),
        "GRE of frames": lambda: host / GRE(proto=0x6558),
        "MPLS": lambda: link / MPLS(label=1000, s=0, ttl=63) / MPLS(label=17, s=1, ttl=63),
    }
    return layers[kind]()


TOLD_WITHIN = frozenset({"payload", "inner"})
HOLDS_FRAMES = {"VXLAN", "VXLAN of another network", "GENEVE", "GRE of frames"}


@cache
def prefix(kind: str, size: int) -> bytes:
    """The bytes before an inner packet of `size` bytes, as scapy builds them."""
    from scapy.packet import Raw

    return bytes(outer(kind) / Raw(bytes(size)))[:-size]


def tunnelled(kind: str, frame: Frame) -> Frame:
    """Numbered frames within a tunnel."""

    def build(number: int) -> bytes:
        whole = frame(number)
        inner = whole if kind in HOLDS_FRAMES else whole[14:]
        return prefix(kind, len(inner)) + inner

    return build


def tunnel(name: str, before: Frame, behind: Frame, keys: frozenset[str] = TUNNELLED) -> None:
    """Enter a device that puts packets into a tunnel, or takes them out."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        taps = in_files(folder, traffic.before(before), traffic.behind(behind))
        return Made(taps, traffic.truth(keys))


bare = partial(udp_frame, padded=False)

tunnel("VXLAN put on", bare, tunnelled("VXLAN", bare))
tunnel("VXLAN taken off", tunnelled("VXLAN", bare), udp_frame)
tunnel(
    "VXLAN on both sides, of two networks",
    tunnelled("VXLAN", bare),
    tunnelled("VXLAN of another network", bare),
)
# All packets have one outer header: only what it carries tells them apart.
tunnel("VXLAN passed on", tunnelled("VXLAN", bare), tunnelled("VXLAN", bare), TOLD_WITHIN)
tunnel("GENEVE passed on", tunnelled("GENEVE", bare), tunnelled("GENEVE", bare), TOLD_WITHIN)
tunnel("GENEVE put on", bare, tunnelled("GENEVE", bare))
tunnel("GTP-U put on", bare, tunnelled("GTP-U", bare))
tunnel("GTP-U taken off, TCP", tunnelled("GTP-U", tcp_frame), tcp_frame)
tunnel("GTP-U of 5G taken off", tunnelled("GTP-U of 5G, up", bare), udp_frame)
tunnel("GTP-U of 5G put on", bare, tunnelled("GTP-U of 5G, down", bare))
tunnel("GRE put on", bare, tunnelled("GRE", bare))
tunnel("GRE of frames taken off", tunnelled("GRE of frames", bare), udp_frame)
tunnel("IP in IP put on", bare, tunnelled("IP in IP", bare))
tunnel("6in4 put on", udp6_frame, tunnelled("6in4", udp6_frame))
tunnel("MPLS labels put on", bare, tunnelled("MPLS", bare), LABELLED)
