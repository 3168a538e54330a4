"""What is found of interruptions: sources, their figures, and why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tailscope.models.aliasing.simulation import Periodic, Times

LEVEL = 0.95
"""Confidence of the intervals."""


class Interval(NamedTuple):
    """Where the truth lies with the confidence of `LEVEL`."""

    low: float
    high: float


@dataclass(frozen=True)
class FittedSource:
    """Interruptions of one kind: teeth of a clock that last equally long."""

    periodic: Periodic
    """The interruptions, as `simulate` takes them."""
    latency_ns: int
    """The largest latency that they gave a packet."""
    packets: int | None = None
    """Packets that they delayed, those included that queued behind; None where nobody looked."""
    explained: float | None = None
    """Share of all delayed packets."""
    rate_ci_hz: Interval | None = None
    """None where the packets do not suffice."""
    duration_ci_ns: Interval | None = None
    """None where packets did not meet the interruptions evenly: the longest wait then does not say
    how much longer one may last."""
    p_value: float | None = None
    """Probability that packets without this clock look as much like one; None where nobody looked.
    """

    def record(self) -> dict[str, object]:
        """Its figures by their names."""
        periodic = self.periodic
        rate_low, rate_high = self.rate_ci_hz or (None, None)
        low, high = self.duration_ci_ns or (None, None)
        return {
            "rate_hz": periodic.rate_hz,
            "rate_hz_ci_low": rate_low,
            "rate_hz_ci_high": rate_high,
            "latency_ns": self.latency_ns,
            "duration_ns": periodic.duration_ns,
            "duration_ns_ci_low": low,
            "duration_ns_ci_high": high,
            "every": periodic.every,
            "teeth": list(periodic.teeth),
            "phase_ns": periodic.phase_ns,
            "period_ns": periodic.period_ns,
            "wander_ns": periodic.wander.largest_ns,
            "packets": self.packets,
            "explained": self.explained,
            "p_value": self.p_value,
        }


@dataclass(frozen=True)
class Fit:
    """What a series of packets says of the interruptions that it met."""

    base_latency_ns: int
    """The median: of a packet that met none."""
    packets: int
    threshold_ns: int | None
    """Packets above it are delayed; None where there is no source to tell."""
    delayed: int | None
    """How many there are."""
    service_ns: int
    """From one to the next departure where packets had queued; 0 where too few had."""
    sources: tuple[FittedSource, ...]
    """Sources of one comb in a row, the comb that stands out most first."""
    reason: str | None
    """Why there is none."""

    @property
    def explained(self) -> float | None:
        """Share of the delayed packets that the sources delayed; None where nobody looked."""
        shares = [source.explained for source in self.sources if source.explained is not None]
        return sum(shares) if shares else None


def median_ns(latency_ns: Times) -> int:
    """Latency of a packet that met no interruption: the smallest that half of all do not exceed."""
    middle = (len(latency_ns) - 1) // 2
    return int(np.partition(latency_ns, middle)[middle])
