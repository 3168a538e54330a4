"""Packets that are held and released together, at a constant period."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.models.aliasing.fit import fit

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Marks
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System

_MOST = 1 << 18
"""Packets that are searched; more take long and say little more."""
_HELD = 0.2
"""Share of the delayed packets that must have been held for a search to be worth it."""
_LEAST_EXPLAINED = 0.2


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
    found = fit(series.arrival_ns[:_MOST], series.latency_ns[:_MOST])
    if not found.sources:
        return Refusal(name, str(found.reason).partition(": ")[2] or str(found.reason))
    explained = found.explained
    if explained is None or explained < _LEAST_EXPLAINED:
        return Refusal(
            name,
            f"a clock was found that explains {explained or 0:.0%} of the delayed packets,"
            f" expected {_LEAST_EXPLAINED:.0%}",
        )
    first = found.sources[0]
    assert found.threshold_ns is not None, "sources have one"
    figures = {
        "rate_hz": first.periodic.rate_hz,
        "period_ns": 1e9 / first.periodic.rate_hz,
        "duration_ns": first.periodic.duration_ns,
        "sources": len(found.sources),
        "delayed_packets": found.delayed,
        "explained_share": explained,
        "p_value": first.p_value,
    }
    return Finding(name, figures, None)
