"""What is between two hosts, and what is of the hosts themselves, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.units import count_text, counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailscope.extra.hosts.records import HostsRecord, TimesRecord
    from tailscope.store.records.messages import CausedStalls

_CAUSES = {
    "unknown": "did not run, for an unknown reason",
    "stopped": "was stopped by a signal",
    "throttled": "had used up the CPU quota of its control group",
    "preempted": "waited for a CPU that other programs had",
    "paged": "waited for pages from a disk",
    "busy": "was busy with packets that came before",
    "clock-step": "had its clock set",
    "waited": (
        "waited for a CPU that other programs had, or for the quota of its control group, whose"
        " files cannot be read"
    ),
}
TIMES_HEADER = ("", "min", "p50", "p99", "p99.9", "max")
FLOW_HEADER = ("source port", "sent", "lost", *TIMES_HEADER[1:])
_NOTHING = "-"


def times_rows(record: HostsRecord) -> list[tuple[str, ...]]:
    """Write the times beside the latency: with the reflector, in it, and of each direction."""
    one_way = record.one_way
    rows = [
        ("round trip with the reflector", record.round_trip),
        ("in the reflector", record.in_reflector),
        ("in the sender's queue", record.in_queue),
        ("one way there", one_way.forth),
        ("one way back", one_way.back),
    ]
    return [(name, *_cells(times)) for name, times in rows if times is not None]


def flow_rows(record: HostsRecord) -> list[tuple[str, ...]]:
    """Write a row for each flow."""
    return [
        (str(flow.port), count_text(flow.sent), count_text(flow.lost), *_cells(flow.latency))
        for flow in record.flows
    ]


def _cells(times: TimesRecord | None) -> tuple[str, ...]:
    if times is None:
        return (_NOTHING,) * (len(TIMES_HEADER) - 1)
    values = (times.ns_min, times.ns_p50, times.ns_p99, times.ns_p999, times.ns_max)
    return tuple(duration_text(value) for value in values)


def loss_text(record: HostsRecord) -> str:
    """Say where packets were lost."""
    loss = record.loss
    is_ours = record.ends.reflector is not None
    parts = {
        "on the way there" if is_ours else "on the way there or in the reflector": loss.forth,
        "on the way back": loss.back,
        "in the reflector's socket": loss.reflector_socket,
        "refused by the reflector's rate limit": loss.reflector_refused,
        "not taken by the reflector's system": loss.reflector_unsent,
        "in the sender's socket": loss.sender_socket,
        "where nobody knows (the network, or a reflector that did not run)": loss.where_unknown,
    }
    said = [f"{count_text(number)} {where}" for where, number in parts.items() if number]
    if record.ends.unsent_refused:
        said.append(f"{count_text(record.ends.unsent_refused)} refused by the sender's system")
    return ", ".join(said) or "nothing was lost"


def median_text(record: HostsRecord) -> str:
    """Say where the true median is; empty if too few answers came."""
    median = record.median
    if median is None:
        return ""
    low, high = (duration_text(ns) for ns in (median.ns_low, median.ns_high))
    if median.stamps_ns is None:
        stamps = "an end does not tell what its stamps take"
    else:
        stamps = f"up to {duration_text(median.stamps_ns)} are of the stamps themselves"
    return f"{low} to {high} with 95 %; {stamps}"


def departures_text(record: HostsRecord) -> str:
    """Say who let queries wait until their time, and how late they left."""
    by_queue = "the queue of the interface let each packet wait until its time (SO_TXTIME)"
    by_program = "the sender waited itself: SO_TXTIME is off, or the interface's queue has no times"
    said = by_queue if record.ends.departed_by == "queue" else by_program
    if record.late is None:
        return said
    late = (record.late.ns_p50, record.late.ns_p99, record.late.ns_max)
    p50, p99, most = (duration_text(ns) for ns in late)
    return f"{said}; packets left {p50} late at p50, {p99} at p99, {most} at most"


def card_text(record: HostsRecord) -> str:
    """Say by which card's clock the times are; empty if the kernel took them."""
    card = record.ends.card
    if card is None:
        return ""
    return (
        f"{card.link} took the sender's times by its own clock, which gains"
        f" {card.rate_ppb / 1000:.3f} ppm; it was at most {duration_text(card.residual_ns)} away"
        f" from where it was expected, and {counted(card.readings, 'reading')} took at most"
        f" {duration_text(card.width_ns)}"
    )


def order_text(record: HostsRecord) -> str:
    """Say what was overtaken or came twice; empty if nothing was, or nobody knows."""
    order = record.order
    parts = {
        "overtaken on the way there": order.reordered_forth,
        "overtaken on the way back": order.reordered_back,
        "doubled on the way there": order.duplicated_forth,
        "doubled on the way back": order.duplicated_back,
    }
    return ", ".join(f"{count_text(number)} {what}" for what, number in parts.items() if number)


def one_way_text(record: HostsRecord) -> str:
    """Say how far latencies of one direction may be off, or why there are none."""
    one_way = record.one_way
    if one_way.error_ns is None:
        return f"not known: {one_way.withheld_because}"
    if not one_way.error_ns:
        return "both ends have one clock"
    return f"off by at most {duration_text(one_way.error_ns)}, as both clocks say"


def end_lines(record: HostsRecord) -> Iterator[tuple[str, str]]:
    """Say of each end what kept it from running: none of that is the network's."""
    yield "sender", _stalls_text(record.ends.stalls)
    told = record.ends.reflector
    if told is None:
        yield "reflector", "none of tailscope: it says nothing of itself"
    else:
        text = _stalls_text(record.reflector_stalls)
        waits = []
        if told.stalls_untold:
            waits.append(f"{counted(told.stalls_untold, 'more stall')} of which it told nothing")
        if told.run_delay_us:
            waits.append(f"waited {duration_text(told.run_delay_us * 1000)} for a CPU in all")
        if told.throttled_us:
            waits.append(f"was throttled for {duration_text(told.throttled_us * 1000)}")
        yield "reflector", "; ".join([text, *waits])


def _stalls_text(stalls: Iterable[CausedStalls]) -> str:
    said = [
        f"{counted(each.count, 'time')} it {_CAUSES[each.cause]}"
        f" ({duration_text(each.stall_ns_max)} at most)"
        for each in stalls
    ]
    return "; ".join(said) or "always ran in time"


def warnings_of(record: HostsRecord) -> Iterator[str]:
    """Say what stands between the figures and the truth."""
    ends = record.ends
    if late := ends.unsent - ends.unsent_refused:
        yield (
            f"{counted(late, 'packet')} could not leave within 10 ms of their time: the sender did"
            " not run in time"
        )
    if ends.unsent_refused:
        yield f"{counted(ends.unsent_refused, 'packet')} did not leave: the system refused them"
    loss = record.loss
    if loss.anew_flows:
        yield (
            f"the reflector began to number its answers anew in"
            f" {counted(loss.anew_flows, 'flow')}, as one does that is started anew: nobody knows"
            " in which direction their packets were lost or overtaken"
        )
    if loss.unproven_flows:
        others = "queries that the network doubled"
        if ends.reflector is None:
            others = f"other senders, to other flows, or to {others}"
        yield (
            f"in {counted(loss.unproven_flows, 'flow')} numbers of answers are missing that may"
            f" have been answers to {others}: they prove no direction of loss"
        )
    if ends.card is not None and ends.card.steps:
        yield (
            f"the clock of {ends.card.link} was set {counted(ends.card.steps, 'time')} meanwhile:"
            " no latency is made of times that contradict each other"
        )
    if ends.wrong_key:
        yield (
            f"{counted(ends.wrong_key, 'packet')} came without a seal of the key, and were left out"
        )
    if record.drifted:
        yield (
            f"{counted(record.drifted, 'answer')} spent longer in the reflector than in all, as"
            " its clock runs faster: the latency is at most 0.1 % of the time in the reflector"
        )
    if record.contradictory:
        yield (
            f"{counted(record.contradictory, 'answer')} left before the query came, or longer"
            " after it than all took, as the reflector's clock says, which was set meanwhile or is"
            " wrong: the latency is at most the round trip"
        )
    if record.inexact and ends.reflector is not None:
        share = record.inexact / max(1, ends.received)
        if share > 0.001:
            yield (
                f"of {share:.1%} of the answers a program took a time, not a kernel: their latency"
                " is an upper bound, and figures that may rest on it are marked ~"
            )
    if ends.reflector is not None and ends.reflector.older:
        yield (
            "the reflector is of an older version: if a card takes its times, nobody knows how far"
            " they may be off"
        )
    if ends.reflector is None:
        yield (
            "the reflector is none of tailscope: a time between its own stamp and the departure of"
            " an answer counts as the network's"
        )
