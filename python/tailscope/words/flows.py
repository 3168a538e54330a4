"""Figures of flows, and of other groups of packets, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.units import count_text, duration_text, share_text
from tailscope.words.figures import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.engine.analysis import Group, LossRun

GROUP_HEADER = ("sent", "lost", "p50", "p99", "worst", "share of the tail")
"""What `group_rows` says behind the name of a group."""
_NS_PER_S = 1e9


def group_rows(groups: Sequence[Group], tail: int) -> list[tuple[str, ...]]:
    """Say the figures of each group; `tail` packets lie above the 99th percentile of all."""
    return [
        (
            group.name,
            count_text(group.sent),
            _lost_text(group),
            *map(_ns_text, (group.latency_ns_p50, group.latency_ns_p99, group.latency_ns_max)),
            NOTHING if group.tail is None or not tail else share_text(group.tail / tail),
        )
        for group in groups
    ]


def _lost_text(group: Group) -> str:
    if group.unseen:
        return f"{count_text(group.lost)}: never appears"
    return count_text(group.lost)


def _ns_text(ns: int | None) -> str:
    return NOTHING if ns is None else duration_text(ns)


def tail_of(groups: Sequence[Group]) -> int:
    """Return the number of packets above the 99th percentile of all."""
    return sum(group.tail or 0 for group in groups)


def group_notes(groups: Sequence[Group], shown: int) -> list[str]:
    """Say what a table of groups leaves out, and how exact it is."""
    notes = []
    if shown < len(groups):
        notes.append(f"{count_text(len(groups) - shown)} more: -v shows all, --json too")
    if not all(group.exact for group in groups):
        notes.append("p50 and p99 are up to 0.05 % too low, or missing: there are too many packets")
    return notes


def loss_run_text(run: LossRun, first_ns: int) -> str:
    """Say which packets were lost one behind the other, and when, since the first packet."""
    start, end = ((ns - first_ns) / _NS_PER_S for ns in (run.start_ns, run.end_ns))
    whose = "all packets" if run.flow is None else f"all packets of {run.flow}"
    return f"from {start:.6f} s to {end:.6f} s {whose} ({count_text(run.lost)})"
