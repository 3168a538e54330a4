"""Packets as one server served them: when it could begin with each, and how late it was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.aliasing.line import LEAST_EVENTS
from tailscope.extra.patterns.models.aliasing.sources import median_ns

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.aliasing.simulation import Times


class Served(NamedTuple):
    """Packets in order, without what they waited for those ahead."""

    begin_ns: Times
    """Arrival of a packet, or when the one ahead of it had been served, if that was later."""
    late_ns: Times
    """Latency since then, beyond that of a packet that meets nothing."""
    base_ns: int
    """Median latency of the packets that found nothing ahead of them."""
    service_ns: int | None
    """Median time between departures of packets that queued; None if too few did."""


def served(arrival_ns: Times, latency_ns: Times) -> Served:
    """Take apart what packets waited for each other and what else delayed them.

    A packet whose latency hides nothing was in service until the next one could begin.
    """
    left_ns = arrival_ns + latency_ns
    is_alone = arrival_ns[1:] >= left_ns[:-1]
    is_enough = np.count_nonzero(is_alone) >= LEAST_EVENTS
    base_ns = median_ns(latency_ns[1:][is_alone] if is_enough else latency_ns)
    has_queued = arrival_ns[1:] + base_ns < left_ns[:-1]
    service_ns = None
    if np.count_nonzero(has_queued) >= LEAST_EVENTS:
        service_ns = max(0, int(np.median(np.diff(left_ns)[has_queued])))
    return as_served(arrival_ns, latency_ns, base_ns, service_ns)


def as_served(arrival_ns: Times, latency_ns: Times, base_ns: int, service_ns: int | None) -> Served:
    """Take packets apart by what is known of the server."""
    left_ns = arrival_ns + latency_ns
    begin_ns = arrival_ns.copy()
    begin_ns[1:] = np.maximum(begin_ns[1:], left_ns[:-1] + (service_ns or 0) - base_ns)
    return Served(begin_ns, left_ns - base_ns - begin_ns, base_ns, service_ns)
