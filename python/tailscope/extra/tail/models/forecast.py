"""Forecast of latencies from parts of runs with one setting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.bursts import Bursts, bursts, joined
from tailscope.extra.tail.models.causes import (
    Rare,
    on_schedule,
    rare_sizes,
    schedule,
    schedule_of_largest,
    start_up,
)
from tailscope.extra.tail.models.fit import FEWEST_BURSTS, fit_bursts
from tailscope.extra.tail.models.goodness import goodness
from tailscope.extra.tail.models.setting import PRIOR, RunTail, largest
from tailscope.extra.tail.models.stationarity import stationarity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.tail.models.causes import Schedule, StartUp
    from tailscope.extra.tail.models.excesses import Excesses
    from tailscope.extra.tail.models.fit import Fit
    from tailscope.extra.tail.models.setting import Largest
    from tailscope.extra.tail.models.stationarity import Stationarity

LOWEST = 0.99
"""Quantile above which a series must be known: a part of it may have a lower one than the whole."""

LEAST_FIT = 0.1
"""p-value below which a law is said not to fit."""

_STEP, _MOST_BURSTS = 1.5, 1000
_REACHED = 0.01
_TELLING = 30
_APART = 2.5
"""Gap, as a factor, that separates a class whatever the law of the others is."""


class Base(NamedTuple):
    """A latency above which there are bursts of several parts."""

    floor_ns: int
    at_ns: int
    got: int
    """Bursts above it."""
    is_lowered: bool
    """True if it is below what was asked for."""
    is_shared: bool
    """True if more than half of the parts that are known above the floor have packets there."""


class SetAside(NamedTuple):
    """A part that is not in the law, but in what is foretold."""

    part: int
    floor_ns: int
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A threshold that was tried."""

    quantile: float
    """Quantile of the fitted part."""
    threshold_ns: int
    fit: Fit | None
    p_value: float | None
    """Share of the law's samples that are at least as far from it."""
    refused: str | None
    """Reason why the law does not hold; None if it does."""


@dataclass(frozen=True)
class Forecast:
    """A law, the causes that act beside it, and the expected latencies."""

    base: Base
    """Latency above which packets form bursts."""
    found: Bursts
    """Bursts of all parts except those of the start, with times since each part's first packet."""
    packets: int
    """Number of packets in all parts."""
    duration_ns: float
    """Duration of the parts that the law is fitted to, without their starts."""
    starts: list[StartUp | None]
    """Start of each part."""
    rare: Rare | None
    """Bursts of a rare class, at random times."""
    clocked: Rare | None
    """Rare bursts on a schedule."""
    schedule: Schedule | None
    """Clock of the rare bursts, or of the largest if none are rare."""
    candidates: list[Candidate]
    chosen: Candidate
    stationarity: Stationarity
    """Stationarity of the worst latencies of the fitted bursts, in order of time."""
    tails: list[RunTail]
    largest: Largest

    @property
    def fit(self) -> Fit:
        """Return the fit above the chosen threshold."""
        assert self.chosen.fit is not None
        return self.chosen.fit

    @property
    def set_aside(self) -> list[SetAside]:
        """Return the parts whose bursts are known above a higher latency than the law begins at."""
        at_ns = self.base.floor_ns
        return [
            SetAside(
                part,
                tail.floor_ns,
                f"its packets are known above {tail.floor_ns} ns only, those of the law above"
                f" {at_ns} ns: its slowest are far slower",
            )
            for part, tail in enumerate(self.tails)
            if tail.floor_ns > at_ns
        ]

    @property
    def promise(self) -> str:
        """Return the cause that decides the largest latency."""
        if self.clocked is not None:
            return "scheduled"
        return "bulk" if self.rare is None else "rare"

    @property
    def next_due_ns(self) -> float | None:
        """Return when the next burst of one run's period is due, since its first packet."""
        if self.schedule is None or len(self.starts) > 1:
            return None
        (start,), (first_ns,) = self.starts, self.schedule.shifts_ns
        period_ns = self.schedule.period_ns
        if period_ns is None or first_ns is None:
            return None
        turns = np.floor((self.duration_ns - first_ns) / period_ns) + 1
        return float(first_ns + turns * period_ns) + (0 if start is None else start.until_ns + 1)

    @property
    def limit_ns(self) -> float | None:
        """Return the end of the most likely law; None if it has none, or something was beyond."""
        limit = self.fit.limit_ns
        if self.promise != "bulk" or limit is None or limit < self.largest.seen_ns:
            return None
        return limit

    @property
    def denied(self) -> str | None:
        """Return the reason why no level can be of a series like this; None if one can."""
        tests = self.stationarity
        if not tests.denied:
            return None
        return (
            "the worst latencies of the bursts are not stationary: ADF"
            f" {tests.adf.statistic:.2f} (below {tests.adf.critical:.2f} expected), KPSS"
            f" {tests.kpss.statistic:.3f} (below {tests.kpss.critical:.3f} expected)"
        )

    @property
    def refused(self) -> str | None:
        """Return the reason why there is no return level; None if there is one."""
        if self.denied is not None:
            return self.denied
        if self.largest.told_ns(self.largest.level_ns) is None:
            return (
                "the bursts that were seen are too few to bound it: the model ends there, at"
                f" {PRIOR.new_times:g} times the largest of them"
            )
        return None


def forecast(
    parts: Sequence[Excesses],
    like: Sequence[RunTail],
    packets: float,
    *,
    threshold: float | None,
    run_length_ns: int,
    level: float,
    rng: np.random.Generator,
) -> Forecast:
    """Look ahead from parts of runs, and from other runs of their setting."""
    count = sum(part.count for part in parts)
    if count < FEWEST_BURSTS:
        raise EvidenceError(
            f"expected at least {FEWEST_BURSTS} packets to fit a law to, got {count}",
            code="packets-few",
            hint="measure for longer",
        )
    base = _base(parts, threshold, run_length_ns)
    base_ns = base.at_ns
    known = [part if part.floor_ns <= base.floor_ns else part.split(0).first for part in parts]
    every = [bursts(part, base_ns, run_length_ns) for part in known]
    starts = [
        start_up(part_bursts, part.begin_ns, part.duration_ns)
        for part_bursts, part in zip(every, known, strict=True)
    ]
    if sum(map(len, every)) - sum(start.bursts for start in starts if start) < FEWEST_BURSTS:
        starts = [None] * len(parts)
    begins = [
        part.begin_ns + (0 if start is None else start.until_ns + 1)
        for part, start in zip(known, starts, strict=True)
    ]
    own = [part_bursts.since(begin) for part_bursts, begin in zip(every, begins, strict=True)]
    durations = [float(part.end_ns - begin) for part, begin in zip(known, begins, strict=True)]
    events, duration_ns = joined(own), sum(durations)
    least_rare = _least_rare_ns(events, count)
    is_rare = events.worst_ns >= least_rare
    clock, clocked = _clocked(own, least_rare, max(durations))
    rare = is_rare & ~clocked
    bulk = _between_steps(events.kept(~is_rare), rng)
    candidates = _ladder(bulk, base_ns, known, threshold is not None, rng)
    chosen = _chosen(candidates)
    fit = chosen.fit
    assert fit is not None
    classes = [
        Rare(np.sort(events.worst_ns[which])[::-1], duration_ns) if which.any() else None
        for which in (rare, clocked)
    ]
    tails = [RunTail.of(part, run_length_ns) for part in parts]
    ahead_ns = packets / count * sum(part.duration_ns for part in parts)
    return Forecast(
        base,
        events,
        count,
        duration_ns,
        starts,
        classes[0],
        classes[1],
        clock or schedule_of_largest(own),
        candidates,
        chosen,
        stationarity(fit.bursts.worst_ns.astype(float)),
        tails,
        largest(tails, like, ahead_ns, level),
    )


def _between_steps(rounded: Bursts, rng: np.random.Generator) -> Bursts:
    """Spread latencies that a coarse clock has rounded evenly over its steps.

    A law has no steps: a test of its fit would find nothing else.
    """
    step_ns = int(np.gcd.reduce(rounded.worst_ns)) if len(rounded) else 1
    if step_ns <= 1:
        return rounded
    spread = rng.integers(-(step_ns // 2), step_ns - step_ns // 2, len(rounded))
    return replace(rounded, worst_ns=rounded.worst_ns + spread)


def _base(parts: Sequence[Excesses], threshold: float | None, run_length_ns: int) -> Base:
    """Return the latency above which bursts of the parts are counted together.

    A part is known above its floor only. Those with the highest floors are set aside, if too few
    bursts are above these, or only half of the parts have any: a disturbed run does not hide the
    others.
    """
    tried = [
        _base_above(floor_ns, parts, threshold, run_length_ns)
        for floor_ns in {part.floor_ns for part in parts}
    ]
    base = max(tried, key=lambda base: (base.got >= FEWEST_BURSTS, base.is_shared, base.floor_ns))
    if base.got < FEWEST_BURSTS:
        raise EvidenceError(
            f"expected at least {FEWEST_BURSTS} bursts above {base.at_ns} ns, got {base.got}",
            code="bursts-few",
            hint="measure for longer",
        )
    return base


def _base_above(
    floor_ns: int, every: Sequence[Excesses], threshold: float | None, run_length_ns: int
) -> Base:
    """Choose such a latency for the parts that are known above a floor.

    Lower, and bursts grow together.
    """
    parts = [part for part in every if part.floor_ns <= floor_ns]
    above = [part.latency_ns[part.latency_ns > floor_ns] for part in parts]
    ranked = np.sort(np.concatenate(above))[::-1]
    count = sum(part.count for part in parts)
    beyond = FEWEST_BURSTS if threshold is None else round((1 - threshold) * count)
    most, best_ns, best, tries = len(ranked), floor_ns, -1, 0
    while True:
        at_ns = int(ranked[beyond]) if beyond < most else floor_ns
        got = sum(len(bursts(part, at_ns, run_length_ns)) for part in parts)
        if got > best:
            best_ns, best, is_first = at_ns, got, not tries
        tries += 1
        enough = got >= (_MOST_BURSTS if threshold is None else FEWEST_BURSTS)
        if beyond >= most or enough:
            break
        beyond = max(beyond + 1, int(beyond * (_STEP if threshold is None else 2)))
    is_shared = 2 * sum(map(bool, map(len, above))) > len(parts)
    return Base(floor_ns, best_ns, best, threshold is not None and not is_first, is_shared)


def _least_rare_ns(events: Bursts, count: int) -> float:
    """Return the smallest of the bursts beyond the law of all others; ∞ for none."""
    ordered = np.sort(events.worst_ns)[::-1]
    rare = rare_sizes(ordered)
    if not rare or len(ordered) - rare <= FEWEST_BURSTS:
        return np.inf
    rest = ordered[rare:]
    if ordered[rare - 1] >= _APART * rest[0]:
        return float(ordered[rare - 1])
    threshold_ns = int(rest[min(_TELLING, len(rest) - 1)])
    try:
        fit = fit_bursts(events.kept(events.worst_ns < ordered[rare - 1]), threshold_ns, count)
    except EvidenceError:
        return float(ordered[rare - 1])
    excess = float(ordered[rare - 1] - threshold_ns)
    reached = fit.laws.mean_of_distinct(
        1 - (1 + fit.laws.distinct.survival(excess)) ** -float(len(fit.bursts))
    )
    return float(ordered[rare - 1]) if reached < _REACHED else np.inf


def _clocked(
    own: Sequence[Bursts], least_ns: float, duration_ns: float
) -> tuple[Schedule | None, NDArray[np.bool_]]:
    """Return a schedule of the rare bursts, and marks of all bursts on it."""
    which = [part.worst_ns >= least_ns for part in own]
    clock = schedule(
        [part.sent_ns[rare] for part, rare in zip(own, which, strict=True)],
        [part.worst_ns[rare] for part, rare in zip(own, which, strict=True)],
        duration_ns,
    )
    on = [
        np.zeros(len(part), bool) if clock is None else rare & on_schedule(clock, at, part.sent_ns)
        for at, (part, rare) in enumerate(zip(own, which, strict=True))
    ]
    return clock, np.concatenate(on)


def _ladder(
    bulk: Bursts,
    base_ns: int,
    parts: Sequence[Excesses],
    is_given: bool,
    rng: np.random.Generator,
) -> list[Candidate]:
    """Fit above ever lower thresholds, until a law does not fit: it holds above all higher ones."""
    ordered = np.sort(bulk.worst_ns)[::-1]
    tried: list[Candidate] = []
    thresholds = [base_ns] if is_given else _thresholds(ordered, base_ns)
    count = sum(part.count for part in parts)
    for threshold_ns in thresholds:
        above = sum(int((part.latency_ns > threshold_ns).sum()) for part in parts)
        quantile = 1 - above / count
        try:
            fit = fit_bursts(bulk, threshold_ns, count)
        except EvidenceError as error:
            tried.append(Candidate(quantile, threshold_ns, None, None, str(error)))
            continue
        p_value = goodness(fit.excess_ns, fit.best, rng)
        refused = None if p_value >= LEAST_FIT else f"no law fits (p = {p_value:.3f})"
        tried.append(Candidate(quantile, threshold_ns, fit, p_value, refused))
        if refused is not None:
            break
    return tried


def _thresholds(ordered: NDArray[np.int64], base_ns: int) -> list[int]:
    thresholds: list[int] = []
    beyond = FEWEST_BURSTS
    while beyond < len(ordered):
        # Bursts of equal size are all above the threshold, or none is.
        at_ns = int(ordered[beyond])
        if (ordered > at_ns).sum() >= FEWEST_BURSTS and at_ns not in thresholds:
            thresholds.append(at_ns)
        beyond = int(beyond * _STEP)
    return thresholds or [base_ns]


def _chosen(candidates: list[Candidate]) -> Candidate:
    """Choose the lowest threshold above which a law fits, or the highest if none does."""
    fitted = [candidate for candidate in candidates if candidate.fit is not None]
    if not fitted:
        raise EvidenceError(
            str(candidates[-1].refused), code="no-law-fits", hint="measure for longer"
        )
    good = [candidate for candidate in fitted if candidate.refused is None]
    return (good or fitted[:1])[-1]
