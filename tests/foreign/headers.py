"""What devices do to the headers of packets, between two taps on one clock."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING

from .case import Made, case, in_files
from .files import snapped
from .frames import (
    IPV4,
    PUBLIC,
    SERVICE_VLAN,
    TCP,
    TO_SERVER,
    VLAN,
    counted,
    echo_request,
    ethernet,
    ipv4,
    routed_frame,
    tag,
    tcp,
    tcp_frame,
    tcp_timestamps,
    udp6_frame,
    udp_frame,
)
from .stream import RECAST, REWRITTEN, ROUTED, UNCHANGED, Stream, seed_of, stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Frame = Callable[[int], bytes]

PRIVATE_SERVER = "10.3.0.9"
TAGGED = frozenset({"frame", "l3", "payload", "inner"})
"""Keys that may be found where tags differ: all that looks behind them."""


def device(name: str, before: Frame, behind: Frame, keys: frozenset[str]) -> None:
    """Enter a device that turns each frame `before` into one `behind`."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        taps = in_files(folder, traffic.before(before), traffic.behind(behind))
        return Made(taps, traffic.truth(keys))


def tagged(number: int) -> bytes:
    body = udp_frame(number, padded=False)[14:]
    return ethernet(tag(5, IPV4, body), VLAN)


def tagged_twice(number: int) -> bytes:
    body = udp_frame(number, padded=False)[14:]
    return ethernet(tag(100, VLAN, tag(5, IPV4, body)), SERVICE_VLAN)


def with_check_sequence(number: int, size: int = 18) -> bytes:
    """A frame and its check sequence, which some cards hand on."""
    frame = udp_frame(number, size=size)
    return frame + struct.pack("<I", zlib.crc32(frame))


def segment_translated(number: int) -> bytes:
    body = tcp(counted(number, 100), 1000 + number * 100, src=PUBLIC, sport=2_000)
    return ethernet(ipv4(TCP, body, src=PUBLIC, ttl=63, ident=number), macs=TO_SERVER)


def with_timestamps(number: int) -> bytes:
    return tcp_frame(number, options=tcp_timestamps(number // 10))


short = partial(udp_frame, size=4, padded=False)
router_alert = bytes((148, 4, 0, 0))

device("UDP, a counter in the payload", udp_frame, udp_frame, UNCHANGED)
device("UDP over IPv6, a counter", udp6_frame, udp6_frame, UNCHANGED)
device("TCP, one stream", tcp_frame, tcp_frame, UNCHANGED)
device("router", udp_frame, routed_frame, ROUTED)
device("IPv6 router", udp6_frame, partial(udp6_frame, hops=63, macs=TO_SERVER), ROUTED)
device("ICMP echo through a router", echo_request, partial(echo_request, ttl=63), ROUTED)
device(
    "source NAT",
    udp_frame,
    partial(routed_frame, src=PUBLIC, sport=2_000),
    REWRITTEN,
)
device(
    "destination NAT",
    partial(udp_frame, dst=PUBLIC, dport=80),
    partial(routed_frame, dst=PRIVATE_SERVER, dport=8080),
    REWRITTEN,
)
device("source NAT of TCP", tcp_frame, segment_translated, REWRITTEN)
device("VLAN tag put on", udp_frame, tagged, TAGGED)
device("VLAN tag taken off", tagged, udp_frame, TAGGED)
device("QinQ put on", udp_frame, tagged_twice, TAGGED)
device("frames of 46 bytes, padded to 60", short, partial(udp_frame, size=4), RECAST)
device("padding of 60 taken off", partial(udp_frame, size=4), short, RECAST)
device("check sequence kept behind, short frames", udp_frame, with_check_sequence, RECAST)
device(
    "padded and with a check sequence behind", short, partial(with_check_sequence, size=4), RECAST
)
device(
    "check sequence kept before, long frames",
    partial(with_check_sequence, size=400),
    partial(udp_frame, size=400),
    RECAST,
)
device("IP options put on", udp_frame, partial(udp_frame, options=router_alert), REWRITTEN)
device("TCP options taken off", with_timestamps, tcp_frame, REWRITTEN)
device("TCP options put on", tcp_frame, with_timestamps, REWRITTEN)


@case("two paths of different latency")
def two_paths(folder: Path) -> Made:
    traffic = stream(60)
    slow = traffic.latency_ns.copy()
    slow[::7] += 250_000
    mixed = Stream(traffic.sent_ns, slow, traffic.lost)
    taps = in_files(folder, mixed.before(udp_frame), mixed.behind(routed_frame))
    return Made(taps, mixed.truth(ROUTED))


@case("loss of 30 %")
def heavy_loss(folder: Path) -> Made:
    traffic = stream(30, lost=1200)
    taps = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame))
    return Made(taps, traffic.truth(ROUTED))


def snapped_case(name: str, frame: Frame, sizes: tuple[int, int]) -> None:
    """Enter captures of which only the beginning of each packet was kept."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        before, behind = traffic.before(frame), traffic.behind(frame)
        taps = in_files(folder, snapped(before, sizes[0]), snapped(behind, sizes[1]))
        return Made(taps, traffic.truth(RECAST))


snapped_case("snap length of 64", partial(udp_frame, size=300), (64, 64))
snapped_case("snap lengths of 64 and 96", partial(udp_frame, size=300), (64, 96))
snapped_case("IPv6, snap length of 64", partial(udp6_frame, size=300), (64, 64))
