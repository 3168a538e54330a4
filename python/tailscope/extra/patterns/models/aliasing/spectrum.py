"""Spectrum of delayed packets: rates at which they recur, tested against chance."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Floats
    from tailscope.extra.patterns.models.aliasing.simulation import Times

    Power: TypeAlias = NDArray[np.floating[Any]]

HIGHEST_HZ = 2_000.0
"""Highest rate searched; ticks of kernels come 100 to 1000 times a second."""

_NS_PER_S = 1e9
_BINS_PER_S = 4 * HIGHEST_HZ
LEAST_PERIODS = 10
"""Periods of the lowest rate searched that fit into the time of the packets."""
_PADDING = 2
_ROWS, _ROWS_AT_ONCE = 64, 8
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


class Arrivals:
    """Packets by the bin of time in which they came."""

    def __init__(self, arrival_ns: Times) -> None:
        since_ns = arrival_ns - arrival_ns[0]
        self.span_s = float(since_ns[-1]) / _NS_PER_S
        self.place = (since_ns * (_BINS_PER_S / _NS_PER_S)).astype(np.int32)
        self.counts = np.bincount(self.place).astype(np.float32)

    def excess(self, events: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return in each bin by how much events are more than their share of all packets."""
        excess = self.counts * np.float32(-len(events) / len(self.place))
        place, counts = np.unique(self.place[events], return_counts=True)
        excess[place] += counts.astype(np.float32)
        return excess


def peaks(came: Arrivals, events: NDArray[np.intp]) -> list[Peak]:
    """Find the rates at which some of the packets arrive.

    Were they some packets at random, their spectrum would be that of all packets but for a power
    whose law is exponential (Rayleigh's test). So the spectrum of all packets is subtracted, in the
    share of the events: a rate of the traffic itself is none of theirs. Events that come in swarms
    raise whole ranges of rates: power is taken relative to its median nearby.
    """
    length = _quick_length(_PADDING * len(came.counts))
    first = math.ceil(LEAST_PERIODS / max(came.span_s, 1 / _BINS_PER_S) * length / _BINS_PER_S)
    beyond = int(HIGHEST_HZ / _BINS_PER_S * length) + 1
    power = _power(came.excess(events), length, beyond)[first:] / np.float32(len(events))
    if not len(power):
        return []
    power = _above_nearby(power, 1 / math.log(2))
    high = _summits(power, _ALMOST * power.max())
    return [
        Peak(
            float((first + at) * (_BINS_PER_S / length)),
            float(power[at]),
            min(1.0, len(power) * math.exp(-power[at])),
        )
        for at in high
    ]


def _power(values: NDArray[np.float32], length: int, beyond: int) -> NDArray[np.float32]:
    """Return the power at the lowest frequencies of values that are padded to a length.

    A transform of all would fit into no cache. So the values are laid in rows: columns are
    transformed by a product of matrices, then each row by itself. It holds each `rows`th frequency,
    and at its end those of its mirror image.
    """
    rows = math.gcd(length, _ROWS)
    columns = length // rows
    filled = -(-len(values) // columns)
    laid = np.pad(values, (0, filled * columns - len(values))).reshape(filled, columns)
    turn = np.exp(-2j * np.pi / length * np.arange(columns)).astype(np.complex64)
    turned = np.ones(columns, np.complex64)
    needed = -(-beyond // rows)
    power = np.empty((needed, rows), np.float32)
    for begin in range(0, rows // 2 + 1, _ROWS_AT_ONCE):
        some = np.arange(begin, min(begin + _ROWS_AT_ONCE, rows // 2 + 1))
        turns = np.outer(some, np.arange(filled)) * (2 * np.pi / rows)
        real, imaginary = (
            each.astype(np.float32) @ laid for each in (np.cos(turns), np.sin(turns))
        )
        for row, of_row in zip(some, real - 1j * imaginary, strict=True):
            spectrum = np.fft.fft(of_row * turned)
            turned *= turn
            power[:, row] = _squared(spectrum[:needed])
            if 0 < row < rows - row:
                power[:, rows - row] = _squared(spectrum[: -needed - 1 : -1])
    return power.ravel()[:beyond]


def _squared(spectrum: NDArray[np.complexfloating]) -> Power:
    return spectrum.real**2 + spectrum.imag**2


def _quick_length(least: int) -> int:
    """Return the smallest length from there on that is a power of two, or 3, 5 or 9 times one."""
    return min(times << ((least - 1) // times).bit_length() for times in (1, 3, 5, 9))


def _above_nearby(power: Power, scale: float = 1.0) -> Power:
    """Return the power in multiples of its median nearby times a factor, which is at least 1.

    The mean of an exponential law is its median, divided by ln 2.
    """
    if not len(power):
        return power
    blocks = max(1, len(power) // _BLOCK)
    whole = len(power) // blocks * blocks
    nearby = power[:whole].reshape(blocks, -1)
    level = np.maximum(1.0, scale * np.median(nearby, axis=1)).astype(power.dtype)
    return np.concatenate([(nearby / level[:, None]).ravel(), power[whole:] / level[-1]])


def _summits(power: Power, least: float) -> NDArray[np.intp]:
    """Return where the power is higher than on both sides, the highest first."""
    high = np.flatnonzero(power >= least)
    sides = np.pad(power, 1)
    high = high[(power[high] >= sides[high]) & (power[high] >= sides[high + 2])]
    return high[np.argsort(-power[high], kind="stable")][:_MOST_PEAKS]


class Turning:
    """Spectra of events in blocks of time, for clocks whose phase strays from block to block.

    `excess` is a row for each block: events above what was expected, in bins of equal time.
    """

    def __init__(self, excess: NDArray[np.float64], block_s: float) -> None:
        self._excess = excess.astype(np.float32)
        bins = excess.shape[1]
        self._length = _quick_length(_FINE * bins)
        rates_hz = np.arange(self._length // 2 + 1) * (bins / block_s / self._length)
        self.block_s = block_s
        self.rates_hz = rates_hz[rates_hz <= HIGHEST_HZ * (1 + 1 / _FINE)]

    def _spectrum(self, row: NDArray[np.float32]) -> NDArray[np.complex64]:
        spectrum = np.fft.rfft(row, self._length)[: len(self.rates_hz)]
        return np.asarray(spectrum, np.complex64)

    @cached_property
    def spectra(self) -> NDArray[np.complex64]:
        """The spectrum of each block, with phases of its middle."""
        blocks, bins = self._excess.shape
        middle_s = (self.block_s - self.block_s / bins) / 2
        to_middle = np.exp(2j * np.pi * middle_s * self.rates_hz).astype(np.complex64)
        spectra = np.empty((blocks, len(self.rates_hz)), np.complex64)
        for row, spectrum in zip(self._excess, spectra, strict=True):
            spectrum[:] = self._spectrum(row) * to_middle
        return spectra

    def peaks(self) -> list[Peak]:
        """Find rates at which events recur within pairs of blocks, whatever their phase in each.

        The mean of the power of n pairs without a rate exceeds z times its own with a probability
        of at most exp(-n (z - 1 - ln z)), by Chernoff's bound.
        """
        blocks, bins = self._excess.shape
        pairs = self._excess[: blocks // 2 * 2].reshape(-1, 2 * bins)
        pairs = pairs[pairs.any(axis=1)]
        power: Power = np.zeros(len(self.rates_hz))
        used = len(pairs)
        for pair in pairs:
            spectrum = self._spectrum(pair)
            power += (spectrum.real**2 + spectrum.imag**2) / (pair @ pair)
        looked_at = (self.rates_hz * self.block_s >= LEAST_PERIODS / 2) & (
            self.rates_hz <= HIGHEST_HZ
        )
        power, rates_hz = power[looked_at] / max(used, 1), self.rates_hz[looked_at]
        power = _above_nearby(power)
        return [
            Peak(
                float(rates_hz[at]),
                float(power[at]),
                min(1.0, len(power) * math.exp(-used * (power[at] - 1 - math.log(power[at])))),
            )
            for at in _summits(power, 1.0)
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
