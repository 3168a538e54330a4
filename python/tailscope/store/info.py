"""Questions about a run that its ``run.json`` answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.store.records.about import AboutRecord
from tailscope.store.records.host import HostRecord
from tailscope.store.records.plan import ImportPlan, MeasurementPlan

if TYPE_CHECKING:
    from tailscope.store.records.run import NeighboursRecord, RunInfo

EMULATED = "EMULATED"
"""Note beside all figures of an emulated guest, where times mean nothing."""

FOREIGN = {
    "authors": "the authors' set of tables",
    "hdr-log": "an HdrHistogram log",
    "hdr-percentiles": "an HdrHistogram percentile output",
    "moongen": "a MoonGen histogram",
    "cyclictest": "a histogram of cyclictest",
    "rtla": "a histogram of rtla",
    "sockperf": "a log of sockperf",
    "irtt": "a result of irtt",
    "trex": "statistics of TRex",
    "iperf3": "a result of iperf3",
    "values": "a list of latencies",
}
"""Results of others, in words."""


def is_emulated(info: RunInfo) -> bool:
    """Return whether the device, or the whole measurement, ran where times mean nothing."""
    platform, cpu = info.platform, host_of(info).cpu_model or ""
    return (platform is not None and platform.representative is False) or "QEMU TCG CPU" in cpu


def neighbours_of(info: RunInfo) -> NeighboursRecord | None:
    """Return the neighbours of the device; None where nobody has looked."""
    return None if info.noise is None else info.noise.neighbours


def host_of(info: RunInfo) -> HostRecord:
    """The fingerprint of the machine that the device ran on.

    Of captures and imports it is what their user says of it; the machine of the analysis is not it.
    """
    if isinstance(info.plan, MeasurementPlan):
        return (info.hosts or {}).get("dut", info.host)
    about = about_of(info)
    return HostRecord(
        cpu_model=about.cpu_model,
        cpu_count=about.cpu_count,
        kernel_flavour=about.kernel,
        kernel_release=about.kernel_release,
        kernel_command_line=about.boot,
    )


def about_of(info: RunInfo) -> AboutRecord:
    """Return the user's description of captures or imports; empty for a measurement."""
    return info.about or AboutRecord()


def clock_of(info: RunInfo) -> str:
    """Return what took the timestamps, as far as that is known."""
    return about_of(info).clock or info.clock.source


def foreign_text(info: RunInfo) -> str | None:
    """Return what was imported, in words; None where nothing was."""
    return FOREIGN[info.plan.kind] if isinstance(info.plan, ImportPlan) else None


def technology(info: RunInfo) -> str | None:
    """Return what the device ran on; None where that was not recorded."""
    if info.platform is not None:
        return info.platform.name
    return info.plan.platform if isinstance(info.plan, MeasurementPlan) else about_of(info).platform


def kernel(info: RunInfo) -> str | None:
    """The flavour of the kernel that the device ran on: of a guest's, if it ran in one."""
    if technology(info) != "vm" or info.platform is None:
        return host_of(info).kernel_flavour
    if info.platform.realtime:
        return "rt"
    return "nohz" if info.platform.nohz_full_cpus else "vanilla"


def shown_as(label: str, info: RunInfo) -> str:
    """Return the name of a run in figures and tables."""
    return f"{label} ({EMULATED})" if is_emulated(info) else label
