"""Latency and loss of each flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.figures.common import LATENCY, NS_PER_US, unless_empty
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.units import share_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.engine.analysis import Group
    from tailscope.report.material import Material

_MOST = 15
"""Number of flows that are drawn."""


def by_flow(runs: Sequence[Material]) -> Picture | None:
    """Show the median, the 99th percentile and the worst latency of the largest flows."""
    groups = runs[0].run.flows
    if len(runs) > 1 or len(groups) < 2:
        return None
    shown = sorted(groups, key=lambda group: -group.sent)[:_MOST][::-1]
    places = np.arange(len(shown), dtype=np.float64)
    p50, p99, worst = (
        np.array([np.nan if ns is None else ns / NS_PER_US for ns in found])
        for found in (
            [group.latency_ns_p50 for group in shown],
            [group.latency_ns_p99 for group in shown],
            [group.latency_ns_max for group in shown],
        )
    )
    both, any_match = np.isfinite(p50) & np.isfinite(p99), np.isfinite(worst)
    label = runs[0].label
    spans = {"x": p50[both], "x_end": p99[both], "y": places[both]}
    points = {"x": worst[any_match], "y": places[any_match]}
    more = len(groups) - len(shown)
    rest = f" The {len(shown)} with most packets: {more} more have fewer." if more else ""
    return unless_empty(
        Picture(
            "flows",
            "Latency and loss by flow",
            f"From the median to the 99th percentile, and the worst packet of each flow.{rest}",
            LATENCY,
            Axis("", "flow", names=tuple(map(_named, shown))),
            (
                Layer("spans", label, "p50 to p99", spans, "p50 to p99", 0),
                Layer("points", label, "worst", points, "worst", 1),
            ),
        )
    )


def _named(group: Group) -> str:
    """Return the name of a flow, with its loss if it has any."""
    if not group.lost:
        return group.name
    if group.unseen:
        return f"{group.name}, never appears"
    return f"{group.name}, {share_text(group.lost / group.sent)} lost"
