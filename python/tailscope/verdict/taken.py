"""The time that each packet of a run took, by rank and by stretch of the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Distribution
from tailscope.exceptions import UsageError
from tailscope.models.counting import stretches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Unsigned = NDArray[np.uint64]
    Batches = Callable[[], Iterator[tuple[Unsigned, Unsigned]]]

NO_PACKETS = (
    "no packet is left to judge: what the device dropped on purpose, or the instrument lost, does"
    " not count"
)
"""The reason why a run with none says nothing of what packets take."""
_MOST_NS = 2**64 - 1


class Taken:
    """The time that each packet took, in the order of sending; it need not fit in memory.

    Packets that did not come back in time, or changed, took infinitely long. Which of the missing
    ones did is not known where others were left out on purpose. They are put at the first gaps, and
    behind the last packet: all together, as the worst burst would be.
    """

    def __init__(
        self,
        came: Distribution,
        failed: int,
        batches: Batches | None = None,
        first_seq: int = 0,
        *,
        instant: int = 0,
    ) -> None:
        self.came, self.failed, self.instant = came, failed, instant
        self._batches, self._first_seq = batches, first_seq
        self._seen: dict[int, Integers] = {}

    @classmethod
    def of(cls, values_ns: NDArray[np.float64]) -> Taken:
        """Take values in memory, rounded up to whole nanoseconds."""
        if np.isnan(values_ns).any():
            raise UsageError("latency: got NaN, expected nanoseconds", code="latency-nan")
        if len(values_ns) and values_ns.min() < 0:
            raise UsageError(
                f"latency: got {values_ns.min():g} ns, expected no negative one",
                code="latency-negative",
            )
        seq = np.flatnonzero(np.isfinite(values_ns)).astype(np.uint64)
        came_ns = np.ceil(values_ns[seq]).astype(np.uint64)
        distribution = Distribution()
        distribution.record(came_ns)
        return cls(distribution, len(values_ns) - len(seq), lambda: iter([(seq, came_ns)]))

    def __len__(self) -> int:
        return self.instant + self.came.count + self.failed

    def at_rank(self, rank: int) -> float:
        """Return the time that the packet of a rank took; 1 is the fastest."""
        rank -= self.instant
        if rank <= 0:
            return 0.0
        return float(self.came.at_ranks([rank])[0]) if rank <= self.came.count else math.inf

    @property
    def longest_ns(self) -> int | None:
        """The longest that one took that came back; None where none did."""
        if self.came.count:
            return self.came.at_ranks([self.came.count])[0]
        return 0 if self.instant else None

    @property
    def never_ns(self) -> int:
        """A time longer than that of any packet that came back, in nanoseconds."""
        longest_ns = self.longest_ns
        return 0 if longest_ns is None else longest_ns + 1

    def at_least(self, ns: int) -> int:
        """Return the number of packets that took so long, or longer."""
        return self.failed + self.came.above(min(ns, _MOST_NS) - 1) if ns else len(self)

    def look_for(self, limits_ns: Iterable[int]) -> None:
        """Count for several limits at once what `in_stretches` will be asked for."""
        wanted = sorted({min(ns, _MOST_NS) for ns in limits_ns} - self._seen.keys())
        if wanted:
            self._seen |= dict(zip(wanted, self._counted(wanted), strict=True))

    def in_stretches(self, ns: int) -> Integers:
        """Count the packets that took so long, or longer, in each of equally long stretches."""
        self.look_for([ns])
        return self._seen[min(ns, _MOST_NS)]

    def _counted(self, limits_ns: list[int]) -> list[Integers]:
        n, edges_ns = len(self) - self.instant, np.array(limits_ns, np.uint64)
        stretches, cells = stretches_of(n), len(limits_ns) + 1
        counts = np.zeros(stretches * cells, np.int64)
        assert self._batches is not None, "its packets can be read"
        row = 0
        for seq, taken_ns in self._batches() if stretches else ():
            rows = np.arange(row, row + len(seq))
            missing = seq.astype(np.int64) - self._first_seq - rows
            stretch = (rows + np.minimum(missing, self.failed)) * stretches // n
            cell = np.searchsorted(edges_ns, taken_ns, "right")
            counts += np.bincount(stretch * cells + cell, minlength=len(counts))
            row += len(seq)
        of_cells = counts.reshape(stretches, cells)
        ends = -(-np.arange(stretches + 1) * n // max(1, stretches))
        never = np.diff(ends) - of_cells.sum(axis=1)
        return [of_cells[:, at:].sum(axis=1) + never for at in range(1, cells)]
