"""The figures of a run that it is compared by, and how far each is to be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.models.differences import Bounds
    from tailscope.verdict.evidence import Doubt

__all__ = ["MeasuredFigure", "RunFigures"]


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of a run.

    Attributes
    ----------
    ends : Mapping of float to Bounds
        Its interval for each error that was asked for.
    lacks : str or None
        Why it is no estimate; None where it is one.
    packets : int
        That it rests on.
    packets_to_support : int or None
        How many would make it an estimate; None where it is one, or no number would.
    design : float
        How many packets say as much as one that stands alone.
    of_those_that_came : float
        A quantile of the packets that came back alone; NaN of other figures, and without packets.
    """

    ends: Mapping[float, Bounds]
    lacks: str | None = None
    packets: int = 0
    packets_to_support: int | None = None
    design: float = 1.0
    of_those_that_came: float = math.nan

    @property
    def value(self) -> float:
        """The figure."""
        return next(iter(self.ends.values())).value


@dataclass(frozen=True)
class RunFigures:
    """What a run is compared by.

    Attributes
    ----------
    name : str
    facts : Mapping of str to str
        Where it comes from: plan, machine, instrument, versions.
    rate_pps : float
        At which packets were sent.
    tainted_share : float
        Of the packets.
    is_foreign : bool
        Whether others measured it.
    as_is : Mapping of str to MeasuredFigure
        By the names of the figures.
    least : Mapping of str to MeasuredFigure, or None
        The same with the least that packets can have taken; None where that is the same.
    spoilt : str
        What the instrument may have spoilt.
    window_ns : float
        What a packet that never came, or took longer, counts as; infinite for imports.
    resolution_ns : int
        Of the timestamps.
    doubts, time_doubts : tuple of Doubt
        Of all figures, and of latencies.
    """

    name: str
    facts: Mapping[str, str]
    rate_pps: float
    tainted_share: float
    is_foreign: bool
    as_is: Mapping[str, MeasuredFigure]
    least: Mapping[str, MeasuredFigure] | None
    spoilt: str
    window_ns: float
    resolution_ns: int
    doubts: tuple[Doubt, ...]
    time_doubts: tuple[Doubt, ...]
