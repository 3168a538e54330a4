"""CPU time of a packet, from the departures of packets that waited for each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import ModelError
from tailscope.models.estimate import LEVEL, Estimate
from tailscope.models.special import stdtrit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Integers = NDArray[np.int64]

FEWEST_QUEUES = 20
"""Smallest number of queues that gives an interval."""

_SAME_BATCH = 0.5
"""Share of the mean spacing within which departures belong to one batch."""


@dataclass(frozen=True)
class Queues:
    """Periods in which a device always had another packet to work on."""

    begin_ns: Integers
    end_ns: Integers
    """Departure of the packet, or batch, before the first that waited, and departure of the last
    one."""
    packets: Integers
    """Number of packets that left in the period."""

    def where(self, which: NDArray[np.bool_]) -> Queues:
        """Return some of the queues."""
        return Queues(self.begin_ns[which], self.end_ns[which], self.packets[which])


def queues_of(
    seq: ArrayLike, pre_ns: ArrayLike, latency_ns: ArrayLike, transfer_ns: float
) -> Queues:
    """Find the packets that certainly waited for the one before them.

    A packet waited if it had arrived at the device before the packet in front of it was finished:
    if it was sent longer before that one's return than the two transfers take together. As long as
    packets wait, the device works without a pause, and time between departures is time of work. A
    batch leaves at once, so that a queue is counted from the last packet of its first batch.
    """
    number, sent, latency = (
        np.asarray(column).astype(np.int64) for column in (seq, pre_ns, latency_ns)
    )
    left = np.maximum.accumulate(sent + latency) if len(sent) else sent
    waited = np.zeros(len(sent), bool)
    waited[1:] = (sent[1:] + math.ceil(transfer_ns) <= left[:-1]) & (np.diff(number) == 1)
    edges = np.diff(waited.astype(np.int8), append=0)
    before, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    first = _last_of_batch(left, before, last)
    queues = Queues(left[first], left[last], last - first)
    return queues.where((queues.packets > 0) & (queues.end_ns > queues.begin_ns))


def _last_of_batch(left: Integers, before: Integers, last: Integers) -> Integers:
    """Find the last packet that left together with the one before a queue."""
    spacing = (left[last] - left[before]) / np.maximum(1, last - before)
    together = left[before] + _SAME_BATCH * spacing
    last_together: Integers = np.minimum(np.searchsorted(left, together, "right") - 1, last)
    return last_together


def queued_time(queues: Queues, noise_ns: ArrayLike | None = None) -> Estimate | None:
    """Return the working time per packet in ns: that of all queues, divided by their packets.

    Queues are independent of each other, packets in one are not: the interval is Student's, of the
    ratio of two sums.
    """
    n = len(queues.packets)
    if n < FEWEST_QUEUES:
        return None
    taken = np.zeros(n) if noise_ns is None else np.asarray(noise_ns, float)
    worked = queues.end_ns - queues.begin_ns - taken
    packets = queues.packets.astype(float)
    ratio = float(worked.sum() / packets.sum())
    if not ratio > 0:
        raise ModelError(
            f"work on queued packets: got {ratio:g} ns each, expected more than 0",
            code="queues-noisy",
            hint="more time was recorded as noise than the packets were queued for",
        )
    rest = worked - ratio * packets
    error = math.sqrt(float((rest**2).sum()) * n / (n - 1)) / float(packets.sum())
    reach = stdtrit(n - 1, (1 + LEVEL) / 2) * error
    return Estimate(
        estimate=ratio,
        ci_low=max(0.0, ratio - reach),
        ci_high=ratio + reach,
        n=int(packets.sum()),
        method="Student's t, of queues",
    )
