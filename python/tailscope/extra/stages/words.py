"""What became of the packets of a flow, in tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.cli.table import print_table
from tailscope.cli.terminal import say, tell
from tailscope.units import count_text, counted, quantity_text, share_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.store.records.messages import FlowCost, FlowDrop, FlowResult, FlowWay

_WAYS = {
    "received": "received by programs",
    "kernel": "taken by the kernel itself",
    "forwarded": "forwarded",
    "sent": "sent by programs",
    "queued": "sent by the kernel itself",
}
_HEADER = ("", "p50", "p90", "p99", "p99.9", "max", "of the time", "of the tail")
_TARGET_NS = 225
"""What netstacklat, which does less, says of its cost at a point."""


def print_flow(result: FlowResult) -> None:
    """Print everything about a flow."""
    flow = result.flow
    for way in flow.ways:
        _print_way(way)
    if flow.drops:
        _print_drops(flow.drops)
    counts = {
        "became part of another one when they arrived (GRO)": flow.merged,
        "divided before they were sent (GSO)": flow.segmented,
        "were acknowledgements of TCP whose end the kernel does not tell": flow.acknowledgements,
        "still waited in a socket in the end": flow.waiting,
    }
    for what, packets in counts.items():
        if packets:
            say(f"{counted(packets, 'packet')} {what}")
    for program in result.xdp:
        each = quantity_text(program.ns_total / program.calls / 1e9, "s")
        name = program.name or program.id
        say(f"XDP program {name}: {each} a run, {counted(program.calls, 'run')}")
    _tell_unseen(result)
    _print_cost(result.cost)


def _print_way(way: FlowWay) -> None:
    say(f"{_WAYS[way.way]}: {counted(way.packets, 'packet')}")
    tail_ns = sum(stage.tail_ns_total for stage in way.stages)
    rows = [
        (
            stage.stage,
            *_times([*stage.ns_quantiles, stage.ns_max]),
            _share(stage.ns_total, way.latency_ns_total),
            _share(stage.tail_ns_total, tail_ns),
        )
        for stage in way.stages
    ]
    whole = ("whole", *_times([*way.latency_ns_quantiles, way.latency_ns_max]), "", "")
    print_table(_HEADER, [rows, [whole]], give_way=("p90", "p99.9"))
    if way.whole < way.packets:
        lacking = way.tail_packets - way.tail_whole
        say(
            f"{count_text(way.packets - way.whole)} were not seen at every point and are in no"
            f" stage; of the {count_text(way.tail_packets)} slowest, {count_text(lacking)}"
        )
    say("")


def _print_drops(drops: Sequence[FlowDrop]) -> None:
    rows = [(drop.reason, drop.stage, count_text(drop.packets)) for drop in drops]
    print_table(("dropped because", "in", "packets"), [rows], left=2)
    say("")


def _tell_unseen(result: FlowResult) -> None:
    flow, cost = result.flow, result.cost
    if cost.lost:
        tell(
            "warning",
            f"{counted(cost.lost, 'event')} found no room: their packets lack points, and packets"
            " may be missing",
        )
    if flow.late:
        tell(
            "note",
            f"{counted(flow.late, 'packet')} were not seen where their way begins, as those that"
            " were under way: they are in no figure but drops",
        )
    if flow.unended:
        tell(
            "note",
            f"the end of {counted(flow.unended, 'packet')} was not seen: they are in no figure",
        )
    if cost.lacking:
        tell("note", f"this kernel lacks the tracepoints or functions {', '.join(cost.lacking)}")


def _print_cost(cost: FlowCost) -> None:
    if not cost.calls:
        return
    each_ns, share = cost.ns_total / cost.calls, cost.ns_total / max(1, cost.duration_ns)
    say(
        f"cost: {each_ns:.0f} ns a call (target: {_TARGET_NS} ns), {counted(cost.calls, 'call')},"
        f" {share_text(share)} of a CPU; {count_text(cost.missed)} left out by the kernel"
    )


def _times(durations_ns: Sequence[int]) -> list[str]:
    return [quantity_text(ns / 1e9, "s") for ns in durations_ns]


def _share(part: int, whole: int) -> str:
    return share_text(part / whole) if whole else "-"
