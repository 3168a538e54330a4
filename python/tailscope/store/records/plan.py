"""``plan`` in ``run.json``: all that was asked for, defaults included."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailscope.plan.field import check_declared
from tailscope.plan.fields import PairFields, PlanFields
from tailscope.store.records.base import Count, Section

Foreign: TypeAlias = Literal[
    "authors",
    "hdr-log",
    "hdr-percentiles",
    "moongen",
    "cyclictest",
    "rtla",
    "sockperf",
    "irtt",
    "trex",
    "iperf3",
    "values",
]
"""Kinds of results of others."""


class AnalysisPlan(PairFields, frozen=True, kw_only=True, tag_field="command", tag="analyze"):
    """The plan of an analysis of captures."""


class MeasurementPlan(PlanFields, frozen=True, kw_only=True, tag_field="command", tag="run"):
    """The plan of a measurement."""

    stall_ns: Count
    """A turn of a polling loop that takes longer is a stall."""

    def __post_init__(self) -> None:
        check_declared(self, PlanFields)


class ImportPlan(Section, frozen=True, kw_only=True, tag_field="command", tag="import"):
    """The plan of an import of what others have measured and summarised."""

    kind: Foreign
    """`authors`: tables of the papers' authors; `hdr-log`: an interval log of HdrHistogram;
    `hdr-percentiles`: its percentile output; `values`: a latency a line; else the tool."""
    source: str
    """The file; of tables, the folder and what their names begin with."""
    tag: str | None
    """Tag of this run in a log with several; null for intervals without one, and for
    other kinds."""
    unit: str
    """The unit of the values in it: `ns`, `us`, `ms` or `s`."""
    bucket_ns: Count | None
    """Width of the buckets of the latency; null where it grows with the latency, or there are
    none."""
    trim_ns: Count | None
    """Trim at the beginning, as the name says; null if it does not."""
