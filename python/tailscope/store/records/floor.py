"""``floor-INSTRUMENT.json``: what an instrument measures with nothing in between."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section, Signed
from tailscope.store.records.host import HostRecord

FLOOR_FORMAT: Final = 2


class FloorQuantile(Section, frozen=True, kw_only=True):
    """A quantile of the floor."""

    q: float
    """The quantile, 0 to 1."""
    value_ns: Count
    """The smallest latency with at least that share of the packets at or below it."""
    ci_low_ns: Count | None
    """Lower end of its 95 % interval; null where the samples give none."""
    ci_high_ns: Count | None
    """Upper end of its 95 % interval; null where the samples give none."""
    beyond: Count
    """Samples of higher rank."""
    supported: bool
    """True if at least 10 samples lie beyond."""
    least_ns: Count
    """The latency of the instrument itself, without its own stalls, which each run records."""


class KnownDelay(Section, frozen=True, kw_only=True):
    """A delay that was added on purpose, and what the instrument measured of it."""

    expected_ns: Count
    """The delay that was added."""
    found_ns: Signed
    """Median latency with it, less the median latency without it."""


class InjectedStalls(Section, frozen=True, kw_only=True):
    """Stalls that were made on purpose, and what the instrument found of them."""

    injected: Count
    """Number of stalls that the device injected."""
    found: Count
    """Those that the stall log has, too."""
    interrupted: Count
    """Those during which something else interrupted the device."""
    duration_error_ns_p50: Signed | None
    """Median error of their measured duration; null where none was found."""
    duration_error_ns_p99: Signed | None
    """99th percentile of that error; null where none was found."""
    queues_expected: Count
    """Stalls during which packets must have queued."""
    queues_seen: Count
    """Those of which the packets show the queue."""


class FloorRecord(Record, frozen=True, kw_only=True):
    """The result of `tailscope calibrate`."""

    format: Literal[2] = FLOOR_FORMAT
    """Version of the format."""
    instrument: str
    """The instrument: the wire, and what drives it."""
    rate_pps: Count
    """Packets per second."""
    duration_ns: Count
    """Duration of the measurement without a device."""
    measured_unix_ns: Count
    """Time of the measurement."""
    samples: Count
    """Number of packets."""
    latency_ns_p50: Count
    """Median latency of the instrument alone."""
    latency_ns_p999: Count
    """99.9th percentile of that latency."""
    latency_ns_max: Count
    """Its maximum."""
    quantiles: tuple[FloorQuantile, ...]
    """Quantiles of that latency, ascending."""
    believed_up_to: float | None
    """The highest quantile that the instrument can be trusted with; null if there is none."""
    departure_error_ns_p50: Signed | None
    """Median of the actual less the intended departure, outside of the generator's own stalls."""
    departure_error_ns_p999: Signed | None
    """99.9th percentile of that error; null where the samples do not support it."""
    departure_error_ns_max: Signed | None
    """Maximum of that error."""
    delay: KnownDelay
    """A known delay, and what was measured of it."""
    stalls: InjectedStalls
    """Injected stalls, and what was found of them."""
    host: HostRecord | None = None
    """The machine."""
