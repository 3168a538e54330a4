"""The laws that the excesses leave plausible, and figures of all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.tail.models.pareto import HIGHEST_XI, LOWEST_XI, Pareto, refit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_COARSE, _FINE = 81, 121
_WIDTHS = 12.0
"""Reach of the first grid around the maximum, in standard deviations."""

_DROP = 16.0
"""Largest drop of the log likelihood of a law that is considered."""

_RATES, _RATE_WIDTHS = 11, 4.0
_NODES, _EXACT = 400, 16
_AT_ONCE = 100_000
"""Number of logarithms that are computed at once: few enough for the cache."""


@dataclass(frozen=True)
class Laws:
    """Many laws, and the rate of excesses by each."""

    distinct: Pareto[Floats]
    """Distinct laws apart from their rate: arrays of shape (n_distinct,)."""
    which: Integers
    """Index of each law among the distinct ones."""
    rate: Floats
    """Expected excesses for each one observed."""
    log_likelihood: Floats
    """Log likelihood less that of the most likely law."""
    weight: Floats
    """Weights, which sum to 1."""

    @cached_property
    def law(self) -> Pareto[Floats]:
        """Return each law: arrays of shape (n_laws,)."""
        return Pareto(self.distinct.xi[self.which], self.distinct.sigma[self.which])

    def mean(self, values: Floats) -> float:
        """Return the mean over all laws of a figure that each has."""
        return float((self.weight * values).sum())

    def survival(self, excess: float) -> float:
        """Return the mean over all laws of the larger excesses, for each one observed."""
        return float((self._rate_of_distinct * self.distinct.survival(excess)).sum())

    def mean_of_distinct(self, values: Floats) -> float:
        """Return the mean over all laws of a figure that does not depend on the rate."""
        weight = np.bincount(self.which, self.weight, len(self.distinct.xi))
        return float((weight * values).sum())

    @cached_property
    def _rate_of_distinct(self) -> Floats:
        rates = np.bincount(self.which, self.weight * self.rate, len(self.distinct.xi))
        return rates.astype(float)

    def central(self, values: Floats, level: float) -> tuple[float, float]:
        """Return the interval with this share of the weight, and equal weight on both sides."""
        order = np.argsort(values)
        weight = self.weight[order]
        middle = np.cumsum(weight) - weight / 2
        low, high = np.interp([(1 - level) / 2, (1 + level) / 2], middle, values[order])
        return float(low), float(high)

    def profile(self, values: Floats, level: float) -> tuple[float, float]:
        """Return the range of a figure over all laws that a likelihood ratio test does not reject.

        Source: S. Coles, *An Introduction to Statistical Modeling of Extreme Values*, theorem 2.6.
        """
        from scipy.special import chdtri

        likely = values[self.log_likelihood >= -chdtri(1, 1 - level) / 2]
        return float(likely.min()), float(likely.max())


def plausible(excesses: Floats, best: Pareto[float]) -> Laws:
    """Lay a grid over all laws that are not much less likely than the best one.

    The weight of each is its likelihood, with equal steps of ξ, of log σ and of the log of the rate
    counting alike.
    """
    width = _WIDTHS / np.sqrt(len(excesses))
    sums = _Sums(excesses)
    reach = width * (1 + abs(best.xi))
    xi = (max(LOWEST_XI, best.xi - reach), min(HIGHEST_XI, best.xi + reach))
    log_sigma = (np.log(best.sigma) - width, np.log(best.sigma) + width)
    for points in (_COARSE, _FINE):
        rows = np.linspace(*xi, points)
        columns = np.linspace(*log_sigma, points)
        likelihoods = sums.log_likelihood(rows[:, None], columns[None, :])
        considered = likelihoods >= likelihoods.max() - _DROP
        xi = _around(rows, considered.any(1))
        log_sigma = _around(columns, considered.any(0))
    likelihoods -= likelihoods.max()
    considered = likelihoods > -_DROP
    every = np.broadcast_arrays(rows[:, None], np.exp(columns), likelihoods)
    xi_of, sigma_of, likelihood_of = (grid[considered] for grid in every)
    count = len(excesses)
    log_rate = np.linspace(-_RATE_WIDTHS, _RATE_WIDTHS, _RATES) / np.sqrt(count)
    # Excesses come as a Poisson process does: of n seen, a rate r has the likelihood r^n·exp(−n·r).
    with_rate = likelihood_of[:, None] + count * (log_rate - np.expm1(log_rate))
    likely = with_rate > -_DROP
    which, rate_at = np.nonzero(likely)
    rate, log_likelihood = np.exp(log_rate)[rate_at], with_rate[likely]
    return Laws(Pareto(xi_of, sigma_of), which, rate, log_likelihood, _shares(log_likelihood))


def resampled(excesses: Floats, best: Pareto[float], count: int, rng: np.random.Generator) -> Laws:
    """Fit laws to samples of the best one (parametric bootstrap)."""
    laws = refit(best.draw((count, len(excesses)), rng), best)
    rate = np.maximum(rng.poisson(len(excesses), count), 1) / len(excesses)
    alike = np.zeros(count)
    return Laws(laws, np.arange(count), rate, alike, _shares(alike))


def _shares(log_likelihood: Floats) -> Floats:
    weight = np.exp(log_likelihood)
    return weight / weight.sum()  # type: ignore[no-any-return]


def _around(points: Floats, which: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the range from the last point before to the first one after those that are kept."""
    first, last = np.flatnonzero(which)[[0, -1]]
    return float(points[max(0, first - 1)]), float(points[min(len(points) - 1, last + 1)])


class _Sums:
    """Fast sums of log(1 + κ·excess) for many κ: interpolated, the largest excess exact."""

    def __init__(self, excesses: Floats) -> None:
        ordered = np.sort(excesses)
        self._n, self._sum = len(ordered), ordered.sum()
        self._rest, self._largest = ordered[:-_EXACT], ordered[-_EXACT:]

    def log_likelihood(self, xi: Floats, log_sigma: Floats) -> Floats:
        """Return the log likelihood of each law; −∞ if an excess is impossible."""
        sigma = np.exp(log_sigma)
        kappa = xi / sigma
        possible = kappa * self._largest[-1] > -1
        kappa = np.where(possible, kappa, 0)
        # The sum over κ, which has a limit where κ is 0; with ξ = κ·σ nothing is divided by 0.
        over = self._over(kappa)
        likelihoods = -self._n * log_sigma - over / sigma - over * kappa
        return np.where(possible, likelihoods, -np.inf)

    def _over(self, kappa: Floats) -> Floats:
        from scipy.interpolate import CubicSpline

        found = _log_over(kappa, self._largest)
        if len(self._rest):
            # Denser towards the low end, where the sum bends.
            low, high = float(kappa.min()), float(kappa.max())
            place = np.linspace(0, 1, _NODES)
            sums = _log_over(low + (high - low) * place**2, self._rest)
            found += CubicSpline(place, sums)(np.sqrt((kappa - low) / (high - low)))
        return found


def _log_over(kappa: Floats, excesses: Floats) -> Floats:
    """Return the sum of log(1 + κ·y)/κ over all excesses y, and of y for κ = 0."""
    at_once = max(1, _AT_ONCE // kappa.size)
    sums = np.zeros(kappa.shape)
    for begin in range(0, len(excesses), at_once):
        sums += np.log1p(np.multiply.outer(excesses[begin : begin + at_once], kappa)).sum(0)
    flat = kappa == 0
    return np.where(flat, excesses.sum(), sums / np.where(flat, 1, kappa))
