"""Retransmissions of TCP: segments whose bytes were sent before, by their sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Marks, Numbers

PATTERN = "retransmissions"

_FEWEST = 10
_COPY_NS = 1_000_000
"""A packet of the same identification within a millisecond is a copy by a mirror port."""


@dataclass(frozen=True)
class Segments:
    """Segments of TCP that travel through the device, in the order in which they came."""

    arrival_ns: Numbers
    flow: Numbers
    sequence: Numbers
    """Number of the first byte."""
    bytes: Numbers
    """Bytes of the stream in it; a segment without any is none here."""
    ident: Numbers
    """Identification of the IP packet; 0 where it has none."""
    lost: Marks
    """Segments that were lost between the captures."""


def retransmissions(segments: Segments) -> Answer:
    """Find segments that begin where one of their flow began before, and what became of that one.

    Keep-alive probes repeat a byte that was acknowledged, and copies repeat a packet: neither is a
    retransmission.
    """
    count = len(segments.sequence)
    if not count:
        return Refusal(PATTERN, "no segment of TCP has bytes of a stream")
    order = np.lexsort((np.arange(count), segments.sequence, segments.flow))
    again, before = order[1:], order[:-1]
    same = segments.flow[again] == segments.flow[before]
    same &= segments.sequence[again] == segments.sequence[before]
    later_ns = segments.arrival_ns[again] - segments.arrival_ns[before]
    is_copy = (segments.ident[again] == segments.ident[before]) & (later_ns < _COPY_NS)
    is_probe = (segments.bytes[again] == 1) & (segments.bytes[before] > 1)
    repeats = same & ~is_copy & ~is_probe
    found = int(np.count_nonzero(repeats))
    if found < _FEWEST:
        few = f"{found} of {count} segments of TCP repeat bytes that were sent before"
        return Refusal(PATTERN, f"{few}, expected at least {_FEWEST}")
    lost = int(np.count_nonzero(segments.lost[before[repeats]]))
    return Finding(
        PATTERN,
        {
            "retransmitted_segments": found,
            "tcp_segments": count,
            "retransmitted_share": found / count,
            "retransmitting_flows": len(np.unique(segments.flow[again[repeats]])),
            "lost_between_captures": lost,
            "repeated_after_ns_p50": int(np.median(later_ns[repeats])),
        },
    )
