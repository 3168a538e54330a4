"""A law for the bursts beyond one threshold, and its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.bursts import bursts
from tailscope.extra.tail.models.laws import plausible, resampled
from tailscope.extra.tail.models.pareto import Likelihood

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.tail.models.bursts import Bursts
    from tailscope.extra.tail.models.excesses import Excesses
    from tailscope.extra.tail.models.laws import Laws
    from tailscope.extra.tail.models.pareto import Pareto

    Floats = NDArray[np.float64]

FEWEST_BURSTS = 30
"""Smallest number of bursts to fit a law to."""

METHODS = ("integrated", "profile", "bootstrap")
"""Methods for intervals; docs/extra/tail/tail.md says how well each of them keeps its promise."""

_BINS = 20


class Intervals(NamedTuple):
    """Intervals of one method and level."""

    xi: tuple[float, float]
    sigma_ns: tuple[float, float]
    level_ns: tuple[float, float]
    """Low and high end of each interval."""


@dataclass(frozen=True)
class Fit:
    """The law of the worst packets of bursts above a threshold."""

    threshold_ns: int
    bursts: Bursts
    """Bursts above the threshold in the fitted part."""
    packets: int
    """Number of all packets in that part."""
    best: Pareto[float]
    """Law of the largest likelihood, in nanoseconds."""

    @cached_property
    def laws(self) -> Laws:
        """Return all plausible laws."""
        return plausible(self.excess_ns, self.best)

    @property
    def excess_ns(self) -> Floats:
        """Return the excess of each burst's worst packet over the threshold."""
        return (self.bursts.worst_ns - self.threshold_ns).astype(float)

    @property
    def divergence_bits(self) -> float:
        """Return the Jensen-Shannon divergence from the law, on 20 equally likely classes."""
        return divergence_bits(self.best.survival(self.excess_ns))

    @property
    def divergence_by_chance_bits(self) -> float:
        """Return the mean divergence of samples of the law itself, of as many excesses."""
        return (_BINS - 3) / (8 * len(self.bursts) * float(np.log(2)))

    def bursts_in(self, packets: float) -> float:
        """Return the expected bursts above the threshold among so many packets."""
        return len(self.bursts) * packets / self.packets

    def level_ns(self, packets: float) -> float:
        """Return the latency that one burst among so many packets is expected to exceed.

        It is the mean over all plausible laws of what is expected that is 1: by the best law alone
        more bursts would exceed it, as what its errors add to the tail is more than what they take.
        Where not even one burst is expected above the threshold, it is the threshold.
        """
        from scipy.optimize import brentq

        expected = self.bursts_in(packets)
        if expected <= 1:
            return float(self.threshold_ns)
        high = float(self.laws.distinct.quantile(1 / expected).max())

        def surplus(excess: float) -> float:
            return expected * self.laws.survival(excess) - 1

        return self.threshold_ns + float(brentq(surplus, 0, 2 * high, xtol=0.5))

    def best_level_ns(self, packets: float) -> float:
        """Return that latency by the best law alone: Equation 1 of containers2024, of bursts."""
        return float(self._levels(self.best, 1.0, packets))

    def levels_ns(self, packets: float) -> Floats:
        """Return that latency by each of the plausible laws, shape (n_laws,)."""
        return self._levels(self.laws.law, self.laws.rate, packets)

    @property
    def limit_ns(self) -> float | None:
        """Return the upper bound of the best law; None if it has none."""
        return self.threshold_ns - self.best.sigma / self.best.xi if self.best.xi < 0 else None

    def intervals(self, packets: float, level: float, resamples: Laws) -> dict[str, Intervals]:
        """Return intervals of shape, scale and the level that one burst exceeds, by method."""
        ways = {
            "integrated": (self.laws, self.laws.central),
            "profile": (self.laws, self.laws.profile),
            "bootstrap": (resamples, resamples.central),
        }
        return {
            method: Intervals(
                interval(laws.law.xi, level),
                interval(laws.law.sigma, level),
                interval(self._levels(laws.law, laws.rate, packets), level),
            )
            for method, (laws, interval) in ways.items()
        }

    def resample(self, count: int, rng: np.random.Generator) -> Laws:
        """Fit laws to resampled bursts for the bootstrap."""
        return resampled(self.excess_ns, self.best, count, rng)

    def _levels(self, law: Pareto[float | Floats], rate: Floats | float, packets: float) -> Floats:
        """Return the latency that one burst exceeds by each law."""
        share = np.minimum(1 / (self.bursts_in(packets) * rate), 1)
        return self.threshold_ns + law.quantile(share)


def divergence_bits(survival: Floats) -> float:
    """Return the Jensen-Shannon divergence of shares from the uniform law, on 20 classes."""
    at = np.minimum((survival * _BINS).astype(int), _BINS - 1)
    share = np.bincount(at, minlength=_BINS) / len(survival)
    middle = (share + 1 / _BINS) / 2
    seen = share > 0
    own = float((share[seen] * np.log2(share[seen] / middle[seen])).sum())
    return (own - float(np.log2(middle * _BINS).mean())) / 2


def fit(excesses: Excesses, threshold_ns: int, run_length_ns: int) -> Fit:
    """Fit a law to the worst packets of the bursts above a threshold."""
    return fit_bursts(bursts(excesses, threshold_ns, run_length_ns), threshold_ns, excesses.count)


def fit_bursts(some: Bursts, threshold_ns: int, packets: int) -> Fit:
    """Fit a law to those of some bursts that are above a threshold."""
    above = some.kept(some.worst_ns > threshold_ns)
    if len(above) < FEWEST_BURSTS:
        raise EvidenceError(
            f"expected at least {FEWEST_BURSTS} bursts above {threshold_ns} ns, got {len(above)}",
            code="bursts-few",
            hint="measure for longer, or choose a lower threshold",
        )
    excess_ns = (above.worst_ns - threshold_ns).astype(float)
    if excess_ns.min() == excess_ns.max():
        raise EvidenceError(
            f"expected latencies that vary, got {len(above)} bursts of {above.worst_ns[0]} ns each",
            code="latencies-constant",
        )
    return Fit(threshold_ns, above, packets, Likelihood(excess_ns).best)
