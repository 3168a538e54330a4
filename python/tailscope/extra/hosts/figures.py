"""Figures of the way to another host and back, of the times of all answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.hosts.numbering import numbering_of
from tailscope.extra.hosts.passages import CAUSES, THERE, dscp_of
from tailscope.extra.hosts.records import (
    FlowRecord,
    HostsRecord,
    LossRecord,
    MedianRecord,
    OneWayRecord,
    OrderRecord,
    TimesRecord,
)
from tailscope.store.records.messages import CausedStalls
from tailscope.units import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.extra.hosts.numbering import Numbering
    from tailscope.extra.hosts.passages import Passages, Stalls
    from tailscope.store.records.messages import SentQueries

    Integers = NDArray[np.int64]

_QUANTILES = (0.5, 0.99, 0.999)
_PARTS, _PART_PACKETS = 7, 14
"""Parts of a run whose medians are compared, and the packets that each must have. The true median
is between the lowest and the highest of seven with 1 - 2 / 2**7 = 98.4 % (sign test). What that is
more than 95 % is for parts that follow each other: neighbours are more often on one side of it than
independent ones are, the shorter the more so."""


def hosts_record(to: str, address: str, passages: Passages, ends: SentQueries) -> HostsRecord:
    """Collect what both ends know."""
    numbering = numbering_of(passages, ends)
    return HostsRecord(
        to=to,
        address=address,
        late=times((passages.sent_ns - passages.intended_ns)[passages.stamped]),
        in_queue=times(passages.in_queue_ns),
        loss=_losses(passages, ends, numbering),
        order=_order(numbering),
        median=_median(passages, ends),
        round_trip=times(passages.round_trip_ns),
        in_reflector=times(passages.in_reflector_ns[~passages.contradictory]),
        one_way=_one_way(passages, ends),
        inexact=int(np.count_nonzero(~passages.exact)),
        drifted=int(np.count_nonzero(passages.drifted)),
        contradictory=int(np.count_nonzero(passages.contradictory)),
        ttl=tuple(np.unique(passages.ttl).tolist()),
        dscp=dscp_of(passages),
        flows=tuple(_flow(passages, number, port) for number, port in enumerate(ends.ports)),
        reflector_stalls=tuple(_stalls(passages.stalls[THERE])),
        ends=ends,
    )


def _stalls(stalls: Stalls) -> Iterator[CausedStalls]:
    """Sum up stalls by their causes."""
    lasted = stalls.end_ns - stalls.start_ns
    for number, cause in enumerate(CAUSES):
        some = lasted[stalls.cause == number]
        if len(some):
            yield CausedStalls(
                cause=cause,
                count=len(some),
                stall_ns_total=int(some.sum()),
                stall_ns_max=int(some.max()),
            )


def times(values_ns: Integers) -> TimesRecord | None:
    """Return quantiles of times; None without any."""
    if not len(values_ns):
        return None
    found = np.sort(values_ns)
    ranks = [0, *(max(1, math.ceil(q * len(found))) - 1 for q in _QUANTILES), -1]
    low, p50, p99, p999, high = (int(found[rank]) for rank in ranks)
    return TimesRecord(ns_min=low, ns_p50=p50, ns_p99=p99, ns_p999=p999, ns_max=high)


def _median(passages: Passages, ends: SentQueries) -> MedianRecord | None:
    """Return an interval of the median.

    Packets that follow each other wait for the same things: neither they nor their number tell how
    far the median strays, but those of parts of the run do.
    """
    found = times(passages.latency_ns)
    if found is None or len(passages.seq) < _PARTS * _PART_PACKETS:
        return None
    latency_ns = passages.latency_ns[np.argsort(passages.departed_ns, kind="stable")]
    # Between both middle values of a part: its lower one alone is below the true median too often.
    medians = [float(np.median(part)) for part in np.array_split(latency_ns, _PARTS)]
    there = None if ends.reflector is None else ends.reflector.handling_ns
    handling_ns = [ns for ns in (ends.handling_ns, there) if ns is not None]
    return MedianRecord(
        ns_low=max(0, min(math.floor(min(medians)), found.ns_p50) - sum(handling_ns)),
        ns_high=max(math.ceil(max(medians)), found.ns_p50),
        stamps_ns=sum(handling_ns) if len(handling_ns) == 2 else None,
    )


def _losses(passages: Passages, ends: SentQueries, numbering: Numbering) -> LossRecord:
    lost = ends.sent - len(np.unique(passages.seq))
    told = ends.reflector
    forth, back = numbering.forth or 0, numbering.back or 0
    socket = 0 if told is None else min(told.dropped, forth)
    refused = 0 if told is None else min(told.refused, forth - socket)
    unsent = 0 if told is None else min(told.unsent, back)
    own = min(ends.dropped, lost - forth if numbering.back is None else back - unsent)
    return LossRecord(
        lost=lost,
        forth=None if numbering.forth is None else forth - socket - refused,
        back=None if numbering.back is None else back - unsent - own,
        where_unknown=lost - forth - (own if numbering.back is None else back),
        reflector_socket=socket,
        reflector_refused=refused,
        reflector_unsent=unsent,
        sender_socket=own,
        anew_flows=numbering.anew,
        unproven_flows=numbering.unproven,
    )


def _order(numbering: Numbering) -> OrderRecord:
    if not numbering.steady:
        return OrderRecord(
            reordered_forth=None, reordered_back=None, duplicated_forth=None, duplicated_back=None
        )
    forth = back = again_forth = again_back = 0
    for each in numbering.steady:
        back += _overtaken(each.answers[np.argsort(each.arrived_ns, kind="stable")])
        once, first = np.unique(each.answers, return_index=True)
        forth += _overtaken(each.seqs[first])
        again_back += len(each.answers) - len(once)
        again_forth += len(once) - len(np.unique(each.seqs))
    return OrderRecord(
        reordered_forth=forth,
        reordered_back=back,
        duplicated_forth=again_forth,
        duplicated_back=again_back,
    )


def _overtaken(numbers: Integers) -> int:
    """Count the numbers that come behind a higher one (RFC 4737)."""
    return int(np.count_nonzero(numbers < np.maximum.accumulate(numbers))) if len(numbers) else 0


def _one_way(passages: Passages, ends: SentQueries) -> OneWayRecord:
    """Return the latencies of each direction, where clocks say how far they may be off."""

    def withheld(reason: str) -> OneWayRecord:
        return OneWayRecord(error_ns=None, withheld_because=reason)

    if not len(passages.seq):
        return withheld("no answer came")
    if ends.clock.steps or ends.reflector_clock.steps:
        return withheld("a clock was set meanwhile")
    card, told = ends.card, ends.reflector
    if told is not None and told.same_clock:
        if told.older:
            return withheld("the reflector is of an older version: its card's error is not known")
        # Of two ends on one machine only clocks of cards may be off.
        error_ns = 0 if card is None else card.residual_ns + (card.width_ns + 1) // 2
        error_ns += told.card_error_ns or 0
    else:
        clocks = {"sender": ends.clock, "reflector": ends.reflector_clock}
        free = [end for end, clock in clocks.items() if not clock.synchronised]
        if free:
            return withheld(f"the clock of the {' and of the '.join(free)} is not synchronised")
        error_ns = ends.clock.error_ns_max + ends.reflector_clock.error_ns_max
    exact_forth, exact_back = passages.exact_forth, passages.exact_back
    forth = (passages.received_ns - passages.departed_ns)[exact_forth]
    back = (passages.arrived_ns - passages.answered_ns)[exact_back]
    if not len(forth) and not len(back):
        return withheld("programs took the times, not kernels")
    least = min(int(way.min()) for way in (forth, back) if len(way))
    if least < -error_ns:
        return withheld(
            f"clocks contradict their error of {duration_text(error_ns)}: the fastest packet would"
            f" have taken {duration_text(least)}"
        )
    return OneWayRecord(
        error_ns=error_ns,
        forth=times(forth),
        back=times(back),
        inexact_forth=int(np.count_nonzero(~exact_forth)),
        inexact_back=int(np.count_nonzero(~exact_back)),
    )


def _flow(passages: Passages, number: int, port: int) -> FlowRecord:
    of_flow = passages.flow == number
    sent = int(np.count_nonzero(passages.flow_of == number))
    return FlowRecord(
        port=port,
        sent=sent,
        lost=sent - len(np.unique(passages.seq[of_flow])),
        latency=times(passages.latency_ns[of_flow & passages.surest]),
    )
