"""Clocks: coarse ones, and two that do not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case, in_files
from .files import SECOND, Packet, pcap
from .frames import routed_frame, udp_frame
from .stream import (
    PACKETS,
    ROUTED,
    START_NS,
    UNCHANGED,
    Stream,
    above_fastest,
    middle,
    on_another_clock,
    stream,
)
from .tools import editcap
from .truth import around, exactly

if TYPE_CHECKING:
    from pathlib import Path

    from .truth import Truth


@case("stamps of microseconds, a device of 300 ns")
def below_resolution(folder: Path) -> Made:
    """Most packets have equal stamps on both sides; they took less than can be told."""
    traffic = stream(400, latency_ns=(200, 400))
    contents = (traffic.before(udp_frame), traffic.behind(routed_frame))
    taps = in_files(folder, *(pcap(each, unit_ns=1000) for each in contents))
    truth = traffic.truth(ROUTED, latency_ns_p50=(0, 1000), resolution_ns=exactly(1000))
    return Made(taps, truth)


@case("grid of 12.5 ns")
def coarse_grid(folder: Path) -> Made:
    """As cards with a clock of 80 MHz stamp packets, in files of nanoseconds."""
    traffic = stream(401, latency_ns=(3_100, 3_180))
    taps = in_files(
        folder, on_grid(traffic.before(udp_frame)), on_grid(traffic.behind(routed_frame))
    )
    bounds = middle(traffic.latency_ns[~traffic.lost], 13)
    return Made(taps, traffic.truth(ROUTED, latency_ns_p50=bounds, resolution_ns=(12, 13)))


def on_grid(packets: list[Packet]) -> list[Packet]:
    return [one._replace(ts=one.ts * 2 // 25 * 25 // 2) for one in packets]


HULL_NS = 1_000
"""How far the line below all latencies may lie from the truth: a tenth of their spread."""

SLOW_GAP_NS = 10_000_000


def two_clocks(name: str, offset_ns: int, drift_ppm: float = 0, *, warns: str = "clock") -> None:
    """Enter a capture behind the device whose clock is ahead, and drifts, over 40 s."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(410, gap_ns=SLOW_GAP_NS)
        behind = on_another_clock(traffic.behind(routed_frame), offset_ns, drift_ppm)
        taps = in_files(folder, traffic.before(udp_frame), behind)
        return Made(taps, apart(traffic, offset_ns, drift_ppm, warns))


def apart(traffic: Stream, offset_ns: int, drift_ppm: float, warns: str) -> Truth:
    """What can be told of clocks that are apart.

    An offset cannot be told from the latency of the fastest packet, and may be told at any time of
    the capture.
    """
    drifted = drift_ppm / 1e6 * (traffic.sent_ns[-1] - START_NS)
    fastest = int(traffic.latency_ns.max())
    offsets = (offset_ns, offset_ns + drifted)
    return traffic.truth(
        ROUTED,
        latency_ns_p50=above_fastest(traffic.latency_ns[~traffic.lost], HULL_NS),
        relative=True,
        clock_offset_ns=(min(offsets) - HULL_NS, max(offsets) + fastest),
        clock_drift_ppm=around(drift_ppm, 0.1),
        warns=warns,
    )


two_clocks("clock behind 3 ms ahead, drifting by 20 ppm", 3_000_000, 20)
two_clocks("clock behind 3 ms late, drifting by −20 ppm", -3_000_000, -20)
two_clocks("clock behind 3 ms late", -3_000_000)
two_clocks("clock behind an hour ahead", 3600 * SECOND, warns=r"\b1 h\b|hour|3600")


@case("clock behind 37 s late: TAI and UTC (editcap)", programs=("editcap",))
def atomic_time(folder: Path) -> Made:
    traffic = stream(411, gap_ns=SLOW_GAP_NS)
    taps = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame))
    late = editcap(taps[1], options=["-t", "-37"])
    return Made((taps[0], late), apart(traffic, -37 * SECOND, 0, r"\b37 s\b|TAI"))


@case("clock behind 37 s late, as the user says")
def known_offset(folder: Path) -> Made:
    traffic = stream(412)
    behind = on_another_clock(traffic.behind(routed_frame), -37 * SECOND)
    taps = in_files(folder, traffic.before(udp_frame), behind)
    return Made((*taps, "--clocks", "offset=-37s"), traffic.truth(ROUTED))


@case("one clock, slow device whose latency grows")
def growing_latency(folder: Path) -> Made:
    """A queue that fills up is no drift: only the fastest packets tell of clocks."""
    traffic = stream(413, gap_ns=SLOW_GAP_NS)
    queue = np.where(np.arange(len(traffic.lost)) % 20, np.arange(len(traffic.lost)) * 400, 0)
    filling = Stream(traffic.sent_ns, traffic.latency_ns + queue, traffic.lost)
    taps = in_files(folder, filling.before(udp_frame), filling.behind(routed_frame))
    return Made(taps, filling.truth(ROUTED))


@case("sides of a bridge swapped, latencies with a tail towards 0")
def swapped_or_late(folder: Path) -> Made:
    """Mirrored, such latencies look like those of a device, and of a clock that is late."""
    traffic = stream(414, gap_ns=SLOW_GAP_NS)
    chance = np.random.default_rng(414)
    skewed = np.maximum(60_000 - chance.exponential(8_000, PACKETS), 5_000).astype(np.int64)
    traffic = Stream(traffic.sent_ns, skewed, np.zeros(PACKETS, dtype=bool))
    tap_in, tap_out = in_files(folder, traffic.before(udp_frame), traffic.behind(udp_frame))
    truth = traffic.truth(
        UNCHANGED,
        latency_ns_p50=None,
        relative=None,
        reordered=(0, PACKETS),
        warns="clocks.*captures are swapped",
    )
    return Made((tap_out, tap_in), truth)
