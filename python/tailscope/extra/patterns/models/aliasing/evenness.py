"""Packets that come evenly, and rates that are theirs: every 32nd packet is no clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.aliasing.line import LEAST_EVENTS

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.aliasing.comb import Floats
    from tailscope.extra.patterns.models.aliasing.simulation import Times

MULTIPLES = np.arange(1.0, 65.0)
"""Multiples of a rate that are looked at."""

_OF_A_TURN = 0.5
_EVEN = 0.1
_MOSTLY = 0.5


class Evenness(NamedTuple):
    """How evenly packets come."""

    packets_hz: float
    """Mean rate of the packets."""
    own_hz: float
    """Rate at which packets, or bursts of them, come evenly; inf if they do not."""
    span_s: float

    @classmethod
    def of(cls, arrival_ns: Times) -> Evenness:
        """Look at the gaps between packets, given their times in order."""
        span_s = float(arrival_ns[-1] - arrival_ns[0]) / 1e9
        gaps_ns = np.diff(arrival_ns)
        begin = np.flatnonzero(gaps_ns > gaps_ns.mean() / 2) + 1
        apart_ns = np.diff(arrival_ns[begin])
        own_hz = math.inf
        if len(apart_ns) >= LEAST_EVENTS:
            middle_ns = float(np.median(apart_ns))
            if np.mean(np.abs(apart_ns - middle_ns) < _EVEN * middle_ns) > _MOSTLY:
                own_hz = 1e9 / middle_ns
        return cls(len(gaps_ns) / span_s, own_hz, span_s)

    def every(self, rate_hz: float) -> int | None:
        """Return N if the rate is that of every Nth packet, or a multiple of it; else None."""
        if not math.isfinite(self.own_hz):
            return None
        is_in_step = self.mirrored(MULTIPLES * rate_hz) <= self.tolerances_hz()
        return int(MULTIPLES[np.argmax(is_in_step)]) if is_in_step.any() else None

    def is_in_step(self, rate_hz: float, *, is_exact: bool) -> bool:
        """Return True if the rate is that of every Nth packet, or of bursts, or a multiple.

        An exact one is off by less than a turn in all the time, a peak by half of one.
        """
        if not math.isfinite(self.own_hz):
            return False
        if not self.in_bursts:
            off_hz = self.mirrored(MULTIPLES * rate_hz)
            told_hz = 1 / self.span_s if is_exact else self.tolerances_hz()
            return bool(np.any(off_hz <= told_hz))
        multiples_hz = MULTIPLES * rate_hz
        off_hz = np.abs(multiples_hz - np.rint(multiples_hz / self.own_hz) * self.own_hz)
        return bool(np.any(off_hz * self.span_s <= _OF_A_TURN))

    @property
    def in_bursts(self) -> bool:
        """Return True if packets come in bursts, and those evenly."""
        return self.own_hz < self.packets_hz / 2

    def of_bursts(self, rate_hz: float, told_hz: float) -> bool:
        """Return True if this is about the rate of bursts that come evenly, or a multiple."""
        if not self.in_bursts:
            return False
        return abs(rate_hz - round(rate_hz / self.own_hz) * self.own_hz) < told_hz

    def images(self, rate_hz: float, highest_hz: float) -> list[float]:
        """List the other rates that look like this one if all that is seen are even bursts."""
        if not self.in_bursts:
            return []
        bursts_hz = self.own_hz * np.arange(1, 2 * int(highest_hz / self.own_hz) + 2)
        images_hz = np.concatenate([bursts_hz - rate_hz, rate_hz - bursts_hz, bursts_hz + rate_hz])
        is_heard = (images_hz > self.own_hz / 2) & (images_hz < highest_hz)
        listed: list[float] = images_hz[is_heard].tolist()
        return listed

    def mirrored(self, rates_hz: Floats) -> Floats:
        """Return how far rates are from the nearest multiple of the packets' rate."""
        beyond_hz = rates_hz % self.packets_hz
        return np.asarray(np.minimum(beyond_hz, self.packets_hz - beyond_hz))

    def tolerances_hz(self) -> Floats:
        """Return by how much multiples of a rate may be off that so long a time tells."""
        return np.asarray((MULTIPLES * _OF_A_TURN + 1) / self.span_s)
