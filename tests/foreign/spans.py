"""Captures that did not look all the time: of the rest they prove nothing."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Made, case, in_files
from .files import Interface, packets_in, pcap, pcapng
from .frames import routed_frame, udp_frame
from .stream import PACKETS, ROUTED, Stream, stream
from .tools import editcap
from .truth import exactly

if TYPE_CHECKING:
    from pathlib import Path

    from .truth import Truth

EARLY, LATE = 1200, 2800
"""The packet with which a capture begins, or before which one ends."""


def seen_between(traffic: Stream, first: int, end: int) -> Truth:
    """The truth where the capture behind the device holds packets `first` to `end` alone."""
    seen = traffic.between(first, end)
    missed = len(traffic.lost) - len(seen.lost)
    return seen_as(traffic.truth(ROUTED), len(seen.arrived), int(seen.lost.sum()), missed)


def seen_as(truth: Truth, count: int, lost: int, outside: int) -> Truth:
    return replace(truth, count=exactly(count), lost=exactly(lost), outside=exactly(outside))


@case("capture behind ends early (editcap)", programs=("editcap",))
def behind_ends_early(folder: Path) -> Made:
    traffic = stream(300, keep=[LATE])
    tap_in, tap_out = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame))
    kept = int((traffic.arrived < LATE).sum())
    cut = editcap(tap_out, f"1-{kept}", options=["-r"])
    return Made((tap_in, cut), seen_between(traffic, 0, LATE))


@case("capture behind starts late")
def behind_starts_late(folder: Path) -> Made:
    traffic = stream(301, keep=[EARLY])
    kept = int((traffic.arrived < EARLY).sum())
    taps = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame)[kept:])
    return Made(taps, seen_between(traffic, EARLY, PACKETS))


@case("capture before starts late")
def before_starts_late(folder: Path) -> Made:
    traffic = stream(302, keep=[EARLY])
    taps = in_files(folder, traffic.before(udp_frame)[EARLY:], traffic.behind(routed_frame))
    return Made(taps, traffic.between(EARLY, PACKETS).truth(ROUTED))


@case("capture before ends early")
def before_ends_early(folder: Path) -> Made:
    traffic = stream(303, keep=[LATE])
    taps = in_files(folder, traffic.before(udp_frame)[:LATE], traffic.behind(routed_frame))
    return Made(taps, traffic.between(0, LATE).truth(ROUTED))


HOLE = 300


def with_hole(traffic: Stream) -> tuple[list[int], int]:
    """The numbers behind the device that a capture kept, and how many it dropped in the middle."""
    arrived = traffic.arrived.tolist()
    kept = [number for number in arrived if not EARLY <= number < EARLY + HOLE]
    return kept, len(arrived) - len(kept)


@case("hole behind, dropped by the capture as its statistics say")
def hole_that_is_told(folder: Path) -> Made:
    """Where in the capture they were dropped, the statistics do not say."""
    traffic = stream(304, keep=range(EARLY, EARLY + HOLE, 50))
    kept, dropped = with_hole(traffic)
    assert dropped == HOLE
    seen = {one.data: one for one in traffic.behind(routed_frame)}
    interface = Interface(
        [seen[routed_frame(number)] for number in kept], "tap-out", dropped=dropped
    )
    taps = in_files(folder, traffic.before(udp_frame), pcapng(interface))
    truth = traffic.truth(ROUTED)
    return Made(taps, seen_as(truth, len(kept), int(traffic.lost.sum()), dropped))


@case("device that forwards nothing for 30 ms")
def outage(folder: Path) -> Made:
    """The capture behind it says that it dropped nothing."""
    whole = stream(308)
    out = whole.lost.copy()
    out[EARLY : EARLY + HOLE] = True
    traffic = Stream(whole.sent_ns, whole.latency_ns, out)
    tap = Interface(traffic.behind(routed_frame), "tap-out", dropped=0)
    taps = in_files(folder, traffic.before(udp_frame), pcapng(tap))
    return Made(taps, traffic.truth(ROUTED))


@case("hole before, dropped by the capture as its statistics say")
def hole_before(folder: Path) -> Made:
    """What was never seen before the device is not part of the traffic."""
    traffic = stream(305, keep=range(EARLY, EARLY + HOLE, 50))
    seen = traffic.before(udp_frame)
    interface = Interface(seen[:EARLY] + seen[EARLY + HOLE :], "tap-in", dropped=HOLE)
    taps = in_files(folder, pcapng(interface), traffic.behind(routed_frame))
    lost = int(traffic.lost.sum())
    count = PACKETS - HOLE - lost
    truth = traffic.truth(ROUTED, packets=PACKETS - HOLE, count=exactly(count))
    return Made(taps, truth)


def what_is_left(part: bytes) -> bytes:
    """What can be decompressed of a gzip file that was cut."""
    return zlib.decompressobj(wbits=31).decompress(part)


UNFLUSHED = 1 << 15
"""Bytes that a reader may hold back where the file ends: the window of gzip."""


@case("gzip behind, cut in the middle")
def gzip_cut(folder: Path) -> Made:
    traffic = stream(306, keep=range(1600, PACKETS, 50))
    whole = pcap(traffic.behind(routed_frame))
    packed = gzip.compress(whole, compresslevel=6)
    part = packed[: len(packed) * 6 // 10]
    most = packets_in(what_is_left(part))
    least = most - UNFLUSHED // 76
    taps = in_files(folder, traffic.before(udp_frame), part)
    return Made(taps, cut_truth(traffic, least, most))


def cut_truth(traffic: Stream, least: int, most: int) -> Truth:
    """The truth where `least` to `most` packets can be read behind the device."""
    lost = int(traffic.lost.sum())
    assert traffic.arrived[least] > max(traffic.lost.nonzero()[0])
    return replace(
        traffic.truth(ROUTED),
        count=(least, most),
        outside=(PACKETS - most - lost, PACKETS - least - lost),
        warns="cut|truncated|incomplete|ends",
    )


@case("pcap behind, cut within a packet")
def pcap_cut(folder: Path) -> Made:
    traffic = stream(307, keep=range(2000, PACKETS, 50))
    whole = pcap(traffic.behind(routed_frame))
    part = whole[: 24 + 76 * 2500 + 31]
    taps = in_files(folder, traffic.before(udp_frame), part)
    return Made(taps, cut_truth(traffic, 2500, 2500))
