"""``plan`` in ``run.json``: all that was asked for, defaults included."""

from __future__ import annotations

from tailscope.exceptions import UsageError
from tailscope.field import fields_of
from tailscope.plan import PairFields, PlanFields
from tailscope.store.records.base import Count

__all__ = ["AnalysisPlan", "MeasurementPlan"]


class AnalysisPlan(PairFields, frozen=True, kw_only=True, tag_field="command", tag="analyze"):
    """The plan of an analysis of captures."""


class MeasurementPlan(PlanFields, frozen=True, kw_only=True, tag_field="command", tag="run"):
    """The plan of a measurement."""

    stall_ns: Count
    """A turn of a polling loop that takes longer is a stall."""

    def __post_init__(self) -> None:
        for name, declared in fields_of(PlanFields).items():
            if declared.least is not None:
                try:
                    declared.check(getattr(self, name))
                except UsageError as error:
                    raise ValueError(f"{name}: {error}") from None
