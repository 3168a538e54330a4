"""``noise.json``: what CPUs were kept from, without packets."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Section
from tailscope.store.records.run import KernelNoise, Stalls

WATCHED_FORMAT: Final = 2


class WatchedStalls(Stalls, frozen=True, kw_only=True):
    """Stalls of all watched CPUs."""

    share: float
    """Share of the time that was lost to stalls."""


class WatchedCause(Section, frozen=True, kw_only=True):
    """The time that a cause took."""

    cause: str
    """Cause."""
    count: Count
    """Number of events."""
    rate_hz: float
    """Events per second, on each CPU."""
    total_ns: Count
    """Time of all events, without what interrupted them."""
    share: float
    """The same, as a share of the time of all CPUs."""
    duration_ns_p50: Count
    """Median duration of an event."""
    duration_ns_p99: Count
    """99th percentile of the duration."""
    duration_ns_max: Count
    """Longest duration."""
    p99_supported: bool
    """True if at least 10 events lie beyond the 99th percentile."""
    details: tuple[str, ...]
    """Further properties, such as who asked for it; most frequent first."""


class RecordingCost(Section, frozen=True, kw_only=True):
    """The cost of recording, measured by the same loops with and without it."""

    share_with: float
    """Share of the time in stalls while events were recorded: median of tenths of a second."""
    share_without: float
    """The same while nothing was recorded, right after."""
    without_s: float
    """Seconds for which nothing was recorded."""


class WatchedRecord(KernelNoise, frozen=True, kw_only=True):
    """The result of `tailscope noise`."""

    format: Literal[2] = WATCHED_FORMAT
    """Version of the format."""
    cpus: tuple[Count, ...]
    """The CPUs that were watched."""
    duration_s: float
    """Seconds for which they were watched."""
    stall_ns: Count
    """A longer gap between two readings of the counter is a stall."""
    stalls: WatchedStalls
    """Stalls of all these CPUs."""
    causes: tuple[WatchedCause, ...]
    """Causes, largest total first."""
    cpu_causes: dict[str, tuple[WatchedCause, ...]]
    """The same for each CPU."""
    cost: RecordingCost | None
    """Cost of recording; null if no events were recorded."""
    warnings: tuple[str, ...]
    """Warnings, as sentences."""
    partial: tuple[str, ...]
    """Reasons why the recording is partial: sentences."""
