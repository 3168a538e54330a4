"""The result of a fit: sources of interruptions, their figures, or the reason for none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.aliasing.simulation import Periodic, Times

LEVEL = 0.95
"""Confidence of the intervals."""


class Interval(NamedTuple):
    """An interval with the confidence of `LEVEL`."""

    low: float
    high: float


@dataclass(frozen=True)
class FittedSource:
    """Interruptions of one kind: teeth of a clock that last equally long."""

    periodic: Periodic
    """Interruptions as `simulate` takes them."""
    latency_ns: int
    """Largest latency that they gave a packet, in nanoseconds."""
    packets: int | None = None
    """Number of packets that they delayed, including those that queued behind; None if not
    counted."""
    explained: float | None = None
    """Share of all delayed packets."""
    rate_ci_hz: Interval | None = None
    """Interval of the rate; None if there are too few packets."""
    duration_ci_ns: Interval | None = None
    """Interval of the duration; None if packets did not meet the interruptions evenly: the
    longest wait then does not say how much longer one may last."""
    p_value: float | None = None
    """Probability that packets without this clock look as much like one; None if not tested."""
    window_ns: int | None = None
    """Time before a packet is done in which a tick delays it by as much, wherever it fell; None if
    packets wait for the end of a tick."""

    def record(self) -> dict[str, object]:
        """Return the figures by their names."""
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
            "window_ns": self.window_ns,
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
    """The interruptions that a series of packets met."""

    base_latency_ns: int
    """Median latency, which is that of an undelayed packet, in nanoseconds."""
    packets: int
    threshold_ns: int | None
    """Latency above which packets are delayed; None without a source."""
    delayed: int | None
    """Number of delayed packets."""
    service_ns: int
    """Time between departures of queued packets; 0 if too few queued."""
    sources: tuple[FittedSource, ...]
    """Sources, grouped by comb, the strongest comb first."""
    reason: str | None
    """Reason why there is no source; None if there is one."""
    crossed_ns: int = 0
    """Time in which a tick finds a packet in service, and delays it by all its length; less than
    the time of a service where packets leave before the server is done with them."""
    in_batches: bool = False
    """True if sources are those of work, and most packets wait for each other: then they tell
    nothing of the latency of a packet."""

    @property
    def explained(self) -> float | None:
        """Return the share of the delayed packets that the sources delayed; None if not counted."""
        shares = [source.explained for source in self.sources if source.explained is not None]
        return sum(shares) if shares else None


def median_ns(latency_ns: Times) -> int:
    """Return the latency of an undelayed packet: the smallest that half of all do not exceed."""
    middle = (len(latency_ns) - 1) // 2
    return int(np.partition(latency_ns, middle)[middle])
