"""``overload.json``: the highest rate that a model predicts."""

from __future__ import annotations

from typing import Literal

from tailscope.store.layout import FORMAT
from tailscope.store.records.base import Count, Section
from tailscope.store.records.kept import Origin


class InterruptionRecord(Section, frozen=True, kw_only=True):
    """A cause that takes time from the device."""

    cause: str
    """Name of the cause."""
    rate_hz: float
    """Its rate on each CPU."""
    duration_ns: float
    """Mean duration."""
    ns_per_s: float
    """Time that it takes, per second."""


class OverloadFigures(Section, frozen=True, kw_only=True):
    """The result of the model of overload."""

    forwarder: str
    """The run of the simplest forwarder."""
    function: str
    """The run of the function."""
    queues: str | None = None
    """The run of the packets that queued; null if too few did."""
    transfer_ns: float
    """2t_transfer: median latency of the forwarder."""
    transfer_ns_ci_low: float
    """Lower end of its 95 % interval."""
    transfer_ns_ci_high: float
    """Upper end of its 95 % interval."""
    e2e_ns: float
    """t_e2e: median latency of the function."""
    e2e_ns_ci_low: float
    """Lower end of its 95 % interval."""
    e2e_ns_ci_high: float
    """Upper end of its 95 % interval."""
    cpu_ns: float | None
    """t_CPU: time that the function spends on a packet; null of a function that was overloaded."""
    cpu_ns_ci_low: float | None
    """Lower end of its 95 % interval."""
    cpu_ns_ci_high: float | None
    """Upper end of its 95 % interval."""
    queued_cpu_ns: float | None = None
    """The same time, by the departures of packets that queued; null if too few did."""
    queued_cpu_ns_ci_low: float | None = None
    """Lower end of its 95 % interval."""
    queued_cpu_ns_ci_high: float | None = None
    """Upper end of its 95 % interval."""
    queued_packets: Count = 0
    """Number of packets that queued."""
    noise_ns_per_s: float | None
    """d_Σ: time that interrupts take, per second; null if it is not known."""
    noise_ns_per_s_ci_low: float | None
    """Lower end of its 95 % interval."""
    noise_ns_per_s_ci_high: float | None
    """Upper end of its 95 % interval."""
    noise_source: Literal["recorded", "aliasing", "given"] | None = None
    """Source of d_Σ; null if it is unknown."""
    rate_max_pps: float
    """R_max: the highest rate."""
    rate_max_pps_ci_low: float
    """Lower end of its 95 % interval."""
    rate_max_pps_ci_high: float | None
    """Upper end of its 95 % interval; null if no packets were seen that queued: a device that holds
    several at the same time carries more, by any factor."""
    rate_alone_pps: float | None = None
    """The highest rate of a function that works on one packet at a time, by the medians."""
    rate_alone_pps_ci_low: float | None = None
    """Lower end of its interval: all of a packet's latency may be work, by the median and the
    mean."""
    rate_alone_pps_ci_high: float | None = None
    """Upper end of its interval: by the medians' intervals, and by the means."""
    tail_limit: str | None = None
    """Service level of the packets' latency; null if there is none."""
    tail_rate_pps: float | None = None
    """The rate up to which they meet it; null if the runs do not tell."""
    tail_rate_pps_ci_low: float | None = None
    """Lower end of its 95 % interval."""
    tail_rate_pps_ci_high: float | None = None
    """Upper end of its 95 % interval."""
    tail_arrivals: Literal["even", "random", "bursts"] | None = None
    """How packets came in the function's run, which is how they come at that rate."""
    is_upper_bound: bool
    """True if neither d_Σ nor packets that queued are known, so that interrupts are still to be
    taken off."""
    level: float
    """Confidence of the intervals."""
    method: str
    """Method of the intervals."""
    interruptions: tuple[InterruptionRecord, ...]
    """Causes that take time from the device, largest first."""
    warnings: tuple[str, ...]
    """Doubts about the prediction, as sentences."""


class OverloadRecord(OverloadFigures, frozen=True, kw_only=True):
    """The result of `tailscope model overload`."""

    format: Literal[2] = FORMAT
    """Version of the layout, as in `run.json`."""
    kept: Origin | None = None
    """Origin of the conclusion; null before it is kept in a run."""
