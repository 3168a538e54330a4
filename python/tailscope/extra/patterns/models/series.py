"""The packets of a pair of captures as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.answer import Floats, Marks, Numbers


@dataclass(frozen=True)
class Losses:
    """Lost packets, in the order in which they were sent."""

    arrival_ns: Numbers
    size_bytes: Numbers | None = None


@dataclass(frozen=True)
class Series:
    """Matched packets in the order in which they were sent, and lost ones.

    Times are nanoseconds since the first packet.
    """

    arrival_ns: Numbers
    latency_ns: Numbers
    size_bytes: Numbers | None = None
    """Length of each packet; None if it is not known."""
    flow: Numbers | None = None
    """Number of the flow of each packet, from 0; None if flows are not known."""
    losses: Losses | None = None
    """None if it is not known which packets were lost."""

    @cached_property
    def depart_ns(self) -> Numbers:
        """When each packet left."""
        return self.arrival_ns + self.latency_ns

    @cached_property
    def order(self) -> NDArray[np.int32]:
        """The packets in the order in which they left."""
        return np.argsort(self.depart_ns, kind="stable").astype(np.int32)

    @cached_property
    def left_ns(self) -> Numbers:
        """All departures, in order."""
        return self.depart_ns[self.order]

    def between(self, begin: int, end: int) -> Series:
        """Return packets by their places, and what was lost meanwhile."""
        losses, start_ns = self.losses, self.arrival_ns[begin]
        if losses is not None:
            lost_ns = losses.arrival_ns
            meanwhile = (lost_ns >= start_ns) & (lost_ns <= self.arrival_ns[end - 1])
            size = losses.size_bytes
            losses = Losses(
                lost_ns[meanwhile] - start_ns, None if size is None else size[meanwhile]
            )
        return Series(
            self.arrival_ns[begin:end] - start_ns,
            self.latency_ns[begin:end],
            None if self.size_bytes is None else self.size_bytes[begin:end],
            None if self.flow is None else self.flow[begin:end],
            losses,
        )

    @cached_property
    def alone(self) -> Marks:
        """The packets that came when all before them had left; the first one may not have."""
        front_ns = np.maximum.accumulate(self.depart_ns)
        return np.append(False, self.arrival_ns[1:] >= front_ns[:-1])

    @cached_property
    def sizes(self) -> dict[str, Floats]:
        """The size of each packet, by unit: packets, and bytes where they are known."""
        ones = {"packets": np.broadcast_to(1.0, len(self.arrival_ns))}
        if self.size_bytes is None:
            return ones
        return {"bytes": self.size_bytes.astype(float), **ones}

    def lost_sizes(self, unit: str) -> Floats:
        """The size of each lost packet."""
        lost = losses_of(self)
        if unit == "packets" or lost.size_bytes is None:
            return np.ones(len(lost.arrival_ns))
        return lost.size_bytes.astype(float)

    @cached_property
    def overtaking(self) -> float:
        """The share of packets that left before an earlier packet of the same flow."""
        if len(self.arrival_ns) < 2:
            return 0.0
        if self.flow is None:
            front_ns = np.maximum.accumulate(self.depart_ns)
            behind = np.count_nonzero(self.depart_ns[1:] < front_ns[:-1])
            return float(behind / len(front_ns))
        flow = self.flow
        by_flow = np.argsort(flow, kind="stable")
        depart_ns, same = self.depart_ns[by_flow], np.diff(flow[by_flow]) == 0
        # Flows are laid one behind the other, so that one pass serves all.
        span_ns = int(depart_ns.max() - depart_ns.min()) + 1
        _, number = np.unique(flow[by_flow], return_inverse=True)
        shifted = depart_ns + number * span_ns
        front_ns = np.maximum.accumulate(shifted)
        return float(np.count_nonzero((shifted[1:] < front_ns[:-1]) & same) / len(depart_ns))


def losses_of(series: Series) -> Losses:
    """Return the lost packets where they are known."""
    assert series.losses is not None, "lost packets are known"
    return series.losses
