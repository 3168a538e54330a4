"""A token bucket: a shaper, which delays what exceeds B + R t, or a policer, which drops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.queue import Pace, rates
from tailscope.extra.patterns.models.system import occupancy

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Floats, Numbers
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System

_FEWEST_ONSETS = 3
_LEAST_BURST = 3.0
"""Packets of the largest size that a burst must have: less is a packet under way."""
_ALIKE = 0.15
"""Bursts that differ less are one."""
_AGREE = 0.7
_FEWEST_LOST = 20
_CONFORMING = 0.985
_EXCEEDING = 0.95
_FASTER = 1.5
"""A burst passes so many times as fast as the rate."""
_STRETCHES = (2, 4, 8, 16, 32, 64, 256, 1024)
"""Losses of a chain are at most so many times as far apart as usual: the bucket stays used up."""
_LEAST_CHAIN = 8
_AT_ONCE = 0.25
"""A policer delays by less than so much of the time that its burst lasts at its rate."""
_STEPS = (0.025, 0.005, 0.001, 2e-4, 4e-5)
_TIMES = (-3, -2, -1, 1, 2, 3)
"""Rates are searched so far on both sides of the best, in steps that become finer."""
_HIGHEST = (0.99, 0.995, 0.998, 0.999, 0.9995, 1.0)
"""Quantiles of the fill that may be the burst."""


def shaper(series: Series, system: System, pace: Pace | str, other: str) -> Answer:
    """Name a token bucket that delays: bursts up to B pass undelayed, then packets leave at R.

    `other` says why the queue behind it was not named; empty if it was.
    """
    if isinstance(pace, str) or other:
        return Refusal("token bucket", f"no constant output rate: {other or pace}")
    sizes = series.sizes[pace.unit][series.order]
    rate = _whole_rate(series, system, pace)
    filled = occupancy(series.left_ns - series.left_ns[0], sizes, rate)
    late = system.delayed(series)[series.order]
    # A period's first departure found the bucket used up.
    onset = system.first[pace.periods]
    onset = onset[onset > 0]
    if len(onset) < _FEWEST_ONSETS:
        return Refusal(
            "token bucket",
            f"packets began to wait {len(onset)} times, expected {_FEWEST_ONSETS} after idleness",
        )
    largest = float(sizes.max())
    burst = float(np.median(filled[onset]))
    if burst < _LEAST_BURST * largest:
        return Refusal(
            "token bucket",
            f"packets begin to wait behind {burst / largest:.1f} packets: nothing passes faster"
            " than the rate",
        )
    agreeing = float(np.mean(np.abs(filled[onset] / burst - 1) <= _ALIKE))
    within = float(np.mean(filled <= burst * (1 + _ALIKE) + largest))
    if agreeing < _AGREE or within < _CONFORMING:
        return Refusal(
            "token bucket",
            f"bursts that pass undelayed differ: {agreeing:.0%} of {len(onset)} are within"
            f" {_ALIKE:.0%} of their median, and {within:.0%} of the output conforms to it",
        )
    undelayed = ~late & (filled >= burst / 2)
    if np.count_nonzero(undelayed) < _FEWEST_ONSETS:
        return Refusal("token bucket", "no burst passes undelayed")
    figures = {
        **rates(series, pace),
        f"burst_{pace.unit}": burst,
        "bursts": len(onset),
        "bursts_alike_share": agreeing,
        "conforming_share": within,
    }
    return Finding("token bucket", figures, system.within(series, pace.periods))


def _whole_rate(series: Series, system: System, pace: Pace) -> float:
    """Return the rate over whole busy periods, which is exact: tokens make up for delays."""
    first = system.first[pace.periods]
    last = first + system.count[pace.periods] - 1
    total = np.cumsum(series.sizes[pace.unit][series.order])
    took_ns = (series.left_ns[last] - series.left_ns[first]).astype(float)
    size = total[last] - total[first]
    longest = took_ns >= np.quantile(took_ns, 0.5)
    rate = float(size[longest].sum() / took_ns[longest].sum())
    return rate if abs(rate / pace.rate - 1) < _ALIKE else pace.rate


class _Police(NamedTuple):
    unit: str
    rate: float
    burst: float
    conforming: float
    exceeding: float
    filled: Floats


def policer(series: Series, system: System) -> Answer:
    """Name a token bucket that drops: what is accepted conforms to B + R t, what is lost would not.

    Nothing is delayed meanwhile.
    """
    if series.losses is None:
        return Refusal("policer", "it is not known which packets were lost")
    lost_ns = series.losses.arrival_ns
    if len(lost_ns) < _FEWEST_LOST:
        return Refusal("policer", f"{len(lost_ns)} packets were lost, expected {_FEWEST_LOST}")
    best = _best(series)
    if best is None:
        return Refusal("policer", "losses are too far apart to tell a rate")
    if best.exceeding < _EXCEEDING or best.conforming < _CONFORMING:
        return Refusal(
            "policer",
            f"no rate and burst divide what was lost from what was not: at best"
            f" {best.exceeding:.0%} of the losses exceed them, and {best.conforming:.0%} of the"
            " others do not",
        )
    before = np.maximum(np.searchsorted(series.arrival_ns, lost_ns) - 1, 0)
    waited_ns = float(np.median((series.latency_ns - system.base_ns)[before]))
    if waited_ns > _AT_ONCE * best.burst / best.rate:
        return Refusal(
            "policer",
            f"packets before a loss waited {waited_ns / 1e6:.3g} ms: what exceeds the rate is"
            " queued before it is dropped",
        )
    from_empty = _was_empty(best, series)
    figures: dict[str, float | int | str | None] = {
        **rates(series, Pace(best.unit, best.rate, 1.0, 0.0, 0, np.zeros(0, bool))),
        f"burst_{best.unit}": best.burst if from_empty else None,
        "lost_packets": len(lost_ns),
        "exceeding_share": best.exceeding,
        "conforming_share": best.conforming,
    }
    return Finding("policer", figures)


def _best(series: Series) -> _Police | None:
    """Search rate and burst: from those between losses, closer and closer."""
    sizes = series.sizes.get("bytes")
    alike = sizes is not None and sizes.min() == sizes.max()
    found = [
        _divided(series, unit, rate)
        for unit in (["bytes"] if alike else [*series.sizes])
        for rate in _rates(series, unit)
    ]
    if not found:
        return None
    best = max(found, key=_divides)
    for step in _STEPS:
        near = [_divided(series, best.unit, best.rate * (1 + step * times)) for times in _TIMES]
        best = max((best, *near), key=_divides)
    return best


def _divides(police: _Police) -> float:
    return police.exceeding + police.conforming


def _rates(series: Series, unit: str) -> list[float]:
    """Return the rates at which packets were accepted from one loss to the next."""
    assert series.losses is not None, "there are lost packets"
    lost_ns, sizes = series.losses.arrival_ns, series.sizes[unit]
    total = np.append(0, np.cumsum(sizes))
    passed = np.diff(total[np.searchsorted(series.arrival_ns, lost_ns)])
    apart_ns = np.diff(lost_ns)
    usual_ns = float(np.median(apart_ns))
    found: list[float] = []
    for times in _STRETCHES:
        near = apart_ns <= times * usual_ns
        chain = np.cumsum(~near)
        losses = np.bincount(chain[near], minlength=int(chain[-1]) + 1)
        # At both ends of a chain it is not known how much was left of the bucket.
        used = near & (losses[chain] >= _LEAST_CHAIN)
        took_ns = float(apart_ns[used].sum())
        if took_ns > 0 and passed[used].sum() > 0:
            rate = float(passed[used].sum()) / took_ns
            if all(abs(rate / other - 1) > _STEPS[-1] for other in found):
                found.append(rate)
    return found


def _divided(series: Series, unit: str, rate: float) -> _Police:
    """Find the burst that divides lost packets from accepted ones best, for a rate."""
    assert series.losses is not None, "there are lost packets"
    lost_ns, sizes = series.losses.arrival_ns, series.sizes[unit]
    filled = occupancy(series.arrival_ns, sizes, rate)
    before = np.searchsorted(series.arrival_ns, lost_ns) - 1
    since_ns = lost_ns - series.arrival_ns[np.maximum(before, 0)]
    left = np.where(before >= 0, np.maximum(filled[before] - rate * since_ns, 0), 0)
    wanted = left + series.lost_sizes(unit)
    bursts = np.quantile(filled, _HIGHEST)
    exceeding = [float(np.mean(wanted > burst)) for burst in bursts]
    conforming = [float(np.mean(filled <= burst)) for burst in bursts]
    at = max(range(len(bursts)), key=lambda at: (exceeding[at] + conforming[at], at))
    return _Police(unit, rate, float(bursts[at]), conforming[at], exceeding[at], filled)


def _was_empty(police: _Police, series: Series) -> bool:
    """Say whether the bucket was idle for long enough to be full, once the capture had begun."""
    sizes: Numbers | Floats = series.sizes[police.unit]
    return bool(np.any(police.filled[1:] <= sizes[1:]))
