"""Goodness of fit of a law to the excesses that it was fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.tail.models.pareto import Pareto, refit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 199
"""Number of the law's samples that the excesses are compared with."""

_SMALLEST = 1e-12


def anderson_darling(shares: Floats) -> Floats:
    """Return the statistic A² of samples that should be uniform, along the last axis.

    Source: T. W. Anderson, D. A. Darling, "A test of goodness of fit", J. Am. Stat. Assoc. 49
    (1954). It weighs the ends of a law more than its middle.
    """
    ordered = np.clip(np.sort(shares, axis=-1), _SMALLEST, 1 - _SMALLEST)
    n = ordered.shape[-1]
    odd = 2 * np.arange(1, n + 1) - 1
    both = np.log(ordered) + np.log1p(-ordered[..., ::-1])
    return np.asarray(-n - (odd * both).mean(-1))


def goodness(
    excesses: Floats, best: Pareto[float], rng: np.random.Generator, resamples: int = RESAMPLES
) -> float:
    """Return the probability that a sample of the law is at least as far from its own fit.

    The law was fitted to the excesses, so the tables of the statistic do not hold: each sample of
    the law is fitted again (parametric bootstrap).
    """
    observed = anderson_darling(best.survival(excesses))
    samples = best.draw((resamples, len(excesses)), rng)
    fitted = refit(samples, best)
    own = Pareto(fitted.xi[:, None], fitted.sigma[:, None]).survival(samples)
    return (1 + int((anderson_darling(own) >= observed).sum())) / (resamples + 1)
