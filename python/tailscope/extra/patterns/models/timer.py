"""Events of a timer: how far apart they are, in periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Floats, Numbers

_ON_TIME = 0.1
"""Events of a timer differ from its period by at most this share of it."""
_ROUNDS = 5
_FEW_TURNS = 10
"""Periods between two events of which the period itself follows."""


class Timer(NamedTuple):
    """A period, and how well events keep it."""

    period_ns: float
    on_time: float
    """Share of the events that come a whole number of periods after the one before."""
    scatter_ns: float
    """Median distance of all from that."""


def timer(event_ns: Numbers) -> Timer:
    """Find the period of events, of which some may be missing."""
    gaps_ns = np.diff(event_ns).astype(float)
    if not len(gaps_ns):
        return Timer(0.0, 0.0, 0.0)
    period_ns = float(np.quantile(gaps_ns, 0.25))
    for _ in range(_ROUNDS):
        if not period_ns:
            return Timer(0.0, 0.0, 0.0)
        turns, away_ns = _turns(gaps_ns, period_ns)
        few = (away_ns <= _ON_TIME * period_ns) & (turns <= _FEW_TURNS)
        if not few.any():
            return Timer(period_ns, 0.0, float(np.median(away_ns)))
        period_ns = float(gaps_ns[few].sum() / turns[few].sum())
    turns, away_ns = _turns(gaps_ns, period_ns)
    on_time = float(np.mean(away_ns <= _ON_TIME * period_ns))
    return Timer(period_ns, on_time, float(np.median(away_ns)))


def scatter_ns(event_ns: Numbers, period_ns: float) -> float:
    """Return the median distance of events from whole periods after the one before."""
    return float(np.median(_turns(np.diff(event_ns).astype(float), period_ns)[1]))


def _turns(gaps_ns: Floats, period_ns: float) -> tuple[Floats, Floats]:
    turns = np.maximum(np.round(gaps_ns / period_ns), 1)
    return turns, np.abs(gaps_ns - turns * period_ns)
