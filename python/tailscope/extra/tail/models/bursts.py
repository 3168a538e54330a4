"""Bursts: excesses that belong together, as one stall delays many packets in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.tail.models.excesses import Excesses

    Integers = NDArray[np.int64]

_APART_NS, _APART_PACKETS = 1_000_000, 10


@dataclass(frozen=True)
class Bursts:
    """Excesses in runs, each with its worst packet."""

    sent_ns: Integers
    worst_ns: Integers
    packets: Integers
    """Time of each burst's first packet, its largest latency, and its number of excesses."""

    def __len__(self) -> int:
        return len(self.worst_ns)

    def kept(self, which: NDArray[np.bool_ | np.intp]) -> Bursts:
        """Return some of the bursts."""
        return Bursts(self.sent_ns[which], self.worst_ns[which], self.packets[which])

    def since(self, begin_ns: int) -> Bursts:
        """Return the bursts from a time on, with their times since then."""
        late = self.kept(self.sent_ns >= begin_ns)
        return Bursts(late.sent_ns - begin_ns, late.worst_ns, late.packets)

    @property
    def extremal_index(self) -> float:
        """Return the bursts per excess: 1 if each stands alone (runs estimator)."""
        return len(self) / int(self.packets.sum())


def joined(parts: Sequence[Bursts]) -> Bursts:
    """Join the bursts of several parts, one after the other."""
    columns = ("sent_ns", "worst_ns", "packets")
    return Bursts(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def usual_run_length_ns(gap_ns: float) -> int:
    """Return the least distance between excesses of two bursts: 1 ms, and 10 packets."""
    return max(_APART_NS, round(_APART_PACKETS * gap_ns))


def bursts(excesses: Excesses, threshold_ns: int, run_length_ns: int) -> Bursts:
    """Put excesses together that follow each other within a time (runs declustering).

    Source: S. Coles, *An Introduction to Statistical Modeling of Extreme Values*, section 5.3.2.
    """
    above = excesses.latency_ns > threshold_ns
    sent, latency = excesses.sent_ns[above], excesses.latency_ns[above]
    starts = np.flatnonzero(np.diff(sent, prepend=-run_length_ns - 1) > run_length_ns)
    if not len(sent):
        return Bursts(sent, latency, sent)
    return Bursts(
        sent[starts],
        np.maximum.reduceat(latency, starts),
        np.diff(starts, append=len(sent)),
    )


def intervals_index(excesses: Excesses, threshold_ns: int) -> float | None:
    """Return the extremal index from the gaps between excesses, without a run length.

    Source: C. A. T. Ferro, J. Segers, "Inference for clusters of extreme values", J. R. Statist.
    Soc. B 65 (2003), equations 8 and 9. None for fewer than two excesses.
    """
    gaps = np.diff(excesses.place[excesses.latency_ns > threshold_ns]).astype(float)
    if not len(gaps):
        return None
    top, bottom = gaps, gaps * gaps
    if gaps.max() > 2:
        top, bottom = gaps - 1, (gaps - 1) * (gaps - 2)
    return float(min(1.0, 2 * top.sum() ** 2 / (len(gaps) * bottom.sum())))
