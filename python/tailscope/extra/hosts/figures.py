"""Figures of the way to another host and back, of the times of all answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.hosts.passages import CAUSES, THERE, dscp_of
from tailscope.extra.hosts.records import (
    FlowRecord,
    HostsRecord,
    LossRecord,
    OneWayRecord,
    OrderRecord,
    TimesRecord,
)
from tailscope.store.records.messages import CausedStalls
from tailscope.units import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.extra.hosts.passages import Passages, Stalls
    from tailscope.store.records.messages import SentQueries

    Integers = NDArray[np.int64]

_QUANTILES = (0.5, 0.99, 0.999)


def hosts_record(to: str, address: str, passages: Passages, ends: SentQueries) -> HostsRecord:
    """Collect what both ends know."""
    is_stateful = keeps_state(passages, ends)
    return HostsRecord(
        to=to,
        address=address,
        loss=_losses(passages, ends, is_stateful=is_stateful),
        order=_order(passages, is_stateful=is_stateful),
        round_trip=times(passages.round_trip_ns),
        in_reflector=times(passages.in_reflector_ns),
        one_way=_one_way(passages, ends),
        inexact=int(np.count_nonzero(~passages.exact)),
        negative=passages.negative,
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


def keeps_state(passages: Passages, ends: SentQueries) -> bool:
    """Return whether the reflector numbers its answers by itself, as far as one can see."""
    return ends.reflector is not None or not np.array_equal(passages.seq, passages.answer_seq)


def _losses(passages: Passages, ends: SentQueries, *, is_stateful: bool) -> LossRecord:
    lost = ends.sent - len(np.unique(passages.seq))
    told = ends.reflector
    forth = back = 0
    for flow in range(len(ends.ports)) if is_stateful else ():
        of_flow = passages.flow == flow
        seqs, answers = passages.seq[of_flow], passages.answer_seq[of_flow]
        if not len(seqs):
            continue
        known = int(np.count_nonzero(passages.flow_of[: seqs.max() + 1] == flow))
        different = len(np.unique(answers))
        again = different - len(np.unique(seqs))
        # Answers are numbered one by one: what is missing among them was lost on the way back.
        missing_back = int(answers.max()) + 1 - different
        missing = known - len(np.unique(seqs))
        lost_back = min(max(missing_back, 0), missing)
        assert again >= 0, "no answer has two queries"
        back += lost_back
        forth += missing - lost_back
    socket = refused = own = 0
    if is_stateful:
        socket = 0 if told is None else min(told.dropped, forth)
        refused = 0 if told is None else min(told.refused, forth - socket)
        own = min(ends.dropped, back)
    else:
        own = min(ends.dropped, lost)
    unknown = lost - forth - back - (0 if is_stateful else own)
    return LossRecord(
        lost=lost,
        forth=forth - socket - refused if is_stateful else None,
        back=back - own if is_stateful else None,
        where_unknown=unknown,
        reflector_socket=socket,
        reflector_refused=refused,
        sender_socket=own,
    )


def _order(passages: Passages, *, is_stateful: bool) -> OrderRecord:
    if not is_stateful:
        return OrderRecord(
            reordered_forth=None, reordered_back=None, duplicated_forth=None, duplicated_back=None
        )
    forth = back = again_forth = again_back = 0
    for flow in np.unique(passages.flow).tolist():
        of_flow = passages.flow == flow
        seqs, answers = passages.seq[of_flow], passages.answer_seq[of_flow]
        back += _overtaken(answers[np.argsort(passages.arrived_ns[of_flow], kind="stable")])
        once, first = np.unique(answers, return_index=True)
        forth += _overtaken(seqs[first])
        again_back += len(answers) - len(once)
        again_forth += len(once) - len(np.unique(seqs))
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
    error_ns = 0
    if ends.reflector is None or not ends.reflector.same_clock:
        clocks = {"sender": ends.clock, "reflector": ends.reflector_clock}
        free = [end for end, clock in clocks.items() if not clock.synchronised]
        if free:
            return withheld(f"the clock of the {' and of the '.join(free)} is not synchronised")
        error_ns = ends.clock.error_ns_max + ends.reflector_clock.error_ns_max
    forth = passages.received_ns - passages.departed_ns
    back = passages.arrived_ns - passages.answered_ns
    least = min(int(forth.min()), int(back.min()))
    if least < -error_ns:
        return withheld(
            f"clocks contradict their error of {duration_text(error_ns)}: the fastest packet would"
            f" have taken {duration_text(least)}"
        )
    return OneWayRecord(error_ns=error_ns, forth=times(forth), back=times(back))


def _flow(passages: Passages, number: int, port: int) -> FlowRecord:
    of_flow = passages.flow == number
    sent = int(np.count_nonzero(passages.flow_of == number))
    return FlowRecord(
        port=port,
        sent=sent,
        lost=sent - len(np.unique(passages.seq[of_flow])),
        latency=times(passages.latency_ns[of_flow]),
    )
