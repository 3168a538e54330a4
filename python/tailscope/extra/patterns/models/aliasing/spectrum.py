"""Spectrum of delayed packets: rates at which they recur, tested against chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.simulation import Times

HIGHEST_HZ = 2_000.0
"""Highest rate searched; ticks of kernels come 100 to 1000 times a second."""

_NS_PER_S = 1e9
_BINS_PER_S = 4 * HIGHEST_HZ
_LEAST_PERIODS = 10
_PADDING = 2
_BLOCK = 512
_ALMOST = 0.5
_MOST_PEAKS = 32


class Peak(NamedTuple):
    """A rate that stands out."""

    rate_hz: float
    power: float
    """Power; that of random events exceeds z at one rate with probability exp(-z)."""
    chance: float
    """Bound of the probability that chance exceeds the power at any rate searched."""


def peaks(arrival_ns: Times, events: NDArray[np.intp]) -> list[Peak]:
    """Find the rates at which some of the packets arrive.

    Were they some packets at random, their spectrum would be that of all packets but for a power
    whose law is exponential (Rayleigh's test). So the spectrum of all packets is subtracted, in the
    share of the events: a rate of the traffic itself is none of theirs. Events that come in swarms
    raise whole ranges of rates: power is taken relative to its median nearby.
    """
    time_s = (arrival_ns - arrival_ns[0]) / _NS_PER_S
    rates_hz, power = _spectrum(time_s, events)
    if not len(power):
        return []
    sides = np.concatenate([[0.0], power, [0.0]])
    high = (power >= sides[:-2]) & (power >= sides[2:]) & (power >= _ALMOST * power.max())
    places = np.flatnonzero(high)
    places = places[np.argsort(-power[places], kind="stable")][:_MOST_PEAKS]
    return [
        Peak(float(rates_hz[at]), float(power[at]), min(1.0, len(power) * math.exp(-power[at])))
        for at in places
    ]


def _spectrum(
    time_s: NDArray[np.float64], events: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    bins = int(time_s[-1] * _BINS_PER_S) + 1
    length = 1 << (_PADDING * bins - 1).bit_length()
    place = (time_s * _BINS_PER_S).astype(np.int64)
    expected = np.bincount(place, minlength=bins) * (len(events) / len(time_s))
    excess = np.bincount(place[events], minlength=bins) - expected
    power = np.abs(np.fft.rfft(excess, length)) ** 2 / len(events)
    rates_hz = np.arange(len(power)) * (_BINS_PER_S / length)
    looked_at = (rates_hz * time_s[-1] >= _LEAST_PERIODS) & (rates_hz <= HIGHEST_HZ)
    return rates_hz[looked_at], power[looked_at] / _level(power[looked_at])


def _level(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of an exponential law with the local median of the power; at least 1."""
    blocks = np.array_split(power, max(1, len(power) // _BLOCK))
    levels = [max(1.0, float(np.median(block)) / math.log(2)) for block in blocks if len(block)]
    return np.repeat(levels, [len(block) for block in blocks if len(block)])
