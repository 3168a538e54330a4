"""A clock that interrupts: when its teeth end, and which of them are alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Numbers: TypeAlias = NDArray[np.int64]

__all__ = ["LEAST_EVENTS", "Comb", "Group", "fitted_period", "lock"]

LEAST_EVENTS = 20
"""Fewer delayed packets say nothing of a clock."""

_PHASES = 64
_RATES = 41
_KEPT = 0.9
_FINEST_NS = 1.0
_STEPS = 3
_PRIMES = (2, 3, 5, 7)
_LONGEST_PATTERN = 8
_LEAST_MET = 3
_SIGMAS = 3.0
_ALIKE = 0.05
_REACH = 8.0
_BETTER = 0.5


class Group(NamedTuple):
    """Teeth that end alike.

    Attributes
    ----------
    teeth : tuple of int
        Their numbers, among `Comb.every`.
    end_ns : float
        When tooth 0 ends, or would if it were one of them.
    """

    teeth: tuple[int, ...]
    end_ns: float


@dataclass(frozen=True)
class Comb:
    """Ends of periodic interruptions.

    Attributes
    ----------
    period_ns : float
        From tooth to tooth.
    every : int
        After so many teeth the pattern repeats.
    groups : tuple of Group
        Teeth that are in none interrupt nothing.
    spread_ns : float
        Mean distance of departures from the end of their tooth.
    """

    period_ns: float
    every: int
    groups: tuple[Group, ...]
    spread_ns: float

    @property
    def rate_hz(self) -> float:
        """Teeth in a second, idle ones included."""
        return 1e9 / self.period_ns

    @property
    def reach_ns(self) -> float:
        """Departures farther from the end of a tooth have another cause."""
        return _REACH * max(self.spread_ns, _FINEST_NS)

    @property
    def chance(self) -> float:
        """Share of all time that is near the end of a tooth."""
        teeth = sum(len(group.teeth) for group in self.groups)
        return min(1.0, 2 * self.reach_ns * teeth / (self.every * self.period_ns))

    def caught(self, leave_ns: Floats) -> tuple[Numbers, Numbers]:
        """Say for each departure which tooth ends next to it, and the number of its group.

        Parameters
        ----------
        leave_ns : ndarray of float64, shape (n,)

        Returns
        -------
        tooth, group : ndarray of int64, shape (n,)
            The group is -1 where the tooth ends too far away, or is idle.
        """
        ends_ns = np.array([group.end_ns for group in self.groups])
        group_of = np.full(self.every, -1)
        for number, group in enumerate(self.groups):
            group_of[list(group.teeth)] = number
        tooth, _ = _folded(leave_ns, self.period_ns, (ends_ns.min() + ends_ns.max()) / 2)
        group_at = group_of[tooth % self.every]
        away_ns = leave_ns - tooth * self.period_ns - ends_ns[group_at]
        return tooth, np.where(np.abs(away_ns) <= self.reach_ns, group_at, -1)


def lock(rate_hz: float, leave_ns: Floats, wait_ns: Floats, others_ns: Floats) -> Comb | None:
    """Fit a comb to departures, given its rate or a multiple of it.

    A packet that waits for the end of an interruption leaves at that end, whenever it came.

    Parameters
    ----------
    rate_hz : float
    leave_ns, wait_ns : ndarray of float64, shape (n,)
        When each delayed packet was let go, and for how long it had waited.
    others_ns : ndarray of float64, shape (n_others,)
        When packets came that were not delayed: idle teeth are those that they met.

    Returns
    -------
    Comb or None
        None if departures keep to the clock hardly better than arrivals do. Then something else
        recurs at that rate, such as work that comes with every 32nd packet.
    """
    period_ns = 1e9 / rate_hz
    if len(leave_ns) < LEAST_EVENTS or np.ptp(leave_ns) < period_ns:
        return None
    line = _narrow(period_ns, leave_ns)
    if line is None:
        return None
    fold = _Fold.of(line, leave_ns, wait_ns, others_ns)
    while (slower := fold.slower()) is not None:
        fold = _Fold.of(slower, leave_ns, wait_ns, others_ns)
    group_of = fold.pattern()
    on = fold.near & (group_of[fold.tooth % len(group_of)] >= 0)
    return _fitted(fold.line.period_ns, group_of, fold.tooth[on], leave_ns[on], wait_ns[on])


def fitted_period(tooth: Numbers, group: Numbers, leave_ns: Floats) -> float:
    """Fit the period by least squares, the groups having an end each.

    Parameters
    ----------
    tooth, group : ndarray of int64, shape (n,)
    leave_ns : ndarray of float64, shape (n,)
    """
    size = np.maximum(np.bincount(group), 1)
    x = tooth - (np.bincount(group, tooth) / size)[group]
    y = leave_ns - (np.bincount(group, leave_ns) / size)[group]
    return float(x @ y / (x @ x))


class _Line(NamedTuple):
    """Where teeth end, all alike for now, and how far around that they are looked for."""

    period_ns: float
    phase_ns: float
    window_ns: float


def _folded(leave_ns: Floats, period_ns: float, phase_ns: float) -> tuple[Numbers, Floats]:
    """Say for each time which tooth it is next to, and how far behind it."""
    tooth = np.rint((leave_ns - phase_ns) / period_ns).astype(np.int64)
    return tooth, leave_ns - phase_ns - tooth * period_ns


def _densest(period_ns: float, leave_ns: Floats) -> _Line:
    """Find where most departures are when they are laid over a period, or one near to it.

    A spectrum tells a rate within half of what would be one turn more in all the time.
    """
    span_ns = float(np.ptp(leave_ns))
    best, line = 0, _Line(period_ns, 0.0, period_ns / _PHASES)
    for turns in np.linspace(-0.5, 0.5, _RATES):
        tried_ns = 1 / (1 / period_ns + turns / span_ns)
        place = (leave_ns / tried_ns % 1.0 * _PHASES).astype(np.int64) % _PHASES
        count = np.bincount(place, minlength=_PHASES)
        pair = count + np.roll(count, -1)
        if pair.max() > best:
            best = pair.max()
            phase_ns = (int(np.argmax(pair)) + 1) / _PHASES * tried_ns
            line = _Line(tried_ns, phase_ns, 2 * tried_ns / _PHASES)
    return line


def _narrow(period_ns: float, leave_ns: Floats) -> _Line | None:
    """Improve a line in a window that shrinks as long as it keeps all that is no chance."""
    period_ns, phase_ns, window_ns = _densest(period_ns, leave_ns)
    while True:
        for _ in range(_STEPS):
            tooth, away_ns = _folded(leave_ns, period_ns, phase_ns)
            near = np.abs(away_ns) <= window_ns
            if np.count_nonzero(near) < LEAST_EVENTS or np.ptp(tooth[near]) == 0:
                return None
            slope, level = np.polyfit(tooth[near], away_ns[near], 1)
            period_ns, phase_ns = period_ns + float(slope), phase_ns + float(level)
        away_ns = np.abs(_folded(leave_ns, period_ns, phase_ns)[1])
        wide, half = (
            np.count_nonzero(near) - _by_chance(near, width / period_ns)
            for width in (window_ns, window_ns / 2)
            for near in [away_ns <= width]
        )
        if half < _KEPT * wide or window_ns < 2 * _FINEST_NS:
            return _Line(period_ns, phase_ns, window_ns)
        window_ns /= 2


def _by_chance(near: NDArray[np.bool_], window: float) -> float:
    """How many of those near a tooth would be there without it, by how many are elsewhere."""
    return float(np.count_nonzero(~near)) * 2 * window / (1 - 2 * window)


@dataclass(frozen=True)
class _Fold:
    """Packets laid over one period.

    Attributes
    ----------
    line : _Line
    tooth : ndarray of int64, shape (n,)
        Next to which each delayed packet left.
    away_ns : ndarray of float64, shape (n,)
        How long after it.
    near : ndarray of bool, shape (n,)
        Whether that is within the window.
    met : ndarray of int64
        Teeth that other packets met, and were not delayed.
    alike_ns : float
        Ends that differ by less are the same.
    """

    line: _Line
    tooth: Numbers
    away_ns: Floats
    near: NDArray[np.bool_]
    met: Numbers
    alike_ns: float

    @classmethod
    def of(cls, line: _Line, leave_ns: Floats, wait_ns: Floats, others_ns: Floats) -> _Fold:
        tooth, away_ns = _folded(leave_ns, line.period_ns, line.phase_ns)
        near = np.abs(away_ns) <= line.window_ns
        # An interruption lasts as long as the longest wait; here it is under way for certain.
        late_ns, early_ns, longest_ns = np.quantile(wait_ns[near], [0.25, 0.5, 0.95])
        middle_ns = (late_ns + early_ns) / 2
        met, off_ns = _folded(others_ns, line.period_ns, line.phase_ns - middle_ns)
        met = met[np.abs(off_ns) <= (early_ns - late_ns) / 2]
        return cls(line, tooth, away_ns, near, met, float(_ALIKE * longest_ns))

    def idle(self, every: int) -> NDArray[np.bool_] | None:
        """Say which of so many teeth catch no more than chance; None where no packet came by."""
        by_chance = _by_chance(self.near, self.line.window_ns / self.line.period_ns) / every
        counts = np.bincount(self.tooth[self.near] % every, minlength=every)
        idle = counts <= by_chance + _SIGMAS * math.sqrt(by_chance) + 1
        unmet = np.bincount(self.met % every, minlength=every) < _LEAST_MET
        return None if np.any(idle & unmet) else idle

    def slower(self) -> _Line | None:
        """The line of a slower clock, if only each second (third, ...) tooth interrupts."""
        for every in _PRIMES:
            idle = self.idle(every)
            if idle is not None and np.count_nonzero(~idle) == 1:
                period_ns, phase_ns, window_ns = self.line
                only = float(np.flatnonzero(~idle)[0])
                return _Line(period_ns * every, phase_ns + only * period_ns, window_ns)
        return None

    def pattern(self) -> Numbers:
        """Choose how many teeth make a pattern, and the group of each of them, -1 for idle ones.

        Patterns are compared by what they leave unsaid of departures, which follow Laplace's law
        about the end of their group, on fewer teeth where some are idle; with the penalty of the
        Bayesian information criterion for each group and each tooth.
        """
        tooth, away_ns = self.tooth[self.near], self.away_ns[self.near]
        best_cost, best = math.inf, np.zeros(1, np.int64)
        for every in range(1, _LONGEST_PATTERN + 1):
            idle = self.idle(every)
            if idle is None or idle.all():
                continue
            group_of = _grouped(tooth, away_ns, ~idle, self.alike_ns)
            group = group_of[tooth % every]
            on = group >= 0
            count, strays = np.count_nonzero(on), np.count_nonzero(~on)
            slope = fitted_period(tooth[on], group[on], away_ns[on])
            straight_ns = away_ns - slope * tooth
            spread_ns = max(_spread(group[on], straight_ns[on]), _FINEST_NS)
            share = np.count_nonzero(~idle) / every
            cost = 2 * count * (1 + math.log(2 * spread_ns) + math.log(share))
            cost += 2 * strays * math.log(2 * self.line.window_ns)
            cost += (group_of.max() + 1) * math.log(len(tooth)) + 2 * every * math.log(2)
            if cost < best_cost:
                best_cost, best = cost, group_of
        return best


def _grouped(
    tooth: Numbers, away_ns: Floats, active: NDArray[np.bool_], alike_ns: float
) -> Numbers:
    """Put teeth together that end alike: the group of each, in the order of their ends."""
    number = tooth % len(active)
    on = active[number]
    away_ns = away_ns - fitted_period(tooth[on], number[on], away_ns[on]) * tooth
    teeth = np.flatnonzero(active)
    ends_ns = np.array([np.median(away_ns[number == each]) for each in teeth])
    order = np.argsort(ends_ns, kind="stable")
    apart = np.diff(ends_ns[order], prepend=ends_ns[order[0]]) > alike_ns
    group_of = np.full(len(active), -1)
    group_of[teeth[order]] = np.cumsum(apart)
    return group_of


def _medians(group: Numbers, away_ns: Floats) -> Floats:
    return np.array([np.median(away_ns[group == each]) for each in range(group.max() + 1)])


def _spread(group: Numbers, away_ns: Floats) -> float:
    """Mean distance from the median of the own group."""
    return float(np.mean(np.abs(away_ns - _medians(group, away_ns)[group])))


def _fitted(
    period_ns: float, group_of: Numbers, tooth: Numbers, leave_ns: Floats, wait_ns: Floats
) -> Comb | None:
    """Fit period and ends of groups to what is left after outliers were dropped."""
    every = len(group_of)
    teeth = [
        tuple(np.flatnonzero(group_of == number).tolist()) for number in range(group_of.max() + 1)
    ]
    for _ in range(_STEPS):
        group = group_of[tooth % every]
        if len(tooth) < LEAST_EVENTS or len(np.unique(group)) < len(teeth):
            return None
        period_ns = fitted_period(tooth, group, leave_ns)
        away_ns = leave_ns - tooth * period_ns
        groups = map(Group, teeth, _medians(group, away_ns).tolist())
        comb = Comb(period_ns, every, tuple(groups), _spread(group, away_ns))
        ends_ns = [group.end_ns for group in comb.groups]
        if max(ends_ns) - min(ends_ns) > wait_ns.max():
            return None
        if comb.spread_ns >= _BETTER * _spread(group, away_ns - wait_ns):
            return None
        on = comb.caught(leave_ns)[1] >= 0
        tooth, leave_ns, wait_ns = tooth[on], leave_ns[on], wait_ns[on]
    return comb
