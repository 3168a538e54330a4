"""How the law depends on the threshold, and how well it describes the excesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.models.tail.fit import FEWEST_BURSTS, fit_bursts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.models.tail.bursts import Bursts
    from tailscope.models.tail.fit import Fit

    Floats = NDArray[np.float64]

_AHEAD, _POINTS = 100, 25
_THRESHOLDS = 12
_PLOTTED = 500


class At(NamedTuple):
    """What a threshold gives. Above a high enough one ξ and σ* stay, and the mean is a line."""

    threshold_ns: int
    bursts: int
    xi: tuple[float, float, float]
    sigma_star_ns: tuple[float, float, float]
    mean_excess_ns: tuple[float, float, float]
    """Estimate, low and high end of its interval; σ* is σ − ξ·threshold."""


def stability(found: Bursts, packets: int, base_ns: int, level: float) -> list[At]:
    """Fit to a ladder of thresholds (parameter stability, mean residual life)."""
    from scipy.special import ndtri

    most = len(found)
    beyond = np.geomspace(max(most, 1), FEWEST_BURSTS, _THRESHOLDS)
    ranked = np.sort(found.worst_ns)[::-1]
    thresholds = {int(ranked[round(each)]) for each in beyond if round(each) < most}
    width = float(ndtri((1 + level) / 2))
    points = []
    for threshold_ns in sorted({base_ns, *thresholds}):
        try:
            one = fit_bursts(found, threshold_ns, packets)
        except EvidenceError:
            continue
        law = one.laws.law
        star = law.sigma - law.xi * threshold_ns
        excess = one.excess_ns
        half = width * float(excess.std(ddof=1)) / np.sqrt(len(excess))
        mean = float(excess.mean())
        points.append(
            At(
                threshold_ns,
                len(one.bursts),
                (one.best.xi, *one.laws.central(law.xi, level)),
                (one.best.sigma - one.best.xi * threshold_ns, *one.laws.central(star, level)),
                (mean, mean - half, mean + half),
            )
        )
    return points


class Ahead(NamedTuple):
    """What one burst among so many packets is expected to exceed."""

    packets: Floats
    level_ns: Floats
    low_ns: Floats
    high_ns: Floats


def levels_ahead(found: Fit, level: float) -> Ahead:
    """Return levels from the packets that were fitted to a hundred times as many."""
    packets = np.geomspace(found.packets, _AHEAD * found.packets, _POINTS)
    levels = [found.level_ns(each) for each in packets.tolist()]
    ends = [found.laws.central(found.levels_ns(each), level) for each in packets.tolist()]
    return Ahead(packets, np.array(levels), *np.array(ends).T)


def quantile_pairs(found: Fit) -> tuple[Floats, Floats]:
    """Latencies as the most likely law has them, beside those that were measured, in ns."""
    measured = np.sort(found.bursts.worst_ns).astype(float)
    n = len(measured)
    share = 1 - (np.arange(n) + 0.5) / n
    kept = np.unique(n - np.geomspace(1, n, min(n, _PLOTTED)).round().astype(int))
    return (found.threshold_ns + found.best.quantile(share))[kept], measured[kept]
