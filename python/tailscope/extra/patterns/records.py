"""What the packets of a pair alone say, as ``--json`` writes it."""

from __future__ import annotations

from tailscope.store.records.base import Count, Section
from tailscope.store.records.explanation import Share


class NamedPattern(Section, frozen=True, kw_only=True):
    """A pattern that the packets show."""

    pattern: str
    """`queue`, `full queue`, `token bucket`, `policer`, `periodic stall`, `batching`, `ECMP`,
    `reordering` or `retransmissions`."""
    slow_share: Share | None
    """Share of the slow packets that it explains; null if it delays none, or that is unknown."""
    figures: dict[str, float | int | str | tuple[float, ...] | None]
    """Its evidence, by names that end in their unit."""


class RefusedPattern(Section, frozen=True, kw_only=True):
    """A pattern that the packets do not show."""

    pattern: str
    """As above; `queue` stands for a full one, too."""
    reason: str
    """Why it is not named, and what would be needed."""


class StallDistances(Section, frozen=True, kw_only=True):
    """Times from the end of one stall to the end of the next."""

    distance_ns_mean: Count
    distance_ns_p25: Count
    distance_ns_p50: Count
    distance_ns_p75: Count
    period_ns: Count | None
    """The fixed period at which they come; null for none."""
    on_time: Count
    """Number of distances that are a period, or a multiple, to 2 %; 0 without one."""
    off_share: Share | None
    """The most by which one of these differs, as a share of the period; null without one."""


class UnnamedStalls(Section, frozen=True, kw_only=True):
    """Stalls of the device that no pattern explains: packets were held, and nothing left."""

    stalls: Count
    """Number of those that make the tail; more than one: they recur."""
    packets: Count
    """Packets that were held."""
    slow_share: Share
    """Share of the slow packets that are among them."""
    duration_ns_min: Count
    duration_ns_p50: Count
    duration_ns_max: Count
    """How long nothing left."""
    observed_s: float
    """Time in which they were seen."""
    distances: StallDistances | None = None
    """How far apart they are; null for one."""


class PatternsRecord(Section, frozen=True, kw_only=True):
    """The patterns of a pair of captures."""

    packets: Count
    """Packets that were matched."""
    searched: Count
    """Those that were searched: of a large run, those around the worst."""
    first_seq: Count
    last_seq: Count
    """Numbers of the first and the last of them."""
    quantile: Share | None
    """Packets from this quantile on are slow; null without packets."""
    threshold_ns: Count | None
    """The latency at that quantile."""
    slow: Count
    """Number of slow packets."""
    undelayed_ns: Count | None
    """Latency of a packet that nothing delays; null if the device was never seen empty."""
    fastest_ns: Count | None
    """The smallest latency; null without packets."""
    named: tuple[NamedPattern, ...]
    """Patterns that are clear."""
    refused: tuple[RefusedPattern, ...]
    """The others."""
    unnamed_stalls: UnnamedStalls | None = None
    """Stalls that none of them explains; null if they held less than a fifth of the slow."""
