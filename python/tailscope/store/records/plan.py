"""``plan`` in ``run.json``: all that was asked for, defaults included."""

from __future__ import annotations

from tailscope.store.records.base import Count, Section

__all__ = ["AnalysisPlan", "MeasurementPlan", "Plan"]


class AnalysisPlan(Section, tag_field="command", tag="analyze", kw_only=True):
    """The plan of an analysis of captures."""

    pre: str
    """The capture before the device; `-` is standard input."""
    post: str
    """The capture behind the device; `-` is standard input."""
    match_on: str
    """The key by which packets are matched."""
    trim_ns: Count
    """Time left out at the begin of each capture."""
    window_ns: Count
    """A packet that takes longer counts as lost."""
    bucket_ns: Count
    """Bucket of the histograms."""
    worst: Count
    """Number of worst packets to keep."""


class MeasurementPlan(Section, tag_field="command", tag="run", kw_only=True):
    """The plan of a measurement."""

    dut: str
    """The device under test."""
    dut_options: dict[str, str]
    """Its options, by name."""
    wire: str
    """The kind of wire."""
    wire_options: dict[str, str]
    """Its options, by name."""
    platform: str
    """What the device runs on."""
    platform_options: dict[str, str]
    """Its options, by name."""
    kernel: str | None = None
    """Flavour of the kernel that the device is to run on; null if any will do."""
    boot: str | None = None
    """Kernel boot parameters; `{cpus}` stands for the device's CPUs."""
    cpus: str | None = None
    """The CPUs to poll on, as a list; null if they are chosen by topology."""
    instances: Count
    """Number of devices side by side, each with a wire of its own."""
    load: str
    """`all` of them get traffic, or `one` while the others idle."""
    co_runners: dict[str, Count]
    """Number of workers of each kind of co-runner."""
    co_runner_cpus: str | None = None
    """The CPUs of the co-runners, as a list; null if they run where everything else does."""
    rate_pps: Count
    """Mean rate of each generator."""
    pattern: str
    """`cbr` or `poisson`."""
    burst: Count
    """Packets back to back."""
    size_bytes: Count
    """Size of a frame, with its check sequence."""
    flows: Count
    """Number of flows, which differ by source port."""
    seed: Count
    """Seed of the Poisson process."""
    warm_up_ns: Count
    """Duration of the warm-up."""
    duration_ns: Count
    """Duration of the measurement."""
    captures: bool
    """Whether captures of both sides are kept."""
    noise: str
    """What is recorded of what keeps CPUs from their work."""
    counter_interval_ns: Count
    """Interval at which interrupt counters are sampled; 0 for before and after alone."""
    power: str
    """Source of power readings."""
    power_phase_ns: Count
    """Duration of the idle phase, and of the phase without packets, where power is read."""
    tune: bool
    """Whether the host's knobs are set for the run, and restored after it."""
    trim_ns: Count
    """Time left out at the begin of each side."""
    window_ns: Count
    """A packet that takes longer counts as lost."""
    bucket_ns: Count
    """Bucket of the histograms."""
    worst: Count
    """Number of worst packets to keep."""
    stall_ns: Count
    """A turn of a polling loop that takes longer is a stall."""


Plan = AnalysisPlan | MeasurementPlan
