"""Packets that come out in another form: from some time on, in pieces, merged, or encrypted."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case, in_files
from .files import SECOND, Packet, packet
from .frames import (
    CLIENT6,
    IPV4,
    IPV6,
    PUBLIC,
    SERVER6,
    TCP,
    TO_SERVER,
    UDP,
    VLAN,
    counted,
    ethernet,
    ipv4,
    ipv6,
    routed_frame,
    tag,
    tcp,
    udp,
    udp6_frame,
    udp_frame,
)
from .stream import REWRITTEN, ROUTED, TUNNELLED, UNCHANGED, Stream, middle, seed_of, stream
from .truth import Refused, exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .truth import Truth

    Frame = Callable[[int], bytes]
    Cut = Callable[[int], list[bytes]]

LONG = 12_000
CHANGE = 7000
"""The packet with which the form changes: behind the first look at the captures."""

translated = partial(routed_frame, src=PUBLIC, sport=2000)
SIZE = 400
"""Bytes of a segment on a wire; `BURST` of them make what a card is given."""
BURST = 10


def tagged(number: int) -> bytes:
    return ethernet(tag(5, IPV4, udp_frame(number, padded=False)[14:]), VLAN)


def tunnelled(number: int) -> bytes:
    """In VXLAN."""
    inner = struct.pack(">II", 0x0800_0000, 7 << 8) + udp_frame(number)
    return ethernet(ipv4(UDP, udp(inner, dport=4789)), macs=TO_SERVER)


def changes(name: str, early: Frame, late: Frame, keys: frozenset[str]) -> None:
    """Enter a device that turns the numbered frame into `early`, and later into `late`."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name), packets=LONG)
        behind = traffic.behind(lambda number: (early if number < CHANGE else late)(number))
        taps = in_files(folder, traffic.before(udp_frame), behind)
        return Made(taps, traffic.truth(keys, warns="another form"))


changes("NAT that begins in the middle", routed_frame, translated, REWRITTEN)
changes("VLAN tag that begins in the middle", udp_frame, tagged, REWRITTEN)
changes("tunnel that begins in the middle", routed_frame, tunnelled, TUNNELLED)


@case("some flows marked (DSCP), none of them among the first")
def marked_flows(folder: Path) -> Made:
    traffic = stream(700, packets=LONG)

    def port(number: int) -> int:
        return 40_000 if number < CHANGE or number % 20 else 41_000

    def behind(number: int) -> bytes:
        tos = 0xB8 if port(number) == 41_000 else 0
        return routed_frame(number, sport=port(number), tos=tos)

    before = traffic.before(lambda number: udp_frame(number, sport=port(number)))
    taps = in_files(folder, before, traffic.behind(behind))
    return Made(taps, traffic.truth(REWRITTEN, warns="another form"))


@case("capture behind starts long after the one before")
def starts_long_after(folder: Path) -> Made:
    """What both hold begins behind the longest look at the beginning."""
    first = 70_000
    traffic = stream(701, packets=first + 4000, lost=0)
    traffic.lost[first + 500 : first + 3500 : 150] = True
    behind = traffic.behind(routed_frame)[first:]
    seen = traffic.between(first, first + 4000)
    truth = replace(traffic.truth(ROUTED), latency_ns_p50=middle(seen.latency_ns[~seen.lost]))
    truth = replace(truth, count=exactly(len(behind)), lost=exactly(int(seen.lost.sum())))
    truth = replace(truth, outside=exactly(first))
    return Made(in_files(folder, traffic.before(udp_frame), behind), truth)


def segment(first: int, segments: int) -> bytes:
    """An unpadded frame with so many segments of a TCP stream."""
    payload = b"".join(counted(first + each, SIZE) for each in range(segments))
    return ethernet(ipv4(TCP, tcp(payload, 1000 + first * SIZE), ident=first & 0xFFFF))


def whole_burst(number: int) -> bytes:
    """Every fifth packet is small enough for any wire, the others are bursts."""
    return segment(number * BURST, 1 if number % 5 == 0 else BURST)


def divided_burst(number: int) -> list[bytes]:
    first = number * BURST
    return [segment(first + each, 1) for each in range(1 if number % 5 == 0 else BURST)]


def in_fragments(number: int) -> list[bytes]:
    """A datagram in two fragments; every fifth is short and stays whole."""
    if number % 5 == 0:
        return [long_datagram(number)]
    body = udp(counted(number, SIZE))
    return [
        ethernet(ipv4(UDP, part, ident=number & 0xFFFF, fragment=fragment))
        for part, fragment in ((body[:208], 0x2000), (body[208:], 208 // 8))
    ]


def long_datagram(number: int) -> bytes:
    body = udp(counted(number, SIZE if number % 5 else 40))
    return ethernet(ipv4(UDP, body, ident=number & 0xFFFF, fragment=0))


def long_datagram6(number: int) -> bytes:
    return udp6_frame(number, size=SIZE if number % 5 else 40)


def in_fragments6(number: int) -> list[bytes]:
    if number % 5 == 0:
        return [long_datagram6(number)]
    body = udp(struct.pack("<I", number) + bytes([0x5A]) * (SIZE - 4), src=CLIENT6, dst=SERVER6)
    parts = ((body[:208], 1), (body[208:], 208))
    header = [struct.pack(">BBHI", UDP, 0, place, number) for _, place in parts]
    return [
        ethernet(ipv6(44, first + part), IPV6)
        for first, (part, _) in zip(header, parts, strict=True)
    ]


def alone(frame: Frame) -> Cut:
    return lambda number: [frame(number)]


def resegmented(name: str, before: Cut, behind: Cut) -> None:
    """Enter a device that divides or merges all packets but every fifth."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        seen = (traffic.sent_ns + traffic.latency_ns).tolist()
        sent = pieces(range(len(traffic.lost)), traffic.sent_ns.tolist(), before)
        taps = in_files(folder, sent, pieces(traffic.arrived.tolist(), seen, behind))
        return Made(taps, resegmented_truth(traffic, before))


def pieces(numbers: Sequence[int], times: Sequence[int], cut: Cut) -> list[Packet]:
    """Packets at times 100 ns apart."""
    found = [(number, cut(number)) for number in numbers]
    return [
        packet(times[number] + 100 * place, frame)
        for number, frames in found
        for place, frame in enumerate(frames)
    ]


def resegmented_truth(traffic: Stream, before: Cut) -> Truth:
    """The truth where `before` says in how many packets each number is sent."""
    kept = [not number % 5 for number in range(len(traffic.lost))]
    each = np.array([len(before(number)) for number in range(len(traffic.lost))])
    matched = np.array(kept) & ~traffic.lost
    return traffic.truth(
        UNCHANGED,
        packets=int(each.sum()),
        count=exactly(int(matched.sum())),
        lost=exactly(int(each[traffic.lost].sum())),
        lost_proven=exactly(int(each[traffic.lost].sum())),
        resegmented=exactly(int(each[~traffic.lost & ~np.array(kept)].sum())),
        latency_ns_p50=middle(traffic.latency_ns[matched]),
        warns="divided or merged",
    )


resegmented("segmentation offload before (TSO)", alone(whole_burst), divided_burst)
resegmented("receive offload behind (GRO)", divided_burst, alone(whole_burst))
resegmented("IPv4 fragments behind", alone(long_datagram), in_fragments)
resegmented("IPv4 fragments put together", in_fragments, alone(long_datagram))
resegmented("IPv6 fragments behind", alone(long_datagram6), in_fragments6)


@case("some packets encrypted")
def encrypted(folder: Path) -> Made:
    """Of those nobody can say which were lost."""
    traffic = stream(702)
    secret = np.arange(len(traffic.lost)) % 12 == 5
    traffic = Stream(traffic.sent_ns, traffic.latency_ns, traffic.lost & ~secret)
    lost = int(traffic.lost.sum())

    def behind(number: int) -> bytes:
        if not secret[number]:
            return routed_frame(number)
        chance = np.random.default_rng(number).bytes(64)
        return ethernet(ipv4(50, chance), macs=TO_SERVER)

    taps = in_files(folder, traffic.before(udp_frame), traffic.behind(behind))
    hidden = int(secret.sum())
    truth = traffic.truth(
        ROUTED,
        count=exactly(len(traffic.lost) - lost - hidden),
        lost=exactly(lost + hidden),
        lost_proven=exactly(lost),
        latency_ns_p50=middle(traffic.latency_ns[~traffic.lost & ~secret]),
        warns=f"lost {lost} to {lost + hidden}",
    )
    return Made(taps, truth)


def stepping(name: str, side: int, by_ns: int, *options: str) -> None:
    """Enter a clock of one side that steps in the middle."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        sides = [traffic.before(udp_frame), traffic.behind(routed_frame)]
        half = len(sides[side]) // 2
        late = [one._replace(ts=one.ts + by_ns) for one in sides[side][half:]]
        sides[side] = sides[side][:half] + late
        return Made((*in_files(folder, *sides), *options), Refused("step"))


stepping("clock behind that steps on by 2 s", 1, 2 * SECOND)
stepping("clock behind that steps on by 2 s, window of 1 s", 1, 2 * SECOND, "--window", "1s")
stepping("clock before that steps on by 2 s", 0, 2 * SECOND)
stepping("clock before that steps on by 2 s, window of 1 s", 0, 2 * SECOND, "--window", "1s")
