"""Watchdogs, timers, kernel threads, sibling threads and partitions of CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.host.cpus import cpu_list
from tailscope.host.knobs.knob import (
    Change,
    CpuListFile,
    CpuMaskFile,
    File,
    Files,
    Lasting,
    PerCpuFile,
    listed,
    others,
)
from tailscope.host.machine import chosen

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

CGROUP = "/sys/fs/cgroup/tailscope"
"""Cgroup that `isolated-cpuset` creates."""

_CGROUPS = "/sys/fs/cgroup"
_CPUS = "/sys/devices/system/cpu"
_KERNEL = "/proc/sys/kernel"
_SYSCTLS = "kernel: Documentation/admin-guide/sysctl/kernel.rst"
_KTHREADS = "kernel: Documentation/admin-guide/kernel-per-CPU-kthreads.rst"


@dataclass(frozen=True, kw_only=True)
class TimerMigration(File):
    """Migration of timers: on if the CPUs have no ticks, so that timers leave them; else off."""

    path: str = f"{_KERNEL}/timer_migration"
    want: str = ""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        without_ticks = listed(machine.read(f"{_CPUS}/nohz_full") or "")
        want = "1" if without_ticks.issuperset(cpus) else "0"
        return [Change(path, want) for path, _ in super().settings(machine, cpus)]

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        """List the value that is recommended once ``nohz_full`` lasts, too."""
        return [Lasting(how, name, "1") for how, name, _ in super().lasting(machine, cpus)]


@dataclass(frozen=True, kw_only=True)
class RcuThreads(Files):
    """The threads that run RCU callbacks of other CPUs."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        rest = cpu_list(others(machine, cpus))
        changes = []
        for path in machine.glob("/proc/[0-9]*/comm") if rest else ():
            name = (machine.read(path) or "").strip()
            if name.startswith("rcuo"):
                changes.append(Change(f"affinity:{path.split('/')[2]}/{name}", rest))
        return changes

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        return listed(text).isdisjoint(cpus)

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        if self.recommended(machine, cpus) is None:
            return []
        rest = cpu_list(others(machine, cpus))
        return [Lasting("advice", self.name, f"at boot: taskset -cp {rest} each thread rcuo*")]


@dataclass(frozen=True, kw_only=True)
class Smt(File):
    """Sibling threads; applied only if none of the CPUs would go offline with them."""

    path: str = f"{_CPUS}/smt/control"
    want: str = "off"
    equal: tuple[str, ...] = ("forceoff",)

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        has_siblings = self.read(machine, cpus) in ("on", *self.equal, self.want)
        return super().wanted(machine, cpus) if has_siblings else None

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return not super().changes(machine, cpus)

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return super().changes(machine, cpus) if self._would_stay(machine, cpus) else []

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        if self._would_stay(machine, cpus):
            return super().lasting(machine, cpus)
        return [Lasting("advice", self.name, "choose CPUs that come first among their siblings")]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        lists = [f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list" for cpu in cpus]
        shown = [f"{path}: {(machine.read(path) or 'not readable').strip()}" for path in lists]
        return [*super().evidence(machine, cpus), *shown]

    def _would_stay(self, machine: Machine, cpus: Cpus) -> bool:
        """Return True if every CPU is the first of its core, which the kernel keeps online."""
        lists = {cpu: f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list" for cpu in cpus}
        return all(
            cpu == min(listed(machine.read(path) or ""), default=cpu) for cpu, path in lists.items()
        )


@dataclass(frozen=True, kw_only=True)
class IsolatedCpuset(Files):
    """A partition of CPUs that the scheduler does not balance (cgroup v2)."""

    together: bool = True

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        controllers = (machine.read(f"{_CGROUPS}/cgroup.controllers") or "").split()
        if "cpuset" not in controllers or not others(machine, cpus):
            return []
        return [
            Change(f"{_CGROUPS}/cgroup.subtree_control", "+cpuset"),
            Change(f"{CGROUP}/", ""),
            Change(f"{CGROUP}/cpuset.cpus", cpu_list(cpus)),
            Change(f"{CGROUP}/cpuset.cpus.partition", "isolated"),
        ]

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        if change.text == "+cpuset":
            return "cpuset" in text.split()
        return text.strip() == change.text

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return f"{cpu_list(cpus)} isolated" if self.settings(machine, cpus) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        isolated = self._isolated(machine)
        return f"{cpu_list(isolated)} isolated" if isolated else "none isolated"

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return self._isolated(machine).issuperset(cpus)

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return [] if self.is_good(machine, cpus) else super().changes(machine, cpus)

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        if self.recommended(machine, cpus) is None:
            return []
        unit = f"a slice of systemd with AllowedCPUs={cpu_list(cpus)}"
        return [Lasting("advice", self.name, f"{unit} and, below it, cpuset.cpus.partition")]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        return [f"{path}: {(machine.read(path) or '').strip()}" for path in self._lists(machine)]

    def _isolated(self, machine: Machine) -> set[int]:
        """Return the CPUs that a partition or ``isolcpus`` isolates."""
        return set().union(*(listed(machine.read(path) or "") for path in self._lists(machine)))

    def _lists(self, machine: Machine) -> list[str]:
        paths = (f"{_CGROUPS}/cpuset.cpus.isolated", f"{_CPUS}/isolated")
        own = f"{CGROUP}/cpuset.cpus"
        partition = chosen(machine.read(f"{own}.partition") or "")
        return [path for path in paths if machine.exists(path)] + [own] * (partition == "isolated")


KNOBS: tuple[Knob, ...] = (
    Smt(
        name="smt",
        title="no sibling threads",
        why="two threads of one core wait for each other's units and caches",
        source="noms2020 §III, containers2024 Table 2 (nosmt)",
        cost="half of the logical CPUs",
        risk="programs bound to a CPU that goes away lose their binding",
        asked="it takes CPUs away from running programs",
        parameter="nosmt",
    ),
    File(
        name="nmi-watchdog",
        title="no watchdog by NMI",
        why="a counter of perf interrupts every CPU to see whether it hangs",
        source="limbo2022 Table 1, containers2024 Table 2",
        cost="a CPU that hangs is not reported",
        path=f"{_KERNEL}/nmi_watchdog",
        want="0",
        parameter="nmi_watchdog=0",
    ),
    File(
        name="soft-watchdog",
        title="no watchdog of the scheduler",
        why="a timer and a thread on each CPU check whether other threads get to run",
        source="limbo2022 Table 1, containers2024 Table 2 (printed nosoftlookup)",
        cost="a kernel that loops is not reported",
        path=f"{_KERNEL}/soft_watchdog",
        want="0",
        parameter="nosoftlockup",
        misspelt="nosoftlookup",
    ),
    CpuListFile(
        name="watchdog-cpumask",
        title="watchdogs on other CPUs",
        why="watchdogs that stay on should not run on the CPUs",
        source=_SYSCTLS,
        path=f"{_KERNEL}/watchdog_cpumask",
    ),
    File(
        name="rt-throttling",
        title="no throttling of real-time threads",
        why="a real-time thread that polls is stopped for 50 ms of each second",
        source=_SYSCTLS,
        risk="a real-time thread that loops takes its CPU for good",
        path=f"{_KERNEL}/sched_rt_runtime_us",
        want="-1",
    ),
    PerCpuFile(
        name="fair-server",
        title="no time set aside for ordinary threads",
        why="since Linux 6.12 a real-time thread is stopped for up to 50 ms of each second by this",
        source="kernel: kernel/sched/debug.c (fair_server)",
        risk="a real-time thread that loops takes its CPU for good",
        pattern="/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime",
        want="0",
    ),
    TimerMigration(
        name="timer-migration",
        title="timers stay on the other CPUs",
        why="timers of idle CPUs move to busy ones: those that poll, unless they have no ticks",
        source="kernel: Documentation/timers/no_hz.rst",
        cost="power: idle CPUs wake up for their own timers",
    ),
    CpuMaskFile(
        name="workqueue-cpumask",
        title="kernel work on other CPUs",
        why="work that is bound to no CPU may run on any",
        source=_KTHREADS,
        path="/sys/devices/virtual/workqueue/cpumask",
    ),
    RcuThreads(
        name="rcu-threads",
        title="RCU threads on other CPUs",
        why="threads that run callbacks of CPUs without them may run on any CPU",
        source="containers2024 §3 (taskset)",
    ),
    IsolatedCpuset(
        name="isolated-cpuset",
        title="a partition of isolated CPUs",
        why="isolates as isolcpus does, without a reboot",
        source="kernel: Documentation/admin-guide/cgroup-v2.rst",
        cost="the CPUs are lost for everything outside of the group",
        asked=f"you have to move what you measure into {CGROUP}",
    ),
)
