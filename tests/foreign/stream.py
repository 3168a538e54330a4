"""Traffic of which all is known: when each packet left, how long it took, which were lost."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .files import Packet, packet
from .truth import Truth, exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from .truth import Bounds

    Times = NDArray[np.int64]

START_NS = 1_700_000_000_123_456_789
PACKETS = 4000
LOST = 20

UNCHANGED = frozenset({"frame"})
ROUTED = frozenset({"l3"})
REWRITTEN = frozenset({"payload"})
TUNNELLED = frozenset({"inner"})
RECAST = frozenset({"frame", "l3", "payload"})
"""Keys of a frame in another link layer or of another length: any that reads both is right."""


@dataclass(frozen=True)
class Stream:
    """Packets numbered from 0, in the order in which they were sent."""

    sent_ns: Times
    latency_ns: Times
    lost: NDArray[np.bool_]

    @cached_property
    def arrived(self) -> NDArray[np.int64]:
        """The numbers of the packets that arrived, in that order."""
        kept = np.flatnonzero(~self.lost)
        return kept[np.argsort((self.sent_ns + self.latency_ns)[kept], kind="stable")]

    def before(self, frame: Callable[[int], bytes]) -> list[Packet]:
        """The capture before the device."""
        return [packet(ts, frame(number)) for number, ts in enumerate(self.sent_ns.tolist())]

    def behind(self, frame: Callable[[int], bytes]) -> list[Packet]:
        """The capture behind the device."""
        seen = (self.sent_ns + self.latency_ns).tolist()
        return [packet(seen[number], frame(number)) for number in self.arrived.tolist()]

    def truth(self, keys: frozenset[str], **changes: Any) -> Truth:
        """What is true of the two captures."""
        lost = int(self.lost.sum())
        usual = {
            "packets": len(self.lost),
            "count": exactly(len(self.lost) - lost),
            "lost": exactly(lost),
            "reordered": exactly(reordered(self.arrived)),
            "latency_ns_p50": middle(self.latency_ns[~self.lost]),
        }
        return Truth(keys, **{**usual, **changes})

    def between(self, first: int, end: int) -> Stream:
        """Packets `first` to `end` alone."""
        part = slice(first, end)
        return Stream(self.sent_ns[part], self.latency_ns[part], self.lost[part])


def stream(
    seed: int,
    *,
    packets: int = PACKETS,
    lost: int = LOST,
    gap_ns: int = 100_000,
    latency_ns: tuple[int, int] = (20_000, 30_000),
    keep: Iterable[int] = (),
) -> Stream:
    """Traffic at a nearly constant rate, in order.

    Parameters
    ----------
    seed : int
    packets, lost : int
        Lost are none of the first and last twentieth: of those a capture may prove nothing.
    gap_ns : int
    latency_ns : (int, int)
        Latencies are uniform between these.
    keep : iterable of int
        Numbers near which nothing is lost, for captures that begin or end there.
    """
    chance = np.random.default_rng(seed)
    jitter = chance.integers(0, gap_ns // 20, packets)
    sent = START_NS + np.arange(packets, dtype=np.int64) * gap_ns + jitter
    may = np.arange(packets // 20, packets - packets // 20)
    for number in keep:
        may = may[np.abs(may - number) > packets // 40]
    gone = np.zeros(packets, dtype=bool)
    gone[chance.choice(may, lost, replace=False)] = True
    return Stream(sent, chance.integers(*latency_ns, packets), gone)


def seed_of(name: str) -> int:
    """A seed for the traffic of a kind."""
    return zlib.crc32(name.encode())


def middle(latency_ns: Times, slack_ns: float = 1) -> Bounds:
    """Bounds of a median: a hundredth of the packets may be left out at either end."""
    low, high = np.quantile(latency_ns, (0.49, 0.51))
    return float(low) - slack_ns, float(high) + slack_ns


def above_fastest(latency_ns: Times, slack_ns: float) -> Bounds:
    """The same above the fastest packet."""
    return middle(latency_ns - latency_ns.min(), slack_ns)


def reordered(arrived: NDArray[np.int64]) -> int:
    """How many arrived behind one that was sent after them (RFC 4737)."""
    return int((arrived < np.maximum.accumulate(arrived)).sum())


def on_another_clock(
    packets: Sequence[Packet], offset_ns: int, drift_ppm: float = 0
) -> list[Packet]:
    """Packets as a clock stamps them that is ahead by `offset_ns` at the start, and drifts."""
    return [
        one._replace(ts=one.ts + offset_ns + round((one.ts - START_NS) * drift_ppm / 1e6))
        for one in packets
    ]
