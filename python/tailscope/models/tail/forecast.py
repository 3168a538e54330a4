"""What parts of runs of one setting say of what follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.models.tail.blocks import fit_maxima
from tailscope.models.tail.bursts import Bursts, bursts, joined
from tailscope.models.tail.causes import Rare, on_schedule, rare_sizes, schedule, start_up
from tailscope.models.tail.fit import FEWEST_BURSTS, fit_bursts
from tailscope.models.tail.goodness import goodness
from tailscope.models.tail.outlook import block_maxima, exchangeable_ns, look_ahead
from tailscope.models.tail.stationarity import stationarity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.models.tail.blocks import BlockMaxima
    from tailscope.models.tail.causes import Schedule, StartUp
    from tailscope.models.tail.excesses import Excesses
    from tailscope.models.tail.fit import Fit
    from tailscope.models.tail.outlook import Outlook
    from tailscope.models.tail.stationarity import Stationarity

LOWEST = 0.99
"""What has to be known of a series: a part of it may have a lower quantile than the whole."""

LEAST_FIT = 0.1
"""Of a law whose own samples are as far from it this seldom, nothing is concluded: to believe a
wrong law costs more than to refuse a right one."""

_STEP, _MOST_BURSTS = 1.5, 1000
_REACHED = 0.01
_TELLING = 30
_APART = 2.5
"""A gap of this factor tells a class apart, whatever the law of the others is."""

_FEWEST_RARE = 2

_RUN_WEIGHT, _RUN_SPREAD = 2, 0.05
"""How much the largest latencies of runs of one setting vary, in logs, as if seen in 2 runs before
any."""


@dataclass(frozen=True)
class Candidate:
    """A threshold that was tried."""

    quantile: float
    """Of the part that is fitted."""
    threshold_ns: int
    fit: Fit | None
    p_value: float | None
    """How often a sample of the law is at least as far from it."""
    refused: str | None
    """Why the law does not hold."""


@dataclass(frozen=True)
class Forecast:
    """A law, what acts beside it, and what to expect."""

    base_ns: int
    """Bursts are of packets above that."""
    is_lowered: bool
    """Whether the threshold that was asked for left too few bursts."""
    found: Bursts
    """All of them but those of the start, of all parts; times since the first packet of each."""
    packets: int
    """In all parts."""
    duration_ns: float
    """Of all parts, without their starts."""
    ratio: float
    """Of what follows to that."""
    starts: list[StartUp | None]
    """Of each part."""
    rare: Rare | None
    """Bursts of a class of their own, at random."""
    clocked: Rare | None
    """Those on a schedule."""
    schedule: Schedule | None
    candidates: list[Candidate]
    chosen: Candidate
    stationarity: Stationarity
    """Of the worst latencies of the bursts that were fitted, in order of time."""
    outlook: Outlook
    block_maxima: BlockMaxima | None
    """A second opinion; None where a block has no burst."""

    @property
    def fit(self) -> Fit:
        """Of the threshold that was chosen."""
        assert self.chosen.fit is not None
        return self.chosen.fit

    @property
    def promise(self) -> str:
        """The cause that the largest latency hangs on."""
        if self.clocked is not None:
            return "scheduled"
        return "bulk" if self.rare is None else "rare"

    @property
    def next_due_ns(self) -> float | None:
        """When the next burst of one run's period is due, since its first packet."""
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
        """What is never exceeded; None where the law has no bound, or bursts are above it."""
        limit = self.fit.limit_ns
        if self.promise != "bulk" or limit is None or limit < self.found.worst_ns.max():
            return None
        return limit

    @property
    def refused(self) -> str | None:
        """Why nothing follows for the future; None where something does."""
        known = sum(len(each) for each in (self.rare, self.clocked) if each is not None)
        p_value = self.chosen.p_value
        if known < _FEWEST_RARE and p_value is not None and p_value < LEAST_FIT:
            return (
                f"no law fits the {len(self.fit.bursts)} largest bursts: of samples of the best one"
                f" {p_value:.1%} are as far from it (Anderson-Darling; {LEAST_FIT:.0%} are asked"
                " for). They have several causes, and a rarer one may be larger"
            )
        tests = self.stationarity
        if tests.denied:
            return (
                "the worst latencies of the bursts are not stationary: ADF"
                f" {tests.adf.statistic:.2f} (below {tests.adf.critical:.2f} expected), KPSS"
                f" {tests.kpss.statistic:.3f} (below {tests.kpss.critical:.3f} expected)"
            )
        return None


def forecast(
    parts: Sequence[Excesses],
    packets: float,
    *,
    threshold: float | None,
    run_length_ns: int,
    level: float,
    rng: np.random.Generator,
) -> Forecast:
    """Look ahead from parts of runs."""
    count = sum(part.count for part in parts)
    if count < FEWEST_BURSTS:
        raise EvidenceError(
            f"expected at least {FEWEST_BURSTS} packets to fit a law to, got {count}",
            hint="measure for longer",
        )
    base_ns, is_lowered = _base_ns(parts, count, threshold, run_length_ns)
    every = [bursts(part, base_ns, run_length_ns) for part in parts]
    starts = [
        start_up(each, part.begin_ns, part.duration_ns)
        for each, part in zip(every, parts, strict=True)
    ]
    begins = [
        part.begin_ns + (0 if start is None else start.until_ns + 1)
        for part, start in zip(parts, starts, strict=True)
    ]
    own = [each.since(begin) for each, begin in zip(every, begins, strict=True)]
    durations = [float(part.end_ns - begin) for part, begin in zip(parts, begins, strict=True)]
    found, duration_ns = joined(own), sum(durations)
    if len(found) < FEWEST_BURSTS:
        raise _too_few(base_ns, len(found))
    ratio = packets / max(count * duration_ns / max(1, sum(p.duration_ns for p in parts)), 1)
    least_rare = _least_rare_ns(found, count)
    is_rare = found.worst_ns >= least_rare
    clock, clocked = _clocked(own, least_rare, max(durations))
    rare = is_rare & ~clocked
    bulk = _between_steps(found.kept(~is_rare), rng)
    candidates = _ladder(bulk, base_ns, parts, threshold is not None, rng)
    chosen = _chosen(candidates)
    fit = chosen.fit
    assert fit is not None
    classes = [
        Rare(np.sort(found.worst_ns[which])[::-1], duration_ns) if which.any() else None
        for which in (rare, clocked)
    ]
    maxima = np.concatenate(
        [
            block_maxima(each.sent_ns.astype(float), each.worst_ns.astype(float), duration, base_ns)
            for each, duration in zip(own, durations, strict=True)
        ]
    )
    worst = float(max(each.worst_ns.max(initial=0) for each in every))
    outlook = look_ahead(fit, classes, ratio, exchangeable_ns(maxima, ratio, level), worst, level)
    if len(parts) > 1:
        tops = np.array([each.worst_ns.max(initial=base_ns) for each in own], float)
        outlook = outlook.widened(*_of_runs(tops, level))
    return Forecast(
        base_ns,
        is_lowered,
        found,
        count,
        duration_ns,
        ratio,
        starts,
        classes[0],
        classes[1],
        clock,
        candidates,
        chosen,
        stationarity(fit.bursts.worst_ns.astype(float)),
        outlook,
        fit_maxima(maxima, ratio) if maxima.min() > base_ns else None,
    )


def _between_steps(found: Bursts, rng: np.random.Generator) -> Bursts:
    """Latencies that a coarse clock has rounded, spread evenly over its steps.

    A law has no steps: a test of its fit would find nothing else.
    """
    step_ns = int(np.gcd.reduce(found.worst_ns)) if len(found) else 1
    if step_ns <= 1:
        return found
    spread = rng.integers(-(step_ns // 2), step_ns - step_ns // 2, len(found))
    return replace(found, worst_ns=found.worst_ns + spread)


def _too_few(threshold_ns: int, got: int) -> EvidenceError:
    return EvidenceError(
        f"expected at least {FEWEST_BURSTS} bursts above {threshold_ns} ns, got {got}",
        hint="measure for longer",
    )


def _base_ns(
    parts: Sequence[Excesses], count: int, threshold: float | None, run_length_ns: int
) -> tuple[int, bool]:
    """The latency above which there are most bursts, and not more than are needed.

    Lower, and bursts grow together. The second says whether it is below what was asked for.
    """
    floor_ns = max(part.floor_ns for part in parts)
    latency = np.concatenate([part.latency_ns for part in parts])
    ranked = np.sort(latency[latency > floor_ns])[::-1]
    beyond = FEWEST_BURSTS if threshold is None else round((1 - threshold) * count)
    most, best_ns, best, tries = len(ranked), floor_ns, -1, 0
    while True:
        at_ns = int(ranked[beyond]) if beyond < most else floor_ns
        got = sum(len(bursts(part, at_ns, run_length_ns)) for part in parts)
        if got > best:
            best_ns, best, is_first = at_ns, got, not tries
        tries += 1
        enough = got >= (_MOST_BURSTS if threshold is None else FEWEST_BURSTS)
        if beyond >= most or enough or beyond > (1 - LOWEST) * count:
            break
        beyond = max(beyond + 1, int(beyond * (_STEP if threshold is None else 2)))
    if best < FEWEST_BURSTS:
        raise _too_few(best_ns, best)
    return best_ns, threshold is not None and not is_first


def _least_rare_ns(found: Bursts, count: int) -> float:
    """The smallest of the bursts that the law of all others does not reach; ∞ for none."""
    ordered = np.sort(found.worst_ns)[::-1]
    rare = rare_sizes(ordered)
    if not rare or len(ordered) - rare <= FEWEST_BURSTS:
        return np.inf
    rest = ordered[rare:]
    if ordered[rare - 1] >= _APART * rest[0]:
        return float(ordered[rare - 1])
    threshold_ns = int(rest[min(_TELLING, len(rest) - 1)])
    try:
        fit = fit_bursts(found.kept(found.worst_ns < ordered[rare - 1]), threshold_ns, count)
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
    """A schedule of the rare bursts, and which of all bursts are on it."""
    which = [each.worst_ns >= least_ns for each in own]
    found = schedule(
        [each.sent_ns[rare] for each, rare in zip(own, which, strict=True)],
        [each.worst_ns[rare] for each, rare in zip(own, which, strict=True)],
        duration_ns,
    )
    on = [
        np.zeros(len(each), bool) if found is None else rare & on_schedule(found, at, each.sent_ns)
        for at, (each, rare) in enumerate(zip(own, which, strict=True))
    ]
    return found, np.concatenate(on)


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
    found: list[int] = []
    beyond = FEWEST_BURSTS
    while beyond < len(ordered):
        # Of bursts alike, all or none are above.
        at_ns = int(ordered[beyond])
        if (ordered > at_ns).sum() >= FEWEST_BURSTS and at_ns not in found:
            found.append(at_ns)
        beyond = int(beyond * _STEP)
    return found or [base_ns]


def _chosen(candidates: list[Candidate]) -> Candidate:
    """The lowest threshold above which a law fits; where none does, the highest."""
    fitted = [each for each in candidates if each.fit is not None]
    if not fitted:
        raise EvidenceError(str(candidates[-1].refused), hint="measure for longer")
    good = [each for each in fitted if each.refused is None]
    return (good or fitted[:1])[-1]


def _of_runs(tops_ns: NDArray[np.float64], level: float) -> tuple[float, float]:
    """The predictive interval of a run's largest latency from those of others (Student's t)."""
    from scipy.special import stdtrit

    logs = np.log(tops_ns)
    freedom = _RUN_WEIGHT + len(logs) - 1
    squares = _RUN_WEIGHT * _RUN_SPREAD**2 + float(((logs - logs.mean()) ** 2).sum())
    spread = np.sqrt(squares / freedom * (1 + 1 / len(logs)))
    half = float(stdtrit(freedom, (1 + level) / 2)) * spread
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))
