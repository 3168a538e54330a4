"""Pieces of work of a server: one packet, or several that leave together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Floats, Numbers
    from tailscope.extra.patterns.models.aliasing.simulation import Times

_TOGETHER = 0.1
"""Share of a packet's usual work within which packets of one batch leave."""
_LEAST_OF_A_KIND = 50
_MOST_AHEAD = 99


class Work(NamedTuple):
    """Pieces of work in the order in which they were done."""

    begin_ns: Times
    """Time from which the server had nothing else to do: the arrival, or the piece before."""
    end_ns: Times
    idle_ns: Times
    """Time for which the server had nothing to do before."""
    late_ns: Times
    """Time that it took beyond the usual of its kind."""
    kind: NDArray[np.int32]
    """Number of packets, and of pieces ahead that queued, as a number of their own."""

    @property
    def due_ns(self) -> Times:
        """Return when it would have been done if it had not been late.

        Only a tick until then can have made it late; late work does not hold more for being long.
        """
        return self.end_ns - np.maximum(self.late_ns, 0)

    def only(self, which: NDArray[np.bool_ | np.intp]) -> Work:
        """Return some of the pieces."""
        begin_ns, end_ns, idle_ns, late_ns, kind = self
        return Work(begin_ns[which], end_ns[which], idle_ns[which], late_ns[which], kind[which])


def work(arrival_ns: Times, latency_ns: Times) -> Work:
    """Divide packets into pieces of work.

    A packet waits for those ahead and then takes its own time. A batch is handed over as a whole:
    its packets leave together, and only the whole has a time. Pieces of one kind, those of as
    many packets and as far behind in a queue, usually take as long; rare kinds are left out.
    """
    begin_ns, end_ns, idle_ns, size = _pieces(arrival_ns, latency_ns)
    took_ns = end_ns - begin_ns
    by_kind = np.lexsort((took_ns, size))
    starts = np.flatnonzero(np.diff(size[by_kind], prepend=-1))
    count = np.diff(starts, append=len(size))
    del size
    usual_ns = took_ns[by_kind[starts + (count - 1) // 2]]
    kind = np.empty(len(by_kind), np.int32)
    kind[by_kind] = np.repeat(np.arange(len(count), dtype=np.int32), count)
    del by_kind
    late_ns = took_ns - usual_ns[kind]
    is_common = count[kind] >= _LEAST_OF_A_KIND
    done = Work(begin_ns, end_ns, idle_ns, late_ns, kind)
    return done if is_common.all() else done.only(is_common)


def _pieces(arrival_ns: Times, latency_ns: Times) -> tuple[Times, Times, Times, Numbers]:
    """Return begin, end, idle time before, and kind of each piece."""
    left_ns = arrival_ns + latency_ns
    order = np.argsort(left_ns, kind="stable")
    came_ns, left_ns = arrival_ns[order], left_ns[order]
    del order
    busy_ns = left_ns - np.maximum(came_ns, np.concatenate([came_ns[:1], left_ns[:-1]]))
    apart = np.diff(left_ns) > _TOGETHER * busy_ns.mean()
    del busy_ns
    first = np.flatnonzero(np.concatenate([[True], apart | (came_ns[1:] >= left_ns[:-1])]))
    packets = np.diff(first, append=len(left_ns))
    end_ns = left_ns[first + packets - 1]
    del left_ns
    begin_ns = came_ns[first]
    del came_ns, first
    np.maximum(begin_ns[1:], end_ns[:-1], out=begin_ns[1:])
    idle_ns = begin_ns - np.append(begin_ns[:1], end_ns[:-1])
    ahead = np.arange(len(packets))
    ahead -= np.maximum.accumulate(np.where(idle_ns > 0, ahead, 0))
    kind = packets * (_MOST_AHEAD + 1) + np.minimum(ahead, _MOST_AHEAD)
    return begin_ns, end_ns, idle_ns, kind


def expected(is_late: NDArray[np.bool_], kind: NDArray[np.int32]) -> Floats:
    """Return for each piece the share of its kind that is late."""
    count = np.bincount(kind)
    share = np.bincount(kind[is_late], minlength=len(count)) / np.maximum(count, 1)
    return np.asarray(share[kind], np.float64)
