"""The fingerprint of the machine that a run was analysed on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.host.cpus import parse_cpus
from tailscope.host.kernel import running_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def fingerprint() -> dict[str, str | int | None]:
    """Describe this machine: the fields of `tailscope.store.records.host.HostRecord`."""
    cpus, kernel = _cpus(), running_kernel()
    return {
        "cpu_model": cpus[0].get("model name") or arm_model(cpus),
        "cpu_microcode": cpus[0].get("microcode"),
        "cpu_count": os.cpu_count(),
        "last_level_caches": last_level_caches(),
        "machine": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()} {platform.version()}",
        "kernel_command_line": _read("/proc/cmdline"),
        "kernel_flavour": kernel.flavour,
        "kernel_release": kernel.release,
        "kernel_preemption": kernel.preemption,
        "kernel_nohz_full": kernel.nohz_full,
        "kernel_isolated": kernel.isolated,
        "kernel_hz": kernel.hz,
        "kernel_tick": kernel.tick,
    }


def last_level_caches(system: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """List the CPUs that share each last-level cache, divided by ``;``; None if it is unknown."""
    sharing = {}
    for cpu in system.glob("cpu[0-9]*"):
        caches = (
            (_read(f"{cache}/level") or "", _read(f"{cache}/shared_cpu_list") or "")
            for cache in cpu.glob("cache/index[0-9]*")
        )
        _, listed = max(caches, default=("", ""))
        if listed:
            sharing[listed] = parse_cpus(listed)
    return ";".join(sorted(sharing, key=lambda listed: sharing[listed])) or None


def arm_model(cpus: Sequence[Mapping[str, str]]) -> str | None:
    """Name the kinds of cores of an ARM processor by their numbers, as it has no name.

    >>> arm_model([{"CPU implementer": "0x41", "CPU part": "0xd0c", "CPU variant": "0x3"}] * 4)
    'ARM 0x41 0xd0c 0x3'
    """
    fields = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
    kinds = [" ".join(cpu[field] for field in fields if field in cpu) for cpu in cpus]
    named = " + ".join(dict.fromkeys(filter(None, kinds)))
    return f"ARM {named}" if named else None


def _cpus() -> list[dict[str, str]]:
    blocks = (_read("/proc/cpuinfo") or "").split("\n\n")
    pairs = ((line.partition(":") for line in block.splitlines()) for block in blocks)
    return [{name.strip(): value.strip() for name, _, value in lines} for lines in pairs]


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
