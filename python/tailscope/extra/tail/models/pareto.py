"""The generalised Pareto law of excesses over a high threshold.

    P(excess > y) = (1 + ξ·y/σ)^(−1/ξ),   exp(−y/σ) for ξ = 0,   y ≥ 0

(S. Coles, *An Introduction to Statistical Modeling of Extreme Values*, equation 4.2; containers2024
section 6.2.) Bounded, by −σ/ξ, exactly when ξ < 0.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LOWEST_XI = -0.5
"""Lowest shape: below it, the likelihood grows without limit at the largest excess.

R. L. Smith, "Maximum likelihood estimation in a class of nonregular cases", Biometrika 72 (1985).
"""

HIGHEST_XI = 2.0
"""Highest shape, far above that of latencies; at 1 the law has no mean any more."""

_NEARLY_0 = 1e-7

_PLACES = 50
"""Number of places at which the likelihood is first evaluated."""

_SCORING_STEPS = 30
_SCORED = 1e-8
_CHUNK = 2_000_000

N_co = TypeVar("N_co", bound="float | Floats", covariant=True)


class Pareto(NamedTuple, Generic[N_co]):
    """One law, or an array of laws."""

    xi: N_co
    """Shape."""
    sigma: N_co
    """Scale, in the unit of excesses."""

    def survival(self, excess: Floats | float) -> Floats:
        """Return P(excess is larger)."""
        return _survival(np.asarray(self.xi), np.asarray(self.sigma), np.asarray(excess))

    def quantile(self, survival: Floats | float) -> Floats:
        """Return the excess that is exceeded with this probability."""
        return _quantile(np.asarray(self.xi), np.asarray(self.sigma), np.asarray(survival))

    def draw(self, count: int | tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Draw independent excesses."""
        return self.quantile(1 - rng.random(count))


def _survival(xi: Floats, sigma: Floats, excess: Floats) -> Floats:
    scaled = excess / sigma
    flat = np.abs(xi) < _NEARLY_0
    with np.errstate(divide="ignore"):
        curved = np.log1p(np.maximum(xi * scaled, -1)) / np.where(flat, 1, xi)
    return np.exp(-np.where(flat, scaled, curved))


def _quantile(xi: Floats, sigma: Floats, survival: Floats) -> Floats:
    flat = np.abs(xi) < _NEARLY_0
    log = -np.log(survival)
    safe = np.where(flat, 1, xi)
    return np.where(flat, sigma * log, sigma * np.expm1(safe * log) / safe)


class Likelihood:
    """The likelihood of laws for independent excesses, ξ from `LOWEST_XI` to `HIGHEST_XI`."""

    def __init__(self, excesses: Floats) -> None:
        self._sorted = np.sort(excesses)
        self.n = len(excesses)
        self._mean = float(excesses.mean())

    def at(self, xi: float, sigma: float) -> float:
        """Return the log likelihood of one law; −∞ if an excess is impossible."""
        if sigma <= 0 or not LOWEST_XI <= xi <= HIGHEST_XI:
            return -np.inf
        if abs(xi) < _NEARLY_0:
            return -self.n * (float(np.log(sigma)) + self._mean / sigma)
        scaled = self._sorted * (xi / sigma)
        if scaled[-1] <= -1:
            return -np.inf
        return float(-self.n * np.log(sigma) - (1 + 1 / xi) * np.log1p(scaled).sum())

    @cached_property
    def best(self) -> Pareto[float]:
        """Return the law of the largest likelihood.

        Of the laws with one κ = ξ/σ the likeliest is known, so that only κ is searched: roughly,
        then from one neighbour of the best to the other. Where the likelihood is largest the mean
        of 1/(1 + κ·excess) is 1/(1 + ξ), which lies between 1/3 and 2; that bounds κ.

        Source: S. D. Grimshaw, "Computing maximum likelihood estimates for the generalized Pareto
        distribution", Technometrics 35 (1993).
        """
        from scipy.optimize import minimize_scalar

        smallest, largest = float(self._sorted[0]), float(self._sorted[-1])

        def law(place: float) -> Pareto[float]:
            return self._likeliest(float(np.exp(place)) - 1 / largest)

        def cost(place: float) -> float:
            return -self.at(*law(place))

        low, high = 1 / (2 * self.n * largest), 2 / smallest + 1 / largest
        places = np.linspace(np.log(low), np.log(high), _PLACES)
        first = int(np.argmin([cost(place) for place in places]))
        around = places[max(0, first - 1)], places[min(_PLACES - 1, first + 1)]
        minimum = minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-9})
        return law(minimum.x)

    def _likeliest(self, kappa: float) -> Pareto[float]:
        """Return the likeliest law with ξ/σ = κ; its ξ is the mean of log(1 + κ·excess)."""
        xi = float(np.log1p(kappa * self._sorted).mean())
        if abs(xi) < _NEARLY_0:
            return Pareto(xi, self._mean)
        xi = min(max(xi, LOWEST_XI), HIGHEST_XI)
        return Pareto(xi, xi / kappa)


def refit(samples: Floats, start: Pareto[float]) -> Pareto[Floats]:
    """Fit many samples at once, from a law that is near (Fisher scoring)."""
    rows = max(1, _CHUNK // samples.shape[1])
    parts = [_scored(samples[at : at + rows], start) for at in range(0, len(samples), rows)]
    xi, sigma = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Pareto(xi, sigma)


def _scored(samples: Floats, start: Pareto[float]) -> tuple[Floats, Floats]:
    """Return scoring steps, halved if they turn back or lead to an impossible law."""
    largest = samples.max(1)
    xi = np.full(len(samples), start.xi)
    log_sigma = np.full(len(samples), np.log(start.sigma))
    last_xi, last_sigma, length = (np.full(len(samples), value) for value in (0.0, 0.0, 1.0))
    for _ in range(_SCORING_STEPS):
        scaled = samples * np.exp(-log_sigma)[:, None]
        inner = scaled / (1 + xi[:, None] * scaled)
        log = np.log1p(xi[:, None] * scaled).mean(1)
        mean = inner.mean(1)
        flat = np.abs(xi) < _NEARLY_0
        safe = np.where(flat, 1, xi)
        by_xi = np.where(
            flat,
            (scaled * (scaled / 2 - 1)).mean(1),
            log / safe**2 - (1 + 1 / safe) * mean,
        )
        by_log_sigma = (1 + xi) * mean - 1
        # The inverse of the expected information of one excess, for xi and log sigma.
        step_xi = np.clip((1 + xi) * ((1 + xi) * by_xi - by_log_sigma), -1, 1)
        step_sigma = np.clip((1 + xi) * (2 * by_log_sigma - by_xi), -1, 1)
        turned_back = step_xi * last_xi + step_sigma * last_sigma < 0
        size = length = np.where(turned_back, length / 2, np.minimum(1.2 * length, 1))
        last_xi, last_sigma = step_xi, step_sigma
        for _ in range(_SCORING_STEPS):
            new_xi = np.clip(xi + size * step_xi, LOWEST_XI, HIGHEST_XI)
            new_log = log_sigma + size * step_sigma
            bad = new_xi * largest * np.exp(-new_log) <= -1
            if not bad.any():
                break
            size = np.where(bad, size / 2, size)
        moved = np.abs(new_xi - xi).max() + np.abs(new_log - log_sigma).max()
        xi, log_sigma = new_xi, new_log
        if moved < _SCORED:
            break
    return xi, np.exp(log_sigma)
