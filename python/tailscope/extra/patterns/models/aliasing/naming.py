"""Names of interruptions: counters that counted as often as the interruptions came."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from tailscope.extra.patterns.models.aliasing.flat import COUNTED_ALIKE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.extra.patterns.models.aliasing.simulation import Periodic

    Rates = Mapping[str, Sequence[float]]

_ALIKE = 0.01
_LOCAL_TIMERS = re.compile(r"LOC|.*\barch_timer$")
"""Counters of CPUs' own timers, on x86-64 and on ARM."""
_TICKS_HZ = (100, 250, 300, 1000)


def counted_as(
    sources: Sequence[Periodic], machines: Mapping[str, Rates]
) -> list[list[tuple[str, str]]]:
    """Name the counters of all ticks of a comb, and those of a source's teeth only.

    A machine and its guest may tick alike. If a comb has teeth of its own that only one of them
    has counted, it is the comb of that machine, and the other combs of this rate are not.
    """
    typical = {
        machine: {name: median(rates) for name, rates in counters.items()}
        for machine, counters in machines.items()
    }
    owners = _owners(sources, typical)
    named = [list(dict.fromkeys(_names(source, owners, typical))) for source in sources]
    return [
        names or list(dict.fromkeys(_beside_tick(source.rate_hz, machines)))
        for source, names in zip(sources, named, strict=True)
    ]


def counted_rates(machines: Mapping[str, Rates]) -> list[float]:
    """List the rates that something was counted at, and those of local timers beside a tick."""
    counted = [median(rates) for counters in machines.values() for rates in counters.values()]
    beside = [
        each - tick_hz
        for counters in machines.values()
        for name, rates_hz in counters.items()
        if _LOCAL_TIMERS.match(name)
        for each in rates_hz
        for tick_hz in _ticks(counters)
    ]
    return [rate_hz for rate_hz in (*counted, *beside) if rate_hz > 0]


def _ticks(counters: Rates) -> list[float]:
    """Return the rates of kernels' ticks, and of local timers that count little else."""
    timers_hz = [
        each
        for name, rates in counters.items()
        if _LOCAL_TIMERS.match(name)
        for each in rates
        if any(abs(each - tick_hz) < _ALIKE * tick_hz for tick_hz in _TICKS_HZ)
    ]
    return [*_TICKS_HZ, *timers_hz]


def _beside_tick(rate_hz: float, machines: Mapping[str, Rates]) -> Iterator[tuple[str, str]]:
    """Name local timers that count this often beside the kernel's tick, on some CPU.

    The timer of a sleeping program is counted together with the tick.
    """
    for machine, counters in machines.items():
        for name, rates_hz in counters.items():
            if not _LOCAL_TIMERS.match(name):
                continue
            apart = [
                (abs(each - tick_hz - rate_hz), tick_hz)
                for each in rates_hz
                for tick_hz in _ticks(counters)
            ]
            nearest, tick_hz = min(apart)
            if nearest < COUNTED_ALIKE * rate_hz:
                yield machine, f"{name}, less a tick of {tick_hz:.0f} Hz"


def _names(
    source: Periodic,
    owners: Mapping[str, tuple[float, int, float]],
    typical: Mapping[str, Mapping[str, float]],
) -> Iterator[tuple[str, str]]:
    theirs = {machine for machine, comb in owners.items() if comb == _comb(source)}
    for machine, name in _counted(1e9 / source.period_ns, typical):
        if machine in theirs or (not theirs and machine not in owners):
            yield machine, name
    if len(source.teeth) < source.every:
        yield from _counted(source.rate_hz, typical)


def _comb(source: Periodic) -> tuple[float, int, float]:
    """Return what sources of one comb share; other combs of its period begin at other times."""
    return source.period_ns, source.every, source.wander.largest_ns


def _owners(
    sources: Sequence[Periodic], typical: Mapping[str, Mapping[str, float]]
) -> dict[str, tuple[float, int, float]]:
    """Return the comb of each machine that alone counted some of its teeth."""
    owners = {}
    for source in sources:
        if len(source.teeth) == source.every:
            continue
        machines = {machine for machine, _ in _counted(source.rate_hz, typical)}
        if len(machines) == 1:
            owners[machines.pop()] = _comb(source)
    return owners


def _counted(
    rate_hz: float, typical: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, str]]:
    for machine, counters in typical.items():
        for name, counted_hz in counters.items():
            if abs(counted_hz - rate_hz) < _ALIKE * rate_hz:
                yield machine, name
