"""Several flows and protocols through one device, and what happens to some of them."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case, in_files
from .files import Packet, snapped
from .frames import (
    CLIENT,
    CLIENT6,
    ICMP,
    IPV4,
    IPV6,
    PUBLIC,
    SERVER,
    SERVER6,
    TCP,
    TO_SERVER,
    UDP,
    VLAN,
    counted,
    echo_request,
    ethernet,
    icmp_echo,
    ipv4,
    ipv6,
    routed_frame,
    tag,
    tcp,
    tcp_frame,
    udp,
    udp6_frame,
    udp_frame,
)
from .headers import TAGGED, with_timestamps
from .stream import (
    PACKETS,
    RECAST,
    REWRITTEN,
    ROUTED,
    TUNNELLED,
    UNCHANGED,
    Stream,
    seed_of,
    stream,
)
from .truth import exactly
from .tunnels import LABELLED, tunnelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Frame = Callable[[int], bytes]

FLOWS = 10


def device(
    name: str,
    before: Frame,
    behind: Frame,
    keys: frozenset[str],
    shaped: Callable[[Stream], Stream] = lambda traffic: traffic,
    **changes: object,
) -> None:
    """Enter a device that turns each frame `before` into one `behind`."""

    @case(name, is_long=True)
    def make(folder: Path) -> Made:
        traffic = shaped(stream(seed_of(name)))
        taps = in_files(folder, traffic.before(before), traffic.behind(behind))
        return Made(taps, traffic.truth(keys, **changes))


def of_flow(number: int, *, ttl: int = 64, src: str = CLIENT, shift: int = 0) -> bytes:
    macs = {} if ttl == 64 else {"macs": TO_SERVER}
    sport = 40_000 + number % FLOWS + shift
    return udp_frame(number, src=src, sport=sport, ttl=ttl, **macs)


def slower(traffic: Stream) -> Stream:
    """Every third flow takes a path of 300 µs more."""
    flow = np.arange(len(traffic.lost)) % FLOWS
    later = np.where(flow % 3 == 0, 300_000, 0)
    return Stream(traffic.sent_ns, traffic.latency_ns + later, traffic.lost)


def held(traffic: Stream) -> Stream:
    """One of 50 packets is held back for a millisecond."""
    later = np.where(np.arange(len(traffic.lost)) % 50 == 25, 1_000_000, 0)
    return Stream(traffic.sent_ns, traffic.latency_ns + later, traffic.lost)


def policed(traffic: Stream) -> Stream:
    """Drops come in rows, as those of a policer do."""
    number = np.arange(len(traffic.lost))
    inside = (number > 200) & (number < len(number) - 200)
    return Stream(traffic.sent_ns, traffic.latency_ns, inside & (number % 400 < 25))


def mixed(number: int, ttl: int = 64) -> bytes:
    """UDP, ping and TCP, in turn."""
    kinds = (
        partial(udp_frame, number, ttl=ttl),
        partial(echo_request, number, ttl),
        partial(tcp_frame, number, ttl=ttl),
    )
    return kinds[number % 3]()


def both_versions(number: int, ttl: int = 64) -> bytes:
    if number % 2:
        return udp_frame(number, ttl=ttl)
    return udp6_frame(number, hops=ttl)


device("ten flows through a router", of_flow, partial(of_flow, ttl=63), ROUTED)
device(
    "ten flows through a NAT",
    of_flow,
    partial(of_flow, ttl=63, src=PUBLIC, shift=10_000),
    REWRITTEN,
)
device("ECMP: paths of different latency", of_flow, partial(of_flow, ttl=63), ROUTED, slower)
device("one packet of 50 held back", udp_frame, routed_frame, ROUTED, held)
device("drops in rows of 25", udp_frame, routed_frame, ROUTED, policed)
device("UDP, ping and TCP through a router", mixed, partial(mixed, ttl=63), ROUTED)
device("IPv4 and IPv6 through a router", both_versions, partial(both_versions, ttl=63), ROUTED)
device("jumbo frames", partial(udp_frame, size=8900), partial(routed_frame, size=8900), ROUTED)
device("DSCP marked by a router", udp_frame, partial(routed_frame, tos=0xB8), ROUTED | REWRITTEN)
device(
    "one packet of four marked by ECN",
    partial(udp_frame, tos=2),
    lambda number: routed_frame(number, tos=2 if number % 4 else 3),
    ROUTED | REWRITTEN,
)


@case("a third of the flows behind another port", is_long=True)
def another_port(folder: Path) -> Made:
    """What never appears behind is no proven loss: it may leave elsewhere."""
    whole = stream(1101, lost=0)
    flow = np.arange(PACKETS) % FLOWS
    traffic = Stream(whole.sent_ns, whole.latency_ns, flow % 3 == 1)
    taps = in_files(folder, traffic.before(of_flow), traffic.behind(partial(of_flow, ttl=63)))
    return Made(taps, traffic.truth(ROUTED, lost_proven=exactly(0), warns="never appear behind"))


@case("each 100th packet twice behind", is_long=True)
def doubled(folder: Path) -> Made:
    traffic = stream(1103)
    behind = traffic.behind(routed_frame)
    again = [one._replace(ts=one.ts + 5_000) for one in behind[50::100]]
    taps = in_files(folder, traffic.before(udp_frame), sorted(behind + again))
    return Made(taps, traffic.truth(ROUTED, duplicated=exactly(len(again))))


@case("traffic of other hosts behind, before and after", is_long=True)
def among_others(folder: Path) -> Made:
    traffic = stream(1104)
    other = partial(udp_frame, src="10.8.0.1", dst="10.8.0.2", sport=99, dport=9_999)
    times = np.arange(traffic.sent_ns[0] - 10**8, traffic.sent_ns[-1] + 10**8, 150_000)
    more = [Packet(ts, other(700_000 + at), 60) for at, ts in enumerate(times.tolist())]
    taps = in_files(folder, traffic.before(udp_frame), sorted(traffic.behind(routed_frame) + more))
    return Made(taps, traffic.truth(ROUTED))


def in_vlan(number: int, vlan: int, priority: int = 0) -> bytes:
    body = udp_frame(number, padded=False)[14:]
    return ethernet(tag(priority << 13 | vlan, IPV4, body), VLAN)


def request(number: int) -> bytes:
    body = icmp_echo(8, number, counted(number, 48))
    return ethernet(ipv4(ICMP, body))


def translated_ping(number: int) -> bytes:
    body = icmp_echo(8, number, counted(number, 48))
    return ethernet(ipv4(ICMP, body, src=PUBLIC, ttl=63), macs=TO_SERVER)


def translated6(number: int) -> bytes:
    payload = struct.pack("<I", number) + bytes([0x5A]) * 14
    datagram = udp(payload, src="fd99::1", dst=SERVER6, sport=2_000)
    return ethernet(ipv6(UDP, datagram, src="fd99::1", hops=63), IPV6, macs=TO_SERVER)


def tcp6(number: int, hops: int = 64) -> bytes:
    segment = tcp(counted(number, 120), 1000 + number * 120, src=CLIENT6, dst=SERVER6)
    return ethernet(ipv6(TCP, segment, hops=hops), IPV6)


def answered(number: int, ttl: int = 64) -> bytes:
    """A request of the client, and what another client asks."""
    return udp_frame(number, src=CLIENT if number % 2 else "10.1.0.77", dst=SERVER, ttl=ttl)


bare = partial(udp_frame, padded=False)

device("VLAN translated", partial(in_vlan, vlan=5), partial(in_vlan, vlan=77), TAGGED)
device(
    "VLAN priority changed", partial(in_vlan, vlan=5), partial(in_vlan, vlan=5, priority=6), TAGGED
)
device("NAT of IPv6", udp6_frame, translated6, REWRITTEN)
device("TCP over IPv6 through a router", tcp6, partial(tcp6, hops=63), ROUTED)
device("two clients through a router", answered, partial(answered, ttl=63), ROUTED)
device("TCP with timestamps", with_timestamps, with_timestamps, UNCHANGED)
device("VXLAN put on, TCP", tcp_frame, tunnelled("VXLAN", tcp_frame), TUNNELLED)
device("VXLAN put on, IPv6", udp6_frame, tunnelled("VXLAN", udp6_frame), TUNNELLED)
device("GENEVE taken off", tunnelled("GENEVE", bare), udp_frame, TUNNELLED)
device("GTP-U put on, TCP", tcp_frame, tunnelled("GTP-U", tcp_frame), TUNNELLED)
device("GTP-U put on, IPv6", udp6_frame, tunnelled("GTP-U", udp6_frame), TUNNELLED)
device("IP in IP taken off", tunnelled("IP in IP", bare), udp_frame, TUNNELLED)
device("MPLS labels taken off", tunnelled("MPLS", bare), udp_frame, LABELLED)
device("GRE put on, TCP", tcp_frame, tunnelled("GRE", tcp_frame), TUNNELLED)
device("NAT of ping", request, translated_ping, REWRITTEN)
device("from VXLAN into GENEVE", tunnelled("VXLAN", bare), tunnelled("GENEVE", bare), TUNNELLED)


def cut(
    name: str, before: Frame, behind: Frame, sizes: tuple[int, int], keys: frozenset[str]
) -> None:
    """Enter captures with only the beginning of each packet."""

    @case(name, is_long=True)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        sides = traffic.before(before), traffic.behind(behind)
        taps = in_files(folder, *(snapped(*each) for each in zip(sides, sizes, strict=True)))
        return Made(taps, traffic.truth(keys))


long_udp, long_routed = partial(udp_frame, size=700), partial(routed_frame, size=700)
cut("snap length of 96 before alone", long_udp, long_routed, (96, 65_535), ROUTED)
cut(
    "snap length of 96 behind a NAT",
    long_udp,
    partial(long_routed, src=PUBLIC),
    (96, 96),
    REWRITTEN,
)
cut("TCP, snap length of 68", tcp_frame, partial(tcp_frame, ttl=63), (68, 68), ROUTED)
cut("router, snap length of 60", long_udp, long_routed, (60, 60), RECAST)
