"""One run of an experiment, with its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.experiment.plan import RunPlan

_AROUND_S = 2.5
_ANALYSIS_S = 3e-7
"""Seconds that a cell takes to start and end, and for each packet."""


@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    name: str
    """Its folder's name."""
    values: Mapping[str, str]
    """The value of each variable, or its label."""
    repeat: int
    """Number of the repeat, from 1."""
    plan: RunPlan
    reached_s: float = 0.0
    """Time that it takes to reach its machines."""

    @property
    def lasts_s(self) -> float:
        """The approximate duration of the cell."""
        platform = self.plan.device.make_platform()
        starts_s = (
            platform.starts_in_s * self.plan.instances + self.plan.device.make_dut().starts_in_s
        )
        packets = self.plan.rate_pps * self.plan.duration_ns / 1e9 * self.plan.runs
        sends_s = (self.plan.warm_up_ns + self.plan.duration_ns) / 1e9
        rests_s = 2 * self.plan.power_phase_ns / 1e9 if self.plan.measurement.asks_for_power else 0
        return self.reached_s + starts_s + rests_s + sends_s + _AROUND_S + packets * _ANALYSIS_S
