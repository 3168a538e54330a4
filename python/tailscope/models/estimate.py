"""A figure with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.95
"""Default confidence of intervals."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure, and the interval that holds the true one with the given probability."""

    estimate: float
    ci_low: float
    ci_high: float
    """Ends of the interval, in the unit of the figure."""
    level: float = LEVEL
    """Confidence of the interval."""
    n: int
    """Number of samples, or of what they were condensed to."""
    method: str
    """Method that gave the interval."""

    def record(self, name: str) -> dict[str, float]:
        """Return the estimate as flat JSON content, under a name that carries the unit."""
        return {
            name: self.estimate,
            f"{name}_ci_low": self.ci_low,
            f"{name}_ci_high": self.ci_high,
        }
