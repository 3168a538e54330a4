"""The fingerprint of the machine that a run was analysed on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from tailscope.host.cpus import parse_cpus
from tailscope.host.kernel import running_kernel


def fingerprint() -> dict[str, str | int | None]:
    """Describe this machine: the fields of `tailscope.store.records.host.HostRecord`."""
    cpu, kernel = _first_cpu(), running_kernel()
    return {
        "cpu_model": cpu.get("model name"),
        "cpu_microcode": cpu.get("microcode"),
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


def _first_cpu() -> dict[str, str]:
    block = (_read("/proc/cpuinfo") or "").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
