"""The part of a series of latencies that a model of its tail uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import ModelError
from tailscope.models.samples import rank_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Excesses:
    """The packets above a latency, and the number of all packets."""

    sent_ns: Integers
    latency_ns: Integers
    place: Integers
    """Send time, latency and place of each packet, in order of sending; `place` counts all
    packets."""
    floor_ns: int
    """Latency above which every packet is included."""
    count: int
    """Number of all packets."""
    begin_ns: int
    end_ns: int
    """Send times of the first and the last packet, as far as they are known."""

    @property
    def duration_ns(self) -> int:
        """Return the time from the first packet to the last."""
        return self.end_ns - self.begin_ns

    @property
    def gap_ns(self) -> float:
        """Return the mean time between packets."""
        return self.duration_ns / max(1, self.count)

    def threshold_ns(self, quantile: float) -> int | None:
        """Return a quantile of all packets; None if it is below the known ones, or there is none.

        As everywhere: the smallest value with at least that share of the packets at or below it.
        """
        beyond = self.count - rank_of(quantile, self.count)
        if not 0 <= beyond <= len(self.latency_ns):
            return None
        if beyond == len(self.latency_ns):
            return self.floor_ns
        return int(np.partition(self.latency_ns, -beyond - 1)[-beyond - 1])

    def split(self, share: float) -> Parts:
        """Divide it in time, by the share of the packets that come first."""
        first = round(share * self.count)
        at = int(np.searchsorted(self.place, first))
        cut_ns = self.begin_ns + round(share * self.duration_ns)
        if 0 < at < len(self.sent_ns):
            cut_ns = int(np.clip(cut_ns, self.sent_ns[at - 1], self.sent_ns[at]))
        return Parts(
            self._part(slice(at), first, self.begin_ns, cut_ns),
            self._part(slice(at, None), self.count - first, cut_ns, self.end_ns),
        )

    def _part(self, which: slice, count: int, begin_ns: int, end_ns: int) -> Excesses:
        return Excesses(
            self.sent_ns[which],
            self.latency_ns[which],
            self.place[which],
            self.floor_ns,
            count,
            begin_ns,
            end_ns,
        )


class Parts(NamedTuple):
    """A series that was divided in time."""

    first: Excesses
    rest: Excesses


def select(
    sent_ns: NDArray[np.number], latency_ns: NDArray[np.number], quantile: float, first: float = 1
) -> Excesses:
    """Take what lies beyond a quantile out of a whole series."""
    if sent_ns.shape != latency_ns.shape or sent_ns.ndim != 1:
        raise ModelError(
            "expected a time for each latency, got"
            f" {' by '.join(map(str, sent_ns.shape))}"
            f" and {' by '.join(map(str, latency_ns.shape))}",
            code="latencies-shape",
        )
    if not len(sent_ns):
        raise ModelError("expected latencies, got none", code="latencies-empty")
    sent, latency = _whole_ns(sent_ns, "a time"), _whole_ns(latency_ns, "a latency")
    if (sent[1:] < sent[:-1]).any():
        order = np.argsort(sent, kind="stable")
        sent, latency = sent[order], latency[order]
    own = latency[: max(1, round(first * len(latency)))]
    floor_ns = min(_quantile_ns(latency, quantile), _quantile_ns(own, quantile))
    places = np.flatnonzero(latency > floor_ns)
    return Excesses(
        sent[places].astype(np.int64),
        latency[places].astype(np.int64),
        places,
        floor_ns,
        len(sent),
        int(sent[0]),
        int(sent[-1]),
    )


def of_worst(sent_ns: NDArray[np.number], latency_ns: NDArray[np.number], count: int) -> Excesses:
    """Take the worst packets of `count` as what lies beyond a quantile.

    Where the others are in time is not known: the rate is taken to be constant between the first
    and the last of the worst.
    """
    if not 0 < len(sent_ns) <= count:
        raise ModelError(
            f"expected 1 to {count} packets, the number in all, got {len(sent_ns)}",
            code="worst-count",
        )
    order = np.argsort(sent_ns, kind="stable")
    sent = _whole_ns(sent_ns[order], "a time").astype(np.int64)
    latency = _whole_ns(latency_ns[order], "a latency").astype(np.int64)
    begin_ns, end_ns = int(sent[0]), int(sent[-1])
    place = ((sent - begin_ns) * ((count - 1) / max(1, end_ns - begin_ns))).astype(np.int64)
    # Packets as slow as the last of the worst may be missing.
    floor_ns = int(latency.min()) if len(sent) < count else int(latency.min()) - 1
    above = latency > floor_ns
    return Excesses(sent[above], latency[above], place[above], floor_ns, count, begin_ns, end_ns)


def _quantile_ns(values: NDArray[np.uint64], q: float) -> int:
    rank = rank_of(q, len(values))
    return int(np.partition(values, rank - 1)[rank - 1])


def _whole_ns(values: NDArray[np.number], what: str) -> NDArray[np.uint64]:
    """See that values are whole and not negative; of integers that cost is one comparison."""
    with np.errstate(invalid="ignore"):
        good = values >= 0
        if not np.issubdtype(values.dtype, np.integer):
            good &= (values == np.floor(values)) & np.isfinite(values)
    if not good.all():
        at = int(np.argmin(good))
        raise ModelError(
            f"packet {at}: expected {what} of at least 0 in whole ns, got {values[at]}",
            code="latencies-range",
        )
    return np.ascontiguousarray(values, np.uint64)
