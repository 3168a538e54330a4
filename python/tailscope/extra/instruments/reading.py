"""What an instrument says of a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tailscope.models.samples import SUPPORT, quantile_of, rank_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

QUANTILES = {
    "p50": 0.5,
    "p90": 0.9,
    "p99": 0.99,
    "p99.9": 0.999,
    "p99.99": 0.9999,
    "p99.999": 0.99999,
    "p99.9999": 0.999999,
}


@dataclass(frozen=True)
class Reading:
    """One measurement by an instrument."""

    latency_ns: Floats = field(default_factory=lambda: np.zeros(0))
    """One for each packet that the instrument saw through."""
    sent: int | None = None
    """Number of packets sent; None if the instrument does not tell."""
    reordered: float | None = None
    """Share of the packets; None if the instrument does not tell."""
    said: Mapping[str, float] = field(default_factory=dict)
    """Figures that the instrument prints in place of latencies: ``mean``, ``max``, ``lost``."""

    def values(self) -> dict[str, float]:
        """Return all figures that the packets allow, by name: in ns, or as shares."""
        count = len(self.latency_ns)
        found = dict(self.said)
        for name, q in QUANTILES.items():
            if count and count - rank_of(q, count) >= SUPPORT:
                found[name] = quantile_of(self.latency_ns, q)
        if count:
            found |= {"mean": float(self.latency_ns.mean()), "max": float(self.latency_ns.max())}
        if self.sent:
            found["lost"] = max(0.0, 1 - count / self.sent)
        if self.reordered is not None:
            found["reordered"] = self.reordered
        return found


def reordered_share(sent_ns: Floats, latency_ns: Floats) -> float:
    """Return the share of packets that came after one that was sent later (RFC 4737)."""
    in_order_of_arrival = sent_ns[np.argsort(sent_ns + latency_ns, kind="stable")]
    latest = np.maximum.accumulate(in_order_of_arrival)
    return float(np.mean(in_order_of_arrival < latest)) if len(sent_ns) else 0.0


def one_in_flight(sent_ns: Floats, latency_ns: Floats, timeout_ns: float) -> Floats:
    """Return the latencies of packets of which no two are on their way at once.

    This is how MoonGen samples: the next timestamped packet leaves when the one before has come,
    or after a timeout if it never does (its latency is infinite here).
    """
    chosen, free_ns = [], -np.inf
    for at_ns, lasts_ns in zip(sent_ns, latency_ns, strict=True):
        if at_ns < free_ns:
            continue
        free_ns = at_ns + min(lasts_ns, timeout_ns)
        if lasts_ns < timeout_ns:
            chosen.append(lasts_ns)
    return np.array(chosen)
