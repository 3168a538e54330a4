"""Allocation of the last-level cache to CPUs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.host.knobs.knob import Change, Files, Lasting, listed, others

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

_RESCTRL = "/sys/fs/resctrl"
_INFO = f"{_RESCTRL}/info/L3"
_GOOD = "own parts"


@dataclass(frozen=True, kw_only=True)
class CacheAllocation(Files):
    """A part of the cache for each CPU to keep free, and one part for all other CPUs."""

    together: bool = True

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        parts = self._parts(machine, cpus) if others(machine, cpus) else {}
        everybody = []
        changes = []
        for cache, (masks, rest) in parts.items():
            everybody.append(f"{cache}={rest:x}")
            for cpu, mask in masks.items():
                group = f"{_RESCTRL}/tailscope-{cpu}"
                changes += [
                    Change(f"{group}/", ""),
                    Change(f"{group}/schemata", f"L3:{cache}={mask:x}\n"),
                    Change(f"{group}/cpus_list", f"{cpu}\n"),
                ]
        if not changes:
            return []
        return [*changes, Change(f"{_RESCTRL}/schemata", f"L3:{';'.join(everybody)}\n")]

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        if change.path.endswith("schemata"):
            return _masks(text).items() >= _masks(change.text).items()
        return text == change.text

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        is_unused = "cat_l3" in (machine.read("/proc/cpuinfo") or "") and not self._groups(machine)
        return _GOOD if is_unused or self.settings(machine, cpus) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        """Check whether each CPU is in a group that shares no part with the others'."""
        everybody = _masks(machine.read(f"{_RESCTRL}/schemata") or "")
        own: dict[int, dict[int | None, int]] = {}
        for path in machine.glob(f"{_RESCTRL}/*/cpus_list"):
            masks = _masks(machine.read(path.replace("cpus_list", "schemata")) or "")
            own |= dict.fromkeys(listed(machine.read(path) or "") & set(cpus), masks)
        for cpu in cpus:
            cache = _cache_of(machine, cpu)
            if cpu not in own or own[cpu].get(cache, 0) & everybody.get(cache, 0):
                return "shared with all" if self._groups(machine) else "resctrl is not mounted"
        return _GOOD

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return self.read(machine, cpus) == _GOOD

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return [] if self.is_good(machine, cpus) else super().changes(machine, cpus)

    def refusal(self, machine: Machine) -> str:
        """Return the kernel's own words, as "No space left on device" is about its groups."""
        said = (machine.read(f"{_RESCTRL}/info/last_cmd_status") or "").strip()
        return "" if said == "ok" else said

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        if self.recommended(machine, cpus) is None:
            return []
        return [Lasting("advice", self.name, "at boot: mount resctrl, then pqos or `host apply`")]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        files = machine.glob(f"{_RESCTRL}/schemata") + machine.glob(f"{_RESCTRL}/*/schemata")
        return [f"{path}: {' '.join((machine.read(path) or '').split())}" for path in files]

    def _parts(self, machine: Machine, cpus: Cpus) -> dict[int, tuple[dict[int, int], int]]:
        """Return by cache each CPU's mask and that of the others; empty if it is too small."""
        caches: dict[int | None, list[int]] = defaultdict(list)
        for cpu in cpus:
            caches[_cache_of(machine, cpu)].append(cpu)
        ways = int(machine.read(f"{_INFO}/cbm_mask") or "0", 16).bit_length()
        least = int(machine.read(f"{_INFO}/min_cbm_bits") or "1")
        parts = {}
        for cache, sharing in caches.items():
            # Two thirds, as noms2020 §V-A has it: 4 of 6 MiB.
            ways_each = max(least, min(ways * 2 // 3, ways - least) // len(sharing))
            left = ways - ways_each * len(sharing)
            if cache is None or left < least or self._groups(machine) <= len(cpus):
                return {}
            own = {
                cpu: ((1 << ways_each) - 1) << left + ways_each * at
                for at, cpu in enumerate(sharing)
            }
            parts[cache] = (own, (1 << left) - 1)
        return parts

    def _groups(self, machine: Machine) -> int:
        """Return the number of groups that the processor supports; 0 if there are none."""
        if machine.read(f"{_INFO}/num_closids") is None:
            return 0
        # A group takes a part of everything that can be shared out, such as memory bandwidth.
        counts = machine.glob(f"{_RESCTRL}/info/*/num_closids")
        return min(int(machine.read(path) or "0") for path in counts)


def _cache_of(machine: Machine, cpu: int) -> int | None:
    text = machine.read(f"/sys/devices/system/cpu/cpu{cpu}/cache/index3/id")
    return None if text is None else int(text)


def _masks(schemata: str) -> dict[int | None, int]:
    """Parse the mask of each last-level cache."""
    for line in schemata.splitlines():
        kind, _, parts = line.strip().partition(":")
        if kind == "L3":
            pairs = (part.partition("=") for part in parts.split(";"))
            return {int(cache): int(mask, 16) for cache, _, mask in pairs}
    return {}


KNOBS: tuple[Knob, ...] = (
    CacheAllocation(
        name="cache-allocation",
        title="a part of the last-level cache for each CPU",
        why="programs on other cores push out what the CPUs have in the shared cache",
        source="noms2020 §V-A, limbo2022 §4.1 (CAT); kernel: Documentation/filesystems/resctrl.rst",
        cost="a third of the cache is left for everything else",
        risk="needs resctrl to be mounted: mount -t resctrl resctrl /sys/fs/resctrl",
    ),
)
