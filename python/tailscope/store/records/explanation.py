"""``explanation.json``: what the tail of a measurement is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailscope.store.layout import FORMAT
from tailscope.store.records.base import Count, Record, Section

__all__ = ["ExplainedCause", "Explanation"]


class ExplainedCause(Section, frozen=True, kw_only=True):
    """A cause that packets waited for."""

    part: Literal["dut", "queue", "instrument", "unexplained"]
    """The part of the latency."""
    cause: str
    """What they waited for."""
    packets: Count
    """Packets that waited for it."""
    total_ns: Count
    """How long they waited in total."""
    share: Annotated[float, Meta(ge=0, le=1)]
    """That total, as a share of the excess."""
    largest_ns: Count
    """The longest that one of them waited."""


class Explanation(Record, frozen=True, kw_only=True):
    """What the packets beyond a quantile waited for."""

    format: Literal[2] = FORMAT
    """Version of the layout, as in `run.json`."""
    quantile: Annotated[float, Meta(ge=0, le=1)]
    """Packets beyond this quantile are explained."""
    threshold_ns: Count
    """The latency at that quantile."""
    service_ns: Count
    """The latency of the median packet."""
    packets: Count
    """Number of packets explained."""
    latency_ns: Count
    """Their total latency."""
    excess_ns: Count
    """Their total latency, less the service time of each."""
    parts_ns: dict[str, Count]
    """The parts of `latency_ns`: `service`, `dut`, `queue`, `instrument`, `unexplained`."""
    causes: tuple[ExplainedCause, ...]
    """The causes, largest first."""
