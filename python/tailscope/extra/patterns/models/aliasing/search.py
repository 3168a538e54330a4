"""Search for the clocks that interrupt, one after the other, and for the packets they delay."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.aliasing.comb import Comb, lock
from tailscope.extra.patterns.models.aliasing.evenness import Evenness
from tailscope.extra.patterns.models.aliasing.line import LEAST_EVENTS, Line, narrowed
from tailscope.extra.patterns.models.aliasing.slices import slices
from tailscope.extra.patterns.models.aliasing.spectrum import (
    HIGHEST_HZ,
    LEAST_PERIODS,
    Arrivals,
    Peak,
    peaks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Floats
    from tailscope.extra.patterns.models.aliasing.simulation import Times

    Marks = NDArray[np.bool_]

FALSE_ALARMS = 1e-3
"""Bound of the probability of finding a clock in packets that are delayed at random."""

_LARGEST_SHARE = 0.2
ENOUGH_ROWS = 2000
_SLOWEST = 5
_STRONGEST = 4
_BEST_LINES = 6
_ALIKE = 1e-3
_LONGEST = 0.95
_ALL_OF_IT = 0.9
_PILED_UP = 0.3
_FARTHEST = 4.0
_SEED = 0


class FoundComb(NamedTuple):
    """A clock that interrupts."""

    comb: Comb
    threshold_ns: int
    """Wait above which packets are more often on the comb than off it."""
    chance: float
    """Bound of the probability that packets delayed at random stand out as much at any rate."""


class _Candidate(NamedTuple):
    """A line of departures at a threshold."""

    evidence: float
    line: Line
    threshold_ns: int
    chance: float


class Delayed:
    """Packets that waited longer than a threshold, in rows that one interruption may delay."""

    def __init__(self, arrival_ns: Times, wait_ns: Times, threshold_ns: int) -> None:
        self.packets = wait_ns > threshold_ns
        first = self.packets.copy()
        first[1:] &= ~self.packets[:-1]
        self.heads = np.flatnonzero(first)
        waited_ns = wait_ns[self.heads]
        self.leave_ns: Floats = (arrival_ns[self.heads] + waited_ns).astype(np.float64)
        self.wait_ns: Floats = waited_ns.astype(np.float64)

    @cached_property
    def telling(self) -> Marks:
        """The rows whose waits tell when a tick ended."""
        return _telling(self.wait_ns)

    @cached_property
    def _row(self) -> NDArray[np.intp]:
        """The row of each packet."""
        return np.searchsorted(self.heads, np.flatnonzero(self.packets), "right") - 1

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """The number of packets of each row."""
        return np.bincount(self._row, minlength=len(self.heads))

    def departures(self, most: int) -> tuple[Floats, Floats]:
        """Return departures that tell when a tick ended, so many at most, and their waits.

        They are drawn: each second one may be that of each second tick.
        """
        which = np.flatnonzero(self.telling)
        if len(which) > most:
            which = np.sort(np.random.default_rng(_SEED).choice(which, most, replace=False))
        return self.leave_ns[which], self.wait_ns[which]

    def in_rows(self, rows: Marks) -> Marks:
        """Mark the packets of some rows."""
        marks = self.packets.copy()
        marks[self.packets] = rows[self._row]
        return marks


def _telling(wait_ns: Floats) -> Marks:
    """Mark the waits that ended with a tick: all, or those that are not as long as a tick.

    A tick delays the packet that it finds in service by all its length, wherever in service it was.
    If packets come so often that all are late by as much, they tell by how they leave.
    """
    if not len(wait_ns):
        return np.zeros(0, bool)
    is_whole = _is_whole(wait_ns)
    return ~is_whole if _PILED_UP < is_whole.mean() < _ALL_OF_IT else np.ones(len(wait_ns), bool)


def _is_whole(wait_ns: Floats) -> Marks:
    """Mark waits that are about the longest."""
    return wait_ns >= _ALL_OF_IT * np.quantile(wait_ns, _LONGEST)


def strongest(arrival_ns: Times, wait_ns: Times) -> FoundComb | str:
    """Find the clock that stands out most, or say why there is none."""
    clock = _strongest(arrival_ns, wait_ns)
    return clock if isinstance(clock, str) else _sharpened(clock, arrival_ns, wait_ns)


def _strongest(arrival_ns: Times, wait_ns: Times) -> FoundComb | str:
    """Find the clock that explains departures best, at the threshold where it does."""
    if not len(arrival_ns):
        return "no work of the device is alike often enough to tell which of it is late"
    tried, came = thresholds(wait_ns), Arrivals(arrival_ns)
    loudest: list[Peak] = []
    candidates: list[_Candidate] = []
    for threshold_ns in tried:
        delayed = Delayed(arrival_ns, wait_ns, threshold_ns)
        if len(delayed.heads) < LEAST_EVENTS:
            continue
        spectrum_peaks = peaks(came, delayed.heads)
        if spectrum_peaks and (not loudest or spectrum_peaks[0].power > loudest[0].power):
            loudest = spectrum_peaks
        unlikely = [peak for peak in spectrum_peaks if peak.chance * len(tried) <= FALSE_ALARMS]
        leave_ns, waited_ns = delayed.departures(ENOUGH_ROWS)
        for rate_hz, chance in _rates(unlikely):
            line = narrowed(rate_hz, leave_ns)
            if line is not None and line.is_of_departures(leave_ns, waited_ns):
                candidates.append(
                    _Candidate(line.evidence(leave_ns), line, threshold_ns, chance * len(tried))
                )
    best, most = None, 0.0
    for candidate in _best(candidates):
        comb, evidence = _locked(candidate, arrival_ns, wait_ns)
        if comb is not None and evidence > most:
            best = FoundComb(comb, candidate.threshold_ns, candidate.chance)
            most = evidence
    return best or _refusal(loudest, len(tried), Evenness.of(arrival_ns))


def _rates(spectrum_peaks: list[Peak]) -> Iterator[tuple[float, float]]:
    """List rates behind peaks: the peaks' own, and some of which the strongest are multiples.

    Two clocks of one period that interrupt half a period apart have no peak at their rate.
    """
    seen: list[float] = []
    for slower in range(1, _SLOWEST + 1):
        for peak in spectrum_peaks if slower == 1 else spectrum_peaks[:_STRONGEST]:
            rate_hz = peak.rate_hz / slower
            if all(abs(rate_hz - other) > _ALIKE for other in seen):
                seen.append(rate_hz)
                yield rate_hz, peak.chance


def _best(candidates: list[_Candidate]) -> Iterator[_Candidate]:
    """List the lines that explain most, each rate once."""
    seen: list[float] = []
    for candidate in sorted(candidates, key=lambda line: -line.evidence):
        rate_hz = 1e9 / candidate.line.period_ns
        if all(abs(rate_hz - other) > _ALIKE * rate_hz for other in seen):
            seen.append(rate_hz)
            yield candidate
        if len(seen) == _BEST_LINES:
            return


def _locked(candidate: _Candidate, arrival_ns: Times, wait_ns: Times) -> tuple[Comb | None, float]:
    """Fit a comb to a line, and say how much better than chance it explains departures."""
    delayed = Delayed(arrival_ns, wait_ns, candidate.threshold_ns)
    leave_ns, waited_ns = delayed.departures(ENOUGH_ROWS)
    comb = lock(candidate.line, leave_ns, waited_ns, arrival_ns[~delayed.packets])
    return comb, 0.0 if comb is None else comb.evidence(leave_ns)


def thresholds(wait_ns: Times) -> list[int]:
    """Return the waits that a fifth, a tenth, ... of all packets exceed, as the best is unknown."""
    in_order = np.sort(wait_ns)
    beyond = int(_LARGEST_SHARE * len(in_order))
    waits: list[int] = []
    while beyond >= LEAST_EVENTS:
        waits.append(max(0, int(in_order[-beyond - 1])))
        beyond //= 2
    return list(dict.fromkeys(waits))


def _refusal(loudest: list[Peak], tried: int, packets: Evenness) -> str:
    if not loudest:
        return f"fewer than {LEAST_EVENTS} interruptions stand out from packets without delay"
    rate_hz, _, chance = loudest[0]
    chance = min(1.0, chance * tried)
    if chance > FALSE_ALARMS:
        return (
            f"delayed packets follow no rate from {LEAST_PERIODS / packets.span_s:.2g} to"
            f" {HIGHEST_HZ:,.0f} Hz: the most prominent one,"
            f" {rate_hz:.2f} Hz, could occur by chance with a probability of {chance:.2g}"
        )
    if packets.every(rate_hz) is not None:
        every = max(packets.every(peak.rate_hz) or 1 for peak in loudest)
        of_packets = f"{packets.packets_hz / every:.2f} Hz"
        return (
            f"delays come with 1 packet in {every}, at {of_packets} of {packets.packets_hz:,.0f}"
            f" packets/s, and these packets cannot tell why: clocks of {of_packets} and its"
            " multiples are in step with them, and so is a batch of the sender or of the device."
            " Packets that are sent at random at the same rate (`--pattern poisson`) can tell"
        )
    recur = f"delayed packets recur at {rate_hz:.2f} Hz, but do not leave together, as they would"
    if packets.own_hz < 2 * HIGHEST_HZ:
        return (
            f"{recur} at the end of an interruption; and since packets come at"
            f" {packets.own_hz:.2f} Hz, that rate cannot be told from its mirror images: send them"
            " at random (`--pattern poisson`)"
        )
    return f"{recur} at the end of an interruption"


def is_on(comb: Comb, arrival_ns: Times, wait_ns: Times) -> Marks:
    """Mark the packets that leave near the end of a tooth."""
    marks = np.empty(len(arrival_ns), bool)
    for some in slices(len(marks)):
        leave_ns = (arrival_ns[some] + wait_ns[some]).astype(np.float64)
        marks[some] = comb.caught(leave_ns)[1] >= 0
    return marks


def _sharpened(clock: FoundComb, arrival_ns: Times, wait_ns: Times) -> FoundComb:
    """Move the threshold to where packets are more often on the comb than not, and fit again."""
    delayed = Delayed(arrival_ns, wait_ns, clock.threshold_ns)
    clock = clock._replace(comb=_widened(clock.comb, delayed))
    votes = np.where(is_on(clock.comb, arrival_ns, wait_ns), np.int8(1), np.int8(-1))
    followers = delayed.packets.copy()
    followers[delayed.heads] = False
    votes[followers] = 0
    order = np.argsort(-wait_ns)
    for_it, in_order = np.cumsum(votes[order], dtype=np.int32), wait_ns[order]
    del order
    # A cut lies between two different waits; of equally good ones the lowest.
    cuts = np.flatnonzero(in_order[:-1] > np.maximum(in_order[1:], 0))[::-1]
    threshold_ns = max(0, int(in_order[cuts[np.argmax(for_it[cuts])] + 1]))
    delayed = Delayed(arrival_ns, wait_ns, threshold_ns)
    leave_ns, waited_ns = delayed.departures(len(arrival_ns))
    line = narrowed(clock.comb.rate_hz, leave_ns)
    comb = None
    if line is not None:
        comb = lock(line, leave_ns, waited_ns, arrival_ns[~delayed.packets])
    if comb is None:
        return clock
    return clock._replace(comb=_widened(comb, delayed), threshold_ns=threshold_ns)


def _widened(comb: Comb, delayed: Delayed) -> Comb:
    """Let a comb catch the packets that its teeth found in service, which left before their end.

    They are late by all of a tooth's length, and began evenly in the time of a service before it.
    """
    _, group, away_ns = comb.nearest(delayed.leave_ns)
    near_ns = _FARTHEST * float(np.max(delayed.wait_ns))
    is_early = (
        (group >= 0)
        & _is_whole(delayed.wait_ns)
        & (away_ns < -comb.reach_ns)
        & (away_ns > -near_ns)
    )
    if np.count_nonzero(is_early) < LEAST_EVENTS:
        return comb
    return replace(comb, crossed_ns=-2 * float(np.median(away_ns[is_early])) - comb.reach_ns)
