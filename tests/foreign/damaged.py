"""Packets that come out with a bit changed, which their own checksums show."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .case import Made, case, in_files
from .files import packet
from .frames import tcp_frame, udp6_frame, udp_frame
from .stream import UNCHANGED, middle, seed_of, stream
from .truth import exactly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Frame = Callable[[int], bytes]

EVERY = 40


def damaged(name: str, frame: Frame, place: int) -> None:
    """Enter a device that changes the lowest bit of the byte at `place` of some packets."""

    @case(name, is_long=True)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        bad = ~traffic.lost & (np.arange(len(traffic.lost)) % EVERY == EVERY // 2)
        sent = [packet(ts, frame(at)) for at, ts in enumerate(traffic.sent_ns.tolist())]
        seen = []
        for at in traffic.arrived.tolist():
            data = bytearray(frame(at))
            data[place] ^= bool(bad[at])
            seen.append(packet(int(traffic.sent_ns[at] + traffic.latency_ns[at]), bytes(data)))
        well = ~traffic.lost & ~bad
        truth = traffic.truth(
            UNCHANGED,
            count=exactly(int(well.sum())),
            corrupt=exactly(int(bad.sum())),
            latency_ns_p50=middle(traffic.latency_ns[well]),
            warns="damaged",
        )
        return Made(in_files(folder, sent, seen), truth)


damaged("one bit changed, UDP", partial(udp_frame, size=80), 50)
damaged("one bit changed, TCP", tcp_frame, 62)
damaged("one bit changed, IPv6", udp6_frame, 70)
