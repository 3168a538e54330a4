"""Packets that leave in groups though they came one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.timer import timer

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Figure, Numbers
    from tailscope.extra.patterns.models.series import Series

_CLOSE = 0.25
"""Packets leave together if they are so many times as far apart as they came, or less."""
_MOST = 0.5
"""Share of the packets that leave in groups if a device works in batches."""
_FEWEST_GROUPS = 50
_SAME_SIZE = 0.8
"""Share of the packets in groups of one size if a count releases them."""
_EVEN = 0.1
"""Arrivals are even if their gaps differ from their median by at most this share."""
_GROWN = 0.8
_HOLDS = 0.5
_IN_ORDER = 0.01


def batching(series: Series) -> Answer:
    """Name batches, and whether a timer or a count releases them."""
    came_ns, left_ns = series.arrival_ns[series.order], series.left_ns
    if len(left_ns) < 2 * _FEWEST_GROUPS:
        return Refusal("batching", f"{len(left_ns)} packets, expected {2 * _FEWEST_GROUPS}")
    apart_ns, came_apart_ns = np.diff(left_ns), np.diff(came_ns)
    if (overtaking := float(np.mean(came_apart_ns < 0))) > _IN_ORDER:
        return Refusal("batching", f"{overtaking:.1%} of the packets overtake others")
    usual_ns = float(np.median(came_apart_ns))
    together = apart_ns <= _CLOSE * np.maximum(came_apart_ns, 0)
    # What came at once may leave at once, whoever forwards it.
    spaced = came_apart_ns > _CLOSE * usual_ns
    first = np.append(True, ~(together & spaced) & ~(apart_ns <= _CLOSE * usual_ns))
    begins = np.flatnonzero(first)
    size = np.diff(np.append(begins, len(left_ns)))
    grouped = np.repeat(size > 1, size)
    share = float(grouped.mean())
    several = size > 1
    if share < _MOST or np.count_nonzero(several) < _FEWEST_GROUPS:
        return Refusal(
            "batching",
            f"{share:.0%} of the packets leave in groups, expected {_MOST:.0%}",
        )
    span_ns = came_ns[begins + size - 1] - came_ns[begins]
    took_ns = left_ns[begins + size - 1] - left_ns[begins]
    gathered = float(np.mean(took_ns[several] <= _CLOSE * span_ns[several]))
    if gathered < _GROWN:
        return Refusal(
            "batching",
            f"packets that leave together also came together: {gathered:.0%} of the groups came"
            f" over more time than they left in, expected {_GROWN:.0%}",
        )
    released_ns = left_ns[begins][several]
    waited = _first_waits(series, begins[several], size[several])
    if waited < _HOLDS:
        return Refusal(
            "batching",
            f"the first of a group waits the longest in {waited:.0%} of the groups, expected"
            f" {_HOLDS:.0%}: nothing gathers them",
        )
    release = _release(came_ns, released_ns, size[several])
    if release["released_by"] is None:
        return Refusal(
            "batching",
            f"{share:.0%} of the packets leave in groups, usually of"
            f" {int(np.median(size[several]))}, but neither of one size nor at one period",
        )
    delayed = np.zeros(len(left_ns), bool)
    delayed[series.order] = grouped
    figures: dict[str, Figure] = {
        "packets_usual": int(np.median(size[several])),
        "packets_most": int(size.max()),
        "grouped_share": share,
        **release,
    }
    return Finding("batching", figures, delayed)


def _first_waits(series: Series, begins: Numbers, size: Numbers) -> float:
    """The share of groups of which the first packet waited longer than the last."""
    latency_ns = series.latency_ns[series.order]
    return float(np.mean(latency_ns[begins] > latency_ns[begins + size - 1]))


def _release(came_ns: Numbers, released_ns: Numbers, size: Numbers) -> dict[str, Figure]:
    """Say what releases a group: a timer, a count, or nothing that the packets tell."""
    usual = int(np.median(size))
    same = float(size[size == usual].sum() / size.sum())
    period_ns, on_time, _ = timer(released_ns)
    gaps_ns = np.diff(came_ns)
    middle_ns = float(np.median(gaps_ns))
    even = float(np.mean(np.abs(gaps_ns - middle_ns) <= _EVEN * middle_ns)) >= _GROWN
    counts, timed = same >= _SAME_SIZE, on_time >= _SAME_SIZE
    by = None
    if counts and timed and even:
        by = "either"
    elif counts and not (timed and not even):
        by = "count"
    elif timed:
        by = "timer"
    return {
        "released_by": by,
        "period_ns": period_ns if timed else None,
        "same_size_share": same,
        "on_time_share": on_time if timed else None,
    }
