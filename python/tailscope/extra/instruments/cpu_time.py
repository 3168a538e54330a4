"""CPU time that instruments did not have: that of other programs, interrupts and the hypervisor."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from tailscope.noise.neighbour_sampler import idle_ns


class CpuTime(NamedTuple):
    """CPU time until now."""

    all_ns: int
    """Time of all CPUs together."""
    idle_ns: int
    own_ns: int
    """Time that this process had, and those of its children that have ended."""


def cpu_time() -> CpuTime:
    """Return the CPU time until now."""
    idle = idle_ns()
    own_s = sum(os.times()[:4])
    return CpuTime(time.monotonic_ns() * len(idle), sum(idle.values()), round(own_s * 1e9))


def others_share(began: CpuTime, ended: CpuTime) -> float:
    """Return the share of all CPUs that others had in between: 0 to 1."""
    lasted, idle, own = (after - before for before, after in zip(began, ended, strict=True))
    return min(1.0, max(0.0, lasted - idle - own) / max(1, lasted))
