"""Fit of teeth: period, wander and an end for each kind of tooth, by least squares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tailscope.extra.patterns.models.aliasing.line import FINEST_NS
from tailscope.extra.patterns.models.aliasing.wander import Wander, curves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Numbers: TypeAlias = NDArray[np.int64]

_DEGREES = (1, 3, 6)
_EVENTS_A_DEGREE = 30


class Teeth(NamedTuple):
    """The fitted teeth."""

    period_ns: float
    wander: Wander
    left_ns: Floats
    """Departures without period and wander: the end of their tooth, and noise."""
    cost: float
    """Bayesian information criterion of the wander; lower is better."""


def fitted_teeth(tooth: Numbers, group: Numbers, leave_ns: Floats) -> Teeth:
    """Fit period and wander, the groups having an end each; the plainest wander that suffices."""
    enough = [degree for degree in _DEGREES if len(tooth) >= _EVENTS_A_DEGREE * degree]
    fitted = [_fitted(tooth, group, leave_ns, degree) for degree in enough or _DEGREES[:1]]
    return min(fitted, key=lambda teeth: teeth.cost)


def fitted_period(tooth: Numbers, group: Numbers, leave_ns: Floats) -> float:
    """Fit the period alone, the groups having an end each."""
    x, y = _centred(tooth.astype(np.float64), group), _centred(leave_ns, group)
    return float(x @ y / (x @ x))


def period_error(tooth: Numbers, group: Numbers, leave_ns: Floats) -> float:
    """Return the standard error of that period, if departures are off independently."""
    x, y = _centred(tooth.astype(np.float64), group), _centred(leave_ns, group)
    squares = float(x @ x)
    left_ns = y - float(x @ y) / squares * x
    freedom = len(x) - 2 - int(group.max())
    return math.sqrt(float(left_ns @ left_ns) / freedom / squares)


def medians(group: Numbers, left_ns: Floats) -> Floats:
    """Return the median of each group."""
    return np.array([np.median(left_ns[group == number]) for number in range(group.max() + 1)])


def spread(group: Numbers, left_ns: Floats) -> float:
    """Return the mean distance from the median of the own group."""
    return float(np.mean(np.abs(left_ns - medians(group, left_ns)[group])))


def _fitted(tooth: Numbers, group: Numbers, leave_ns: Floats, degree: int) -> Teeth:
    period_ns = fitted_period(tooth, group, leave_ns)
    first_ns, last_ns = float(leave_ns.min()), float(leave_ns.max())
    wander = Wander(first_ns, last_ns, ())
    if degree > 1:
        slow = np.column_stack([tooth / np.ptp(tooth), curves(leave_ns, first_ns, last_ns, degree)])
        columns = np.apply_along_axis(_centred, 0, slow, group)
        late_ns = _centred(leave_ns - tooth * period_ns, group)
        slope, *coefficients = np.linalg.lstsq(columns, late_ns, rcond=None)[0].tolist()
        period_ns += slope / float(np.ptp(tooth))
        wander = Wander(first_ns, last_ns, tuple(coefficients))
    left_ns = leave_ns - tooth * period_ns - wander.at(leave_ns)
    fit = 2 * len(tooth) * math.log(max(spread(group, left_ns), FINEST_NS))
    return Teeth(period_ns, wander, left_ns, fit + (degree - 1) * math.log(len(tooth)))


def _centred(values: Floats, group: Numbers) -> Floats:
    """Subtract the mean of each value's group."""
    size = np.maximum(np.bincount(group), 1)
    centred: Floats = values - (np.bincount(group, values) / size)[group]
    return centred
