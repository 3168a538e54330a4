"""The tail over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.figures.common import LATENCY, NS_PER_US, TIME, unless_empty
from tailscope.report.picture import Layer, Picture
from tailscope.store.info import foreign_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.report.material import Material
    from tailscope.store.run import Run

UNEXPLAINED = "unexplained"
OTHERS = "other causes"
_MOST_CAUSES = 5


def worst(runs: Sequence[Material]) -> Picture | None:
    """The worst packets, each of them, by cause where it is known."""
    layers: list[Layer] = []
    for at, each in enumerate(runs):
        found = each.run.worst
        order = np.argsort(found.pre_ns, kind="stable")
        x = each.since_s(found.pre_ns[order])
        y = found.latency_ns[order] / NS_PER_US
        causes = _by_cause(each.run, order) if len(runs) == 1 else {"": np.ones(len(order), bool)}
        for place, (cause, which) in enumerate(causes.items()):
            columns = {"x": x[which], "y": y[which]}
            colour = place if len(runs) == 1 else at
            layers.append(Layer("points", each.label, cause, columns, cause or each.label, colour))
    about = "Coloured by the longest wait, where it is known."
    if any(foreign_text(each.run.info) is not None for each in runs):
        about += " Of an import, time counts from the first of these packets."
    return unless_empty(
        Picture(
            "worst",
            "Worst packets over time",
            about,
            TIME,
            LATENCY,
            tuple(layers),
        )
    )


def heat_map(runs: Sequence[Material]) -> Picture | None:
    """All latencies over time; of one run, for those of several would hide each other."""
    found = runs[0].density
    if len(runs) > 1 or found is None:
        return None
    column, row = np.nonzero(found.counts)
    start_s, edge_us = found.start_ns / 1e9, found.edge_ns / NS_PER_US
    cells = {
        "x": start_s[column],
        "x_end": start_s[column + 1],
        "y": edge_us[row],
        "y_end": edge_us[row + 1],
        "value": found.counts[column, row].astype(np.float64),
    }
    return Picture(
        "heat",
        "All latencies over time",
        "The more packets, the stronger the colour, on a logarithmic scale. Empty cells are blank.",
        TIME,
        LATENCY,
        (Layer("cells", runs[0].label, "", cells),),
        value_column="packets",
    )


def _by_cause(run: Run, order: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    """Return which of the worst packets waited longest for each of the most frequent causes."""
    if "cause" not in run.worst_explained:
        return {"": np.ones(len(order), bool)}
    causes = np.array([cause or UNEXPLAINED for cause in run.worst_explained["cause"]])[order]
    names, counts = np.unique(causes, return_counts=True)
    often = names[np.argsort(-counts, kind="stable")][:_MOST_CAUSES]
    found = {str(cause): causes == cause for cause in often}
    rest = ~np.isin(causes, often)
    return {**found, OTHERS: rest} if rest.any() else found
