"""A clock that interrupts: the ends of its teeth, and groups of teeth that are alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tailscope.extra.patterns.models.aliasing.line import (
    FINEST_NS,
    LEAST_EVENTS,
    Line,
    by_chance,
    evidence,
    folded,
)
from tailscope.extra.patterns.models.aliasing.slices import slices
from tailscope.extra.patterns.models.aliasing.teeth import fitted_teeth, medians, spread
from tailscope.extra.patterns.models.aliasing.wander import STEADY, Wander

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.simulation import Times

    Floats: TypeAlias = NDArray[np.float64]
    Numbers: TypeAlias = NDArray[np.int64]

_STEPS = 3
_PRIMES = (2, 3, 5, 7)
_LONGEST_PATTERN = 8
_LEAST_MET = 3
_SIGMAS = 3.0
_ALIKE = 0.05
_REACH = 8.0
_NARROWER = 0.5


class Group(NamedTuple):
    """Teeth that end alike."""

    teeth: tuple[int, ...]
    """Numbers of the teeth, below `Comb.every`."""
    end_ns: float
    """End of tooth 0 if it belonged to the group."""


@dataclass(frozen=True)
class Comb:
    """The ends of periodic interruptions."""

    period_ns: float
    """Period from tooth to tooth."""
    every: int
    """Number of teeth after which the pattern repeats."""
    groups: tuple[Group, ...]
    """Groups of teeth; a tooth in no group interrupts nothing."""
    spread_ns: float
    """Mean distance of departures from the end of their tooth."""
    wander: Wander = STEADY
    """Lateness of ticks against even ones."""
    crossed_ns: float = 0.0
    """Time before the end of a tooth in which those leave that it found in service."""

    @property
    def rate_hz(self) -> float:
        """Return the teeth per second, idle ones included."""
        return 1e9 / self.period_ns

    @property
    def reach_ns(self) -> float:
        """Return the largest distance of a departure from the end of its tooth."""
        return _REACH * max(self.spread_ns, FINEST_NS)

    @property
    def chance(self) -> float:
        """Return the share of all time that is near the end of a tooth."""
        teeth = sum(len(group.teeth) for group in self.groups)
        near_ns = self.crossed_ns + 2 * self.reach_ns
        return min(1.0, near_ns * teeth / (self.every * self.period_ns))

    def caught(self, leave_ns: Floats) -> tuple[Numbers, Numbers]:
        """Say for each departure which tooth ends next to it, and the number of its group."""
        tooth, group, away_ns = self.nearest(leave_ns)
        is_near = (away_ns <= self.reach_ns) & (away_ns >= -self.crossed_ns - self.reach_ns)
        return tooth, np.where(is_near, group, -1)

    def nearest(self, leave_ns: Floats) -> tuple[Numbers, Numbers, Floats]:
        """Say for each departure which tooth ends next to it, and how long before."""
        even_ns = leave_ns - self.wander.at(leave_ns)
        ends_ns = np.array([group.end_ns for group in self.groups])
        group_of = np.full(self.every, -1)
        for number, group in enumerate(self.groups):
            group_of[list(group.teeth)] = number
        tooth, _ = folded(even_ns, self.period_ns, (ends_ns.min() + ends_ns.max()) / 2)
        group_at = group_of[tooth % self.every]
        return tooth, group_at, even_ns - tooth * self.period_ns - ends_ns[group_at]

    def evidence(self, leave_ns: Floats) -> float:
        """Return the log likelihood ratio of these departures: the comb against chance."""
        caught = np.count_nonzero(self.caught(leave_ns)[1] >= 0)
        freedom = len(self.groups) * math.log(len(leave_ns))
        return evidence(int(caught), len(leave_ns), self.chance) - freedom


def lock(line: Line, leave_ns: Floats, wait_ns: Floats, others_ns: Times) -> Comb | None:
    """Fit a comb to departures, given where teeth of its clock end, or of a multiple of it.

    A packet that waits for the end of an interruption leaves at that end, whenever it came.
    """
    fold = _Fold.of(line, leave_ns, wait_ns, others_ns)
    while (slower := fold.slower()) is not None:
        fold = _Fold.of(slower, leave_ns, wait_ns, others_ns)
    group_of = fold.pattern()
    on = fold.near & (group_of[fold.tooth % len(group_of)] >= 0)
    return _fitted(group_of, fold.tooth[on], leave_ns[on], wait_ns[on])


@dataclass(frozen=True)
class _Fold:
    """Packets folded over one period."""

    line: Line
    leave_ns: Floats
    """Departure of each delayed packet."""
    tooth: Numbers
    """Tooth next to that departure."""
    near: NDArray[np.bool_]
    """True if the departure is within the window."""
    met: Numbers
    """Teeth that other packets met without delay."""
    alike_ns: float
    """Largest difference of ends that count as equal."""

    @classmethod
    def of(cls, line: Line, leave_ns: Floats, wait_ns: Floats, others_ns: Times) -> _Fold:
        tooth, away_ns = folded(leave_ns, line.period_ns, line.phase_ns)
        near = np.abs(away_ns) <= line.window_ns
        # An interruption lasts as long as the longest wait; here it is under way for certain.
        late_ns, early_ns, longest_ns = np.quantile(wait_ns[near], [0.25, 0.5, 0.95])
        middle_ns = (late_ns + early_ns) / 2
        under_way = Line(line.period_ns, line.phase_ns - middle_ns, (early_ns - late_ns) / 2)
        met = [_next_to(under_way, others_ns[some]) for some in slices(len(others_ns))]
        return cls(line, leave_ns, tooth, near, np.concatenate(met), float(_ALIKE * longest_ns))

    def idle(self, every: int) -> NDArray[np.bool_] | None:
        """Say which of so many teeth catch no more than chance; None where no packet came by."""
        expected = by_chance(self.near, self.line.window_ns / self.line.period_ns) / every
        counts = np.bincount(self.tooth[self.near] % every, minlength=every)
        idle = counts <= expected + _SIGMAS * math.sqrt(expected) + 1
        unmet = np.bincount(self.met % every, minlength=every) < _LEAST_MET
        return None if np.any(idle & unmet) else idle

    def slower(self) -> Line | None:
        """Return the line of a slower clock if only each second (third, ...) tooth interrupts."""
        for every in _PRIMES:
            idle = self.idle(every)
            if idle is not None and np.count_nonzero(~idle) == 1:
                period_ns, phase_ns, window_ns = self.line
                only = float(np.flatnonzero(~idle)[0])
                return Line(period_ns * every, phase_ns + only * period_ns, window_ns)
        return None

    def pattern(self) -> Numbers:
        """Choose how many teeth make a pattern, and the group of each of them, -1 for idle ones.

        Patterns are compared by what they leave unsaid of departures, which follow Laplace's law
        about the end of their group, on fewer teeth where some are idle; with the penalty of the
        Bayesian information criterion for each group and each tooth.
        """
        tooth, leave_ns = self.tooth[self.near], self.leave_ns[self.near]
        best_cost, best = math.inf, np.zeros(1, np.int64)
        for every in range(1, _LONGEST_PATTERN + 1):
            idle = self.idle(every)
            if idle is None or idle.all():
                continue
            group_of = _grouped(tooth, leave_ns, ~idle, self.alike_ns)
            group = group_of[tooth % every]
            on = group >= 0
            count, strays = np.count_nonzero(on), np.count_nonzero(~on)
            share = np.count_nonzero(~idle) / every
            cost = fitted_teeth(tooth[on], group[on], leave_ns[on]).cost
            cost += 2 * count * (1 + math.log(2) + math.log(share))
            cost += 2 * strays * math.log(2 * self.line.window_ns)
            cost += (group_of.max() + 1) * math.log(len(tooth)) + 2 * every * math.log(2)
            if cost < best_cost:
                best_cost, best = cost, group_of
        return best


def _next_to(line: Line, time_ns: Times) -> Numbers:
    """Return the teeth within whose window these times are."""
    tooth, away_ns = folded(time_ns, line.period_ns, line.phase_ns)
    return tooth[np.abs(away_ns) <= line.window_ns]


def _grouped(
    tooth: Numbers, leave_ns: Floats, active: NDArray[np.bool_], alike_ns: float
) -> Numbers:
    """Put teeth together that end alike: the group of each, in the order of their ends."""
    teeth = np.flatnonzero(active)
    number = (np.cumsum(active) - 1)[tooth % len(active)]
    on = active[tooth % len(active)]
    ends_ns = medians(number[on], fitted_teeth(tooth[on], number[on], leave_ns[on]).left_ns)
    order = np.argsort(ends_ns, kind="stable")
    apart = np.diff(ends_ns[order], prepend=ends_ns[order[0]]) > alike_ns
    group_of = np.full(len(active), -1)
    group_of[teeth[order]] = np.cumsum(apart)
    return group_of


def _fitted(group_of: Numbers, tooth: Numbers, leave_ns: Floats, wait_ns: Floats) -> Comb | None:
    """Fit period, wander and ends of groups to what is left after outliers were dropped."""
    every = len(group_of)
    teeth = [
        tuple(np.flatnonzero(group_of == number).tolist()) for number in range(group_of.max() + 1)
    ]
    for _ in range(_STEPS):
        group = group_of[tooth % every]
        if len(tooth) < LEAST_EVENTS or len(np.unique(group)) < len(teeth):
            return None
        fitted = fitted_teeth(tooth, group, leave_ns)
        ends_ns = medians(group, fitted.left_ns)
        groups = tuple(map(Group, teeth, ends_ns.tolist()))
        comb = Comb(fitted.period_ns, every, groups, spread(group, fitted.left_ns), fitted.wander)
        if np.ptp(ends_ns) > wait_ns.max():
            return None
        if comb.spread_ns >= _NARROWER * spread(group, fitted.left_ns - wait_ns):
            return None
        on = comb.caught(leave_ns)[1] >= 0
        tooth, leave_ns, wait_ns = tooth[on], leave_ns[on], wait_ns[on]
    return comb
