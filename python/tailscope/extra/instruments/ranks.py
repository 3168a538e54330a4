"""Whether instruments rank configurations alike: rank correlation with the truth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from tailscope.models.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.extra.instruments.board import Cell

CONFIGURATIONS = ("constant", "bimodal", "bucket", "batches")
"""Devices that lose nothing and keep the order: four ways to build the same function."""
RANKED = ("p50", "p90", "p99", "mean", "max")
_RESAMPLES = 2_000


@dataclass(frozen=True)
class Ranking:
    """How an instrument ranks the configurations by one figure."""

    instrument: str
    statistic: str
    order: tuple[str, ...]
    """Configurations, the quickest first."""
    tau: float
    ci_low: float
    ci_high: float
    """Kendall's rank correlation with the truth, and its interval by resampled repeats."""


def rankings(cells: Sequence[Cell]) -> list[Ranking]:
    """Return the ranking of every instrument that measured all configurations."""
    by_key = {(cell.instrument, cell.statistic, cell.truth): cell for cell in cells}
    found = []
    for instrument in dict.fromkeys(cell.instrument for cell in cells):
        for statistic in RANKED:
            keys = [(instrument, statistic, truth) for truth in CONFIGURATIONS]
            if all(key in by_key for key in keys):
                ours = {key[2]: by_key[key] for key in keys}
                found.append(_ranking(instrument, statistic, ours))
    return found


def _ranking(instrument: str, statistic: str, cells: Mapping[str, Cell]) -> Ranking:
    true = [cell.true for cell in cells.values()]
    measured = {name: cell.measured for name, cell in cells.items()}
    random = np.random.default_rng(1)
    taus = [
        kendall(
            true,
            [np.median(random.choice(cell.values, len(cell.values))) for cell in cells.values()],
        )
        for _ in range(_RESAMPLES)
    ]
    low, high = np.quantile(taus, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Ranking(
        instrument,
        statistic,
        tuple(sorted(measured, key=measured.__getitem__)),
        kendall(true, list(measured.values())),
        float(low),
        float(high),
    )


def kendall(true: Sequence[float], measured: Sequence[float]) -> float:
    """Return the share of pairs in the right order minus that in the wrong one.

    Pairs that are alike in truth say nothing; those alike as measured count as neither.
    """
    signs = [
        np.sign(true[a] - true[b]) * np.sign(measured[a] - measured[b])
        for a, b in combinations(range(len(true)), 2)
        if true[a] != true[b]
    ]
    return float(np.mean(signs)) if signs else float("nan")
