"""Levels of a quantity: values that lie close together, far from those of other levels."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Floats, Numbers

_FEW = 0.002
"""Share of the values that may lie between two levels."""
_WIDER = 2.0
"""The stretch between two levels is so many times as wide as each of them."""
_MOST = 8
"""Largest number of levels."""


def divided(values: Floats | Numbers, least_share: float) -> Floats:
    """Return the bounds between levels that each have at least a share of the values.

    There are as many levels as can be told apart: next to nothing lies between two of them.
    """
    ordered = np.sort(values).astype(float)
    few, least = int(_FEW * len(ordered)) + 1, int(least_share * len(ordered)) + 1
    if len(ordered) < 2 * (least + few):
        return np.zeros(0)
    gaps = ordered[few:] - ordered[:-few]
    open_gaps = gaps.copy()
    open_gaps[:least] = open_gaps[len(gaps) - least :] = 0
    chosen: list[int] = []
    best: list[int] = []
    while len(chosen) < _MOST - 1 and (at := int(open_gaps.argmax())) and open_gaps[at] > 0:
        chosen.append(at)
        open_gaps[max(at - least, 0) : at + least + 1] = 0
        if _are_levels(ordered, gaps, sorted(chosen), few):
            best = sorted(chosen)
    return np.array([(ordered[at] + ordered[at + few]) / 2 for at in best])


def _are_levels(ordered: Floats, gaps: Floats, cuts: list[int], few: int) -> bool:
    """Say whether what lies between cuts is narrow beside the gaps at them."""
    bounds = [0, *(cut + few for cut in cuts), len(ordered)]
    widths = [
        float(np.diff(np.quantile(ordered[low:high], [0.1, 0.9]))[0])
        for low, high in pairwise(bounds)
    ]
    return all(gaps[cut] > _WIDER * max(widths[at], widths[at + 1]) for at, cut in enumerate(cuts))
