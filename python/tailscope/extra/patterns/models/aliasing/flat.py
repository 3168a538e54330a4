"""Search for clocks whose ticks delay by a flat amount: packets that do not leave together.

A tick that falls into the service of a packet, or that leaves cold caches to the next one, makes
its service longer by as much wherever it fell. So the departures lie on no comb, but work that
takes long holds a tick, and other work holds none. Such a clock may be a timer that a program
sets anew each time: then its phase strays, by whole periods in seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from operator import itemgetter
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.aliasing.evenness import MULTIPLES, Evenness
from tailscope.extra.patterns.models.aliasing.line import LEAST_EVENTS, evidence, narrowed
from tailscope.extra.patterns.models.aliasing.search import FALSE_ALARMS, thresholds
from tailscope.extra.patterns.models.aliasing.simulation import Periodic
from tailscope.extra.patterns.models.aliasing.slices import slices
from tailscope.extra.patterns.models.aliasing.sources import LEVEL, Interval
from tailscope.extra.patterns.models.aliasing.spectrum import HIGHEST_HZ, Arrivals, Turning, peaks
from tailscope.extra.patterns.models.aliasing.wander import STEADY, Track
from tailscope.extra.patterns.models.aliasing.work import expected, work
from tailscope.models.special import stdtrit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Floats
    from tailscope.extra.patterns.models.aliasing.simulation import Times
    from tailscope.extra.patterns.models.aliasing.work import Work

    Marks = NDArray[np.bool_]

_MOST = 4
_LOUDEST = 4
_THRESHOLDS = 3
_SLOWER = (2, 3, 5, 7)
_FIRST = 4
_ALIKE = 1e-3
_APART_HZ = 0.5
_FAR_AHEAD = 2.0
_ENOUGH = 200_000
"""Pieces of work among which a rate is looked for; more take long and say little more."""
_PHASES = 1024
_TURNS = 41
_BINS_PER_S = 4 * HIGHEST_HZ
_LEAST_BLOCKS = 16
_MOST_BLOCKS = 400
_LONGEST_BLOCK_NS = 5e8
_LEAST_RATIO = 3.0
_HOPELESS = 0.5
"""A slower clock is not tried whose ticks, as they are, have less than so much of the evidence."""
_LEAST_INSIDE = 0.1
_LEAST_EXPLAINED = 0.1
_LEAST_TOGETHER = 2 / 3
_SHORTER = -0.7
"""Correlation of the lateness with the time since a tick below which work waits for its end."""
_SELECTED = 1e3
"""Factor of the p value, as the rate was chosen from the same packets."""
_SMALLEST = 1e-8

COUNTED_ALIKE = 0.0025
"""Largest distance of a rate from one that was counted."""


class Recurring(NamedTuple):
    """A clock that makes the work longer which it meets."""

    clock: Periodic
    reaches_back: bool
    """True if a tick that meets no work makes the next piece longer."""
    threshold_ns: int
    """Lateness above which work is late."""
    p_value: float
    """Probability of so much late work with ticks by chance."""
    rate_ci_hz: Interval | None
    """Interval of the rate; None if it strays."""
    evident: float = 0.0
    """Log likelihood ratio of the late work that ticks meet, against chance."""

    @property
    def rate_hz(self) -> float:
        """Return the ticks per second."""
        return self.clock.rate_hz

    def meets(self, done: Work) -> Marks:
        """Mark the work that ticks meet."""
        return _holds_tick(done, self.clock, reaches_back=self.reaches_back)


class _Candidate(NamedTuple):
    """A rate that chance does not reach."""

    power: float
    rate_hz: float
    threshold_ns: int


class _Grid(NamedTuple):
    """Pieces of work by the block of time, and the bin of one, in which their middle lies."""

    block_ns: float
    blocks: int
    bins: int
    block: NDArray[np.int16]
    place: NDArray[np.int32]

    @classmethod
    def of(cls, done: Work, block_ns: float, blocks: int) -> _Grid:
        bins = int(block_ns * _BINS_PER_S / 1e9)
        block = np.empty(len(done.end_ns), np.int16)
        place = np.empty(len(done.end_ns), np.int32)
        for some in slices(len(place)):
            turn = (done.begin_ns[some] + done.end_ns[some]) / 2 / block_ns
            block[some] = np.minimum(turn.astype(np.int32), blocks - 1)
            place[some] = np.minimum((turn * bins).astype(np.int32), blocks * bins - 1)
        return cls(block_ns, blocks, bins, block, place)


class _Search:
    """Work of one threshold, divided in blocks of time: every other one is there to fit."""

    def __init__(self, done: Work, threshold_ns: int, grid: _Grid) -> None:
        self.done, self.threshold_ns, self.grid = done, threshold_ns, grid
        self.is_late = done.late_ns > threshold_ns
        self.expected = expected(self.is_late, done.kind)
        excess = np.bincount(
            grid.place, self.is_late - self.expected, grid.blocks * grid.bins
        ).astype(np.float64)
        self.turning = Turning(excess.reshape(grid.blocks, grid.bins), grid.block_ns / 1e9)
        self.is_fitted = grid.block % 2 == 0

    @cached_property
    def fitted_late(self) -> Work:
        """The late work in blocks that are there to fit."""
        return self.done.only(self.is_fitted & self.is_late)

    @cached_property
    def fitted_usual(self) -> tuple[Work, Floats]:
        """Some of the work in these blocks, and how much of it is expected to be late."""
        some = np.flatnonzero(self.is_fitted)
        some = some[:: 1 + len(some) // _ENOUGH]
        return self.done.only(some), self.expected[some]


def recurring(
    arrival_ns: Times,
    latency_ns: Times,
    counted_hz: Sequence[float] = (),
    known: Sequence[Periodic] = (),
) -> tuple[Work, list[Recurring], list[float]]:
    """Find one clock after the other, each in the work that the others do not meet.

    Nor do they meet the work that interruptions of known clocks delay, which is left out.

    Bursts that come evenly may show a clock and its images in their rate alike: then a clock is
    found only if something has been counted at its rate, or if it is far more evident than all
    others, and the rates between which nothing decides are returned instead.
    """
    done = work(arrival_ns, latency_ns)
    found: list[Recurring] = []
    before = [Recurring(each, False, 0, 0.0, None) for each in known]
    for clock in before:
        done = done.only(~clock.meets(done))
    if len(done.end_ns) < LEAST_EVENTS:
        return done, found, []
    span_ns = float(done.end_ns[-1])
    block_ns = min(_LONGEST_BLOCK_NS, span_ns / _LEAST_BLOCKS)
    blocks = min(_MOST_BLOCKS, int(span_ns / block_ns))
    is_within = done.end_ns < blocks * block_ns
    done = done if is_within.all() else done.only(is_within)
    packets = Evenness.of(arrival_ns)
    left = done
    while len(found) < _MOST:
        others = [*before, *found]
        clocks = _evident(left, others, packets, block_ns, blocks)
        if packets.in_bursts:
            alike_hz = [clock.rate_hz for clock in clocks]
            told = [clock for clock in clocks if _is_counted(clock.rate_hz, counted_hz)]
            # What a clock leaves in bursts may show images of it.
            clocks = told or ([] if others else clocks[: _is_far_ahead(clocks)])
            if not clocks:
                return done, found, [] if others else alike_hz
        if not clocks:
            break
        found.append(clocks[0])
        left = left.only(~clocks[0].meets(left))
    return done, found, []


def _is_counted(rate_hz: float, counted_hz: Sequence[float]) -> bool:
    return any(abs(each - rate_hz) < COUNTED_ALIKE * rate_hz for each in counted_hz)


def _is_far_ahead(clocks: Sequence[Recurring]) -> bool:
    """Say whether the first clock is more evident than any of its images may be by chance.

    Work on single packets of a burst lies at many phases of an image, and at one of the clock.
    """
    if not clocks or clocks[0].clock.wander is not STEADY:
        return False
    return all(clocks[0].evident > _FAR_AHEAD * other.evident for other in clocks[1:])


def _evident(
    done: Work, found: Sequence[Recurring], packets: Evenness, block_ns: float, blocks: int
) -> list[Recurring]:
    """Find clocks whose ticks the late work holds, against chance, the most evident first."""
    tried = thresholds(done.late_ns)
    candidates: list[_Candidate] = []
    grid = _Grid.of(done, block_ns, blocks)
    came = None
    if packets.in_bursts and len(done.end_ns):
        came = Arrivals((done.begin_ns + done.end_ns) // 2)
    for threshold_ns in tried:
        search = _Search(done, threshold_ns, grid)
        if np.count_nonzero(search.is_late) >= LEAST_EVENTS:
            # Ticks meet few bursts: too few in a block, but not in all of the time.
            steady = peaks(came, np.flatnonzero(search.is_late)) if came else []
            for peak in (*search.turning.peaks(), *steady):
                if peak.chance * len(tried) <= FALSE_ALARMS:
                    candidates.append(_Candidate(peak.power, peak.rate_hz, threshold_ns))
    fitted: list[tuple[float, Recurring]] = []
    of_packets_hz: list[float] = []
    for threshold_ns, rates_hz in _loudest(candidates, packets, 1e9 / block_ns).items():
        built: _Search | None = None
        for rate_hz in rates_hz:
            # A multiple of the rate of every Nth packet is no clock, either.
            if any(_is_multiple(rate_hz, each) for each in of_packets_hz):
                continue
            built = built or _Search(done, threshold_ns, grid)
            clock, evident = _fitted(built, rate_hz, in_bursts=packets.in_bursts)
            if clock is not None:
                fitted.append((evident, clock))
                if packets.is_in_step(clock.rate_hz, is_exact=True):
                    of_packets_hz.append(clock.rate_hz)
    known = list(found)
    clocks: list[Recurring] = []
    for _, clock in sorted(fitted, key=lambda each: -each[0]):
        if any(_is_image(clock, each, done, packets) for each in known):
            continue
        is_steady = clock.clock.wander is STEADY
        if packets.is_in_step(clock.rate_hz, is_exact=is_steady) or _strays_about_packets(
            clock, packets
        ):
            # Nor are its multiples more than every so many packets.
            known.append(clock)
        elif all(abs(clock.rate_hz - each.rate_hz) > _APART_HZ for each in clocks):
            clocks.append(clock)
    return clocks


def _is_multiple(rate_hz: float, of_hz: float) -> bool:
    return abs(rate_hz - round(rate_hz / of_hz) * of_hz) <= _APART_HZ


def _loudest(
    candidates: list[_Candidate], packets: Evenness, told_hz: float
) -> dict[int, list[float]]:
    """Choose the loudest rates, each at thresholds where it is loud, and what may be behind them.

    Where it is loudest, as much may be late by chance: more thresholds are tried, but with bursts,
    which have many images. `told_hz` is what the length of a block tells apart; pairs of blocks
    tell half of that.
    """
    chosen: dict[int, list[float]] = {}
    seen: list[float] = []
    tried: Counter[float] = Counter()
    for candidate in sorted(candidates, reverse=True):
        rate_hz = candidate.rate_hz
        if packets.of_bursts(rate_hz, told_hz / 2):
            continue
        alike = (each for each in seen if abs(rate_hz - each) <= _ALIKE * rate_hz + _APART_HZ)
        known_hz = next(alike, None)
        if known_hz is None and len(seen) < _LOUDEST:
            seen.append(known_hz := rate_hz)
        if known_hz is not None and tried[known_hz] < (1 if packets.in_bursts else _THRESHOLDS):
            tried[known_hz] += 1
            behind = [rate_hz, *packets.images(rate_hz, HIGHEST_HZ)]
            chosen.setdefault(candidate.threshold_ns, []).extend(behind)
    return chosen


def _strays_about_packets(clock: Recurring, packets: Evenness) -> bool:
    """Return True if a clock strays about the rate of every Nth packet, and may be its shadow.

    What comes with the packets is left out; what lies beside it in the spectrum then seems a clock
    whose phase strays.
    """
    rate_hz = clock.rate_hz
    if clock.clock.wander is STEADY or not math.isfinite(packets.own_hz):
        return False
    of_packets_hz = packets.own_hz / max(1, round(packets.own_hz / rate_hz))
    return abs(of_packets_hz - rate_hz) <= _ALIKE * rate_hz + _APART_HZ


def _is_image(clock: Recurring, of: Recurring, done: Work, packets: Evenness) -> bool:
    """Return True if this is a multiple of a known clock, or its mirror in the packets' rate.

    An image delays what is near the known clock's ticks. A clock of its own that comes a multiple
    of times as often delays as much between them.
    """
    images_hz = packets.mirrored(MULTIPLES * of.rate_hz)
    tolerances_hz = packets.tolerances_hz()
    tolerances_hz[:_FIRST] = _ALIKE * clock.rate_hz
    if not np.any(np.abs(images_hz - clock.rate_hz) <= tolerances_hz):
        return False
    late = done.only(clock.meets(done) & (done.late_ns > clock.threshold_ns))
    times = max(2, round(clock.rate_hz / of.rate_hz))
    turn = np.sort(_turned(of.clock, (late.begin_ns + late.due_ns) // 2) % 1)
    within = np.searchsorted(np.concatenate([turn, turn + 1]), turn + 1 / times) - np.arange(
        len(turn)
    )
    # Of late work that ticks meet, a third may be late by chance, at any phase.
    spread = 1 / times
    return bool(within.max() > (spread + _LEAST_TOGETHER + spread / 3) / 2 * len(turn))


def _fitted(search: _Search, rate_hz: float, *, in_bursts: bool) -> tuple[Recurring | None, float]:
    """Fit a clock to half of the blocks, and test it on the other half."""
    middle_s, turns = search.turning.turns(rate_hz, 2)
    steady, strays = _steady(middle_s, turns), _straying(middle_s, turns)
    narrow = _narrowed(search, rate_hz) if in_bursts else None
    best: Recurring | None = None
    most = 0.0
    for reaches_back in (False, True):
        for clock, free in ((steady, 2), (narrow, 2), (strays, 2 * len(turns))):
            if clock is None:
                continue
            placed, evident = _placed(search, clock, reaches_back)
            if placed is not None and placed.wander is STEADY:
                placed, evident = max(
                    (placed, evident), _refined(search, placed, reaches_back), key=itemgetter(1)
                )
            if placed is not None:
                placed, evident = _slowed(search, placed, evident, reaches_back)
            if placed is not None and evident - free > most:
                best = Recurring(placed, reaches_back, search.threshold_ns, 1.0, None)
                most = evident - free
    if best is None:
        return None, 0.0
    is_met = best.meets(search.done)
    by_pieces = in_bursts and best.clock.wander is STEADY
    p = _SELECTED * (_p_of_pieces if by_pieces else _p_value)(search, is_met)
    late = search.done.only(is_met & search.is_late)
    is_flat = _is_distinct(search.is_late, is_met) and not _waits(late, best.clock)
    # A tick that lasted longer would delay by another tick as well.
    is_short = is_flat and float(np.median(late.late_ns)) < best.clock.period_ns
    if p > FALSE_ALARMS or not is_short:
        return None, 0.0
    rate_ci_hz = None
    if best.clock.wander is STEADY:
        rate_ci_hz = _rate_ci_hz(search, best)
    return best._replace(p_value=p, rate_ci_hz=rate_ci_hz, evident=most), most


def _narrowed(search: _Search, rate_hz: float) -> Periodic | None:
    """Return the clock whose ticks lie in most of the late work, by all blocks that are fitted."""
    late = search.fitted_late
    line = narrowed(rate_hz, (late.begin_ns + late.due_ns) / 2)
    return None if line is None else Periodic(line.period_ns, 0, line.phase_ns)


def _slowed(
    search: _Search, clock: Periodic, evident: float, reaches_back: bool
) -> tuple[Periodic, float]:
    """Return the slowest clock behind a rate: a multiple of it may be louder than itself.

    Ticks of a clock are alike. Those of a multiple are not, if they met as much work in vain.
    """
    tick, _ = _lateness(search.fitted_late, clock, reaches_back)
    if len(tick) < LEAST_EVENTS:
        return clock, evident
    done, weight = search.fitted_usual
    met, is_met = _ticks(done, clock, reaches_back=reaches_back)
    met, met_weight, all_weight = met[is_met], weight[is_met], float(weight.sum())
    for times in _SLOWER:
        late = np.bincount(tick.astype(np.int64) % times, minlength=times)
        usual = np.bincount(met.astype(np.int64) % times, met_weight, minlength=times)
        first = int(np.argmax(late))
        alike = late[first] * (usual.sum() / usual[first] - 1)
        if alike < LEAST_EVENTS:
            continue
        phase_ns = clock.phase_ns + first * clock.period_ns
        slower = Periodic(clock.period_ns * times, 0, phase_ns, wander=clock.wander)
        is_only = alike >= _LEAST_RATIO * (late.sum() - late[first])
        if is_only and clock.wander is STEADY:
            return _slowed(search, slower, evident, reaches_back)
        chance = float(usual[first]) / all_weight
        likely = evidence(int(late[first]), len(search.fitted_late.end_ns), chance)
        if likely < _HOPELESS * evident:
            continue
        placed, more = _placed(search, slower, reaches_back)
        if placed is not None and more > evident:
            return _slowed(search, placed, more, reaches_back)
    return clock, evident


def _rate_ci_hz(search: _Search, found: Recurring) -> Interval:
    """Return the hull of two intervals, of single ticks and of the phases of blocks.

    Which packets a tick meets drifts with the packets, so that errors of neighbours are alike.
    """
    ticks = _lateness(search.done.only(search.is_late), found.clock, found.reaches_back)
    middle_s, turns = search.turning.turns(found.rate_hz, 1)
    ends_ns = [
        period_ns + sign * reach_ns
        for period_ns, reach_ns in (_slope(*ticks), _slope(turns, middle_s * 1e9))
        for sign in (-1, 1)
    ]
    return Interval(1e9 / max(ends_ns), 1e9 / min(ends_ns))


def _lateness(done: Work, clock: Periodic, reaches_back: bool) -> tuple[Floats, Floats]:
    """Return the ticks that some work holds, and the middle of the time in which each fell."""
    tick, is_met = _ticks(done, clock, reaches_back=reaches_back)
    met = done.only(is_met)
    return tick[is_met], (met.begin_ns - met.idle_ns * reaches_back + met.due_ns) / 2


def _slope(tick: Floats, middle_ns: Floats) -> tuple[float, float]:
    """Return the period of ticks by least squares, and the reach of its interval."""
    tick, middle_ns = tick - tick.mean(), middle_ns - middle_ns.mean()
    squares = float(tick @ tick)
    period_ns = float(tick @ middle_ns) / squares
    left_ns = middle_ns - period_ns * tick
    freedom = len(tick) - 2
    error_ns = math.sqrt(float(left_ns @ left_ns) / freedom / squares)
    return period_ns, float(stdtrit(freedom, (1 + LEVEL) / 2)) * error_ns


def _refined(search: _Search, clock: Periodic, reaches_back: bool) -> tuple[Periodic | None, float]:
    """Fit the period to the work that ticks meet: phases of blocks are coarse."""
    tick, middle_ns = _lateness(search.fitted_late, clock, reaches_back)
    if len(tick) < LEAST_EVENTS or np.ptp(tick) == 0:
        return None, 0.0
    period_ns, _ = _slope(tick, middle_ns)
    phase_ns = float(np.median(middle_ns - tick * period_ns))
    return _placed(search, Periodic(period_ns, 0, phase_ns), reaches_back)


def _steady(middle_s: Floats, turns: Floats) -> Periodic | None:
    """Return the clock of one rate that turned so, as nearly as one can."""
    rate_hz, level = np.polyfit(middle_s, turns, 1).tolist()
    return Periodic(1e9 / rate_hz, 0, -level / rate_hz * 1e9) if rate_hz > 0 else None


def _straying(middle_s: Floats, turns: Floats) -> Periodic | None:
    """Return the clock that turned exactly so."""
    steady = _steady(middle_s, turns)
    if steady is None:
        return None
    late_ns = middle_s * 1e9 - turns * steady.period_ns - steady.phase_ns
    return Periodic(steady.period_ns, 0, steady.phase_ns, wander=Track(middle_s * 1e9, late_ns))


def _placed(search: _Search, clock: Periodic, reaches_back: bool) -> tuple[Periodic | None, float]:
    """Find the phase at which most of the late work holds a tick, and its evidence."""
    done = search.fitted_late
    late, all_late = _covered(done, np.ones(len(done.end_ns)), clock, reaches_back)
    usual, all_usual = _covered(*search.fitted_usual, clock, reaches_back)
    if not all_late or not all_usual:
        return None, 0.0
    evident = _evidence(late, usual * (all_late / all_usual), all_late)
    top = int(np.argmax(evident))
    level = evident > evident[top] - 0.5
    offsets = np.arange(_PHASES)
    near = level & (np.minimum((offsets - top) % _PHASES, (top - offsets) % _PHASES) < _PHASES / 4)
    middle = float(np.mean((offsets[near] - top + _PHASES / 2) % _PHASES)) - _PHASES / 2 + top
    turn = (middle + 0.5) / _PHASES
    phase_ns = (clock.phase_ns + turn * clock.period_ns) % clock.period_ns
    moved = Periodic(clock.period_ns, 0, phase_ns, wander=clock.wander)
    return moved, float(evident[top])


def _turned(clock: Periodic, time_ns: Times) -> Floats:
    """Return how often the clock has turned until these times."""
    even_ns = time_ns - clock.wander.at(time_ns.astype(np.float64)) - clock.phase_ns
    return np.asarray(even_ns / clock.period_ns, np.float64)


def _holds_tick(done: Work, clock: Periodic, *, reaches_back: bool) -> Marks:
    return _ticks(done, clock, reaches_back=reaches_back)[1]


def _ticks(done: Work, clock: Periodic, *, reaches_back: bool) -> tuple[Floats, Marks]:
    """Return the last tick before each piece of work is due, and whether it falls into it."""
    before = _turned(clock, done.begin_ns - done.idle_ns * reaches_back - clock.duration_ns)
    tick = np.floor(_turned(clock, done.due_ns))
    return tick, tick > np.floor(before)


def _covered(
    done: Work, weight: Floats, clock: Periodic, reaches_back: bool
) -> tuple[Floats, float]:
    """Return for each phase the weight of the work that is under way when a clock shows it.

    And that of all this work: what takes longer than a turn holds a tick anyway, and is left out.
    """
    before = _turned(clock, done.begin_ns - done.idle_ns * reaches_back)
    after = _turned(clock, done.due_ns)
    short = after - before < 1
    before, after, weight = before[short], after[short], weight[short]
    begin = ((before - np.floor(before)) * _PHASES).astype(np.int64)
    end = begin + np.maximum(1, np.rint((after - before) * _PHASES).astype(np.int64))
    steps = np.bincount(begin, weight, 2 * _PHASES + 1) - np.bincount(end, weight, 2 * _PHASES + 1)
    two_turns = np.cumsum(steps)[: 2 * _PHASES]
    return two_turns[:_PHASES] + two_turns[_PHASES:], float(weight.sum())


def _evidence(late: Floats, usual: Floats, total: float) -> Floats:
    """Return the log likelihood ratio of so much late work inside and outside, against chance."""
    outside, usual_outside = total - late, total - usual
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.where(late > 0, late * np.log(late / usual), 0.0)
        rest = np.where(outside > 0, outside * np.log(outside / usual_outside), 0.0)
    return np.where(late > usual, inside + rest, 0.0)


def _is_distinct(is_late: Marks, is_met: Marks) -> bool:
    """Return True if more of the work is late that ticks meet than of the rest, by far."""
    caught = np.bincount(is_met, is_late, 2)
    outside, inside = (caught / np.maximum(np.bincount(is_met, minlength=2), 1)).tolist()
    is_clear = inside >= max(_LEAST_INSIDE, _LEAST_RATIO * outside)
    return bool(is_clear and caught[1] >= _LEAST_EXPLAINED * caught.sum())


def _waits(late: Work, clock: Periodic) -> bool:
    """Return True if most of the late work waits for the end of a tick: the later, the shorter."""
    since_ns = late.begin_ns - clock.phase_ns - clock.wander.at(late.begin_ns.astype(np.float64))
    since_ns = (since_ns + clock.period_ns / 2) % clock.period_ns - clock.period_ns / 2
    near = np.abs(since_ns) < 2 * np.median(late.late_ns)
    if np.count_nonzero(near) < max(LEAST_EVENTS, len(near) / 2):
        return False
    together = np.corrcoef(since_ns[near], late.late_ns[near])[0, 1]
    return bool(together < _SHORTER)


def _p_of_pieces(search: _Search, is_met: Marks) -> float:
    """Return the probability of so much late work with ticks by chance, in blocks not fitted.

    Ticks meet bursts in some blocks, and in others none, so that blocks are not to be compared. No
    two pieces hold the same tick: that delays come in swarms makes none of them meet more.
    """
    is_left = ~search.is_fitted
    late = search.is_late & is_left
    usual = search.expected * is_left
    chance = float(usual @ is_met) / max(float(usual.sum()), 1e-9)
    caught = int(np.count_nonzero(late & is_met))
    if not 0 < chance < 1 or not caught:
        return 1.0
    return max(math.exp(-evidence(caught, int(np.count_nonzero(late)), chance)), _SMALLEST)


def _p_value(search: _Search, is_met: Marks) -> float:
    """Return the probability of so much late work with ticks, block by block, by chance.

    Only blocks count that were not there to fit. Delays come in swarms, so that blocks are
    compared and not packets.
    """
    block, blocks = search.grid.block, search.grid.blocks
    events = np.bincount(block[search.is_late], minlength=blocks)
    usual = np.bincount(block, search.expected, blocks)
    met_usual = np.bincount(block[is_met], search.expected[is_met], blocks)
    caught = np.bincount(block[search.is_late & is_met], minlength=blocks)
    excess = (caught - events * met_usual / np.maximum(usual, 1e-9))[1::2]
    excess = excess[usual[1::2] > 0]
    spread = float(excess.std(ddof=1)) if len(excess) > 1 else 0.0
    if spread == 0:
        return 1.0
    p = NormalDist().cdf(-float(excess.mean()) / spread * math.sqrt(len(excess)))
    # Means of blocks are normal near their middle only.
    return max(p, _SMALLEST)
