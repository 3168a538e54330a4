"""The load on CPUs before a measurement."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tailscope.noise.neighbour_sampler import ProgramTimes, busy_ns
from tailscope.words.neighbours import named_programs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_LOOK_S = 0.2
WORTH = 0.1
"""Smallest share of a CPU that is reported."""


class Load(NamedTuple):
    """The load on CPUs, and the programs behind it."""

    cpus: Mapping[int, float]
    """Share of each CPU that was busy."""
    programs: Mapping[str, float]
    """Share of a CPU that each program took, the largest first."""

    @property
    def busy(self) -> dict[int, float]:
        """The CPUs whose load is worth a word."""
        return {cpu: share for cpu, share in self.cpus.items() if share >= WORTH}


def look(cpus: Collection[int], seconds: float = _LOOK_S) -> Load:
    """Sample the load of CPUs for a while."""
    times, before = ProgramTimes(), busy_ns()
    times.look()
    began = time.monotonic()
    time.sleep(seconds)
    times.look()
    lasted_ns = (time.monotonic() - began) * 1e9
    shares = {
        cpu: min(1.0, (ns - before.get(cpu, ns)) / lasted_ns)
        for cpu, ns in sorted(busy_ns().items())
        if cpu in cpus
    }
    load = Load(shares, {})
    programs: Counter[str] = Counter()
    for (name, cpu), ns in times.programs_ns.items():
        if cpu in load.busy:
            programs[name] += ns
    return Load(shares, {name: ns / lasted_ns for name, ns in programs.most_common()})


def load_text(cpus: Collection[int]) -> str | None:
    """Sample the load of CPUs and describe it; return None if there is hardly any."""
    load = look(cpus)
    if not load.busy:
        return None
    named = named_programs([*load.programs])
    used = ", ".join(f"{share:.0%} of CPU {cpu}" for cpu, share in load.busy.items())
    return (
        f"{named[0].upper()}{named[1:]} use {used.replace('%', ' %')}, which will be measured:"
        " expect inconclusive verdicts, or wait"
    )
