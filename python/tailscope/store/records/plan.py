"""``plan`` in ``run.json``: all that was asked for, defaults included."""

from __future__ import annotations

from tailscope.plan import PairFields, PlanFields
from tailscope.store.records.base import Count

__all__ = ["AnalysisPlan", "MeasurementPlan"]


class AnalysisPlan(PairFields, frozen=True, kw_only=True, tag_field="command", tag="analyze"):
    """The plan of an analysis of captures."""


class MeasurementPlan(PlanFields, frozen=True, kw_only=True, tag_field="command", tag="run"):
    """The plan of a measurement."""

    stall_ns: Count
    """A turn of a polling loop that takes longer is a stall."""
