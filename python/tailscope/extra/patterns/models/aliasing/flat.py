"""Search for clocks whose ticks delay by a flat amount: packets that do not leave together.

A tick that falls into the service of a packet, or that leaves cold caches to the next one, delays
it by as much wherever it fell. So the departures lie on no comb. The arrivals do: they lie within
a window after each tick, or before it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.aliasing.evenness import MULTIPLES, Evenness
from tailscope.extra.patterns.models.aliasing.line import LEAST_EVENTS, evidence, folded, narrowed
from tailscope.extra.patterns.models.aliasing.search import (
    ENOUGH_ROWS,
    FALSE_ALARMS,
    Delayed,
    thresholds,
)
from tailscope.extra.patterns.models.aliasing.simulation import Periodic, in_window
from tailscope.extra.patterns.models.aliasing.spectrum import HIGHEST_HZ, peaks
from tailscope.extra.patterns.models.aliasing.teeth import Teeth, fitted_teeth
from tailscope.extra.patterns.models.aliasing.wander import STEADY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Floats
    from tailscope.extra.patterns.models.aliasing.line import Line
    from tailscope.extra.patterns.models.aliasing.simulation import Times

    Marks = NDArray[np.bool_]

_MOST = 4
_LOUDEST = 4
_SLOWER = (2, 3, 5)
_BINS = (32, 128, 512)
_LEAST_IN_A_BIN = 50
_BLOCKS = 200
_LEAST_TICKS = 4
_LEAST_RATIO = 3.0
_LEAST_INSIDE = 0.1
_LEAST_EXPLAINED = 0.1
_FIRST = 4
_ALIKE = 1e-3
_STEPS = 3
_SELECTED = 1e3
"""Factor of the p value, as the rate was chosen from the same packets."""
_SMALLEST = 1e-8


class Recurring(NamedTuple):
    """A clock that delays the packets which come within a window of its ticks."""

    clock: Periodic
    window_ns: float
    threshold_ns: int
    """Wait above which packets are delayed."""
    p_value: float
    """Probability of so many delayed packets within the windows by chance."""

    def within(self, arrival_ns: Times) -> Marks:
        """Mark the packets that come within a window."""
        return in_window(arrival_ns, self.clock, self.window_ns)

    def around(self, arrival_ns: Times) -> Marks:
        """Mark the packets that come within a window, or one right before or after it."""
        earlier = replace(self.clock, phase_ns=self.clock.phase_ns - self.window_ns)
        return in_window(arrival_ns, earlier, 3 * self.window_ns)


def recurring(arrival_ns: Times, wait_ns: Times) -> list[Recurring]:
    """Find one clock after the other, each among the packets that the others do not touch."""
    packets = Evenness.of(arrival_ns)
    if packets.own_hz < 2 * HIGHEST_HZ:
        return []
    found: list[Recurring] = []
    left = np.ones(len(arrival_ns), bool)
    while len(found) < _MOST:
        clock = _most_evident(arrival_ns[left], wait_ns[left], found, packets)
        if clock is None:
            break
        found.append(clock)
        left &= ~clock.around(arrival_ns)
    return found


def _most_evident(
    arrival_ns: Times, wait_ns: Times, found: Sequence[Recurring], packets: Evenness
) -> Recurring | None:
    """Find the clock whose windows hold most of the delayed packets, against chance."""
    best, most = None, 0.0
    tried = thresholds(wait_ns)
    for threshold_ns in tried:
        heads = Delayed(arrival_ns, wait_ns, threshold_ns).heads
        if len(heads) < LEAST_EVENTS:
            continue
        unlikely = [
            peak
            for peak in peaks(arrival_ns, heads)
            if peak.chance * len(tried) <= FALSE_ALARMS
            and packets.every(peak.rate_hz) is None
            and not any(_is_image(peak.rate_hz, each.clock.rate_hz, packets) for each in found)
        ]
        rates_hz = [peak.rate_hz for peak in unlikely[:_LOUDEST]]
        # A multiple of a slow rate may be louder than the rate itself.
        slower_hz = [rate_hz / times for rate_hz in rates_hz[:1] for times in _SLOWER]
        for rate_hz in rates_hz + slower_hz:
            clock, evident = _fitted(rate_hz, arrival_ns, heads, threshold_ns, packets)
            if clock is not None and evident > most:
                best, most = clock, evident
    return best


def _is_image(rate_hz: float, of_hz: float, packets: Evenness) -> bool:
    """Return True if this is a multiple of a known rate, or its mirror in that of the packets."""
    images_hz = packets.mirrored(MULTIPLES * of_hz)
    tolerances_hz = packets.tolerances_hz()
    tolerances_hz[:_FIRST] = _ALIKE * rate_hz
    return bool(np.any(np.abs(images_hz - rate_hz) <= tolerances_hz))


def _fitted(
    rate_hz: float,
    arrival_ns: Times,
    heads: NDArray[np.intp],
    threshold_ns: int,
    packets: Evenness,
) -> tuple[Recurring | None, float]:
    """Fit period, wander and window to half of the time, and test them on the other half."""
    came_ns, all_ns = arrival_ns[heads].astype(np.float64), arrival_ns.astype(np.float64)
    line = narrowed(rate_hz, came_ns[:: max(1, len(came_ns) // ENOUGH_ROWS)])
    if line is None:
        return None, 0.0
    block_ns = max(float(came_ns[-1]) / _BLOCKS, _LEAST_TICKS * line.period_ns)
    fits, packets_fit = (_is_fitted(each_ns, block_ns) for each_ns in (came_ns, all_ns))
    teeth = _teeth(line, came_ns[fits])
    # A fit moves from the flank of a peak to its middle, which may be the packets' own.
    if teeth is None or packets.every(1e9 / teeth.period_ns) is not None:
        return None, 0.0
    middle_ns = float(np.median(teeth.left_ns))
    late_ns, all_late_ns = (_folded(each_ns, teeth, middle_ns) for each_ns in (came_ns, all_ns))
    window = _window(late_ns[fits], all_late_ns[packets_fit], teeth.period_ns)
    if window is None:
        return None, 0.0
    caught, touched = ((each >= window[0]) & (each < window[1]) for each in (late_ns, all_late_ns))
    tested, packets_tested = ~fits, ~packets_fit
    p = _SELECTED * _p_value(
        (came_ns[tested] // block_ns, caught[tested]),
        (all_ns[packets_tested] // block_ns, touched[packets_tested]),
    )
    if p > FALSE_ALARMS or not _is_distinct(caught, touched):
        return None, 0.0
    begin_ns = (middle_ns + window[0]) % teeth.period_ns
    clock = Periodic(teeth.period_ns, 0, begin_ns, wander=teeth.wander)
    return (
        Recurring(clock, window[1] - window[0], threshold_ns, p),
        evidence(int(np.count_nonzero(caught)), len(caught), float(np.mean(touched))),
    )


def _teeth(line: Line, came_ns: Floats) -> Teeth | None:
    """Fit period and wander, in steps: what has wandered far is near once that is known."""
    teeth, middle_ns = Teeth(line.period_ns, STEADY, came_ns, 0.0), line.phase_ns
    for _ in range(_STEPS):
        tooth, away_ns = folded(came_ns - teeth.wander.at(came_ns), teeth.period_ns, middle_ns)
        near = np.abs(away_ns) <= line.window_ns
        count = np.count_nonzero(near)
        if count < LEAST_EVENTS or np.ptp(tooth[near]) == 0:
            return None
        teeth = fitted_teeth(tooth[near], np.zeros(count, np.int64), came_ns[near])
        middle_ns = float(np.median(teeth.left_ns))
    return teeth


def _is_distinct(caught: Marks, touched: Marks) -> bool:
    """Return True if more packets are delayed within the windows than elsewhere, by far."""
    events, packets = np.bincount(caught, minlength=2), np.bincount(touched, minlength=2)
    outside, inside = (events / np.maximum(packets, 1)).tolist()
    is_clear = inside >= max(_LEAST_INSIDE, _LEAST_RATIO * outside)
    return bool(is_clear and events[1] >= _LEAST_EXPLAINED * len(caught))


def _is_fitted(time_ns: Floats, block_ns: float) -> Marks:
    """Mark the times in every other block, to fit; the blocks between are there to test."""
    return np.asarray(time_ns // block_ns % 2 == 0, np.bool_)


def _folded(time_ns: Floats, teeth: Teeth, middle_ns: float) -> Floats:
    """Say how long after the middle of the nearest tick each time is."""
    return folded(time_ns - teeth.wander.at(time_ns), teeth.period_ns, middle_ns)[1]


def _window(late_ns: Floats, all_late_ns: Floats, period_ns: float) -> tuple[float, float] | None:
    """Find the stretch around the densest moment in which more than half as many are delayed."""
    best, most = None, 0.0
    for bins in _BINS:
        if len(late_ns) < bins and bins > _BINS[0]:
            break
        edges = np.linspace(-period_ns / 2, period_ns / 2, bins + 1)
        packets = np.histogram(all_late_ns, edges)[0]
        share = np.histogram(late_ns, edges)[0] / np.maximum(packets, _LEAST_IN_A_BIN)
        top = int(np.argmax(share))
        is_high = share > (np.median(share) + share[top]) / 2
        first, last = top, top
        while first > 0 and is_high[first - 1]:
            first -= 1
        while last + 1 < bins and is_high[last + 1]:
            last += 1
        begin_ns, end_ns = float(edges[first]), float(edges[last + 1])
        caught = np.count_nonzero((late_ns >= begin_ns) & (late_ns < end_ns))
        chance = packets[first : last + 1].sum() / len(all_late_ns)
        if 0 < chance < 1 and (evident := evidence(int(caught), len(late_ns), chance)) > most:
            best, most = (begin_ns, end_ns), evident
    return best


def _p_value(events: tuple[Floats, Marks], packets: tuple[Floats, Marks]) -> float:
    """Return the probability of so many packets in the windows, block by block, by chance.

    Both are numbers of blocks and whether within a window. Delays come in swarms, so that blocks
    are compared and not packets.
    """
    block, touched = packets[0].astype(np.int64), packets[1]
    of, caught = events[0].astype(np.int64), events[1]
    blocks = int(max(block.max(initial=0), of.max(initial=0))) + 1
    count = np.bincount(block, minlength=blocks)
    share = np.bincount(block, touched, blocks) / np.maximum(count, 1)
    excess = np.bincount(of, caught, blocks) - share * np.bincount(of, minlength=blocks)
    excess = excess[count > 0]
    spread = float(excess.std(ddof=1)) if len(excess) > 1 else 0.0
    if spread == 0:
        return 1.0
    p = NormalDist().cdf(-float(excess.mean()) / spread * math.sqrt(len(excess)))
    # Means of blocks are normal near their middle only.
    return max(p, _SMALLEST)
