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
    """Reason why it is no estimate; null if it is one."""
    packets: Count
    """Number of packets that it rests on."""
    packets_to_support: Count | None
    """Number of packets that would make it an estimate; null if it is one, or no number would."""
    design_effect: float
    """Number of packets that carry as much information as one independent packet."""
    of_those_that_came: float | None
    """Quantile of only the packets that came back."""


class BaselineDoubt(Section, frozen=True, kw_only=True):
    """A reason not to believe a verdict."""

    reason: str
    """Text of the reason."""
    of_met: bool
    """True if it speaks against a pass."""
    of_missed: bool
    """True if it speaks against a fail."""


class BaselineLatency(Section, frozen=True, kw_only=True):
    """A latency as the table of its run has it."""

    least_ns: float
    """The least that it can have been, without the instrument's stalls."""
    latency_ns: float
    """As it was measured."""
    bound_ns: float | None
    """What it is at least, where too few packets lie beyond; null where enough do."""


class BaselineRun(Section, frozen=True, kw_only=True):
    """The figures by which a run is compared."""

    name: str
    """Name of the run."""
    facts: dict[str, str]
    """Plan, machine, instrument, clock and versions by `section: field`, as `compare` has them."""
    rate_pps: float
    """Rate at which packets were sent."""
    tainted_share: float
    """Share of the packets that the instrument's stalls could change."""
    is_foreign: bool
    """True if the figures were imported."""
    spoilt: str
    """Description of what the instrument may have spoilt."""
    window_ns: Count | None
    """Latency that a lost packet counts as; null for imports."""
    resolution_ns: Count
    """Resolution of the timestamps."""
    as_is: dict[str, BaselineFigure]
    """Figures by their names."""
    least: dict[str, BaselineFigure] | None
    """The same with the least that packets can have taken; null if that is the same."""
    doubts: tuple[BaselineDoubt, ...]
    """Objections to all figures."""
    time_doubts: tuple[BaselineDoubt, ...]
    """Objections to latencies."""
    own: dict[str, BaselineLatency]
    """Latencies of the packets that came, as the table of the run has them; empty for imports."""
    fastest_ns: float
    """Latency of the fastest packet; 0 where that is not known."""
    never_came: Count
    """Number of packets that never came back in time."""
    unsent: Count
    """Number of packets that the generator could not send."""
    drift_ns: float = 0.0
    """By how much latencies may be off either way, as clocks may drift."""
    is_relative: bool = False
    """True if latencies are above the fastest packet's, as the clocks' offset is not known."""


class BaselineRecord(Record, frozen=True, kw_only=True):
    """A baseline, as `tailscope compare save` writes it."""

    format: Literal[1] = BASELINE_FORMAT
    """Version of the format."""
    tailscope_version: str
    """The tailscope that wrote it."""
    written_unix_ns: Count
    """Time at which it was written."""
    errors: tuple[float, ...]
    """Error probabilities of the ends of intervals, from the largest on."""
    runs: tuple[BaselineRun, ...]
    """Runs that repeat each other."""
    lines_sha256: str | None = None
    """Checksum of all lines above this one, as in `run.json`."""
