"""A figure with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.95
"""Of intervals, where nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure, and the interval that holds the true one with the given probability."""

    estimate: float
    ci_low: float
    ci_high: float
    """In the unit of the figure."""
    level: float = LEVEL
    """Of the interval."""
    n: int
    """What it rests on: samples, or what they were condensed to."""
    method: str
    """How the interval was found."""

    def record(self, name: str) -> dict[str, float]:
        """It as JSON has it: flat, under a name that carries the unit."""
        return {
            name: self.estimate,
            f"{name}_ci_low": self.ci_low,
            f"{name}_ci_high": self.ci_high,
        }
