"""The method of containers2024 as its authors' program `evt-model.py` has it, to the letter.

The first fifth of the packets is fitted, in order of time. Each packet above p99.95 of it is an
event. ξ and σ are the most likely ones, as SciPy finds them, without bounds; ξ < 0 is bounded. The
return level is Equation 1 of the paper, and *packets* of the rest above it are counted. The paper's
text says otherwise: that the threshold is one of five, by its divergence, and that bursts are
counted.
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
"""The set 𝕋 of the paper, which its Figures 16 and 17 show."""

FIXED = 0.9995
"""The threshold of the authors' program."""

_FEWEST = 2


class PaperFit(NamedTuple):
    """The law above one of the thresholds."""

    threshold: float
    """Quantile of the first part."""
    threshold_ns: float
    excesses: int
    xi: float
    sigma_ns: float
    js_divergence_bits: float


class Equation1(NamedTuple):
    """The authors' method applied to a run."""

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
    """Model a run as the authors do, and count what exceeds the level in the rest."""
    part, rest = excesses.split(split)
    fits = [fitted for quantile in THRESHOLDS if (fitted := _fit(part, quantile)) is not None]
    chosen = next((fitted for fitted in fits if fitted.threshold == FIXED), None)
    if chosen is None:
        raise EvidenceError(
            f"expected the packets above p{100 * FIXED:g}, the threshold of Equation 1, got the"
            f" {len(part.latency_ns)} worst of {part.count}",
            code="equation1-none",
            hint="give all packets of the run: `tailscope model tail RUN --law equation-1`",
        )
    share = chosen.excesses / part.count
    # x_m = μ + σ/ξ·((m·D_{d>μ}/D)^ξ − 1)
    growth = float(np.expm1(chosen.xi * np.log(rest.count * share))) / chosen.xi
    level_ns = chosen.threshold_ns + chosen.sigma_ns * growth
    beyond = bursts(rest, int(chosen.threshold_ns), run_length_ns).worst_ns > level_ns
    return Equation1(
        fits, chosen, level_ns, int((rest.latency_ns > level_ns).sum()), int(beyond.sum())
    )


def _fit(part: Excesses, quantile: float) -> PaperFit | None:
    from scipy.stats import genpareto

    threshold_ns = _percentile(part, quantile)
    if threshold_ns is None:
        return None
    tail = part.latency_ns[part.latency_ns > threshold_ns].astype(float)
    if len(tail) < _FEWEST or tail.min() == tail.max():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xi, _, sigma = map(float, genpareto.fit(tail, floc=threshold_ns))
    if not np.isfinite([xi, sigma]).all() or sigma <= 0 or not xi:
        return None
    divergence = divergence_bits(Pareto(xi, sigma).survival(tail - threshold_ns))
    return PaperFit(quantile, threshold_ns, len(tail), xi, sigma, divergence)


def _percentile(part: Excesses, quantile: float) -> float | None:
    """Return what `numpy.percentile` does of all packets; None if it is below the known ones."""
    at = quantile * (part.count - 1)
    from_top = part.count - 1 - int(at)
    if not 0 < from_top < len(part.latency_ns):
        return None
    low, high = np.sort(part.latency_ns)[[-from_top - 1, -from_top]]
    return float(low + (at - int(at)) * (high - low))
