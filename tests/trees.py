"""Machines made of files, and a kernel behind them that is as particular as the real one."""

from __future__ import annotations

import errno
import os
import re
import shutil
from typing import TYPE_CHECKING

from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from pathlib import Path

CPUS = "/sys/devices/system/cpu"
KERNEL = "/proc/sys/kernel"
VM = "/proc/sys/vm"
NODE_PAGES = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
THP = "/sys/kernel/mm/transparent_hugepage"
RESCTRL = "/sys/fs/resctrl"

LIMBO = (
    "quiet isolcpus={0} nohz_full={0} rcu_nocbs={0} rcu_nocb_poll irqaffinity=0 idle=poll"
    " intel_idle.max_cstate=0 intel_pstate=disable tsc=reliable mce=ignore_ce audit=0"
    " nmi_watchdog=0 skew_tick=1 nosoftlockup nosmt"
)
"""Table 1 of limbo2022 and Table 2 of containers2024, in the kernel's spelling."""


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files beneath a root; a path with a slash at its end is a folder."""
    root.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        file = root / path.lstrip("/")
        if path.endswith("/"):
            file.mkdir(parents=True)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.fsencode(text))
    return root


def debian(count: int = 4) -> dict[str, str]:
    """Return the settings of every Debian 12 as installed."""
    last = count - 1
    everybody = f"{(1 << count) - 1:x}\n"
    files = {
        "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "/proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
        "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-6.1.0-32-amd64 root=UUID=0 ro quiet\n",
        "/proc/meminfo": "MemTotal:       16000000 kB\nHugepagesize:       2048 kB\n",
        "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/sda5 partition 999420 0 -2\n",
        f"{CPUS}/online": f"0-{last}\n",
        f"{CPUS}/isolated": "\n",
        f"{CPUS}/nohz_full": "(null)\n",
        f"{KERNEL}/nmi_watchdog": "1\n",
        f"{KERNEL}/soft_watchdog": "1\n",
        f"{KERNEL}/watchdog_cpumask": f"0-{last}\n",
        f"{KERNEL}/sched_rt_runtime_us": "950000\n",
        f"{KERNEL}/timer_migration": "1\n",
        f"{KERNEL}/numa_balancing": "0\n",
        f"{VM}/stat_interval": "1\n",
        f"{VM}/compaction_proactiveness": "20\n",
        f"{VM}/swappiness": "60\n",
        f"{VM}/dirty_writeback_centisecs": "500\n",
        f"{VM}/nr_hugepages": "0\n",
        f"{THP}/enabled": "[always] madvise never\n",
        f"{THP}/defrag": "always defer defer+madvise [madvise] never\n",
        f"{THP}/khugepaged/defrag": "1\n",
        "/sys/kernel/mm/ksm/run": "0\n",
        "/sys/devices/virtual/workqueue/cpumask": everybody,
        "/sys/bus/workqueue/devices/writeback/cpumask": everybody,
        "/proc/irq/default_smp_affinity": everybody,
        "/sys/module/pcie_aspm/parameters/policy": "[default] performance powersave\n",
        "/dev/cpu_dma_latency": "\0\udc945w",
    }
    for number, (pid, name) in enumerate({11: "rcu_preempt", 16: "rcuog/0", 23: "rcuop/2"}.items()):
        files[f"/proc/{pid}/comm"] = f"{name}\n"
        if number:
            files[f"affinity:{pid}/{name}"] = f"0-{last}"
    return files


IPV6_ROUTES = """\
fe80{zeros:028} 40 {zeros:032} 00 {zeros:032} 00000100 00000001 00000000 00000001 enp1s0f0
{zeros:032} 00 {zeros:032} 00 fe80{zeros:027}1 00000400 00000005 00000000 00000003 {card}
{zeros:032} 00 {zeros:032} 00 {zeros:032} ffffffff 00000001 00000000 00200200 lo
"""


def interrupts(count: int, affinity: dict[int, str], names: dict[int, str]) -> dict[str, str]:
    """Return interrupts, each of which arrived ten times its number on each CPU."""
    lines = [" ".join(f"CPU{cpu}" for cpu in range(count))]
    files = {}
    for irq, cpus in affinity.items():
        counts = " ".join([str(10 * irq)] * count)
        lines.append(f"{irq}: {counts} PCI-MSI {names.get(irq, 'device')}")
        files[f"/proc/irq/{irq}/smp_affinity_list"] = f"{cpus}\n"
    lines.append(f"LOC: {' '.join(['999'] * count)} Local timer interrupts")
    return {**files, "/proc/interrupts": "\n".join(lines) + "\n"}


def card(name: str, pci: str, irqs: list[int], node: int = -1, **settings: str) -> dict[str, str]:
    """Return the settings of a network card; `settings` are named GROUP_FIELD."""
    device = f"/sys/class/net/{name}/device"
    return {
        f"{device}/class": "0x020000\n",
        f"/sys/bus/pci/devices/{pci}/class": "0x020000\n",
        f"/sys/bus/pci/devices/{pci}/numa_node": f"{node}\n",
        **{f"{device}/msi_irqs/{irq}": "msix\n" for irq in irqs},
        **{
            f"ethtool:{name}/{group}/{field.replace('_', '-')}": text
            for key, text in settings.items()
            for group, _, field in [key.partition("_")]
        },
    }


INTEL_CARD = {
    "coalescing_rx_usecs": "50",
    "coalescing_tx_usecs": "50",
    "coalescing_adaptive_rx": "1",
    "coalescing_adaptive_tx": "0",
    "pause_autoneg": "0",
    "pause_rx": "1",
    "pause_tx": "0",
    "ring_rx": "512",
    "ring_rx_max": "4096",
}


def stock_intel() -> dict[str, str]:
    """Return Debian 12 on four cores with eight threads, cgroup v1, irqbalance running."""
    files = debian(8) | {
        "/proc/cpuinfo": "processor: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3\n",
        "/proc/501/comm": "irqbalance\n",
        "/etc/default/irqbalance": "#IRQBALANCE_BANNED_CPULIST=\n",
        "/sys/fs/cgroup/cpuset/cpuset.cpus": "0-7\n",
        f"{CPUS}/smt/control": "on\n",
        f"{CPUS}/intel_pstate/no_turbo": "0\n",
        "/proc/net/route": "Iface\tDestination\tGateway\neno1\t00000000\t010200C0\n",
    }
    for cpu in range(8):
        files |= {
            f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}\n",
            f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor": "powersave\n",
            f"{CPUS}/cpu{cpu}/cpufreq/energy_performance_preference": "balance_performance\n",
            f"{CPUS}/cpu{cpu}/power/energy_perf_bias": "6\n",
            f"{CPUS}/cpu{cpu}/cache/index3/id": "0\n",
        }
        for state, name in enumerate(("POLL", "C1", "C6")):
            folder = f"{CPUS}/cpu{cpu}/cpuidle/state{state}"
            files |= {f"{folder}/name": f"{name}\n", f"{folder}/disable": "0\n"}
    affinity = {0: "0-7", 9: "0-7", 24: "0-7", 25: "2", 30: "2-3", 31: "0-1", 32: "0-7"}
    files |= interrupts(8, affinity, {0: "timer", 24: "eno1-rx", 25: "eno1-tx", 30: "enp1s0f0"})
    files |= card("eno1", "0000:00:1f.6", [24, 25], **INTEL_CARD)
    return files | card("enp1s0f0", "0000:01:00.0", [30, 31, 32], **INTEL_CARD)


def optimised_intel() -> dict[str, str]:
    """Return the machine of the papers: four cores, booted and tuned as their tables say."""
    files = debian(4) | {
        "/proc/cpuinfo": "processor: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3\n",
        "/proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz {LIMBO.format('1-3')} -- --init-only\n",
        "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
        "/proc/net/route": "Iface\tDestination\tGateway\n",
        f"{CPUS}/isolated": "1-3\n",
        f"{CPUS}/nohz_full": "1-3\n",
        f"{CPUS}/smt/control": "forceoff\n",
        f"{KERNEL}/nmi_watchdog": "0\n",
        f"{KERNEL}/soft_watchdog": "0\n",
        f"{KERNEL}/watchdog_cpumask": "0\n",
        f"{KERNEL}/sched_rt_runtime_us": "-1\n",
        f"{VM}/stat_interval": "3600\n",
        f"{VM}/compaction_proactiveness": "0\n",
        f"{VM}/swappiness": "0\n",
        f"{VM}/dirty_writeback_centisecs": "0\n",
        f"{VM}/nr_hugepages": "1024\n",
        f"{THP}/enabled": "always madvise [never]\n",
        f"{THP}/defrag": "always defer defer+madvise madvise [never]\n",
        f"{THP}/khugepaged/defrag": "0\n",
        "/sys/devices/virtual/workqueue/cpumask": "1\n",
        "/sys/bus/workqueue/devices/writeback/cpumask": "1\n",
        "/proc/irq/default_smp_affinity": "1\n",
        "/sys/module/pcie_aspm/parameters/policy": "default [performance] powersave\n",
        "/dev/cpu_dma_latency": "\0\0\0\0",
        "affinity:16/rcuog/0": "0",
        "affinity:23/rcuop/2": "0",
        "/sys/fs/resctrl/info/L3/cbm_mask": "fff\n",
        "/sys/fs/resctrl/info/L3/min_cbm_bits": "1\n",
        "/sys/fs/resctrl/info/L3/num_closids": "16\n",
        "/sys/fs/resctrl/schemata": "    L3:0=f\n",
        "/sys/fs/resctrl/nf/schemata": "    L3:0=ff0\n",
        "/sys/fs/resctrl/nf/cpus_list": "1-3\n",
    }
    for cpu in range(4):
        files[f"{CPUS}/cpu{cpu}/cache/index3/id"] = "0\n"
    return files | interrupts(4, {0: "0", 9: "0", 24: "0"}, {0: "timer"})


def stock_amd() -> dict[str, str]:
    """Return Debian 12 on sixteen cores of two nodes, cgroup v2, resctrl mounted."""
    last_level = "L3:0=ffff;1=ffff\n    MB:0=2048;1=2048\n"
    files = debian(16) | {
        "/proc/cpuinfo": "processor: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu cat_l3\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "/sys/fs/cgroup/cgroup.subtree_control": "cpu io memory pids\n",
        "/sys/fs/resctrl/info/L3/cbm_mask": "ffff\n",
        "/sys/fs/resctrl/info/L3/min_cbm_bits": "1\n",
        "/sys/fs/resctrl/info/L3/num_closids": "16\n",
        "/sys/fs/resctrl/schemata": f"    {last_level}",
        "/sys/devices/system/node/node0/cpulist": "0-7\n",
        "/sys/devices/system/node/node1/cpulist": "8-15\n",
        NODE_PAGES.format(0): "1\n",
        NODE_PAGES.format(1): "2\n",
        f"{CPUS}/smt/control": "notsupported\n",
        f"{CPUS}/cpufreq/boost": "1\n",
        f"{KERNEL}/numa_balancing": "1\n",
        "/sys/kernel/mm/ksm/run": "1\n",
        "/proc/net/route": "Iface\tDestination\tGateway\neno1\t00000000\t010200C0\n",
    }
    for cpu in range(16):
        files[f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor"] = "schedutil\n"
        files[f"{CPUS}/cpu{cpu}/cache/index3/id"] = f"{cpu // 8}\n"
    files |= interrupts(16, {0: "0-15", 40: "0-15", 41: "8-15"}, {40: "eno1", 41: "enp33s0f0"})
    files |= card("eno1", "0000:21:00.0", [40], node=0)
    return files | card("enp33s0f0", "0000:64:00.0", [41], node=1, **INTEL_CARD)


def sparse() -> dict[str, str]:
    """Return a machine where much is missing, and some files cannot be read."""
    return {
        "/proc/cmdline": "quiet rcu_nocbs_poll nosoftlookup audit=off isolcpus=managed_irq,1-2\n",
        f"{CPUS}/online": "0-3\n",
        f"{CPUS}/isolated": "1\n",
        f"{KERNEL}/soft_watchdog": "1\n",
        f"{VM}/stat_interval/": "",
        f"{VM}/swappiness/": "",
        "/proc/swaps/": "",
    }


MACHINES = {
    "stock-intel": (stock_intel, (2, 3)),
    "optimised-intel": (optimised_intel, (1, 2, 3)),
    "stock-amd": (stock_amd, (6, 7)),
    "sparse": (sparse, (1, 2)),
    "empty": (dict, (1,)),
}
"""Machines, each with the CPUs to keep free."""


IMMOVABLE = "it cannot be moved"
"""Reason that `KernelTree` gives for a write to a path that is stuck."""


class KernelTree(Machine):
    """Files that accept, refuse and normalise writes as the kernel's do."""

    stuck = ("/proc/irq/0/", "affinity:23/")
    """Paths that refuse every write."""

    @property
    def run_folder(self) -> Path:
        """Return a folder beside the tree, as the tree is compared with its former state."""
        return self.root.with_name("run")

    def write(self, path: str, text: str) -> None:
        if path.endswith("/"):
            if not self._file(path).exists():
                self._count_groups(path)
                self._populate(path)
            return
        now = self.read(path)
        if now is None:
            raise FileNotFoundError(errno.ENOENT, "not there", path)
        super().write(path, self._taken(path, text, now))

    def remove_folder(self, path: str) -> None:
        """Remove a folder together with its files, as the kernel's files do not keep it."""
        shutil.rmtree(self._file(path))

    def _taken(self, path: str, text: str, now: str) -> str:
        if path.startswith(self.stuck):
            raise OSError(errno.EIO, IMMOVABLE, path)
        if path.endswith("schemata"):
            return self._schemata(text, now)
        if path.endswith("subtree_control"):
            words = set(now.split())
            for word in text.split():
                words = words | {word[1:]} if word[0] == "+" else words - {word[1:]}
            return " ".join(name for name in ("cpuset", *now.split()) if name in words) + "\n"
        if path.endswith("energy_performance_preference"):
            governor = self.read(path.replace("energy_performance_preference", "scaling_governor"))
            if governor == "performance\n" and text.strip() != "performance":
                raise OSError(errno.EBUSY, "the governor prefers performance", path)
        if re.search(r"\[.*\]", now):
            words = now.replace("[", "").replace("]", "").split()
            if text.strip() not in words:
                raise OSError(errno.EINVAL, "no such word", path)
            return " ".join(f"[{word}]" if word == text.strip() else word for word in words) + "\n"
        if path.startswith(("affinity:", "ethtool:")):
            return text
        return text.rstrip("\n") + "\n"

    def _count_groups(self, path: str) -> None:
        """Refuse another group of a cache where the processor has no number left for it."""
        counts = [
            int(self.read(file) or "0") for file in self.glob(f"{RESCTRL}/info/*/num_closids")
        ]
        groups = self.glob(f"{RESCTRL}/schemata") + self.glob(f"{RESCTRL}/*/schemata")
        if path.startswith(RESCTRL) and len(groups) >= min(counts):
            self._explain("Out of CLOSIDs")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _explain(self, why: str) -> None:
        path = f"{RESCTRL}/info/last_cmd_status"
        if self.exists(path):
            super().write(path, f"{why}\n")

    def _schemata(self, text: str, now: str) -> str:
        """Change only the caches that are named, to masks that the kernel takes."""
        least = int(self.read(f"{RESCTRL}/info/L3/min_cbm_bits") or "1")
        for name, mask in re.findall(r"(\d+)=([0-9a-f]+)", text.partition("MB")[0]):
            bits = f"{int(mask, 16):b}".strip("0")
            if "0" in bits:
                self._explain(f"The mask {mask} has non-consecutive 1-bits")
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if len(bits) < least:
                self._explain(f"Need at least {least} bits in the mask")
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            now = re.sub(rf"(L3:(?:.*;)?{name}=)[0-9a-f]+", rf"\g<1>{mask}", now, count=1)
        return now

    def _populate(self, path: str) -> None:
        files = {"cpuset.cpus": "\n", "cpuset.cpus.partition": "member\n"}
        if "resctrl" in path:
            everything = "    L3:0=ffff;1=ffff\n    MB:0=2048;1=2048\n"
            files = {"cpus_list": "\n", "schemata": everything}
        tree(self._file(path), files)


def snapshot(root: Path) -> dict[str, bytes]:
    """Return every file and folder beneath a root."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"(folder)"
        for path in root.rglob("*")
    }
