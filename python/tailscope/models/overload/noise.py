"""CPU time that interrupts take in each second: noms2020's Table V."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import ModelError
from tailscope.models.estimate import LEVEL, Estimate
from tailscope.models.special import stdtrit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

FEWEST_SLICES = 2


@dataclass(frozen=True)
class Interruption:
    """One kind of interrupt: a row of Table V."""

    cause: str
    rate_hz: Estimate
    """Rate, in hertz."""
    duration_ns: Estimate
    """Mean duration, in nanoseconds."""


def as_given(value: float) -> Estimate:
    """Return a given figure as an estimate without uncertainty."""
    return Estimate(estimate=value, ci_low=value, ci_high=value, n=1, method="given")


def noise_of(interruptions: Iterable[Interruption]) -> Estimate:
    """Sum up a table of interrupts: rate times duration of each."""
    rows = list(interruptions)
    for row in rows:
        for name, value in (("rate_hz", row.rate_hz), ("duration_ns", row.duration_ns)):
            bounds = (value.ci_low, value.estimate, value.ci_high)
            if not all(0 <= bound < math.inf for bound in bounds):
                raise ModelError(
                    f"interrupt {row.cause}: {name}: got {value.estimate:g}"
                    f" ({value.ci_low:g} to {value.ci_high:g}), expected numbers of at least 0",
                    code="interrupt-range",
                )
    return Estimate(
        estimate=sum(row.rate_hz.estimate * row.duration_ns.estimate for row in rows),
        ci_low=sum(row.rate_hz.ci_low * row.duration_ns.ci_low for row in rows),
        ci_high=sum(row.rate_hz.ci_high * row.duration_ns.ci_high for row in rows),
        n=len(rows),
        method="ends of all rates and durations",
    )


def noise_over_time(ns_per_s: ArrayLike) -> Estimate:
    """Return the mean of what was taken in slices of time of equal length.

    Interrupts follow clocks, or come in swarms, and never independently of each other. So the
    interval is Student's, of slices that hold many of them.
    """
    taken = np.asarray(ns_per_s, float)
    if taken.ndim != 1 or len(taken) < FEWEST_SLICES:
        raise ModelError(
            f"noise: got {taken.size} slices of time, expected at least {FEWEST_SLICES}",
            code="noise-slices",
        )
    if not (np.isfinite(taken) & (taken >= 0)).all():
        raise ModelError(
            "noise: expected ns per second of at least 0 in every slice of time", code="noise-range"
        )
    mean, n = float(taken.mean()), len(taken)
    reach = stdtrit(n - 1, (1 + LEVEL) / 2) * float(taken.std(ddof=1)) / math.sqrt(n)
    return Estimate(
        estimate=mean,
        ci_low=max(0.0, mean - reach),
        ci_high=mean + reach,
        n=n,
        method="Student's t, of slices of time",
    )
