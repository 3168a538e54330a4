"""Spectrum of delayed packets: rates at which they recur, tested against chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Floats
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
_FINE = 8
"""Points of a spectrum within what a block tells apart."""
_STRAYS = 2.0
"""Turns by which the rate within a block may differ from the mean."""


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


class Turning:
    """Spectra of events in blocks of time, for clocks whose phase strays from block to block.

    `excess` is a row for each block: events above what was expected, in bins of equal time.
    """

    def __init__(self, excess: NDArray[np.float64], block_s: float) -> None:
        blocks, bins = excess.shape
        length = 1 << (_FINE * bins - 1).bit_length()
        rates_hz = np.arange(length // 2 + 1) * (bins / block_s / length)
        wanted = rates_hz <= HIGHEST_HZ * (1 + 1 / _FINE)
        self.block_s, self.rates_hz = block_s, rates_hz[wanted]
        self.energy = np.einsum("ij,ij->i", excess, excess)
        self.spectra = np.empty((blocks, len(self.rates_hz)), np.complex64)
        # Phases are those in the middle of a block.
        middle_s = (block_s - block_s / bins) / 2
        to_middle = np.exp(2j * np.pi * middle_s * self.rates_hz)
        for row, spectrum in zip(excess, self.spectra, strict=True):
            spectrum[:] = np.fft.rfft(row, length)[wanted] * to_middle

    def peaks(self) -> list[Peak]:
        """Find rates at which events recur within pairs of blocks, whatever their phase in each.

        The mean of the power of n pairs without a rate exceeds z times its own with a probability
        of at most exp(-n (z - 1 - ln z)), by Chernoff's bound.
        """
        turned = np.exp(-2j * np.pi * self.block_s * self.rates_hz).astype(np.complex64)
        power, used = np.zeros(len(self.rates_hz)), 0
        for at in range(0, len(self.spectra) - 1, 2):
            energy = float(self.energy[at] + self.energy[at + 1])
            if energy > 0:
                power += np.abs(self.spectra[at] + turned * self.spectra[at + 1]) ** 2 / energy
                used += 1
        looked_at = (self.rates_hz * self.block_s >= _LEAST_PERIODS / 2) & (
            self.rates_hz <= HIGHEST_HZ
        )
        power, rates_hz = power[looked_at] / max(used, 1), self.rates_hz[looked_at]
        power /= _level_of_means(power)
        sides = np.concatenate([[0.0], power, [0.0]])
        high = np.flatnonzero((power >= sides[:-2]) & (power >= sides[2:]) & (power > 1))
        high = high[np.argsort(-power[high], kind="stable")][:_MOST_PEAKS]
        return [
            Peak(
                float(rates_hz[at]),
                float(power[at]),
                min(1.0, len(power) * math.exp(-used * (power[at] - 1 - math.log(power[at])))),
            )
            for at in high
        ]

    def turns(self, rate_hz: float, step: int) -> tuple[Floats, Floats]:
        """Follow the phase of a rate, from each block to the next one or the next but one.

        Returns the middles of blocks in seconds, and how often a clock has turned until then.
        """
        near = np.flatnonzero(np.abs(self.rates_hz - rate_hz) * self.block_s <= _STRAYS)
        spectra = self.spectra[::step, near]
        middle_s = (np.arange(len(self.spectra))[::step] + 0.5) * self.block_s
        power = np.abs(spectra) ** 2
        padded = np.pad(power, ((1, 1), (0, 0)))
        best = np.argmax(power + (padded[:-2] + padded[2:]) / 2, axis=1)
        local_hz = self.rates_hz[near][best]
        phase = np.angle(spectra[np.arange(len(spectra)), best]) / (2 * np.pi)
        # The local rates carry the phase from one middle to the next, give or take half a turn.
        carried = (local_hz[1:] + local_hz[:-1]) / 2 * np.diff(middle_s)
        moved = np.diff(phase)
        turned = np.cumsum(moved + np.rint(carried - moved))
        turns = phase[0] + np.concatenate([[0.0], turned])
        return np.asarray(middle_s, np.float64), np.asarray(turns, np.float64)


def _level_of_means(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the local median of the power; at least 1."""
    blocks = np.array_split(power, max(1, len(power) // _BLOCK))
    levels = [max(1.0, float(np.median(block))) for block in blocks]
    return np.repeat(levels, [len(block) for block in blocks])
