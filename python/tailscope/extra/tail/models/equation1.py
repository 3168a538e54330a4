"""The method of containers2024, section 6.2, to the letter.

Each packet above a threshold is an event; ξ and σ are the most likely ones, without bounds; of the
paper's five thresholds, the one with the smallest Jensen-Shannon divergence is taken; the return
level is its Equation 1.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.bursts import bursts
from tailscope.extra.tail.models.fit import divergence_bits
from tailscope.extra.tail.models.pareto import Pareto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.extra.tail.models.excesses import Excesses

THRESHOLDS = (0.995, 0.999, 0.9995, 0.9999, 0.99999)
"""The set 𝕋 of the paper."""

_FEWEST = 3


class PaperFit(NamedTuple):
    """The law above one of the thresholds."""

    threshold: float
    """Quantile of the first part."""
    threshold_ns: int
    excesses: int
    xi: float
    sigma_ns: float
    js_divergence_bits: float


class Equation1(NamedTuple):
    """The paper's method applied to a run."""

    fits: Sequence[PaperFit]
    """Fits above each threshold that the series reaches."""
    chosen: PaperFit
    return_level_ns: float
    """Return level by Equation 1."""
    exceedances_packets: int
    exceedances_bursts: int
    """Exceedances in the rest of the run, by packets and by bursts."""

    @property
    def is_bounded(self) -> bool:
        """Return True if the law has an upper bound."""
        return self.chosen.xi < 0


def equation_1(excesses: Excesses, split: float, run_length_ns: int) -> Equation1:
    """Model a run as the paper does, and count what exceeds the level in the rest."""
    part, rest = excesses.split(split)
    fits = [fitted for quantile in THRESHOLDS if (fitted := _fit(part, quantile)) is not None]
    if not fits:
        raise EvidenceError(
            "expected packets above one of the thresholds of Equation 1, 0.995 to 0.99999,"
            " got none",
            code="equation1-none",
        )
    chosen = min(fits, key=lambda fit: fit.js_divergence_bits)
    share = chosen.excesses / part.count
    law = Pareto(chosen.xi, chosen.sigma_ns)
    # x_m = μ + σ/ξ·((m·D_{d>μ}/D)^ξ − 1): the excess that one of m·share packets exceeds.
    level_ns = chosen.threshold_ns + float(law.quantile(min(1.0, 1 / (rest.count * share))))
    beyond = bursts(rest, chosen.threshold_ns, run_length_ns).worst_ns > level_ns
    return Equation1(
        fits, chosen, level_ns, int((rest.latency_ns > level_ns).sum()), int(beyond.sum())
    )


def _fit(part: Excesses, quantile: float) -> PaperFit | None:
    from scipy.stats import genpareto

    threshold_ns = part.threshold_ns(quantile)
    if threshold_ns is None:
        return None
    excess = (part.latency_ns[part.latency_ns > threshold_ns] - threshold_ns).astype(float)
    if len(excess) < _FEWEST or excess.min() == excess.max():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xi, _, sigma = genpareto.fit(excess, floc=0, scale=float(excess.mean()))
    if not np.isfinite([xi, sigma]).all() or sigma <= 0:
        return None
    divergence = divergence_bits(Pareto(float(xi), float(sigma)).survival(excess))
    return PaperFit(quantile, threshold_ns, len(excess), float(xi), float(sigma), divergence)
