"""A token bucket: a shaper, which delays what exceeds B + R t, or a policer, which drops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.queue import Pace, rates
from tailscope.extra.patterns.models.series import losses_of
from tailscope.extra.patterns.models.system import occupancy

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Figure, Floats, Numbers
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System

_FEWEST_ONSETS = 3
_LEAST_BURST = 3.0
"""Packets of the largest size that a burst must have: less is a packet under way."""
_ALIKE = 0.15
"""Bursts that differ less are one."""
_AGREE = 0.7
"""Share of the bursts that must be that one."""
_FEWEST_LOST = 20
_CONFORMING = 0.985
"""Share of the packets that conform to the bucket."""
_EXCEEDING = 0.95
"""Share of the lost packets that exceed it."""
_CHAINS = 10
"""Losses of a chain are less apart than a time, of which so many are tried."""
_OF_MEAN = (1, 1.5, 2.25, 3.4, 5)
"""Times the mean rate of what was accepted that are tried, too."""
_AWAY = (1.02, 1.05, 1.1, 1.2, 1.4, 2, 3, 5, 10)
"""Times the best rate at which it is seen whether another does as well."""
_KNOWN = 1.1
"""A rate is known if those that do as well differ less."""
_LEAST_CHAIN = 8
"""Losses of a chain."""
_AT_ONCE = 0.25
"""A policer delays by less than so much of the time that its burst lasts at its rate."""
_STEPS = (0.025, 0.005, 0.001, 2e-4, 4e-5, 8e-6, 1.6e-6, 3.2e-7)
_TIMES = (-3, -2, -1, 1, 2, 3)
"""Rates are searched so far on both sides of the best, in steps that become finer: a bucket that is
never full adds up what a rate is off by, and that has to stay below a packet of as many as are
searched."""
_NS_PER_S = 1e9
_SAME = 1e-5
"""Rates that differ less are tried once."""
_EVENLY = 0.9
"""Share of the losses that follow equally many packets if a count drops them."""
_MOST = 1 << 18
"""Packets among which a rate and a burst are searched."""
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
        **_in_both(series, f"burst_{pace.unit}", burst),
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


def _in_both(series: Series, name: str, amount: float) -> dict[str, float]:
    """Return an amount by its unit, and in packets, too, where all have one size."""
    sizes = series.sizes.get("bytes")
    if "_bytes" not in name or sizes is None or sizes.min() != sizes.max():
        return {name: amount}
    return {name: amount, name.replace("bytes", "packets"): amount / float(sizes[0])}


def policer(series: Series) -> Answer:
    """Name a token bucket that drops: what is accepted conforms to B + R t, what is lost would not.

    Nothing is delayed meanwhile.
    """
    if series.losses is None:
        return Refusal("policer", "it is not known which packets were lost")
    lost_ns = series.losses.arrival_ns
    if len(lost_ns) < _FEWEST_LOST:
        return Refusal("policer", f"{len(lost_ns)} packets were lost, expected {_FEWEST_LOST}")
    if _every_nth(series):
        return Refusal(
            "policer",
            "each loss follows as many packets as the others: what comes unevenly would tell a rate"
            " from a count",
        )
    part = _around_losses(series)
    if len(losses_of(part).arrival_ns) < _FEWEST_LOST:
        return Refusal("policer", "losses are too far apart to tell a rate")
    best = _best(part)
    if best.exceeding < _EXCEEDING or best.conforming < _CONFORMING:
        return Refusal(
            "policer",
            f"no rate and burst divide what was lost from what was not: at best"
            f" {best.exceeding:.0%} of the losses exceed them, and {best.conforming:.0%} of the"
            " others do not",
        )
    before = np.maximum(np.searchsorted(series.arrival_ns, lost_ns) - 1, 0)
    waited_ns = float(np.median(series.latency_ns[before]) - series.latency_ns.min())
    if waited_ns > _AT_ONCE * best.burst / best.rate:
        return Refusal(
            "policer",
            f"packets before a loss waited {waited_ns / 1e6:.3g} ms: what exceeds the rate is"
            " queued before it is dropped",
        )
    low, high = _range(part, best)
    is_known = high / low < _KNOWN
    # A bucket that was never full may hold more.
    burst = f"burst_{best.unit}" + ("" if _was_full(best, part) else "_low")
    figures: dict[str, Figure] = {
        **rates(series, Pace(best.unit, best.rate, 1.0, 0.0, 0, np.zeros(0, bool))),
        **_in_both(series, burst, best.burst),
        "lost_packets": len(losses_of(part).arrival_ns),
        "exceeding_share": best.exceeding,
        "conforming_share": best.conforming,
    }
    if not is_known:
        figures = {name: figures[name] for name in figures if not name.startswith("rate_")}
        figures |= {
            f"rate_{best.unit}_per_s_low": low * _NS_PER_S,
            f"rate_{best.unit}_per_s_high": high * _NS_PER_S,
        }
    return Finding("policer", figures)


def _around_losses(series: Series) -> Series:
    """Return a stretch of the packets with the most typical losses: all of them are too many."""
    if len(series.arrival_ns) <= _MOST:
        return series
    middle = int(np.searchsorted(series.arrival_ns, np.median(losses_of(series).arrival_ns)))
    begin = min(max(middle - _MOST // 2, 0), len(series.arrival_ns) - _MOST)
    return series.between(begin, begin + _MOST)


def _every_nth(series: Series) -> bool:
    """Say whether losses are as many packets apart as each other."""
    apart = np.diff(np.searchsorted(series.arrival_ns, losses_of(series).arrival_ns))
    usual = float(np.median(apart))
    alike = np.abs(apart - usual) <= (1 if usual > 2 else 0)
    return usual >= 1 and bool(np.mean(alike) >= _EVENLY)


def _best(series: Series) -> _Police:
    """Search rate and burst: from those between losses, closer and closer."""
    sizes = series.sizes.get("bytes")
    alike = sizes is not None and sizes.min() == sizes.max()
    found = [
        _divided(series, unit, rate)
        for unit in (["bytes"] if alike else [*series.sizes])
        for rate in _rates(series, unit)
    ]
    best = max(found, key=_divides)
    for step in _STEPS:
        near = [_divided(series, best.unit, best.rate * (1 + step * times)) for times in _TIMES]
        best = max((best, *near), key=_divides)
    return best


def _divides(police: _Police) -> float:
    return police.exceeding + police.conforming


def _rates(series: Series, unit: str) -> list[float]:
    """Return the rates at which packets were accepted from one loss to the next."""
    lost_ns, sizes = losses_of(series).arrival_ns, series.sizes[unit]
    total = np.append(0, np.cumsum(sizes))
    passed = np.diff(total[np.searchsorted(series.arrival_ns, lost_ns)])
    apart_ns = np.diff(lost_ns)
    usual_ns = max(float(np.median(apart_ns)), 1.0)
    found: list[float] = []
    for limit_ns in np.geomspace(2 * usual_ns, max(float(apart_ns.max()), 2 * usual_ns), _CHAINS):
        near = apart_ns <= limit_ns
        chain = np.cumsum(~near)
        losses = np.bincount(chain[near], minlength=int(chain[-1]) + 1)
        # At both ends of a chain it is not known how much was left of the bucket.
        used = near & (losses[chain] >= _LEAST_CHAIN)
        took_ns = float(apart_ns[used].sum())
        if took_ns > 0 and passed[used].sum() > 0:
            found.append(float(passed[used].sum()) / took_ns)
    mean = float(total[-1]) / max(float(series.arrival_ns[-1]), 1.0)
    return _apart([*found, *(mean * times for times in _OF_MEAN)])


def _apart(rates: list[float]) -> list[float]:
    """Leave out rates that are the same as others."""
    kept: list[float] = []
    for rate in sorted(rates):
        if not kept or rate / kept[-1] - 1 > _SAME:
            kept.append(rate)
    return kept


def _range(series: Series, best: _Police) -> tuple[float, float]:
    """Return the rates that divide as well as the best: packets that come in bursts allow many."""
    bounds = []
    for sign in (-1, 1):
        reached = best.rate
        for times in _AWAY:
            other = _divided(series, best.unit, best.rate * times**sign)
            if other.exceeding < _EXCEEDING or other.conforming < _CONFORMING:
                break
            reached = other.rate
        bounds.append(reached)
    return bounds[0], bounds[1]


def _divided(series: Series, unit: str, rate: float) -> _Police:
    """Find the burst that divides lost packets from accepted ones best, for a rate."""
    lost_ns, sizes = losses_of(series).arrival_ns, series.sizes[unit]
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


def _was_full(police: _Police, series: Series) -> bool:
    """Say whether the bucket was unused for long enough to be full, once the capture had begun."""
    sizes: Numbers | Floats = series.sizes[police.unit]
    return bool(np.any(police.filled[1:] <= sizes[1:]))
