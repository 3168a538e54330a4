"""A machine and its properties: part of several records."""

from __future__ import annotations

from tailscope.store.records.base import Section


class HostRecord(Section, frozen=True, kw_only=True):
    """The fingerprint of a machine; null is what could not be read."""

    cpu_model: str | None = None
    """Model of the processor."""
    cpu_microcode: str | None = None
    """Version of its microcode."""
    cpu_count: int | None = None
    """Number of CPUs of the machine."""
    last_level_caches: str | None = None
    """CPUs that share a last-level cache: one list per cache, separated by `;`."""
    machine: str | None = None
    """Architecture, as `uname -m` prints it."""
    kernel: str | None = None
    """Name, release and version of the kernel, as `uname` prints them."""
    kernel_command_line: str | None = None
    """The kernel's boot parameters (`/proc/cmdline`)."""
    kernel_flavour: str | None = None
    """`vanilla`, `rt` or `nohz`."""
    kernel_release: str | None = None
    """Release of the kernel."""
    kernel_preemption: str | None = None
    """Preemption model of the kernel."""
    kernel_nohz_full: str | None = None
    """CPUs without timer ticks while a single task runs."""
    kernel_isolated: str | None = None
    """CPUs that the scheduler leaves alone."""
    kernel_hz: int | None = None
    """Timer ticks per second."""
    kernel_tick: str | None = None
    """`periodic`, `idle` (ticks stop on idle CPUs) or `full`."""
    inventory: dict[str, object] | None = None
    """Memory, NUMA nodes, caches and network cards; null without the addition `inventory`."""
