"""The load on CPUs before a measurement."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tailscope.noise.neighbour_sampler import ProgramTimes, busy_ns
from tailscope.words.neighbours import named_programs

if TYPE_CHECKING:
    from collections.abc import Collection

_LOOK_S = 0.2
_WORTH = 0.1
"""Smallest share of a CPU that is reported."""


def load_text(cpus: Collection[int]) -> str | None:
    """Sample the load of CPUs and describe it; return None if there is hardly any."""
    times, before = ProgramTimes(), busy_ns()
    times.look()
    began = time.monotonic()
    time.sleep(_LOOK_S)
    times.look()
    lasted_ns = (time.monotonic() - began) * 1e9
    shares = {
        cpu: min(1.0, (ns - before.get(cpu, ns)) / lasted_ns)
        for cpu, ns in busy_ns().items()
        if cpu in cpus
    }
    return _text(shares, times.programs_ns)


def _text(shares: dict[int, float], programs_ns: Counter[tuple[str, int]]) -> str | None:
    """Describe the load of each CPU and the programs behind it."""
    busy = {cpu: share for cpu, share in shares.items() if share >= _WORTH}
    if not busy:
        return None
    programs: Counter[str] = Counter()
    for (name, cpu), ns in programs_ns.items():
        if cpu in busy:
            programs[name] += ns
    named = named_programs([name for name, _ in programs.most_common()])
    used = ", ".join(f"{share:.0%} of CPU {cpu}" for cpu, share in sorted(busy.items()))
    return (
        f"{named[0].upper()}{named[1:]} use {used.replace('%', ' %')}, which will be measured:"
        " expect inconclusive verdicts, or wait"
    )
