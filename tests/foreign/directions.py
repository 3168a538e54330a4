"""What else taps see: traffic of the other direction, and control traffic of the link."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from .case import Made, case, in_files
from .files import Packet
from .frames import (
    CLIENT,
    FROM_CLIENT,
    ICMP,
    IPV4,
    IPV6,
    PUBLIC,
    SERVER,
    checksum,
    echo_request,
    ethernet,
    icmp_echo,
    ipv4,
    ipv6,
    routed_frame,
    udp_frame,
)
from .stream import REWRITTEN, ROUTED, Stream, on_another_clock, stream
from .truth import Refused, Truth, around, exactly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Frame = Callable[[int], bytes]


def two_directions(
    folder: Path,
    before: tuple[Frame, Frame],
    behind: tuple[Frame, Frame],
    keys: frozenset[str],
    *,
    offset_ns: int = 0,
) -> Made:
    """Traffic in both directions: frames forth and back, as each tap sees them."""
    forth, back = stream(41), stream(42, packets=3000, lost=10, gap_ns=130_000)
    tap_in = sorted(forth.before(before[0]) + back.behind(before[1]))
    tap_out = sorted(forth.behind(behind[0]) + back.before(behind[1]))
    taps = in_files(folder, tap_in, on_another_clock(tap_out, offset_ns))
    return Made(taps, forth.truth(keys, reverse=(2990, 5990)))


answer = partial(udp_frame, src=SERVER, dst=CLIENT, sport=5001, dport=40_000, size=26)


@case("both directions, and a clock that goes back for a while")
def slipped(folder: Path) -> Made:
    """What is seen behind first travels forth all the same."""
    forth, back = stream(45, packets=20_000), stream(46, packets=3, lost=0)
    begin, end = forth.sent_ns[8_000], forth.sent_ns[13_000]
    tap_in = sorted(forth.before(udp_frame) + back.behind(answer))
    seen = forth.behind(udp_frame) + back.before(answer)
    late_ns = 20_000_000
    tap_out = [
        each._replace(ts=each.ts - late_ns) if begin <= each.ts < end else each for each in seen
    ]
    return Made(in_files(folder, tap_in, sorted(tap_out)), Refused("stepped"))


@case("both directions through a router")
def both_through_router(folder: Path) -> Made:
    before, behind = (udp_frame, partial(answer, ttl=63)), (routed_frame, answer)
    return two_directions(folder, before, behind, ROUTED)


@case("both directions, clock behind 3 ms late")
def both_on_two_clocks(folder: Path) -> Made:
    """Each direction bounds the offset from its side, by its fastest packet."""
    before, behind = (udp_frame, partial(answer, ttl=63)), (routed_frame, answer)
    made = two_directions(folder, before, behind, ROUTED, offset_ns=-3_000_000)
    assert isinstance(made.truth, Truth)
    offset = around(-3_000_000, 30_000)
    truth = replace(
        made.truth, relative=None, latency_ns_p50=None, clock_offset_ns=offset, warns="clock"
    )
    return Made(made.arguments, truth)


@case("both directions through a NAT")
def both_through_nat(folder: Path) -> Made:
    back = partial(udp_frame, src=SERVER, sport=5001, size=26)
    before = udp_frame, partial(back, dst=CLIENT, dport=40_000, ttl=63)
    behind = partial(routed_frame, src=PUBLIC, sport=2_000), partial(back, dst=PUBLIC, dport=2_000)
    return two_directions(folder, before, behind, REWRITTEN)


@case("ICMP echo and replies through a router")
def echo_and_replies(folder: Path) -> Made:
    """Every request that arrives is answered after 10 µs; the replies take the way back."""
    forth = stream(43, packets=2000, lost=10)
    requests, arrived = forth.before(echo_request), forth.behind(partial(echo_request, ttl=63))
    sent = [
        (one.ts + 10_000, reply(number)) for one, number in zip(arrived, forth.arrived, strict=True)
    ]
    replies = [Packet(ts, data, len(data)) for ts, data in sent]
    seen = [Packet(ts + 25_000, ttl_less(data), len(data)) for ts, data in sent]
    taps = in_files(folder, sorted(requests + seen), sorted(arrived + replies))
    return Made(taps, forth.truth(ROUTED, reverse=(1990, 3980)))


def reply(number: int, ttl: int = 64) -> bytes:
    body = icmp_echo(0, int(number), bytes(range(48)))
    return ethernet(ipv4(ICMP, body, src=SERVER, dst=CLIENT, ttl=ttl))


def ttl_less(frame: bytes) -> bytes:
    """The same IPv4 packet behind one more router."""
    first, rest = frame[14:34], frame[34:]
    header = first[:8] + bytes([first[8] - 1]) + first[9:10] + bytes(2) + first[12:]
    total = struct.pack(">H", checksum(header))
    return frame[:14] + header[:10] + total + header[12:] + rest


def noise_on(name: str, side: int) -> None:
    """Enter control traffic of a link, which no device forwards, at one tap."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(50 + side)
        taps = [traffic.before(udp_frame), traffic.behind(routed_frame)]
        noise = control_traffic(traffic)
        taps[side] = sorted(taps[side] + noise)
        paths = in_files(folder, *taps)
        local = exactly(len(noise)) if side == 0 else (0, len(noise))
        return Made(paths, traffic.truth(ROUTED, local=local))


@case("broadcasts and multicasts before a router")
def to_all_stations(folder: Path) -> Made:
    """A router forwards neither, unless it routes multicast: none of them is proven to be lost."""
    traffic = stream(52)
    times = traffic.sent_ns[:3600:30].tolist()
    groups = (("10.1.255.255", b"\xff" * 6), ("239.1.2.3", bytes.fromhex("01005e010203")))
    noise = []
    for at, ts in enumerate(times):
        dst, mac = groups[at % 2]
        data = udp_frame(90_000 + at, dst=dst, macs=mac + FROM_CLIENT[6:])
        noise.append(Packet(ts + 50_000, data, len(data)))
    taps = in_files(folder, sorted(traffic.before(udp_frame) + noise), traffic.behind(routed_frame))
    return Made(taps, traffic.truth(ROUTED, local=exactly(len(noise))))


def control_traffic(traffic: Stream) -> list[Packet]:
    """ARP, neighbour discovery and LLDP, 40 of each, between the packets."""
    kinds = (ARP, NEIGHBOUR, LLDP)
    whole = enumerate(traffic.sent_ns[:3600:30].tolist())
    return [Packet(ts + 50_000, kinds[at % 3], len(kinds[at % 3])) for at, ts in whole]


ARP = ethernet(
    struct.pack(">HHBBH", 1, IPV4, 6, 4, 1)
    + FROM_CLIENT[6:]
    + bytes((10, 1, 0, 2))
    + bytes(6)
    + bytes((10, 1, 0, 1)),
    0x0806,
    macs=b"\xff" * 6 + FROM_CLIENT[6:],
)
"""Who has 10.1.0.1?"""

LLDP = ethernet(
    bytes.fromhex("0207 04 02aa00000002 0403 05 7031 0602 0078 0000"),
    0x88CC,
    macs=bytes.fromhex("0180c200000e") + FROM_CLIENT[6:],
)
"""An announcement of a switch."""


def neighbour_solicitation() -> bytes:
    """Who has fd01::1?"""
    src, dst, target = "fe80::2", "ff02::1:ff00:1", "fd01::1"
    body = bytes(4) + ip_address(target).packed + b"\x01\x01" + FROM_CLIENT[6:]
    pseudo = ip_address(src).packed + ip_address(dst).packed
    total = checksum(pseudo, struct.pack(">IBBBB", 4 + len(body), 0, 0, 0, 58), b"\x87\0\0\0", body)
    message = struct.pack(">BBH", 135, 0, total) + body
    macs = bytes.fromhex("3333ff000001") + FROM_CLIENT[6:]
    return ethernet(ipv6(58, message, src=src, dst=dst, hops=255), IPV6, macs=macs)


NEIGHBOUR = neighbour_solicitation()

noise_on("ARP, neighbour discovery and LLDP before a router", 0)
noise_on("ARP, neighbour discovery and LLDP behind a router", 1)
