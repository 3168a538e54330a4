"""A baseline: what runs are compared by, without the runs."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section

BASELINE_FORMAT: Final = 1


class BaselineFigure(Section, frozen=True, kw_only=True):
    """A figure of a run."""

    value: float | None
    """The figure; null without packets, or if it is longer than any that came."""
    ci_low: tuple[float | None, ...]
    """Lower ends of its interval, one for each of `errors`; null for an end that there is not."""
    ci_high: tuple[float | None, ...]
    """Upper ends, likewise."""
    lacks: str | None
    """Why it is no estimate; null if it is one."""
    packets: Count
    """Number of packets that it rests on."""
    packets_to_support: Count | None
    """How many would make it an estimate; null if it is one, or no number would."""
    design_effect: float
    """How many packets say as much as one that stands alone."""
    of_those_that_came: float | None
    """Of a quantile: that of the packets that came back alone."""


class BaselineDoubt(Section, frozen=True, kw_only=True):
    """Why a verdict cannot be believed."""

    reason: str
    """In words."""
    of_met: bool
    """Whether it is against a pass."""
    of_missed: bool
    """Whether it is against a fail."""


class BaselineRun(Section, frozen=True, kw_only=True):
    """What a run is compared by."""

    name: str
    """What it was called."""
    facts: dict[str, str]
    """Plan, machine, instrument, clock and versions by `section: field`, as `compare` has them."""
    rate_pps: float
    """At which packets were sent."""
    tainted_share: float
    """Share of the packets that the instrument's stalls could change."""
    is_foreign: bool
    """Whether others measured it."""
    spoilt: str
    """What the instrument may have spoilt."""
    window_ns: Count | None
    """What a packet that never came counts as; null for imports."""
    resolution_ns: Count
    """Of the timestamps."""
    as_is: dict[str, BaselineFigure]
    """Figures by their names."""
    least: dict[str, BaselineFigure] | None
    """The same with the least that packets can have taken; null if that is the same."""
    doubts: tuple[BaselineDoubt, ...]
    """Objections to all figures."""
    time_doubts: tuple[BaselineDoubt, ...]
    """Objections to latencies."""


class BaselineRecord(Record, frozen=True, kw_only=True):
    """What `tailscope baseline save` writes."""

    format: Literal[1] = BASELINE_FORMAT
    """Version of the format."""
    tailscope_version: str
    """The tailscope that wrote it."""
    written_unix_ns: Count
    """When it was written."""
    errors: tuple[float, ...]
    """With which the ends of intervals may be wrong, from the largest on."""
    runs: tuple[BaselineRun, ...]
    """Runs that repeat each other."""
    lines_sha256: str | None = None
    """Checksum of all lines above this one, as in `run.json`."""
