"""Packets that are held and released together, at a constant period."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.aliasing.fit import LONGEST_NS, fit
from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.chance import on_time_by_chance
from tailscope.extra.patterns.models.timer import scatter_ns, timer

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Marks
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System

_MOST = 1 << 18
"""Packets that are searched; more take long and say little more."""
_LONGEST_NS = 60_000_000_000
"""Time that is searched: a spectrum takes time and memory by it, however few packets there are."""
_FEW = 1 << 13
"""So many packets are searched, if they come within the longest time of any search."""
_HELD = 0.2
"""Share of the delayed packets that must have been held for a search to be worth it."""
_LEAST_EXPLAINED = 0.2
_FEWEST_HOLDS = 12
_LONG = 0.3
"""Holds of one kind last at least so much of the longest."""
_ON_TIME = 0.85
_BY_CHANCE = 0.25
"""Share of unrelated releases that come a whole number of periods after the one before."""
_TOGETHER = 3.0
"""Arrivals scatter so many times as much about the period as releases do."""


def stalls(series: Series, system: System, accounted: Marks) -> Answer:
    """Name stalls that come at a constant period.

    `accounted` are the packets whose delay another pattern explains.
    """
    name = "periodic stall"
    delayed = system.delayed(series)
    left = delayed & ~accounted
    if np.count_nonzero(left) < _HELD * np.count_nonzero(delayed) or not delayed.any():
        return Refusal(
            name, "other patterns explain the delayed packets" if delayed.any() else "none delayed"
        )
    if (seen := _seen(series, system, delayed)) is not None:
        return seen
    usual, longest = np.searchsorted(series.arrival_ns, (_LONGEST_NS, LONGEST_NS))
    end = min(max(int(usual), min(_FEW, int(longest))), _MOST)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = fit(series.arrival_ns[:end], series.latency_ns[:end])
    if not found.sources:
        reason = str(found.reason).partition(": ")[2] or str(found.reason)
        searched_s = (series.arrival_ns[end - 1] - series.arrival_ns[0]) / 1e9
        part = f" (searched: the first {searched_s:.0f} s)" if end < len(series.arrival_ns) else ""
        return Refusal(name, reason + part)
    # The clock that reaches farthest makes the tail.
    first, *others = sorted(
        found.sources, key=lambda source: (source.window_ns is not None, -source.latency_ns)
    )
    if first.window_ns is not None:
        return Refusal(
            name,
            f"delays recur at {found.sources[0].periodic.rate_hz:.2f} Hz, but their packets are not"
            " released together",
        )
    explained = found.explained
    if explained is None or explained < _LEAST_EXPLAINED:
        return Refusal(
            name,
            f"a clock was found that explains {explained or 0:.0%} of the delayed packets,"
            f" expected {_LEAST_EXPLAINED:.0%}",
        )
    assert found.threshold_ns is not None, "sources have one"
    figures = {
        "rate_hz": first.periodic.rate_hz,
        "period_ns": 1e9 / first.periodic.rate_hz,
        "duration_ns": first.periodic.duration_ns,
        "sources": len(found.sources),
        "delayed_packets": found.delayed,
        "explained_share": explained,
        "own_share": first.explained,
        "p_value": first.p_value,
        "other_rates_hz": tuple(each.periodic.rate_hz for each in others),
        "other_durations_ns": tuple(each.periodic.duration_ns for each in others),
        "other_shares": tuple(each.explained or 0.0 for each in others),
    }
    return Finding(name, figures, None)


def _seen(series: Series, system: System, delayed: Marks) -> Finding | None:
    """Find stalls that are each seen, because packets come often enough."""
    held = system.held
    if np.count_nonzero(held) < _FEWEST_HOLDS:
        return None
    lasted_ns = system.longest_gap_ns
    large = held & (lasted_ns >= _LONG * np.quantile(lasted_ns[held], 0.95))
    explained = system.within(series, large)
    share = float(np.count_nonzero(explained) / np.count_nonzero(delayed))
    if np.count_nonzero(large) < _FEWEST_HOLDS or share < _LEAST_EXPLAINED:
        return None
    released_ns = series.left_ns[system.first[large]]
    period_ns, on_time, scattered_ns = timer(released_ns)
    if on_time < _ON_TIME:
        return None
    # What recurs because packets do is no clock of the device.
    if scatter_ns(system.start_ns[large], period_ns) < _TOGETHER * max(scattered_ns, 1.0):
        return None
    return Finding(
        "periodic stall",
        {
            "rate_hz": 1e9 / period_ns,
            "period_ns": period_ns,
            "duration_ns": int(lasted_ns[large].max()),
            "sources": 1,
            "delayed_packets": int(np.count_nonzero(delayed)),
            "explained_share": share,
            "own_share": share,
            "p_value": on_time_by_chance(int(np.count_nonzero(large)) - 1, on_time, _BY_CHANCE),
        },
        explained,
    )
