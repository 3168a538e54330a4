"""Devices whose latency is known by construction, and what packets at a steady pace meet there.

Each truth is a set-up of the device `delay`, which holds packets on the way forth and lets those on
the way back pass: a round trip holds its latency once. The figures are those of packets sent at the
rate that was asked for, whatever they wait for, with an even phase to what the device does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EVEN = (np.arange(1_000_000) + 0.5) / 1_000_000
"""Quantiles at which a law is averaged."""
_US, _MS = 1_000, 1_000_000

CONSTANT_NS = 200 * _US
LOW_NS, HIGH_NS, HIGH_SHARE = 100 * _US, 400 * _US, 0.02
STALL_PERIOD_NS, STALL_NS = 200 * _MS, 4 * _MS
BATCH_NS = 3_713_700
BUCKET_EACH_NS, BUCKET_DEPTH, BUCKET_PERIOD_NS, BUCKET_OWED = 1_000, 32, 10 * _MS, 2_000
OVERLOAD, QUEUE_ROOM = 1.25, 4
LATE_SHARE, LATE_PERIODS = 0.05, 3.3


@dataclass(frozen=True)
class Truth:
    """What is known of a device."""

    about: str
    """Description as a noun phrase."""
    device: Mapping[str, str]
    """Options of `delay`."""
    latency_ns: Callable[[float], float]
    """Latency by quantile, of the packets that come through."""
    lost: float = 0.0
    reordered: float = 0.0
    """Shares of the packets: of those sent, and of those that came (RFC 4737)."""

    def value(self, statistic: str, q: float | None) -> float:
        """Return a true figure: a quantile, ``mean``, ``max``, ``lost`` or ``reordered``."""
        if q is not None:
            return self.latency_ns(q)
        if statistic == "mean":
            return float(np.mean([self.latency_ns(each) for each in _EVEN[::100]]))
        return {"max": self.latency_ns(1.0), "lost": self.lost, "reordered": self.reordered}[
            statistic
        ]


def truths(rate_pps: int) -> dict[str, Truth]:
    """Return all truths by name, for a packet rate."""
    space_ns = 1e9 / rate_pps
    service_ns = round(space_ns * OVERLOAD)
    late_ns = round(CONSTANT_NS + space_ns * LATE_PERIODS)
    owed_ns = BUCKET_OWED * BUCKET_EACH_NS
    burst = BUCKET_OWED + BUCKET_DEPTH
    return {
        "constant": Truth(
            "a constant delay of 200 µs",
            {"law": f"fixed:{CONSTANT_NS}ns"},
            lambda _: CONSTANT_NS,
        ),
        "bimodal": Truth(
            "100 µs, and 400 µs for 2 % of the packets",
            {"law": f"bimodal:{LOW_NS}ns,{HIGH_NS}ns,{HIGH_SHARE}", "overtake": "on"},
            lambda q: LOW_NS if q <= 1 - HIGH_SHARE else HIGH_NS,
        ),
        "stalls": Truth(
            "a stall of 4 ms every 200 ms",
            {"stall-period": f"{STALL_PERIOD_NS}ns", "stall-duration": f"{STALL_NS}ns"},
            lambda q: max(0.0, STALL_NS - (1 - q) * STALL_PERIOD_NS),
        ),
        "overload": Truth(
            f"a queue of {QUEUE_ROOM} packets that serves 80 % of the rate",
            {"gate": f"queue:{service_ns}ns,{QUEUE_ROOM}"},
            lambda q: service_ns * (QUEUE_ROOM - (1 - q) / OVERLOAD),
            lost=1 - 1 / OVERLOAD,
        ),
        "reordering": Truth(
            f"200 µs, and {LATE_PERIODS} intervals more for 5 %, which others overtake",
            {"law": f"bimodal:{CONSTANT_NS}ns,{late_ns}ns,{LATE_SHARE}", "overtake": "on"},
            lambda q: CONSTANT_NS if q <= 1 - LATE_SHARE else late_ns,
            reordered=LATE_SHARE * (1 - LATE_SHARE ** int(LATE_PERIODS)),
        ),
        "bucket": Truth(
            "a token bucket that another flow overdraws by 2 ms, every 10 ms",
            {
                "gate": f"bucket:{BUCKET_EACH_NS}ns,{BUCKET_DEPTH},{burst},{BUCKET_PERIOD_NS}ns",
            },
            lambda q: max(0.0, owed_ns - (1 - q) * BUCKET_PERIOD_NS),
        ),
        "batches": Truth(
            "a release of all that wait, every 3.7 ms",
            {"gate": f"batch:{BATCH_NS}ns"},
            lambda q: q * BATCH_NS,
        ),
    }
