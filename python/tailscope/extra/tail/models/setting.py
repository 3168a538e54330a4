"""The largest latency to come and the return level, by the bursts of all runs of a setting.

Above each latency, bursts come at a rate that differs from run to run: a gamma law, whose mean is
that of all runs of the setting together, whose shape is as likely as their counts make it, and
which the run's own bursts then narrow. A class of bursts that other runs had is so expected here
as often as they had it, until the run itself says otherwise: the more alike the runs are, the less
it can. No law of sizes is fitted, so none can be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.tail.models.bursts import bursts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tailscope.extra.tail.models.excesses import Excesses

    Floats = NDArray[np.float64]

QUANTILES = (0.9999, 0.99999, 0.999999)
"""Quantiles of the next run that are foretold."""

_SHAPES = np.array([[0.25], [1.0], [4.0], [16.0]])
"""Shapes of the gamma law of rates among which the counts of the runs decide."""

_STEADY = np.array([[1.0], [4.0], [16.0]])
"""Shapes of the law by which rates drift to a further run, among which repeats decide."""

_DRIFT_STEPS = 9

_ALONE = 0.02
"""Share by which the return level of one run alone lies above all that was seen, at least."""

_JEFFREYS = 0.5
"""Shape of the prior of a Poisson rate that is not known at all (Jeffreys)."""

_STEP = 0.01
_JOINED = 1.25
_DROPPED = 0.01
"""Regions less than a factor apart are one; the gaps between them hold at most a probability."""

_RUN_WEIGHT, _RUN_SPREAD = 2, 0.2
"""Prior of the spread of a quantile between repeats, in logs, as if seen in 2 before any."""
_SUPPORT = 10
_RATES_ALIKE = 0.1


class RunTail(NamedTuple):
    """The tail of a run, or of a part of it."""

    worst_ns: NDArray[np.int64]
    """Largest latency of each burst above the floor, in ascending order."""
    floor_ns: int
    duration_ns: float
    rate_pps: float
    quantiles_ns: tuple[int | None, ...]
    """The `QUANTILES`; None where fewer than 10 packets lie beyond, or it is below the floor."""

    @classmethod
    def of(cls, excesses: Excesses, run_length_ns: int) -> RunTail:
        """Reduce a run to the sizes of its bursts."""
        supported = (excesses.count * (1 - quantile) >= _SUPPORT for quantile in QUANTILES)
        return cls(
            np.sort(bursts(excesses, excesses.floor_ns, run_length_ns).worst_ns),
            excesses.floor_ns,
            float(max(excesses.duration_ns, 1)),
            1e9 * excesses.count / max(excesses.duration_ns, 1),
            tuple(
                excesses.threshold_ns(quantile) if enough else None
                for quantile, enough in zip(QUANTILES, supported, strict=True)
            ),
        )

    @property
    def max_ns(self) -> float:
        """Return the largest latency, or the floor if none is above it."""
        return float(self.worst_ns[-1] if len(self.worst_ns) else self.floor_ns)


class Prior(NamedTuple):
    """What is expected before anything is seen."""

    new_bursts: float = 0.1
    """Bursts of unseen classes that are added to those of the setting."""
    new_times: float = 30.0
    """How much larger than all that was seen they may be; the logs of their sizes are uniform."""
    size_spread: float = 0.1
    """Change of sizes from what was seen to what follows, in logs (standard deviation)."""
    drift_shape: float = 3.0
    """How steady rates are from what was seen to what follows: the shape of a gamma law."""


class Region(NamedTuple):
    """Latencies between which the largest may lie."""

    low_ns: float
    high_ns: float
    probability: float


class Law(NamedTuple):
    """The law of the largest latency."""

    latency_ns: Floats
    below: Floats
    """The probability that it is below each latency."""

    def quantile_ns(self, probability: float) -> float:
        """Return the latency that it is below with a probability."""
        return float(np.exp(np.interp(probability, self.below, np.log(self.latency_ns))))

    def probability(self, latency_ns: float) -> float:
        """Return the probability that it is below a latency."""
        return float(np.interp(np.log(latency_ns), np.log(self.latency_ns), self.below))


class Largest(NamedTuple):
    """The largest latency of what follows."""

    regions: tuple[Region, ...]
    known_high_ns: float
    """Upper end of the interval if no unseen class of bursts acts."""
    seen_ns: float
    """Largest latency of all runs of the setting."""
    level_ns: float
    """Return level: the latency that it is as likely to exceed as not, and of a time as long as
    what was seen, at least the largest that was seen."""
    law: Law

    @property
    def low_ns(self) -> float:
        """Return the lower end of the predictive interval."""
        return self.regions[0].low_ns

    @property
    def high_ns(self) -> float:
        """Return the upper end."""
        return self.regions[-1].high_ns

    @property
    def exceeds_level(self) -> float:
        """Return the probability that it exceeds the return level."""
        return 1 - self.law.probability(self.level_ns)

    def recurs(self, at: int = -1) -> float:
        """Return the probability that bursts of a region come, or larger ones."""
        outside = 1 - sum(region.probability for region in self.regions)
        return sum(region.probability for region in self.regions[at:]) + outside / 2


class NextQuantile(NamedTuple):
    """A quantile of the next run, and its predictive interval."""

    quantile: float
    low_ns: float
    high_ns: float


PRIOR = Prior()


class _Rates(NamedTuple):
    """Gamma laws of the rate of bursts above latencies, whose shapes and times these are."""

    latency: Floats
    shape: Floats
    time_ns: Floats


def largest(
    own: Sequence[RunTail],
    like: Sequence[RunTail],
    ahead_ns: float,
    level: float,
    prior: Prior = PRIOR,
) -> Largest:
    """Foretell the largest latency of so long a time, of the runs in `own`."""
    every = [*own, *like]
    seen_ns = max(1, *(run.max_ns for run in every))
    rates = _rates(own, every, prior)
    law = _law(rates, ahead_ns, prior, _steadiness(own, like, rates.latency, prior))
    known = law.probability(seen_ns * np.exp(2 * prior.size_spread))
    # What was seen is never outside.
    maxima = [max(1, run.max_ns) for run in own]
    low_ns = min(law.quantile_ns((1 - level) / 2), *maxima)
    high_ns = max(law.quantile_ns((1 + level) / 2), *maxima)
    known_high_ns = max(law.quantile_ns(known * (1 + level) / 2), *maxima)
    level_ns = law.quantile_ns(0.5)
    if ahead_ns >= sum(run.duration_ns for run in own):
        level_ns = max(level_ns, (1 if like else 1 + _ALONE) * max(maxima))
    regions = _regions(law, (low_ns, high_ns), maxima, prior)
    known_high_ns = min(known_high_ns, regions[-1].high_ns)
    return Largest(regions, known_high_ns, seen_ns, min(level_ns, high_ns), law)


def _spread(deviation: float) -> tuple[Floats, int]:
    """Return the weights of a Laplace law on the grid of latencies, and how far they reach.

    Most sizes hardly change, and some change much: more often than by a normal law.
    """
    reach = int(np.ceil(5 * deviation / _STEP))
    steps = np.arange(-reach, reach + 1) * _STEP
    weights = np.exp(-np.sqrt(2) * np.abs(steps) / deviation)
    return weights / weights.sum(), reach


def _rates(own: Sequence[RunTail], every: Sequence[RunTail], prior: Prior) -> _Rates:
    """Return what is known of the rates of one's own runs by those of the setting.

    A mixture of gamma laws, one for each shape, is replaced by the one of the same mean and
    variance.
    """
    seen_ns = max(1, *(run.max_ns for run in every))
    margin = 5 * prior.size_spread + _STEP
    bottom = np.log(max(min(run.floor_ns for run in own), 1)) + _STEP / 2
    logs = np.arange(bottom, np.log(seen_ns * prior.new_times) + margin, _STEP)
    latency = np.exp(logs)
    reach = np.clip(1 - np.log(latency / seen_ns) / np.log(prior.new_times), 0, 1)
    counted = [_counted([run], latency) for run in every]
    count, time = _counted(own, latency)
    count_all, time_all = (sum(column) for column in zip(*counted, strict=True))
    mean = np.maximum((count_all + prior.new_bursts * reach) / time_all, 1e-30)
    # The mean is known no better than the bursts of the other runs tell.
    shapes = 1 / (1 / _SHAPES + 1 / (count_all - count + _JEFFREYS))
    weight = _weights(counted, mean)
    rate = (shapes + count) / (shapes / mean + time)
    expected = (weight * rate).sum(0)
    variance = (weight * rate * (rate + 1 / (shapes / mean + time))).sum(0) - expected**2
    return _Rates(latency, expected**2 / variance, expected / variance)


def _weights(counted: Sequence[tuple[Floats, Floats]], mean: Floats) -> Floats:
    """Return the probability of each shape by the counts of all runs (negative binomial)."""
    from scipy.special import gammaln

    most = int(max(count.max() for count, _ in counted))
    rising = gammaln(_SHAPES + np.arange(most + 1)) - gammaln(_SHAPES)
    logs = np.zeros((len(_SHAPES), len(mean)))
    for count, time in counted:
        logs += rising[:, count.astype(int)] + _SHAPES * np.log(_SHAPES)
        logs -= (_SHAPES + count) * np.log(_SHAPES + mean * time)
    weight = np.exp(logs - logs.max(0))
    return np.asarray(weight / weight.sum(0))


def _steadiness(
    own: Sequence[RunTail], like: Sequence[RunTail], latency: Floats, prior: Prior
) -> dict[float, Floats]:
    """Return the probability of each shape of the law of rates of what follows.

    Of a further run, it is how repeats have shared the bursts of their rate above each latency
    (Dirichlet-multinomial): the less evenly, the less steady.
    """
    from scipy.special import gammaln

    if len(own) < 2:
        return {prior.drift_shape: np.ones_like(latency)}
    groups = [list(own), *_at_one_rate(like)]
    logs = np.zeros((len(_STEADY), len(latency)))
    for group in groups:
        counts = [_counted([run], latency)[0] for run in group]
        total = np.sum(counts, axis=0)
        logs += gammaln(_STEADY * len(group)) - gammaln(_STEADY * len(group) + total)
        logs += sum(gammaln(_STEADY + count) - gammaln(_STEADY) for count in counts)
    weight = np.exp(logs - logs.max(0))
    return dict(zip(_STEADY.ravel().tolist(), weight / weight.sum(0), strict=True))


def _law(rates: _Rates, ahead_ns: float, prior: Prior, steadiness: Mapping[float, Floats]) -> Law:
    """Return the law of the largest of all bursts of what follows."""
    from scipy.special import gammaincinv

    none = np.zeros_like(rates.latency)
    for shape, weight in steadiness.items():
        drifts = gammaincinv(shape, (np.arange(_DRIFT_STEPS) + 0.5) / _DRIFT_STEPS)
        ahead = ahead_ns * drifts / drifts.mean()
        within = [(rates.time_ns / (rates.time_ns + each)) ** rates.shape for each in ahead]
        none += weight * np.mean(within, 0)
    spread, reach = _spread(prior.size_spread)
    padded = np.pad(np.maximum.accumulate(none), 2 * reach, constant_values=(0, none.max()))
    below = np.convolve(padded, spread, "valid")
    logs = np.log(rates.latency[0]) + np.arange(-reach, len(below) - reach) * _STEP
    return Law(np.exp(logs), below)


def _counted(runs: Sequence[RunTail], latency: Floats) -> tuple[Floats, Floats]:
    """Return the bursts above each latency, and the time in which they would have been seen."""
    count, time = np.zeros_like(latency), np.zeros_like(latency)
    for run in runs:
        known = latency >= run.floor_ns
        count += known * (len(run.worst_ns) - np.searchsorted(run.worst_ns, latency, "right"))
        time += known * run.duration_ns
    return count, time


def _regions(
    law: Law,
    ends_ns: tuple[float, float],
    maxima: Sequence[float],
    prior: Prior,
) -> tuple[Region, ...]:
    """Leave out of an interval where the largest hardly lies, but nothing near what was seen."""
    low_ns, high_ns = ends_ns
    inner = law.latency_ns[(law.latency_ns > low_ns) & (law.latency_ns < high_ns)]
    edges = np.concatenate([[low_ns], inner, [high_ns]])
    logs = np.log(np.maximum(edges, 1))
    at = np.interp(logs, np.log(law.latency_ns), law.below)
    mass = np.diff(at)
    order = np.argsort(mass)
    is_kept = np.ones(len(mass), bool)
    is_kept[order[mass[order].cumsum() <= _DROPPED]] = False
    for max_ns in maxima:
        is_kept |= np.abs(logs[1:] - np.log(max(max_ns, 1))) <= prior.size_spread
    kept = np.flatnonzero(is_kept)
    breaks = np.flatnonzero(edges[kept[1:]] > _JOINED * edges[kept[:-1] + 1])
    firsts, lasts = np.append(kept[0], kept[breaks + 1]), np.append(kept[breaks], kept[-1])
    return tuple(
        Region(float(edges[first]), float(edges[last + 1]), float(at[last + 1] - at[first]))
        for first, last in zip(firsts, lasts, strict=True)
    )


def next_quantiles(
    own: Sequence[RunTail], like: Sequence[RunTail], level: float
) -> tuple[NextQuantile, ...]:
    """Foretell quantiles of a further run (Student's t of their logs).

    The spread between repeats is that of all rates that have two. Without repeats there is none.
    """
    from scipy.special import stdtrit

    foretold = []
    for at, quantile in enumerate(QUANTILES):
        logs = _logs(own, at)
        repeats = [logs, *filter(len, (_logs(group, at) for group in _at_one_rate(like)))]
        freedom = sum(len(each) - 1 for each in repeats)
        if len(logs) < len(own) or not freedom:
            continue
        squares = sum(float(((each - each.mean()) ** 2).sum()) for each in repeats)
        variance = (_RUN_WEIGHT * _RUN_SPREAD**2 + squares) / (_RUN_WEIGHT + freedom)
        spread = np.sqrt(variance * (1 + 1 / len(logs)))
        half = float(stdtrit(_RUN_WEIGHT + freedom, (1 + level) / 2)) * spread
        low, high = min(logs.mean() - half, logs.min()), max(logs.mean() + half, logs.max())
        foretold.append(NextQuantile(quantile, float(np.exp(low)), float(np.exp(high))))
    return tuple(foretold)


def _logs(runs: Sequence[RunTail], at: int) -> Floats:
    return np.log([value for run in runs if (value := run.quantiles_ns[at]) is not None])


def _at_one_rate(runs: Sequence[RunTail]) -> list[list[RunTail]]:
    """Return the runs at one rate each."""
    groups: list[list[RunTail]] = []
    for run in sorted(runs, key=lambda run: run.rate_pps):
        if groups and np.log(run.rate_pps / groups[-1][-1].rate_pps) <= _RATES_ALIKE:
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups
