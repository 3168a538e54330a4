"""Power over time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.columns import values
from tailscope.report.figures.common import TIME, dash_of, unless_empty
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.report.reduce import extremes
from tailscope.store import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.report.material import Material


def power(runs: Sequence[Material]) -> Picture | None:
    """Power of each domain, idle before the run included."""
    layers: list[Layer] = []
    for each in runs:
        table = each.table(tables.POWER, ("domain", "start_ns", "end_ns", "watts"))
        if table is None:
            continue
        found = {name: values(column) for name, column in table.items()}
        for domain in dict.fromkeys(found["domain"]):
            which = found["domain"] == domain
            start, end = (each.since_s(found[name][which]) for name in ("start_ns", "end_ns"))
            x, y = np.append(start, end[-1:]), np.append(found["watts"][which], np.nan)
            y[-1:] = y[-2:-1]
            kept = extremes(x, y)
            label = str(domain) if len(runs) == 1 else f"{each.label}: {domain}"
            at = len(layers)
            columns = {"x": x[kept], "y": y[kept]}
            layers.append(Layer("steps", each.label, str(domain), columns, label, at, dash_of(at)))
    return unless_empty(
        Picture(
            "power",
            "Power over time",
            "Before zero, and after the last packet: idle, with and without polling.",
            replace(TIME, starts_at_zero=False),
            Axis("power [W]", "power_w", starts_at_zero=True),
            tuple(layers),
        )
    )
