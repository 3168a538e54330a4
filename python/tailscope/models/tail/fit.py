"""A law for the bursts beyond one threshold, with what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.models.tail.bursts import bursts
from tailscope.models.tail.laws import plausible, resampled
from tailscope.models.tail.pareto import Likelihood

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.models.tail.bursts import Bursts
    from tailscope.models.tail.excesses import Excesses
    from tailscope.models.tail.laws import Laws
    from tailscope.models.tail.pareto import Pareto

    Floats = NDArray[np.float64]

FEWEST_BURSTS = 30
"""From fewer nothing is concluded."""

METHODS = ("integrated", "profile", "bootstrap")
"""How intervals are found; docs/tail.md says how well each of them keeps its promise."""

_BINS = 20


class Intervals(NamedTuple):
    """By one method, of one level."""

    xi: tuple[float, float]
    sigma_ns: tuple[float, float]
    level_ns: tuple[float, float]
    """Low and high."""


@dataclass(frozen=True)
class Fit:
    """The law of the worst packets of bursts above a threshold."""

    threshold_ns: int
    bursts: Bursts
    """Those above it, of the part that was fitted."""
    packets: int
    """All packets of that part."""
    best: Pareto[float]
    """The law of the largest likelihood, in ns."""

    @cached_property
    def laws(self) -> Laws:
        """All laws that are plausible."""
        return plausible(self.excess_ns, self.best)

    @property
    def excess_ns(self) -> Floats:
        """By how much the worst packet of each burst is above the threshold."""
        return (self.bursts.worst_ns - self.threshold_ns).astype(float)

    @property
    def divergence_bits(self) -> float:
        """Jensen-Shannon divergence from the law, on 20 classes that it makes equally likely."""
        return divergence_bits(self.best.survival(self.excess_ns))

    @property
    def divergence_by_chance_bits(self) -> float:
        """What that is on average where the law is the true one, fitted to as many excesses."""
        return (_BINS - 3) / (8 * len(self.bursts) * float(np.log(2)))

    def bursts_in(self, packets: float) -> float:
        """Bursts above the threshold among so many packets, at the rate of the part."""
        return len(self.bursts) * packets / self.packets

    def level_ns(self, packets: float) -> float:
        """The latency that one burst among so many packets is expected to exceed.

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
        """The same by the best law alone: Equation 1 of containers2024, of bursts."""
        return float(self._levels(self.best, 1.0, packets))

    def levels_ns(self, packets: float) -> Floats:
        """The same by each of the plausible laws, shape (n_laws,)."""
        return self._levels(self.laws.law, self.laws.rate, packets)

    @property
    def limit_ns(self) -> float | None:
        """What the best law never exceeds; None where it has no bound."""
        return self.threshold_ns - self.best.sigma / self.best.xi if self.best.xi < 0 else None

    def exceeded(
        self, level_ns: float, packets: float, at_least: int, others: float = 0.0
    ) -> float:
        """How probable it is that so many bursts or more of so many packets exceed a latency.

        `others` are expected of another cause.
        """
        from scipy.special import pdtrc

        if at_least <= 0:
            return 1.0
        law, rate = self.laws.law, self.laws.rate
        survival = law.survival(max(0.0, level_ns - self.threshold_ns))
        expected = self.bursts_in(packets) * rate * survival + others
        return self.laws.mean(pdtrc(at_least - 1, expected))

    def intervals(self, packets: float, level: float, resamples: Laws) -> dict[str, Intervals]:
        """Intervals of shape, scale, and of the latency that one burst exceeds, by each method."""
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
        """Laws for the bootstrap."""
        return resampled(self.excess_ns, self.best, count, rng)

    def _levels(self, law: Pareto[float | Floats], rate: Floats | float, packets: float) -> Floats:
        """The latency that one burst exceeds by each law."""
        share = np.minimum(1 / (self.bursts_in(packets) * rate), 1)
        return self.threshold_ns + law.quantile(share)


def divergence_bits(survival: Floats) -> float:
    """Jensen-Shannon divergence of shares from the uniform law, on 20 classes."""
    at = np.minimum((survival * _BINS).astype(int), _BINS - 1)
    share = np.bincount(at, minlength=_BINS) / len(survival)
    middle = (share + 1 / _BINS) / 2
    seen = share > 0
    own = float((share[seen] * np.log2(share[seen] / middle[seen])).sum())
    return (own - float(np.log2(middle * _BINS).mean())) / 2


def fit(excesses: Excesses, threshold_ns: int, run_length_ns: int) -> Fit:
    """Fit a law to the worst packets of the bursts above a threshold."""
    return fit_bursts(bursts(excesses, threshold_ns, run_length_ns), threshold_ns, excesses.count)


def fit_bursts(found: Bursts, threshold_ns: int, packets: int) -> Fit:
    """Fit a law to those of some bursts that are above a threshold."""
    above = found.kept(found.worst_ns > threshold_ns)
    if len(above) < FEWEST_BURSTS:
        raise EvidenceError(
            f"expected at least {FEWEST_BURSTS} bursts above {threshold_ns} ns, got {len(above)}",
            hint="measure for longer, or choose a lower threshold",
        )
    excess_ns = (above.worst_ns - threshold_ns).astype(float)
    if excess_ns.min() == excess_ns.max():
        raise EvidenceError(
            f"expected latencies that vary, got {len(above)} bursts of {above.worst_ns[0]} ns each"
        )
    return Fit(threshold_ns, above, packets, Likelihood(excess_ns).best)
