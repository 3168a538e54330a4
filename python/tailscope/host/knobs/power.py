"""CPU frequencies, idle states, and power states of links."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tailscope.host.knobs.knob import Change, File, Files, Knob, Lasting, PerCpuFile

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus
    from tailscope.host.machine import Machine

_CPUS = "/sys/devices/system/cpu"
_PM = "kernel: Documentation/admin-guide/pm"
_SLEEP = "noms2020 §III (sleep states)"


@dataclass(frozen=True, kw_only=True)
class Turbo(Files):
    """Frequencies above the nominal one, under either driver."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        files = {f"{_CPUS}/intel_pstate/no_turbo": "1", f"{_CPUS}/cpufreq/boost": "0"}
        return [Change(path, want) for path, want in files.items() if machine.exists(path)][:1]


@dataclass(frozen=True, kw_only=True)
class IdleStates(PerCpuFile):
    """Idle states of the CPUs, except the one that polls."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return [
            change
            for change in super().settings(machine, cpus)
            if (machine.read(change.path.replace("/disable", "/name")) or "").strip() != "POLL"
        ]


class CpuDmaLatency(Knob):
    """Maximum wake-up latency of CPUs, in force while a process holds the file open."""

    kind: ClassVar[str] = "held"
    path = "/dev/cpu_dma_latency"
    content = struct.pack("=i", 0)
    _unlimited_us = 2_000_000_000

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return "0 µs" if machine.exists(self.path) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        content = (machine.read(self.path) or "").encode("utf-8", "surrogateescape")
        if len(content) != len(self.content):
            return None
        (latency_us,) = struct.unpack("=i", content)
        return "no limit" if latency_us >= self._unlimited_us else f"{latency_us} µs"

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return self.read(machine, cpus) == self.wanted(machine, cpus)

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        return [Lasting("advice", self.name, "TuneD, with force_latency=0 in [cpu], holds it")]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        return [f"{self.path}: {self.read(machine, cpus) or 'not readable'}"]


KNOBS: tuple[Knob, ...] = (
    # Before the governor: under the governor performance the kernel takes no other preference, so
    # it has to be restored after the governor.
    PerCpuFile(
        name="energy-performance-preference",
        title="the processor prefers performance",
        why="the processor lowers its frequency by itself",
        source=f"{_PM}/intel_pstate.rst",
        cost="power",
        pattern=_CPUS + "/cpu{cpu}/cpufreq/energy_performance_preference",
        want="performance",
        tuned="energy_performance_preference",
    ),
    PerCpuFile(
        name="governor",
        title="the highest frequency at all times",
        why="the CPU stands still while its frequency changes, and is slow until then",
        source=f"noms2020 §III, {_PM}/cpufreq.rst",
        cost="power",
        pattern=_CPUS + "/cpu{cpu}/cpufreq/scaling_governor",
        want="performance",
        tuned="governor",
    ),
    PerCpuFile(
        name="energy-bias",
        title="energy bias to performance",
        why="the processor saves energy when it sees no need for speed",
        source=f"{_PM}/intel_epb.rst",
        cost="power",
        pattern=_CPUS + "/cpu{cpu}/power/energy_perf_bias",
        want="0",
        tuned="energy_perf_bias",
    ),
    Turbo(
        name="turbo",
        title="no turbo",
        why="frequencies above the nominal one come and go with heat and with other cores",
        source=f"{_PM}/cpufreq.rst",
        cost="the highest frequencies: the median rises",
    ),
    IdleStates(
        name="idle-states",
        title="no idle states on the CPUs",
        why="waking up takes between 1 and 40 µs",
        source=_SLEEP,
        cost="power",
        pattern=_CPUS + "/cpu{cpu}/cpuidle/state*/disable",
        want="1",
    ),
    CpuDmaLatency(
        name="cpu-dma-latency",
        title="no idle states on any CPU",
        why="the other cores, and what they share with the CPUs, sleep as well",
        source="kernel: Documentation/power/pm_qos_interface.rst",
        cost="power, on every CPU",
    ),
    File(
        name="pcie-aspm",
        title="PCI Express links do not sleep",
        why="a packet waits until the link to its card has woken up",
        source="kernel: Documentation/admin-guide/kernel-parameters.txt (pcie_aspm)",
        cost="power",
        path="/sys/module/pcie_aspm/parameters/policy",
        want="performance",
        parameter="pcie_aspm.policy=performance",
    ),
)
