"""Diagnostics of the law: its dependence on the threshold, and its fit to the excesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.fit import FEWEST_BURSTS, fit_bursts
from tailscope.extra.tail.models.setting import largest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.tail.models.bursts import Bursts
    from tailscope.extra.tail.models.fit import Fit
    from tailscope.extra.tail.models.forecast import Forecast
    from tailscope.extra.tail.models.setting import RunTail

    Floats = NDArray[np.float64]

_AHEAD, _POINTS = 100, 25
_THRESHOLDS = 12
_PLOTTED = 500


class At(NamedTuple):
    """The law at a threshold; above a high enough one ξ and σ* stay, and the mean is a line."""

    threshold_ns: int
    bursts: int
    xi: tuple[float, float, float]
    sigma_star_ns: tuple[float, float, float]
    mean_excess_ns: tuple[float, float, float]
    """Estimate, low and high end of the interval; σ* is σ − ξ·threshold."""


def stability(all_bursts: Bursts, packets: int, base_ns: int, level: float) -> list[At]:
    """Fit to a ladder of thresholds (parameter stability, mean residual life)."""
    from scipy.special import ndtri

    most = len(all_bursts)
    beyond = np.geomspace(max(most, 1), FEWEST_BURSTS, _THRESHOLDS)
    ranked = np.sort(all_bursts.worst_ns)[::-1]
    thresholds = {int(ranked[round(each)]) for each in beyond if round(each) < most}
    width = float(ndtri((1 + level) / 2))
    points = []
    for threshold_ns in sorted({base_ns, *thresholds}):
        try:
            fit = fit_bursts(all_bursts, threshold_ns, packets)
        except EvidenceError:
            continue
        law = fit.laws.law
        star = law.sigma - law.xi * threshold_ns
        excess = fit.excess_ns
        half = width * float(excess.std(ddof=1)) / np.sqrt(len(excess))
        mean = float(excess.mean())
        points.append(
            At(
                threshold_ns,
                len(fit.bursts),
                (fit.best.xi, *fit.laws.central(law.xi, level)),
                (fit.best.sigma - fit.best.xi * threshold_ns, *fit.laws.central(star, level)),
                (mean, mean - half, mean + half),
            )
        )
    return points


class Ahead(NamedTuple):
    """The latency that the largest of so many packets is as likely above as below."""

    packets: Floats
    level_ns: Floats
    low_ns: Floats
    high_ns: Floats


def levels_ahead(ahead: Forecast, like: Sequence[RunTail], level: float) -> Ahead:
    """Return levels from as many packets as were seen to a hundred times as many.

    NaN where nothing that was seen bounds them.
    """
    times = np.geomspace(1, _AHEAD, _POINTS)
    spans_ns = times * sum(run.duration_ns for run in ahead.tails)
    found = [largest(ahead.tails, like, span, level) for span in spans_ns.tolist()]
    told = [
        [each.told_ns(each.level_ns), each.low_ns, each.told_ns(each.high_ns)] for each in found
    ]
    levels = np.array(told, np.float64)
    return Ahead(times * ahead.packets, *levels.T)


def quantile_pairs(fit: Fit) -> tuple[Floats, Floats]:
    """Return the latencies by the most likely law, and the measured ones, in ns."""
    measured = np.sort(fit.bursts.worst_ns).astype(float)
    n = len(measured)
    share = 1 - (np.arange(n) + 0.5) / n
    shown = np.unique(n - np.geomspace(1, n, min(n, _PLOTTED)).round().astype(int))
    return (fit.threshold_ns + fit.best.quantile(share))[shown], measured[shown]
