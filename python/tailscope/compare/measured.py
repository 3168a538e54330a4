"""The figures of a run that it is compared by, and how far each is to be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.models.differences import Bounds
    from tailscope.verdict.evidence import Doubt


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of a run."""

    ends: Mapping[float, Bounds]
    """Its interval for each error that was asked for."""
    lacks: str | None = None
    """Why it is no estimate; None where it is one."""
    packets: int = 0
    """That it rests on."""
    packets_to_support: int | None = None
    """How many would make it an estimate; None where it is one, or no number would."""
    design: float = 1.0
    """How many packets say as much as one that stands alone."""
    of_those_that_came: float = math.nan
    """A quantile of the packets that came back alone; NaN of other figures, and without packets."""

    @property
    def value(self) -> float:
        """The figure."""
        return next(iter(self.ends.values())).value


@dataclass(frozen=True)
class RunFigures:
    """What a run is compared by."""

    name: str
    facts: Mapping[str, str]
    """Where it comes from: plan, machine, instrument, versions."""
    rate_pps: float
    """At which packets were sent."""
    tainted_share: float
    """Of the packets."""
    is_foreign: bool
    """Whether others measured it."""
    as_is: Mapping[str, MeasuredFigure]
    """By the names of the figures."""
    least: Mapping[str, MeasuredFigure] | None
    """The same with the least that packets can have taken; None where that is the same."""
    spoilt: str
    """What the instrument may have spoilt."""
    window_ns: float
    """What a packet that never came, or took longer, counts as; infinite for imports."""
    resolution_ns: int
    """Of the timestamps."""
    doubts: tuple[Doubt, ...]
    time_doubts: tuple[Doubt, ...]
    """Of all figures, and of latencies."""
