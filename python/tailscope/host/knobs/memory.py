"""Memory: page migration, which causes TLB shootdowns, and writeback."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.host.knobs.knob import AtLeast, Change, CpuMaskFile, File, Lasting, Report

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

_VM = "/proc/sys/vm"
_PAGES = "/sys/kernel/mm"
_NODES = "/sys/devices/system/node/node[0-9]*"
_SHOOTDOWNS = "limbo2022 §6 (TLB shootdowns)"
_SYSCTLS = "kernel: Documentation/admin-guide/sysctl/vm.rst"
_LATE = (
    "the kernel looks at the value when the old interval is over: after 3600, up to an hour later"
)
_WANTED_HUGE_KIB = 512 << 10


@dataclass(frozen=True, kw_only=True)
class Hugepages(AtLeast):
    """Huge pages of the default size."""

    path: str = f"{_VM}/nr_hugepages"
    want: str = ""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        """List the files by node if there are several: the kernel may divide a total otherwise."""
        size = re.search(r"^Hugepagesize:\s+(\d+) kB", machine.read("/proc/meminfo") or "", re.M)
        if size is None:
            return []
        count = -(-_WANTED_HUGE_KIB // int(size[1]))
        nodes = machine.glob(f"{_NODES}/hugepages/hugepages-{size[1]}kB/nr_hugepages")
        if len(nodes) > 1:
            return [Change(path, str(-(-count // len(nodes)))) for path in nodes]
        return [Change(path, str(count)) for path, _ in super().settings(machine, cpus)]

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        """List no change if there are enough pages, on whichever node."""
        settings = self.settings(machine, cpus)
        texts = [(machine.read(path) or "").strip() for path, _ in settings]
        have = sum(int(text) for text in texts if text.isdecimal())
        enough = have >= sum(int(text) for _, text in settings)
        return [] if enough else super().changes(machine, cpus)


class Swap(Report):
    """Disks that memory is swapped to."""

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return self.good if machine.exists("/proc/swaps") else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        text = machine.read("/proc/swaps")
        if text is None:
            return None
        return " ".join(line.split()[0] for line in text.splitlines()[1:]) or self.good

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        return [Lasting("advice", self.name, "swapoff -a, and no swap in /etc/fstab")]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        return [f"/proc/swaps: {self.read(machine, cpus)}"]


KNOBS: tuple[Knob, ...] = (
    AtLeast(
        name="stat-interval",
        title="statistics of memory once an hour",
        why="a job on every CPU gathers statistics of memory once a second",
        source="limbo2022 §4.1",
        cost="figures in /proc/vmstat lag behind",
        risk=_LATE,
        lags=_LATE,
        path=f"{_VM}/stat_interval",
        want="3600",
    ),
    File(
        name="transparent-hugepages",
        title="no transparent hugepages",
        why="pages are merged and split while programs run, which shoots down TLBs",
        source=_SHOOTDOWNS,
        cost="programs that do not ask for hugepages themselves have more TLB misses",
        path=f"{_PAGES}/transparent_hugepage/enabled",
        want="never",
        parameter="transparent_hugepage=never",
    ),
    File(
        name="thp-defrag",
        title="no waiting for transparent hugepages",
        why="a page fault may wait until memory has been compacted",
        source="kernel: Documentation/admin-guide/mm/transhuge.rst",
        path=f"{_PAGES}/transparent_hugepage/defrag",
        want="never",
    ),
    File(
        name="khugepaged",
        title="khugepaged does not compact",
        why="it moves pages to make room for hugepages",
        source=_SHOOTDOWNS,
        path=f"{_PAGES}/transparent_hugepage/khugepaged/defrag",
        want="0",
    ),
    File(
        name="compaction",
        title="no compaction ahead of need",
        why="pages are moved in the background, which shoots down TLBs",
        source=_SHOOTDOWNS,
        cost="large allocations take longer",
        path=f"{_VM}/compaction_proactiveness",
        want="0",
    ),
    File(
        name="ksm",
        title="no merging of equal pages",
        why="pages that were merged are copied when they are written to",
        source=_SHOOTDOWNS,
        cost="more memory if guests are alike",
        path=f"{_PAGES}/ksm/run",
        want="0",
        equal=("2",),
    ),
    File(
        name="numa-balancing",
        title="no balancing between NUMA nodes",
        why="pages are unmapped to see who uses them, and moved",
        source=_SHOOTDOWNS,
        cost="programs may stay far from their memory",
        path="/proc/sys/kernel/numa_balancing",
        want="0",
    ),
    File(
        name="swappiness",
        title="swapping as the last resort",
        why="a page that was swapped out takes milliseconds to come back",
        source=_SYSCTLS,
        path=f"{_VM}/swappiness",
        want="0",
    ),
    Swap(
        name="swap",
        title="no swap",
        why="a page that was swapped out takes milliseconds to come back",
        source="kernel: Documentation/admin-guide/mm/concepts.rst",
        risk="programs are killed if memory runs out",
    ),
    AtLeast(
        name="writeback-interval",
        title="dirty pages are written once a minute",
        why="threads that write pages out wake up every 5 s",
        source=_SYSCTLS,
        risk="a crash loses up to one more minute of writes",
        path=f"{_VM}/dirty_writeback_centisecs",
        want="6000",
        equal=("0",),
    ),
    CpuMaskFile(
        name="writeback-cpumask",
        title="writing pages out on other CPUs",
        why="threads that write pages out may run on any CPU",
        source="kernel: Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
        path="/sys/bus/workqueue/devices/writeback/cpumask",
    ),
    Hugepages(
        name="hugepages",
        title="512 MiB of hugepages",
        why="packet buffers in small pages miss the TLB",
        source="kernel: Documentation/admin-guide/mm/hugetlbpage.rst",
        cost="memory that nothing else can use",
        risk="fragmented memory may yield fewer",
    ),
)
