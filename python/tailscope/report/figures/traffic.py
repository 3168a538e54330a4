"""Figures of the traffic that was sent, and of what arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.report.figures.common import NS_PER_S, NS_PER_US, TIME, dash_of, unless_empty
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.report.reduce import extremes
from tailscope.store.run import SIDES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Rate
    from tailscope.report.material import Material

_SIDES = {"pre": "before the device", "post": "after it"}


def gaps(runs: Sequence[Material]) -> Picture | None:
    """Gaps between packets, on both sides."""
    layers = []
    for at, each in enumerate(runs):
        middle_ns = (each.run.info.plan.bucket_ns or 0) / 2
        for number, side in enumerate(SIDES):
            found = each.run.gaps[side]
            x = (found.bucket_ns + middle_ns).astype(np.float64) / NS_PER_US
            y = found.counts.astype(np.float64)
            kept = extremes(x, y, log=True)
            alone = len(runs) == 1
            layers.append(
                Layer(
                    "crosses" if side == "post" else "points",
                    each.label,
                    side,
                    {"x": x[kept], "y": y[kept]},
                    _SIDES[side] if alone else each.label,
                    number if alone else at,
                )
            )
    return unless_empty(
        Picture(
            "gaps",
            "Gaps between packets, before and after the device",
            "Non-empty buckets, drawn at their centres. Dots: before; crosses: after.",
            Axis("gap [µs]", "gap_us", "auto"),
            Axis("packets per bucket", "packets", "log"),
            tuple(layers),
        )
    )


def rate(runs: Sequence[Material]) -> Picture | None:
    """Packets per second, on both sides."""
    layers = []
    for at, each in enumerate(runs):
        for number, side in enumerate(SIDES):
            x, y = _with_silence(each, each.run.rate[side])
            alone = len(runs) == 1
            layers.append(
                Layer(
                    "steps",
                    each.label,
                    side,
                    {"x": x, "y": y},
                    _SIDES[side] if alone else each.label,
                    number if alone else at,
                    "dashed" if side == "post" else "solid",
                )
            )
    return unless_empty(
        Picture(
            "rate",
            "Packet rate, before and after the device",
            "The last second is rarely a whole one. Solid: before; dashed: after.",
            TIME,
            Axis("packets per second", "packets_per_s", starts_at_zero=True),
            tuple(layers),
        )
    )


def loss(runs: Sequence[Material]) -> Picture | None:
    """Packets of each second that were not matched; where all were, there is nothing to see."""
    layers = []
    for at, each in enumerate(runs):
        if each.density is None or each.run.summary["count"] == each.run.summary["sent"]:
            continue
        sent = each.run.rate["pre"]
        second = ((sent.start_ns.astype(np.int64) - each.begin_ns) // int(NS_PER_S)).astype(int)
        missing = np.maximum(sent.counts.astype(np.int64) - each.density.matched[second], 0)
        columns: dict[str, NDArray[Any]] = {
            "x": second.astype(np.float64),
            "y": missing.astype(np.float64),
        }
        layers.append(Layer("steps", each.label, "", columns, each.label, at, dash_of(at)))
    return unless_empty(
        Picture(
            "loss",
            "Packets without a match, by the second in which they were sent",
            "Lost, late, corrupt, divided, ambiguous, not judged: the table has the numbers.",
            TIME,
            Axis("packets", "packets", starts_at_zero=True),
            tuple(layers),
        )
    )


def departure_error(runs: Sequence[Material]) -> Picture | None:
    """Show how much later than intended packets left: the instrument's own fault."""
    layers = []
    for at, each in enumerate(runs):
        found = each.departures
        if found is None:
            continue
        beyond = 1 - np.cumsum(found.counts) / found.counts.sum()
        there = (found.counts > 0) & (beyond > 0) & np.isfinite(found.edge_ns[1:])
        columns = {"x": found.edge_ns[1:][there] / NS_PER_US, "y": beyond[there]}
        layers.append(Layer("steps", each.label, "", columns, each.label, at, dash_of(at)))
    return unless_empty(
        Picture(
            "departure-error",
            "How much later than intended packets left",
            "The generator's own error; latencies from the actual departure do not include it.",
            Axis("departure error [µs]", "departure_error_us", "log"),
            Axis("share of packets above", "share_above", "log"),
            tuple(layers),
        )
    )


def _with_silence(each: Material, found: Rate) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add a zero where seconds without packets begin, and one at the end."""
    if not len(found.start_ns):
        return np.zeros(0), np.zeros(0)
    start_ns = found.start_ns.astype(np.int64)
    second = (start_ns - start_ns[0]) // int(NS_PER_S)
    silent = np.flatnonzero(np.append(np.diff(second) > 1, True))
    begins = float(each.since_s(start_ns[0]))
    return (
        begins + np.insert(second, silent + 1, second[silent] + 1),
        np.insert(found.counts.astype(np.float64), silent + 1, 0.0),
    )
