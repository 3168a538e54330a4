"""Devices that are simulated: their work, what holds them up, and when packets leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

SECONDS, RATE_PPS, BURST = 1.0, 10_000, 128
WAY_NS, WAY_SPREAD_NS = 1_300.0, 60.0
STALLS_HZ, STALL_NS = 600.0, 80_000.0
"""About 5 % of the time."""


class Setting(NamedTuple):
    """A device: its law of work, how many packets it accepts at once, and on how many CPUs."""

    name: str
    draw: Draw
    mean_ns: float
    batch: int = 32
    cpus: int | None = 1
    """None for a delay line."""
    knows_noise: bool = True


def fixed(ns: float) -> Draw:
    return lambda _chance, count: np.full(count, ns)


def uniform(low: float, high: float) -> Draw:
    return lambda chance, count: chance.uniform(low, high, count)


def bimodal(one: float, other: float, share: float) -> Draw:
    return lambda chance, count: np.where(chance.random(count) < share, other, one)


class Noise(NamedTuple):
    """Stalls of a CPU, and its time without them."""

    start: Floats
    end: Floats

    @classmethod
    def drawn(
        cls,
        chance: np.random.Generator,
        lasts_ns: float,
        stalls_hz: float = STALLS_HZ,
        stall_ns: float = STALL_NS,
    ) -> Noise:
        count = chance.poisson(stalls_hz * lasts_ns / 1e9)
        gaps = chance.exponential(1e9 / stalls_hz, count)
        lasted = chance.exponential(stall_ns, count)
        start = np.cumsum(gaps) + np.cumsum(lasted) - lasted
        return cls(start, start + lasted)

    def available(self, at: Floats) -> Floats:
        """How much CPU time there was before moments."""
        return at - self.taken(at)

    def taken(self, at: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(self.end - self.start)])
        before = np.searchsorted(self.start, at, "right")
        last = np.append(0.0, self.end)[before]
        return total[before] - np.maximum(0, last - at)

    def when(self, available: Floats) -> Floats:
        """At which moments there was that much."""
        lost = np.cumsum(self.end - self.start)
        begins = self.start - np.append(0.0, lost)[:-1] if len(lost) else self.start
        return available + np.append(0.0, lost)[np.searchsorted(begins, available, "left")]


def served(setting: Setting, arrived: Floats, work: Floats, noise: Noise) -> Floats:
    """When a device is done with packets."""
    if setting.cpus is None:
        return np.maximum.accumulate(arrived + work)
    if setting.cpus > 1:
        return _side_by_side(setting.cpus, arrived, work)
    came, done = noise.available(arrived), np.empty(len(arrived))
    free, at = 0.0, 0
    while at < len(came):
        start = max(free, float(came[at]))
        behind = at + int(np.searchsorted(came[at : at + setting.batch], start, "right"))
        behind = max(behind, at + 1)
        free = start + float(work[at:behind].sum())
        done[at:behind] = free
        at = behind
    return noise.when(done)


def _side_by_side(cpus: int, arrived: Floats, work: Floats) -> Floats:
    free, done = [0.0] * cpus, np.empty(len(arrived))
    for at, (came, takes) in enumerate(zip(arrived, work, strict=True)):
        cpu = free.index(min(free))
        free[cpu] = done[at] = max(free[cpu], came) + takes
    return np.maximum.accumulate(done)


def sent(burst: int, lasts_s: float = SECONDS) -> Floats:
    """When packets are sent: those of a burst 100 ns apart."""
    count = int(lasts_s * RATE_PPS) // burst
    apart = burst * 1e9 / RATE_PPS
    return np.repeat(np.arange(count) * apart, burst) + np.tile(np.arange(burst) * 100.0, count)
