"""The figures of a run that it is compared by, and how far each is to be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.models.differences import Bounds
    from tailscope.verdict.evidence import Doubt


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of a run."""

    ends: Mapping[float, Bounds]
    """Interval of the figure, by error rate."""
    lacks: str | None = None
    """Reason why it is no estimate; None if it is one."""
    packets: int = 0
    """Number of packets that it rests on."""
    packets_to_support: int | None = None
    """Number of packets that would make it an estimate; None if it is one, or no number would."""
    design: float = 1.0
    """Number of packets that are worth one independent packet."""
    of_those_that_came: float = math.nan
    """A quantile of the packets that came back alone; NaN of other figures, and without packets."""

    @property
    def value(self) -> float:
        """The figure."""
        return next(iter(self.ends.values())).value


class OwnFigure(NamedTuple):
    """A latency as the table of its run has it, in nanoseconds."""

    least_ns: float
    """The least that it can have been, without the instrument's stalls."""
    latency_ns: float
    bound_ns: float | None = None
    """What it is at least, where too few packets lie beyond for an estimate."""


@dataclass(frozen=True)
class RunFigures:
    """The figures that a run is compared by."""

    name: str
    facts: Mapping[str, str]
    """Origin of the run: plan, machine, instrument, versions."""
    rate_pps: float
    """Rate at which packets were sent, in packets per second."""
    tainted_share: float
    """Share of the packets that the instrument's stalls could change."""
    is_foreign: bool
    """True if another tool measured it."""
    as_is: Mapping[str, MeasuredFigure]
    """Figures as they were measured, by name."""
    least: Mapping[str, MeasuredFigure] | None
    """Figures for the least that packets can have taken; None if they are the same."""
    spoilt: str
    """Description of what the instrument may have spoilt."""
    window_ns: float
    """Latency that a packet counts as that took longer or never came; infinite for imports."""
    resolution_ns: int
    """Resolution of the timestamps, in nanoseconds."""
    doubts: tuple[Doubt, ...]
    time_doubts: tuple[Doubt, ...]
    """Doubts about all figures, and about latencies."""
    own: Mapping[str, OwnFigure] = field(default_factory=dict)
    """Latencies as the run's own table has them, by name; empty where there is no such table."""
    fastest_ns: float = 0.0
    """Latency of the fastest packet; 0 where that is not known."""
    drift_ns: float = 0.0
    """By how much latencies may be off either way, as clocks may drift, in nanoseconds."""
    is_relative: bool = False
    """True if latencies are above the fastest packet's, as the clocks' offset is not known."""
    never_came: int = 0
    unsent: int = 0
    """Number of packets that never came back in time, and that the generator could not send."""
