"""Pairs of which nothing can follow."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case, in_files
from .frames import routed_frame, udp_frame
from .stream import PACKETS, Stream, stream
from .truth import Refused

if TYPE_CHECKING:
    from pathlib import Path

others_frame = partial(udp_frame, src="192.168.7.1", dst="192.168.8.1", sport=777, dport=53)


@case("different traffic")
def different(folder: Path) -> Made:
    ours, theirs = stream(600), stream(601, packets=2500, gap_ns=140_000)

    def other(number: int) -> bytes:
        return others_frame(1_000_000 + number, size=40)

    return Made(in_files(folder, ours.before(udp_frame), theirs.behind(other)), Refused("traffic"))


@case("different traffic of the same payload, zeros")
def same_payload(folder: Path) -> Made:
    """Flows that share neither addresses nor rate: that their payload is equal proves nothing."""
    ours, theirs = stream(602), stream(603, packets=2500, gap_ns=140_000)
    zeros = bytes(18)
    before = ours.before(lambda number: udp_frame(number, payload=zeros))
    behind = theirs.behind(lambda number: others_frame(number, payload=zeros))
    return Made(in_files(folder, before, behind), Refused("traffic|payload", or_nothing=True))


@case("the same file twice")
def same_file(folder: Path) -> Made:
    tap, _ = in_files(folder, stream(604).before(udp_frame), b"")
    return Made((tap, tap), Refused("same"))


@case("the same file under another name")
def copied_file(folder: Path) -> Made:
    tap, copy = in_files(folder, stream(605).before(udp_frame), b"")
    shutil.copyfile(tap, copy)
    return Made((tap, copy), Refused("same|identical"))


@case("sides of a router swapped")
def swapped(folder: Path) -> Made:
    traffic = stream(606)
    tap_in, tap_out = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame))
    return Made((tap_out, tap_in), Refused("swap"))


@case("sides of a bridge swapped")
def swapped_bridge(folder: Path) -> Made:
    """All that the first capture holds comes earlier in the second, which holds more."""
    traffic = stream(607)
    tap_in, tap_out = in_files(folder, traffic.before(udp_frame), traffic.behind(udp_frame))
    return Made((tap_out, tap_in), Refused("swap"))


@case("sides of a full queue swapped, latencies with a tail towards 0")
def swapped_queue(folder: Path) -> Made:
    """Mirrored, such latencies look like those of a device; but a device makes no packets."""
    traffic = stream(609, lost=100)
    chance = np.random.default_rng(609)
    queued_ns = np.maximum(60_000 - chance.exponential(8_000, PACKETS), 5_000).astype(np.int64)
    full = Stream(traffic.sent_ns, queued_ns, traffic.lost)
    tap_in, tap_out = in_files(folder, full.before(udp_frame), full.behind(udp_frame))
    return Made((tap_out, tap_in), Refused("swap"))


@case("nothing captured behind")
def empty(folder: Path) -> Made:
    return Made(in_files(folder, stream(608).before(udp_frame), []), Refused("no packet|empty"))
