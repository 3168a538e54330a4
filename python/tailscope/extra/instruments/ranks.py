"""Whether instruments rank configurations alike: rank correlation with the truth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from tailscope.models.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

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
    resampled = np.array(
        [
            np.median(random.choice(cell.values, (_RESAMPLES, len(cell.values))), axis=1)
            for cell in cells.values()
        ]
    )
    low, high = np.quantile(kendall(true, resampled), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Ranking(
        instrument,
        statistic,
        tuple(sorted(measured, key=measured.__getitem__)),
        float(kendall(true, np.array([*measured.values()]))),
        float(low),
        float(high),
    )


def kendall(true: Sequence[float], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of pairs in the right order minus that in the wrong one.

    Pairs that are alike in truth say nothing; those alike as measured count as neither. `measured`
    may have further axes behind the first one, such as for resampled figures.
    """
    signs = [
        np.sign(true[a] - true[b]) * np.sign(measured[a] - measured[b])
        for a, b in combinations(range(len(true)), 2)
        if true[a] != true[b]
    ]
    return np.asarray(np.mean(signs, axis=0))
