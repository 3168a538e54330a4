"""Traffic that repeats itself: mirror ports, probes without a number, retransmissions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case, in_files
from .frames import CLIENT, PUBLIC, TCP, counted, ethernet, ipv4, routed_frame, tcp, udp_frame
from .stream import PACKETS, REWRITTEN, ROUTED, UNCHANGED, Stream, middle, stream
from .truth import NOTHING, exactly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .files import Packet
    from .truth import Truth

MIRROR_NS = 2_000
OTHER_CLIENT = "10.1.0.3"


def mirrored(packets: Sequence[Packet], seed: int = 7) -> list[Packet]:
    """What a port delivers to which both directions of another are mirrored: each packet twice."""
    return sorted([*packets, *copies_of(packets, seed)])


def copies_of(packets: Sequence[Packet], seed: int) -> list[Packet]:
    """One copy of each packet, soon after it."""
    chance = np.random.default_rng(seed)
    delays = chance.integers(300, MIRROR_NS, len(packets)).tolist()
    return [one._replace(ts=one.ts + ns) for one, ns in zip(packets, delays, strict=True)]


def mirror(name: str, before: bool, behind: bool) -> None:
    """Enter a router between ports of which some deliver each packet twice."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(200)
        tap_in, tap_out = traffic.before(udp_frame), traffic.behind(routed_frame)
        taps = in_files(
            folder,
            mirrored(tap_in) if before else tap_in,
            mirrored(tap_out) if behind else tap_out,
        )
        return Made(taps, mirror_truth(traffic, before, behind))


def mirror_truth(traffic: Stream, before: bool, behind: bool) -> Truth:
    """A copy that is taken for the original makes a latency shorter by up to 2 µs, or longer."""
    low, high = middle(traffic.latency_ns[~traffic.lost])
    return traffic.truth(
        ROUTED,
        packets=PACKETS * (1 + before),
        repeated=exactly(PACKETS * before),
        duplicated=exactly(len(traffic.arrived) * behind),
        latency_ns_p50=(low - MIRROR_NS * before, high + MIRROR_NS * behind),
    )


mirror("mirror port before: each packet twice", before=True, behind=False)
mirror("mirror port behind: each packet twice", before=False, behind=True)
mirror("mirror ports on both sides", before=True, behind=True)


@case("three mirrored ports: each packet three times")
def three_times(folder: Path) -> Made:
    traffic = stream(201)
    tap_in = traffic.before(udp_frame)
    before = sorted([*mirrored(tap_in), *copies_of(tap_in, 8)])
    taps = in_files(folder, before, traffic.behind(routed_frame))
    low, high = middle(traffic.latency_ns[~traffic.lost])
    truth = traffic.truth(
        ROUTED,
        packets=3 * PACKETS,
        repeated=exactly(2 * PACKETS),
        latency_ns_p50=(low - MIRROR_NS, high),
    )
    return Made(taps, truth)


@case("three mirrored ports before a NAT")
def three_times_translated(folder: Path) -> Made:
    traffic = stream(202)
    tap_in = traffic.before(udp_frame)
    before = sorted([*mirrored(tap_in), *copies_of(tap_in, 8)])
    translated = partial(udp_frame, src=PUBLIC, sport=20_000, ttl=63)
    taps = in_files(folder, before, traffic.behind(translated))
    truth = traffic.truth(REWRITTEN, packets=3 * PACKETS, repeated=exactly(2 * PACKETS))
    return Made(taps, truth)


@case("mirror port before: a third of the packets twice")
def mirrored_in_part(folder: Path) -> Made:
    """A copy of a lost packet is no second loss."""
    traffic = stream(203, lost=200)
    tap_in = traffic.before(udp_frame)
    some = tap_in[::3]
    before = sorted([*tap_in, *copies_of(some, 9)])
    taps = in_files(folder, before, traffic.behind(routed_frame))
    packets = PACKETS + len(some)
    return Made(taps, traffic.truth(ROUTED, packets=packets, repeated=exactly(len(some))))


@case("a third of the packets sent twice")
def sent_twice(folder: Path) -> Made:
    """What comes out twice was sent twice: no copy. Of two at a time order proves nothing."""
    once = stream(204, lost=0)
    again = np.arange(0, PACKETS, 3)
    sent = np.concatenate([once.sent_ns, once.sent_ns[again] + MIRROR_NS])
    latency = np.concatenate([once.latency_ns, once.latency_ns[again]])
    numbers = np.concatenate([np.arange(PACKETS), again])
    order = np.argsort(sent, kind="stable")
    traffic = Stream(sent[order], latency[order], np.zeros(len(order), dtype=bool))
    numbered = numbers[order].tolist()
    taps = in_files(
        folder,
        traffic.before(lambda at: udp_frame(numbered[at])),
        traffic.behind(lambda at: routed_frame(numbered[at])),
    )
    truth = traffic.truth(
        ROUTED,
        count=exactly(PACKETS - len(again)),
        ambiguous=exactly(2 * len(again)),
        reordered=(0, len(again)),
    )
    return Made(taps, truth)


@case("NAT of two clients, a third of whose packets carry the same")
def alike_translated(folder: Path) -> Made:
    """Behind a NAT nothing tells whose packet is whose, and both are inside at the same time."""
    once = stream(206, lost=0)
    again = np.arange(0, PACKETS, 3)
    sent = np.concatenate([once.sent_ns, once.sent_ns[again] + MIRROR_NS])
    latency = np.concatenate([once.latency_ns, once.latency_ns[again]])
    numbers = np.concatenate([np.arange(PACKETS), again])
    clients = np.concatenate([np.zeros(PACKETS, np.int64), np.ones(len(again), np.int64)])
    order = np.argsort(sent, kind="stable")
    traffic = Stream(sent[order], latency[order], np.zeros(len(order), dtype=bool))
    from_ = list(zip(numbers[order].tolist(), clients[order].tolist(), strict=True))

    def before(at: int) -> bytes:
        number, client = from_[at]
        return udp_frame(number, src=(CLIENT, OTHER_CLIENT)[client])

    def behind(at: int) -> bytes:
        number, client = from_[at]
        return udp_frame(number, src=PUBLIC, sport=20_000 + client, ttl=63)

    taps = in_files(folder, traffic.before(before), traffic.behind(behind))
    truth = traffic.truth(
        REWRITTEN,
        count=exactly(PACKETS - len(again)),
        ambiguous=exactly(2 * len(again)),
        reordered=(0, len(again)),
        warns="nothing proves which is which",
    )
    return Made(taps, truth)


def probe(_number: int) -> bytes:
    """The same probe each time."""
    return udp_frame(0, payload=bytes(18))


@case("identical probes, none lost")
def identical(folder: Path) -> Made:
    """Captures that begin in the middle look the same, with the packets of another time."""
    traffic = stream(210, lost=0)
    taps = in_files(folder, traffic.before(probe), traffic.behind(probe))
    truth = traffic.truth(
        UNCHANGED,
        count=NOTHING,
        ambiguous=exactly(PACKETS),
        reordered=NOTHING,
        latency_ns_p50=None,
        warns="look like others",
    )
    return Made(taps, truth)


@case("identical probes between two that differ")
def identical_between(folder: Path) -> Made:
    """In and out alternate behind one that is known, so order proves each match."""
    traffic = stream(210, lost=0)

    def frame(number: int) -> bytes:
        return udp_frame(number) if number in (0, PACKETS - 1) else probe(number)

    taps = in_files(folder, traffic.before(frame), traffic.behind(frame))
    return Made(taps, traffic.truth(UNCHANGED))


@case("identical probes, one lost")
def identical_but_one(folder: Path) -> Made:
    """Nothing can say more than that one is missing."""
    traffic = stream(211, lost=1)
    taps = in_files(folder, traffic.before(probe), traffic.behind(probe))
    # What is matched ends with the loss, so the median is of the packets before it.
    truth = traffic.truth(
        UNCHANGED,
        count=(0, PACKETS - 1),
        lost=(0, 1),
        ambiguous=(0, PACKETS),
        latency_ns_p50=None,
    )
    return Made(taps, truth)


def of_two_flows(number: int, *, src: str = CLIENT, shift: int = 0, ttl: int = 64) -> bytes:
    """The frame of one of two flows, which count from 0 each."""
    return udp_frame(number // 2, src=src, sport=40_000 + number % 2 + shift, ttl=ttl)


@case("two flows of equal counters through a router")
def two_flows(folder: Path) -> Made:
    traffic = stream(212, gap_ns=50_000)
    routed = partial(of_two_flows, ttl=63)
    taps = in_files(folder, traffic.before(of_two_flows), traffic.behind(routed))
    return Made(taps, traffic.truth(ROUTED))


@case("two flows of equal counters through a NAT")
def two_flows_translated(folder: Path) -> Made:
    """Of packets with one payload, a third may have gone in before the captures began."""
    traffic = stream(213, gap_ns=50_000)
    translated = partial(of_two_flows, src=PUBLIC, shift=-20_000, ttl=63)
    taps = in_files(folder, traffic.before(of_two_flows), traffic.behind(translated))
    lost = int(traffic.lost.sum())
    truth = traffic.truth(
        REWRITTEN,
        count=(0, PACKETS - lost),
        lost=(0, lost),
        ambiguous=(0, PACKETS),
    )
    return Made(taps, truth)


def segment(number: int, ident: int) -> bytes:
    """A segment of a stream, in a packet of its own."""
    body = tcp(counted(number, 200), 1000 + number * 200)
    return ethernet(ipv4(TCP, body, ident=ident & 0xFFFF))


REPAIRED = 10
TIMEOUT_NS = 30_050_000


def retransmitted(traffic: Stream) -> tuple[Stream, list[int]]:
    """A stream in which what is lost is sent again, and the segment that each packet carries."""
    lost = np.flatnonzero(traffic.lost)
    sent = np.concatenate([traffic.sent_ns, traffic.sent_ns[lost] + TIMEOUT_NS])
    latency = np.concatenate([traffic.latency_ns, traffic.latency_ns[lost]])
    gone = np.concatenate([traffic.lost, np.zeros(len(lost), dtype=bool)])
    segments = np.concatenate([np.arange(len(traffic.lost)), lost])
    order = np.argsort(sent, kind="stable")
    whole = Stream(sent[order], latency[order], gone[order])
    return whole, segments[order].tolist()


@case("TCP retransmissions, lost in the device")
def lost_in_device(folder: Path) -> Made:
    """Each packet has an identification of its own, as Linux numbers them."""
    traffic, segments = retransmitted(stream(220, lost=REPAIRED))

    def frame(number: int) -> bytes:
        return segment(segments[number], number)

    taps = in_files(folder, traffic.before(frame), traffic.behind(frame))
    return Made(taps, traffic.truth(UNCHANGED))


@case("TCP retransmissions that equal the lost packet")
def lost_and_repeated(folder: Path) -> Made:
    """Of two equal packets one arrived; which one, nothing can prove."""
    traffic, segments = retransmitted(stream(221, lost=REPAIRED))

    def frame(number: int) -> bytes:
        return segment(segments[number], 0)

    taps = in_files(folder, traffic.before(frame), traffic.behind(frame))
    truth = traffic.truth(
        UNCHANGED,
        count=(PACKETS - REPAIRED, PACKETS),
        lost=(0, REPAIRED),
        ambiguous=(0, 2 * REPAIRED),
        repeated=(0, REPAIRED),
        reordered=(0, len(segments)),
    )
    return Made(taps, truth)


@case("TCP retransmissions, lost before both taps")
def lost_before(folder: Path) -> Made:
    """The taps see each segment once, some of them later than those that follow."""
    whole, segments = retransmitted(stream(222, lost=REPAIRED))
    seen = np.flatnonzero(~whole.lost)
    traffic = Stream(whole.sent_ns[seen], whole.latency_ns[seen], np.zeros(len(seen), dtype=bool))

    def frame(number: int) -> bytes:
        return segment(segments[seen[number]], int(seen[number]))

    taps = in_files(folder, traffic.before(frame), traffic.behind(frame))
    return Made(taps, traffic.truth(UNCHANGED))
