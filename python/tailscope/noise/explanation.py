"""What the tail of a run is made of, and each of its worst packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.noise.attribution import PARTS, SERVICE, explain
from tailscope.store.records.explanation import ExplainedCause, Explanation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.analysis import Series, Worst
    from tailscope.noise.attribution import Blocked, Explained

    Integers = NDArray[np.int64]

__all__ = ["TAIL_QUANTILE", "Packets", "explain_tail", "explain_worst"]

TAIL_QUANTILE = 0.999
"""Packets beyond it are the tail, unless somebody says otherwise."""


@dataclass(frozen=True)
class Packets:
    """Every packet of a run.

    Attributes
    ----------
    seq : ndarray of int64, shape (n,)
        Position in the pre capture, ascending.
    pre_ns, latency_ns : ndarray of int64, shape (n,)
    """

    seq: Integers
    pre_ns: Integers
    latency_ns: Integers

    @classmethod
    def of(cls, series: Series) -> Packets:
        """Those of a run, as it is read back."""
        columns = (series.seq, series.pre_ns, series.latency_ns)
        return cls(*(column.astype(np.int64) for column in columns))

    def service_ns(self) -> int:
        """What a packet needs when nothing is in its way: the median."""
        return _quantile(self.latency_ns, 0.5)

    def at(self, seq: Integers) -> Integers:
        """Where packets of these numbers are; all of them must be there."""
        found = np.searchsorted(self.seq, seq)
        assert np.array_equal(self.seq[found], seq), "a worst packet is one of all"
        return found


def explain_tail(
    packets: Packets, blocked: Blocked, quantile: float = TAIL_QUANTILE
) -> Explanation:
    """Explain every packet beyond a quantile, all together.

    Parameters
    ----------
    packets : Packets
    blocked : Blocked
    quantile : float
        In [0, 1].
    """
    service_ns = packets.service_ns()
    threshold_ns = _quantile(packets.latency_ns, quantile)
    which = np.flatnonzero(packets.latency_ns > threshold_ns)
    found = explain(packets.pre_ns, packets.latency_ns, which, blocked, service_ns)
    parts = {name: int(values.sum()) for name, values in found.parts().items()}
    whole = int(packets.latency_ns[which].sum())
    assert sum(parts.values()) == whole, "parts sum to the whole"
    return Explanation(
        quantile=quantile,
        threshold_ns=threshold_ns,
        service_ns=service_ns,
        packets=len(which),
        latency_ns=whole,
        excess_ns=whole - parts[SERVICE],
        parts_ns=parts,
        causes=tuple(ExplainedCause(**share._asdict()) for share in found.shares),
    )


def explain_worst(packets: Packets, blocked: Blocked, worst: Worst) -> Explained:
    """Explain each of the worst packets, in their order."""
    which = packets.at(np.asarray(worst.pre_seq, np.int64))
    service_ns = packets.service_ns()
    found = explain(packets.pre_ns, packets.latency_ns, which, blocked, service_ns)
    whole: Integers = sum(found.parts().values(), start=np.zeros(len(which), np.int64))
    assert np.array_equal(whole, packets.latency_ns[which]), "parts sum to the latency"
    assert tuple(found.parts()) == PARTS
    return found


def _quantile(values: Integers, q: float) -> int:
    """The smallest value with at least ``q * n`` at or below it; 0 without values."""
    if not len(values):
        return 0
    rank = max(0, int(np.ceil(q * len(values))) - 1)
    return int(np.partition(values, rank)[rank])
