"""Fit of periodic interruptions to the latencies of packets alone."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.aliasing.doubts import in_step, mismatch, p_value, too_many
from tailscope.extra.patterns.models.aliasing.flat import recurring
from tailscope.extra.patterns.models.aliasing.line import LEAST_EVENTS
from tailscope.extra.patterns.models.aliasing.prediction import predict
from tailscope.extra.patterns.models.aliasing.search import FALSE_ALARMS, Delayed, is_on, strongest
from tailscope.extra.patterns.models.aliasing.served import Served, served
from tailscope.extra.patterns.models.aliasing.simulation import Periodic, lateness
from tailscope.extra.patterns.models.aliasing.sources import (
    LEVEL,
    Fit,
    FittedSource,
    Interval,
)
from tailscope.extra.patterns.models.aliasing.teeth import fitted_period, period_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.aliasing.comb import Comb, Floats, Numbers
    from tailscope.extra.patterns.models.aliasing.flat import Recurring
    from tailscope.extra.patterns.models.aliasing.search import FoundComb
    from tailscope.extra.patterns.models.aliasing.simulation import Times
    from tailscope.extra.patterns.models.aliasing.work import Work

MOST_PACKETS = 1_500_000
"""Number of packets that are enough to search."""
LONGEST_NS = 300_000_000_000
"""Time that is enough: a spectrum takes time and memory by it, however few packets there are."""

_NOT_FOUND = "no periodic interruption found"
_MOST_COMBS = 8
_BLOCKS = 20
_STUDENT_T_19 = 2.093
_KOLMOGOROV_1_PERCENT = 1.63
_SIGMAS = 2.0
_ALONE = 0.5
"""Share of packets that find the server idle, below which latencies are those of queues."""


def fit(arrival_ns: Times, latency_ns: Times, counted_hz: Sequence[float] = ()) -> Fit:
    """Find periodic interruptions: their rates, phases and durations.

    `counted_hz` are rates at which something was counted; they decide where packets alone cannot.

    A packet that waits for the end of an interruption leaves at that end, so that its arrival +
    latency - median lies on a comb, however the packets came. What the packets themselves
    contradict is refused, and no source is better than one that is none.
    """
    packets = len(arrival_ns)
    if packets < LEAST_EVENTS:
        base_ns = int(np.median(latency_ns)) if packets else 0
        reason = f"{_NOT_FOUND}: fewer than {LEAST_EVENTS} packets"
        return Fit(base_ns, packets, None, None, 0, (), reason)
    came_ns = arrival_ns - arrival_ns[0]
    alone = served(came_ns, latency_ns)
    nothing = Fit(alone.base_ns, packets, None, None, alone.service_ns or 0, (), None)
    fitted = _searched(alone, nothing)
    if fitted.sources:
        doubt = mismatch(predict(fitted, arrival_ns, latency_ns))
        if doubt is None:
            del alone
            return _with_flat(fitted, came_ns, latency_ns, counted_hz)
        fitted = _refused(fitted, f"{_rates_text(fitted)} is no explanation: {doubt}")
    del alone
    done, clocks, alike_hz = recurring(came_ns, latency_ns, counted_hz)
    if clocks:
        return _flat(clocks, done, nothing)
    if alike_hz:
        listed = " or ".join(f"{each:.2f} Hz" for each in alike_hz)
        fitted = _refused(
            fitted,
            f"work takes longer at {listed}, which evenly sent bursts show alike; counters of the"
            " device's interrupts (`--interrupts`) tell which, or packets that are sent at random"
            " (`--pattern poisson`)",
        )
    return fitted


def _with_flat(fitted: Fit, came_ns: Times, latency_ns: Times, counted_hz: Sequence[float]) -> Fit:
    """Add clocks for whose ticks no packet waits, which delay what the others leave alone."""
    known = [source.periodic for source in fitted.sources]
    done, clocks, _ = recurring(came_ns, latency_ns, counted_hz, known)
    nothing = replace(fitted, sources=(), reason=None)
    beside = _flat(clocks, done, nothing) if clocks else nothing
    if not beside.sources:
        return fitted
    thresholds_ns = [
        each.threshold_ns for each in (fitted, beside) if each.threshold_ns is not None
    ]
    threshold_ns = min(thresholds_ns)
    late_ns = served(came_ns, latency_ns).late_ns
    delayed = int(np.count_nonzero(late_ns > threshold_ns - fitted.base_latency_ns))
    sources = (
        replace(source, explained=(source.packets or 0) / delayed)
        for source in (*fitted.sources, *beside.sources)
    )
    return replace(fitted, threshold_ns=threshold_ns, delayed=delayed, sources=tuple(sources))


def _flat(clocks: Sequence[Recurring], done: Work, nothing: Fit) -> Fit:
    """Measure by how much ticks make work longer that does not wait for their end."""
    met = [clock.meets(done) for clock in clocks]
    untouched = ~np.any(met, axis=0)
    usual_ns = np.median(done.late_ns[untouched]) if untouched.any() else 0.0
    limits_ns = [
        _limit_ns(clock, done.late_ns[each]) for clock, each in zip(clocks, met, strict=True)
    ]
    threshold_ns = min(limits_ns)
    delayed = int(np.count_nonzero(done.late_ns > threshold_ns))
    free = np.ones(len(untouched), bool)
    sources = []
    for clock, touched, limit_ns in zip(clocks, met, limits_ns, strict=True):
        mine = touched & free & (done.late_ns > limit_ns)
        if not mine.any():
            continue
        free &= ~mine
        waits_ns = np.sort(done.late_ns[mine] - usual_ns)
        middle = round(float(np.median(waits_ns)))
        before_ns = done.idle_ns[mine] if clock.reaches_back else 0
        window_ns = np.median(done.due_ns[mine] - done.begin_ns[mine] + before_ns)
        sources.append(
            FittedSource(
                replace(clock.clock, duration_ns=middle),
                nothing.base_latency_ns + middle,
                len(waits_ns),
                len(waits_ns) / delayed,
                clock.rate_ci_hz,
                _flat_ci_ns(waits_ns),
                clock.p_value,
                round(float(window_ns)),
            )
        )
    fitted = replace(
        nothing,
        threshold_ns=nothing.base_latency_ns + threshold_ns,
        delayed=delayed,
        sources=tuple(sources),
        in_batches=bool(np.count_nonzero(done.idle_ns) < _ALONE * nothing.packets),
    )
    doubt = too_many(int(np.count_nonzero(~untouched)), delayed)
    if doubt is None:
        return fitted
    return _refused(fitted, f"{_rates_text(fitted)} is no explanation: {doubt}")


def _limit_ns(clock: Recurring, late_ns: Times) -> int:
    """Return the lateness above which work that a tick meets is late by it: half as late as usual.

    The clock's threshold was chosen by a share of all work: it may cut off some, or let in work
    that is late by chance.
    """
    return int(np.median(late_ns[late_ns > clock.threshold_ns])) // 2


def _median_ci_ns(in_order_ns: Floats) -> Interval:
    """Return the interval of the median by order statistics."""
    count = len(in_order_ns)
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(count) / 2
    low, high = max(0, math.floor(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
    return Interval(float(in_order_ns[low]), float(in_order_ns[high]))


def _flat_ci_ns(in_order_ns: Floats) -> Interval:
    """Return the interval of what ticks take, by how late the work is that they met.

    A packet that comes during a tick waits for its rest alone, which makes the median low: the
    interval reaches up to the end of the shortest half, as most of the work meets a whole tick.
    """
    low_ns, high_ns = _median_ci_ns(in_order_ns)
    half = len(in_order_ns) // 2
    begin = int(np.argmin(in_order_ns[half:] - in_order_ns[: len(in_order_ns) - half]))
    return Interval(low_ns, max(high_ns, float(in_order_ns[begin + half])))


def _searched(done: Served, nothing: Fit) -> Fit:
    """Find one clock after the other, as long as one is no chance, and each can be one."""
    arrival_ns, wait_ns = done.begin_ns, done.late_ns
    best, left = nothing, np.ones(len(arrival_ns), bool)
    combs: list[Comb] = []
    p_values: list[float] = []
    threshold_ns, service_ns = int(wait_ns.max()), done.service_ns or 0
    while len(combs) < _MOST_COMBS:
        outcome = _tested(arrival_ns[left], wait_ns[left])
        if isinstance(outcome, str):
            return best if combs else replace(nothing, reason=f"{_NOT_FOUND}: {outcome}")
        clock, p = outcome
        combs.append(clock.comb)
        p_values.append(p)
        threshold_ns = min(threshold_ns, clock.threshold_ns)
        delayed = Delayed(arrival_ns, wait_ns, threshold_ns)
        sources = tuple(_sources(combs, p_values, delayed, nothing.base_latency_ns, threshold_ns))
        # What is shorter than departures scatter does not show in them.
        shown_ns = (comb.crossed_ns or min(service_ns, comb.reach_ns) for comb in combs)
        crossed_ns = round(max(shown_ns))
        best = replace(
            nothing,
            threshold_ns=nothing.base_latency_ns + threshold_ns,
            delayed=int(np.count_nonzero(delayed.packets)),
            service_ns=crossed_ns if done.service_ns is None else done.service_ns,
            crossed_ns=crossed_ns,
            sources=sources,
        )
        share = sum(source.periodic.share for source in best.sources)
        if share >= 1:
            return _refused(best, f"{_rates_text(best)} would take {share:.0%} of the time")
        left &= ~_accounted_for(best, combs, delayed, arrival_ns, wait_ns)
    return best


def _tested(arrival_ns: Times, wait_ns: Times) -> tuple[FoundComb, float] | str:
    """Find the clock that explains most, and its p value; or say why there is none."""
    strongest_clock = strongest(arrival_ns, wait_ns)
    if isinstance(strongest_clock, str):
        return strongest_clock
    rate_hz = strongest_clock.comb.rate_hz
    multiple = in_step(strongest_clock.comb.period_ns, arrival_ns)
    if multiple is not None:
        return (
            f"packets keep step with {rate_hz:.4f} Hz, {multiple} times as often, so that a clock"
            " cannot be told from work that comes with every so many of them; send them at random"
            " (`--pattern poisson`)"
        )
    p = p_value(strongest_clock, arrival_ns, wait_ns)
    if p > FALSE_ALARMS:
        return (
            f"{rate_hz:.4f} Hz is no clock: without one, as many packets leave together with a"
            f" probability of {p:.2g}"
        )
    return strongest_clock, p


def _refused(fitted: Fit, reason: str) -> Fit:
    nothing = Fit(fitted.base_latency_ns, fitted.packets, None, None, 0, (), None)
    return replace(nothing, reason=f"{_NOT_FOUND}: {reason}")


def _rates_text(fitted: Fit) -> str:
    return " + ".join(f"{source.periodic.rate_hz:.2f} Hz" for source in fitted.sources)


def given(arrival_ns: Times, latency_ns: Times, sources: Sequence[Periodic]) -> Fit:
    """Take sources as they are said to be."""
    came_ns = arrival_ns - arrival_ns[0]
    done = served(came_ns, latency_ns)
    service_ns = done.service_ns or 0
    expected = int(np.count_nonzero(lateness(done.begin_ns, sources, service_ns)))
    threshold_ns = max(0, int(np.sort(done.late_ns)[max(0, len(done.late_ns) - expected - 1)]))
    return Fit(
        done.base_ns,
        len(arrival_ns),
        done.base_ns + threshold_ns,
        int(np.count_nonzero(done.late_ns > threshold_ns)),
        service_ns,
        tuple(FittedSource(source, done.base_ns + source.duration_ns) for source in sources),
        None,
        crossed_ns=service_ns,
    )


def _accounted_for(
    best: Fit, combs: Sequence[Comb], delayed: Delayed, arrival_ns: Times, wait_ns: Times
) -> NDArray[np.bool_]:
    """Mark the packets that known sources delay, and those indistinguishable from them.

    The simulation knows what becomes of interruptions that overlap.
    """
    sources = [source.periodic for source in best.sources]
    marked = lateness(arrival_ns, sources, best.crossed_ns) > 0
    for comb in combs:
        marked |= is_on(comb, arrival_ns, wait_ns)
    return marked | delayed.in_rows(marked[delayed.heads])


def _sources(
    combs: Sequence[Comb],
    p_values: Sequence[float],
    delayed: Delayed,
    base_ns: int,
    threshold_ns: int,
) -> Iterator[FittedSource]:
    """Measure the sources of each comb by the rows of packets that it is the first to catch."""
    caught, free = [], np.ones(len(delayed.heads), bool)
    for comb in combs:
        tooth, group = comb.caught(delayed.leave_ns)
        caught.append((tooth, np.where(free, group, -1)))
        free &= group < 0
    for comb, p, (tooth, group) in zip(combs, p_values, caught, strict=True):
        is_crossed = comb.nearest(delayed.leave_ns)[2] < -comb.reach_ns
        on = (group >= 0) & ~is_crossed
        period_ci_ns = _period_ci_ns(comb.period_ns, tooth[on], group[on], delayed.leave_ns[on])
        kinds = []
        for number, kind in enumerate(comb.groups):
            mine = group == number
            if not mine.any():
                continue
            whole_ns = np.sort(delayed.wait_ns[mine & is_crossed])
            if len(whole_ns) < LEAST_EVENTS:
                longest_ns = _longest_ns(delayed.wait_ns[mine], delayed.wait_ns[free], comb)
                duration_ci_ns = _duration_ci_ns(delayed.wait_ns[mine], threshold_ns, longest_ns)
            else:
                longest_ns = round(float(np.median(whole_ns)))
                duration_ci_ns = _median_ci_ns(whole_ns)
            start_ns = kind.end_ns - longest_ns
            kinds.append((kind.teeth, start_ns, longest_ns, duration_ci_ns, mine))
        if not kinds:
            continue
        # Teeth are counted from the first that begins after the first packet.
        first = math.ceil(-min(start_ns for _, start_ns, *_ in kinds) / comb.period_ns)
        for numbers, start_ns, longest_ns, duration_ci_ns, mine in kinds:
            periodic = Periodic(
                comb.period_ns,
                longest_ns,
                phase_ns=start_ns + first * comb.period_ns,
                every=comb.every,
                teeth=tuple(sorted((number - first) % comb.every for number in numbers)),
                wander=comb.wander,
            )
            packets = int(delayed.sizes[mine].sum())
            yield FittedSource(
                periodic,
                base_ns + longest_ns,
                packets,
                packets / int(delayed.sizes.sum()),
                _rate_ci_hz(periodic, period_ci_ns),
                duration_ci_ns,
                p,
            )


def _longest_ns(wait_ns: Floats, stray_ns: Floats, comb: Comb) -> int:
    """Return the longest wait of which a comb has more packets than chance, by the strays'."""
    in_order = np.sort(wait_ns)
    as_long = np.arange(len(in_order), 0, -1)
    strays = len(stray_ns) - np.searchsorted(np.sort(stray_ns), in_order)
    by_chance = strays * comb.chance
    likely = as_long > by_chance + _SIGMAS * np.sqrt(by_chance) + 0.5
    trusted = in_order[likely & (in_order < comb.period_ns)]
    return int(trusted.max(initial=in_order[0]))


def _period_ci_ns(
    period_ns: float, tooth: Numbers, group: Numbers, leave_ns: Floats
) -> Interval | None:
    """Return an interval by leaving out one stretch of time after the other (jackknife).

    Clocks wander, so that departures near each other are off by the same; not so stretches. It is
    at least as wide as if each were off by itself, and holds the period of these departures, too:
    that of the comb is of those that it was found by.
    """
    if len(tooth) < 2 * _BLOCKS:
        return None
    block = np.arange(len(tooth)) * _BLOCKS // len(tooth)
    periods = [
        fitted_period(tooth[rest], group[rest], leave_ns[rest])
        for rest in (block != number for number in range(_BLOCKS))
    ]
    of_stretches = math.sqrt((_BLOCKS - 1) * float(np.var(periods)))
    reach_ns = _STUDENT_T_19 * max(of_stretches, period_error(tooth, group, leave_ns))
    own_ns = fitted_period(tooth, group, leave_ns)
    return Interval(min(period_ns, own_ns) - reach_ns, max(period_ns, own_ns) + reach_ns)


def _rate_ci_hz(periodic: Periodic, period_ci_ns: Interval | None) -> Interval | None:
    if period_ci_ns is None:
        return None
    low, high = (periodic.rate_hz * periodic.period_ns / each for each in reversed(period_ci_ns))
    return Interval(low, high)


def _duration_ci_ns(wait_ns: Floats, threshold_ns: int, longest_ns: int) -> Interval | None:
    """Return the interval of a largest value by the largest of n waits spread evenly up to it.

    The longest wait holds noise of the latency as well: as much as packets without delay have.
    """
    waits = np.sort(wait_ns[wait_ns <= longest_ns])
    count = len(waits)
    if count < LEAST_EVENTS or longest_ns == threshold_ns:
        return None
    place = (waits[:-1] - threshold_ns) / (longest_ns - threshold_ns)
    rank = np.arange(count) / (count - 1)
    apart = max(np.max(rank[1:] - place), np.max(place - rank[:-1]))
    if apart * math.sqrt(count - 1) > _KOLMOGOROV_1_PERCENT:
        return None
    beyond = (longest_ns - threshold_ns) * (1 - LEVEL) ** (-1 / count)
    return Interval(float(max(0, longest_ns - threshold_ns)), threshold_ns + beyond)
