"""A queue that is drained at a constant rate, and whether it drops packets because it is full."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.chance import at_most

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Figure, Floats, Marks, Numbers
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System

_WINDOWS = (16, 64)
"""Numbers of departures of which the rate is compared."""
_LEAST_WINDOWS = 12
_NEAR = 0.05
"""Rates of windows that differ less are the same."""
_RANDOM = 0.4
"""Services differ less from each other, or chance alone makes long windows alike."""
_STEADY = 0.8
"""Share of the busy time in which the output has its rate."""
_PACED = 3.0
"""The input varies so many times as much as the output."""
_IN_ORDER = 0.01
"""Largest share of packets that overtake others of their flow."""
_FEWEST_LOST = 10
_AT_LIMIT = 0.95
"""Share of the drops that happen at the limit."""
_BAND = 0.05
"""Fills that differ less from the limit are at it."""
_WORKED = 0.5
"""Share of the time of a packet by which they leave apart, or were not worked on one by one."""
_CHANCE = 1e-4
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Pace:
    """The constant output of a busy device."""

    unit: str
    """What there is a constant number of: bytes or packets."""
    rate: float
    """So many in a nanosecond."""
    steady: float
    """Share of the busy time in which the output had this rate."""
    varies: float
    """Times by which the input of the same packets was faster or slower; 0 if not much more than
    the output."""
    window: int
    """Number of departures of which the rate was taken."""
    periods: Marks
    """The busy periods that it was seen in."""


def paced_ns(series: Series, pace: Pace | str) -> float:
    """Return how long the largest packet takes at a pace; 0 without one."""
    return 0.0 if isinstance(pace, str) else float(series.sizes[pace.unit].max()) / pace.rate


def find_pace(series: Series, system: System) -> Pace | str:
    """Find the rate that a busy device has whatever its input is, or why there is none."""
    if series.overtaking > _IN_ORDER:
        return f"{series.overtaking:.1%} of the packets overtake others of their flow"
    usable = ~system.held
    best: Pace | None = None
    for window in _WINDOWS:
        starts = _window_starts(system, usable, window)
        if len(starts) < _LEAST_WINDOWS:
            break
        periods = usable & (system.count > window)
        for unit, sizes in series.sizes.items():
            pace = _pace(series, unit, sizes, starts, window, periods)
            if best is None or pace.steady > best.steady + 0.01:
                best = pace
        assert best is not None, "packets are one unit"
        if best.steady >= _STEADY:
            break
    if best is None:
        return (
            f"busy periods without a stall are too short: expected {_LEAST_WINDOWS} stretches of"
            f" {_WINDOWS[0]} packets in them"
        )
    if best.steady < _STEADY:
        return (
            f"the output varies while packets wait: it is near its median for"
            f" {best.steady:.0%} of the time, expected {_STEADY:.0%}"
        )
    return best


def _window_starts(system: System, usable: Marks, window: int) -> Numbers:
    """Divide busy periods into windows of departures; what is left of each is not used."""
    number = np.where(usable, np.maximum(system.count - 1, 0) // window, 0)
    owner = np.repeat(np.arange(len(number)), number)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
    starts: Numbers = system.first[owner] + place * window
    return starts


def _pace(
    series: Series, unit: str, sizes: Floats, starts: Numbers, window: int, periods: Marks
) -> Pace:
    """Compare the rates of all windows: of their departures, and of the arrivals of the same."""
    total = sizes[series.order]
    np.cumsum(total, out=total)
    size = total[starts + window] - total[starts]
    del total
    took_ns = np.maximum(series.left_ns[starts + window] - series.left_ns[starts], 1)
    came_ns = series.arrival_ns[series.order]
    np.maximum.accumulate(came_ns, out=came_ns)
    arrived_ns = np.maximum(came_ns[starts + window] - came_ns[starts], 1)
    del came_ns
    usual = _weighted_median(size / took_ns, took_ns)
    most = min(_NEAR, _RANDOM / math.sqrt(window))
    near = np.abs(size / took_ns / usual - 1) <= most
    rate = float(size[near].sum() / took_ns[near].sum()) if near.any() else usual
    near = np.abs(size / took_ns / rate - 1) <= most
    steady = float(took_ns[near].sum() / took_ns.sum())
    away_out, away_in = (
        float(np.quantile(np.abs(np.log(size / time_ns / rate)), _STEADY))
        for time_ns in (took_ns, arrived_ns)
    )
    varies = math.exp(away_in) if away_in >= _PACED * away_out else 0.0
    return Pace(unit, rate, steady, varies, window, periods)


def _weighted_median(values: Floats, weights: Numbers) -> float:
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)])


@dataclass(frozen=True)
class Limit:
    """The fill at which a queue drops packets."""

    fill: dict[str, float]
    """Largest fill of the device, in all units that it is constant in, without what only takes the
    time that packets take undelayed."""
    at_limit: float
    """Share of the drops that happened at it."""
    below: float
    """Share of accepted packets that came while the device held less."""


def find_limit(series: Series, pace: Pace | str) -> Limit | str:
    """Find the fill at which packets are dropped, and no earlier, or why there is none."""
    left_ns = series.left_ns - _way_ns(series, pace)
    found = [_limit(series, left_ns, unit) for unit in series.sizes]
    limits = [each for each in found if isinstance(each, Limit)]
    if not limits:
        return found[-1]
    best = max(limits, key=lambda each: (each.at_limit, each.below))
    alike = [each for each in limits if each.at_limit == best.at_limit]
    near = [each for each in alike if best.below - each.below < _BAND]
    fills = {unit: fill for each in near for unit, fill in each.fill.items()}
    return Limit(fills, best.at_limit, best.below)


def _way_ns(series: Series, pace: Pace | str) -> int:
    """Return what packets take on the way, and not in the device: the packet in work is in it.

    A device works on each packet if they leave as far apart as its pace asks for; a token bucket
    lets bursts pass.
    """
    if isinstance(pace, str):
        return int(series.latency_ns.min())
    work_ns = series.sizes[pace.unit] / pace.rate
    apart_ns = np.diff(series.left_ns)
    has_worked = apart_ns >= _WORKED * work_ns[series.order][1:]
    way_ns = float((series.latency_ns - work_ns).min())
    if way_ns < 0 or np.mean(has_worked) < _STEADY:
        return int(series.latency_ns.min())
    return int(way_ns)


def _limit(series: Series, left_ns: Numbers, unit: str) -> Limit | str:
    if series.losses is None:
        return "it is not known which packets were lost"
    lost_ns = series.losses.arrival_ns
    if len(lost_ns) < _FEWEST_LOST:
        return f"{len(lost_ns)} packets were lost, expected {_FEWEST_LOST}"
    sizes = series.sizes[unit]
    came = np.append(0, np.cumsum(sizes))
    gone = np.append(0, np.cumsum(sizes[series.order]))

    def fill_at(time_ns: Numbers) -> Floats:
        filled: Floats = (
            came[np.searchsorted(series.arrival_ns, time_ns, "left")]
            - gone[np.searchsorted(left_ns, time_ns, "right")]
        )
        return filled

    accepted = fill_at(series.arrival_ns) + sizes
    held = fill_at(lost_ns)
    lost = held + series.lost_sizes(unit)
    top = float(np.quantile(accepted, 0.999))
    band = top - max(2 * float(sizes.max()), _BAND * top)
    at_limit = float(np.count_nonzero(lost >= band) / len(lost))
    below = float(np.count_nonzero(accepted < band) / len(accepted))
    if at_limit < _AT_LIMIT:
        return (
            f"{at_limit:.0%} of the losses happened while the device held the most, expected"
            f" {_AT_LIMIT:.0%}"
        )
    outside = int(np.count_nonzero(lost < band))
    if at_most(outside, below * len(lost)) > _CHANCE:
        return "the device holds as much when nothing is lost: a capture from idle on would tell"
    # Stamps that are a little late count a packet twice: most losses tell how many there were.
    is_even = float(sizes.min()) == float(sizes.max())
    limit = float(np.quantile(held, 0.5, method="lower")) if is_even else top
    return Limit({unit: limit}, at_limit, below)


def queue(series: Series, system: System, pace: Pace | str, limit: Limit | str) -> Answer:
    """Name a queue drained at a constant rate, full or not."""
    if isinstance(pace, str):
        return Refusal("queue", pace)
    if not pace.varies and isinstance(limit, str):
        return Refusal(
            "queue",
            "the output is constant, but so is the input: the device need not be what sets"
            f" the rate (drops of a full queue would tell: {limit})",
        )
    figures: dict[str, Figure] = {
        **rates(series, pace),
        "busy_share": float(
            (system.end_ns - system.start_ns).sum()
            / max(int(series.left_ns[-1] - series.left_ns[0]), 1)
        ),
        "steady_share": pace.steady,
        "input_times": pace.varies or None,
        "window_packets": pace.window,
    }
    delayed = system.within(series, pace.periods)
    if isinstance(limit, str):
        figures |= {"latency_ns_max": int(series.latency_ns.max()), "not_full_because": limit}
        return Finding("queue", figures, delayed)
    assert series.losses is not None, "a limit has losses"
    figures |= {
        **{f"limit_{unit}": int(fill) for unit, fill in limit.fill.items()},
        "lost_packets": len(series.losses.arrival_ns),
        "lost_at_limit_share": limit.at_limit,
        "accepted_below_limit_share": limit.below,
        "latency_ns_top": int(np.quantile(series.latency_ns, 0.99)),
    }
    return Finding("full queue", figures, delayed)


def rates(series: Series, pace: Pace) -> dict[str, Figure]:
    """The rate by its unit; in packets, too, where all have one size."""
    figures: dict[str, Figure] = {
        "unit": pace.unit,
        f"rate_{pace.unit}_per_s": pace.rate * _NS_PER_S,
    }
    sizes = series.sizes.get("bytes")
    if sizes is not None and sizes.min() == sizes.max():
        per_packet = float(sizes[0])
        other = "packets" if pace.unit == "bytes" else "bytes"
        factor = 1 / per_packet if pace.unit == "bytes" else per_packet
        figures[f"rate_{other}_per_s"] = pace.rate * factor * _NS_PER_S
        figures["unit"] = "either"
    return figures
