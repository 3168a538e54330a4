"""A second opinion: the law of the maxima of blocks (generalised extreme value law).

S. Coles, *An Introduction to Statistical Modeling of Extreme Values*, chapter 3; the alternative
that containers2024 names in section 6.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.tail.models.pareto import LOWEST_XI

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_NEARLY_0 = 1e-6
_GUMBEL_SCALE = np.sqrt(6) / np.pi
_EULER = 0.5772156649


class BlockMaxima(NamedTuple):
    """The law, and the level that one later block is expected to exceed."""

    blocks: int
    xi: float
    sigma_ns: float
    location_ns: float
    return_level_ns: float


def fit_maxima(maxima_ns: Floats, ratio: float) -> BlockMaxima | None:
    """Fit the law of the largest likelihood; None where all maxima are alike."""
    from scipy.optimize import minimize

    spread = float(maxima_ns.std())
    if not spread:
        return None
    scaled = (maxima_ns - maxima_ns.mean()) / spread

    def cost(place: Floats) -> float:
        xi, log_sigma, location = place
        if xi < LOWEST_XI:
            return np.inf
        reduced = (scaled - location) / np.exp(log_sigma)
        if abs(xi) < _NEARLY_0:
            return float(len(scaled) * log_sigma + (reduced + np.exp(-reduced)).sum())
        inner = 1 + xi * reduced
        if inner.min() <= 0:
            return np.inf
        logs = np.log(inner)
        powers = np.exp(-logs / xi)
        return float(len(scaled) * log_sigma + ((1 + 1 / xi) * logs + powers).sum())

    start = np.array([0.05, np.log(_GUMBEL_SCALE), -_EULER * _GUMBEL_SCALE])
    minimum = minimize(cost, start, method="Nelder-Mead", options={"maxiter": 2000})
    xi, sigma, location = float(minimum.x[0]), float(np.exp(minimum.x[1])), float(minimum.x[2])
    exceeding = min(1 / (ratio * len(scaled)), 0.5)
    rarity = -np.log(-np.log1p(-exceeding))
    reach = rarity if abs(xi) < _NEARLY_0 else np.expm1(xi * rarity) / xi
    level = location + sigma * reach
    mean = float(maxima_ns.mean())
    return BlockMaxima(
        len(scaled), xi, sigma * spread, mean + location * spread, mean + float(level) * spread
    )
