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
"""Shapes of the gamma laws of rates, and of their drift to a further run, among which the counts
of the runs decide."""

_TELLING = 10
"""Number of the largest events whose sizes tell how much larger the next may be."""

_APART = 0.001
"""Probability below which one of the gaps between their sizes is not by chance: what is below it is
another class, and tells nothing."""

_SLICES = 50
"""Slices of a run whose packets tell how many are delayed together."""

_STEP = 0.01
_STARTS = 26
_JOINED = 1.25
_DROPPED = 0.01
"""Regions less than a factor apart are one; the gaps between them hold at most a probability."""

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
    latency_ns: NDArray[np.int64]
    slices: NDArray[np.int64]
    """Latency of each packet above the floor, and the slice of the run in which it was sent."""

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
            excesses.latency_ns,
            _slices(excesses),
        )

    @property
    def max_ns(self) -> float:
        """Return the largest latency, or the floor if none is above it."""
        return float(self.worst_ns[-1] if len(self.worst_ns) else self.floor_ns)

    def delayed_ns(self, latency: Floats) -> Floats:
        """Return the time in each slice of which packets are above each latency."""
        steps = len(latency) + 1
        above = np.searchsorted(latency, self.latency_ns)
        packets = np.bincount(self.slices * steps + above, minlength=_SLICES * steps)
        packets = packets.reshape(_SLICES, steps)[:, :0:-1].cumsum(1)[:, ::-1]
        return np.asarray(packets * (1e9 / self.rate_pps), np.float64)


def _slices(excesses: Excesses) -> NDArray[np.int64]:
    since = excesses.sent_ns - excesses.begin_ns
    return np.minimum(since * _SLICES // max(excesses.duration_ns, 1), _SLICES - 1)


class Prior(NamedTuple):
    """What is expected before anything is seen."""

    new_bursts: float = 0.2
    """Bursts of unseen classes that are added to those of the setting."""
    new_times: float = 30.0
    """How much larger than all that was seen they may be; the logs of their sizes are uniform."""
    size_spread: float = 0.1
    """Change of sizes from what was seen to what follows, in logs (standard deviation)."""
    unknown_shape: float = 0.5
    """How sure the mean of a rate is of which other runs tell nothing: the shape of a gamma law."""
    drift_shape: float = 3.0
    """How steady rates are from what was seen to what follows: the shape of a gamma law."""
    long_shape: float = 1.0
    """How steady their mean over many further runs is at most."""


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

    def ends_ns(
        self, level: float, seen_ns: Sequence[float], *, is_central: bool = False
    ) -> tuple[float, float]:
        """Return the shortest interval that is no more likely to be exceeded than a central one.

        Or the central one. Nothing that was seen lies outside.
        """
        most = (1 - level) / 2 if is_central else 1 - level
        below = np.linspace((1 - level) / 2, most, _STARTS)
        # What lies above all latencies is in no interval.
        below = below[: max(1, np.count_nonzero(below + level <= self.below[-1]))]
        ends = np.interp([below, below + level], self.below, np.log(self.latency_ns))
        low_ns, high_ns = np.exp(ends[:, np.argmin(ends[1] - ends[0])]).tolist()
        return min(low_ns, *seen_ns), max(high_ns, *seen_ns)


class Largest(NamedTuple):
    """The largest latency of what follows."""

    regions: tuple[Region, ...]
    known_ns: tuple[float, float, float]
    """Interval and median, if no unseen class of bursts acts: low, median, high."""
    seen_ns: float
    """Largest latency of all runs of the setting."""
    level_ns: float
    """Return level: the latency that it is as likely to exceed as not (of one run alone, if no
    burst is expected beyond what was seen), and of a time as long as what was seen, at least the
    largest that was seen."""
    end_ns: float
    """Latency from which on nothing that was seen bounds it: there, the model ends."""
    law: Law

    def told_ns(self, latency_ns: float) -> float | None:
        """Return a latency, or None if it is only where the model ends."""
        return latency_ns if latency_ns < self.end_ns else None

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

    @property
    def exceeds_known(self) -> float:
        """Return the probability that it exceeds what the known classes give."""
        return 1 - self.law.probability(self.known_ns[2])

    def recurs(self, at: int = -1) -> float:
        """Return the probability that bursts of a region come, or larger ones."""
        outside = 1 - sum(region.probability for region in self.regions)
        above = 0.0 if self.told_ns(self.high_ns) is None else outside / 2
        return sum(region.probability for region in self.regions[at:]) + above


class NextQuantile(NamedTuple):
    """A quantile of the next run, and where it may lie."""

    quantile: float
    regions: tuple[Region, ...]
    end_ns: float = np.inf
    """Latency from which on nothing that was seen bounds it: there, the model ends."""

    def told_ns(self, latency_ns: float) -> float | None:
        """Return a latency, or None if it is only where the model ends."""
        return latency_ns if latency_ns < self.end_ns else None

    @property
    def low_ns(self) -> float:
        """Return the lower end of the predictive interval."""
        return self.regions[0].low_ns

    @property
    def high_ns(self) -> float:
        """Return the upper end."""
        return self.regions[-1].high_ns

    def at_most(self, most_ns: float) -> NextQuantile:
        """Return it without what lies above a latency."""
        kept = [region for region in self.regions if region.low_ns < most_ns]
        kept = kept or [self.regions[0]._replace(low_ns=most_ns)]
        kept[-1] = kept[-1]._replace(high_ns=min(kept[-1].high_ns, most_ns))
        return self._replace(regions=tuple(kept))


PRIOR = Prior()


class _Seen(NamedTuple):
    """What runs have shown above each latency: one's own first, then others of the setting."""

    runs: Sequence[RunTail]
    own: int
    latency: Floats
    counts: Floats
    times_ns: Floats
    """Events of each run above each latency, and the time in which they would have been seen."""

    @classmethod
    def of(cls, runs: Sequence[RunTail], own: int, latency: Floats, counts: Floats) -> _Seen:
        """Leave out of each run what lies below its floor."""
        known = latency >= np.array([[run.floor_ns] for run in runs])
        durations = np.array([[run.duration_ns] for run in runs])
        return cls(runs, own, latency, counts * known, durations * known)

    @classmethod
    def bursts(cls, runs: Sequence[RunTail], own: int, latency: Floats) -> _Seen:
        """Take bursts for events."""
        found = [np.searchsorted(run.worst_ns, latency, "right") for run in runs]
        return cls.of(runs, own, latency, np.array([[len(run.worst_ns)] for run in runs]) - found)


class _Rates(NamedTuple):
    """Gamma laws of the rate of events above latencies."""

    shape: Floats
    mean: Floats
    steadiness: Mapping[float, Floats]
    """Shapes of the gamma law by which rates drift to a further run, and their probabilities."""
    run_ns: float
    """Duration of a run."""
    long_shape: float
    """Largest shape of that law for the mean of many runs."""

    def few(self, ahead_ns: float, allowed: Floats | None = None) -> Floats:
        """Return the probability that so long a time has no events above them, or few enough.

        The product of two gamma laws, of rates and of their drift, is replaced by the one of the
        same mean and variance. Events of such a rate have a negative binomial law. A time as long
        as many runs has the mean of their rates, which is steadier, up to a bound.
        """
        from scipy.special import betainc

        few = np.zeros_like(self.mean)
        runs = max(1.0, ahead_ns / self.run_ns)
        for steady, weight in self.steadiness.items():
            steadier = max(steady, min(runs * steady, self.long_shape))
            shape = 1 / ((1 + 1 / self.shape) * (1 + 1 / steadier) - 1)
            none = shape / (shape + self.mean * ahead_ns)
            few += weight * (none**shape if allowed is None else betainc(shape, allowed + 1, none))
        # Rates fall with latency, which estimates at each for itself need not.
        return (np.maximum.accumulate(few) + np.minimum.accumulate(few[::-1])[::-1]) / 2


def largest(
    own: Sequence[RunTail],
    like: Sequence[RunTail],
    ahead_ns: float,
    level: float,
    prior: Prior = PRIOR,
) -> Largest:
    """Foretell the largest latency of so long a time, of the runs in `own`."""
    every = [*own, *like]
    seen_ns, latency = _most_ns(every), _latencies(own, every, prior)
    bursts_seen = _Seen.bursts(every, len(own), latency)
    law = _law(latency, _rates(bursts_seen, prior).few(ahead_ns), prior)
    known_rates = _rates(bursts_seen, prior._replace(new_bursts=0))
    known = _law(latency, known_rates.few(ahead_ns), prior)
    # What was seen is never outside: of each run, or of all, if what follows is as long as they.
    maxima = [max(1, run.max_ns) for run in own]
    is_longer = ahead_ns >= sum(run.duration_ns for run in own)
    if is_longer:
        maxima = [max(maxima)]
    # A class that came in each of several runs may not come in the next. With 2.5 to 5 %, the
    # shortest interval would leave that out.
    is_central = len(own) > 1
    low_ns, high_ns = law.ends_ns(level, maxima, is_central=is_central)
    known_low_ns, known_high_ns = known.ends_ns(level, maxima, is_central=is_central)
    level_ns = law.quantile_ns(0.5)
    if len(every) == 1:
        # How far bursts reach beyond a run, it cannot tell alone. That its rate may be far lower
        # is for the interval, not for the middle.
        surer = prior._replace(unknown_shape=1.0)
        recurring = _rates(bursts_seen, surer, reaches_beyond=False).few(ahead_ns)
        level_ns = _law(latency, recurring, prior).quantile_ns(0.5)
    if is_longer:
        level_ns = max(level_ns, *maxima)
    end_ns = _end_ns(every, prior)
    regions = _regions(law, (low_ns, high_ns), maxima, prior, end_ns, keeps_low=is_central)
    median_ns = float(np.clip(known.quantile_ns(0.5), known_low_ns, known_high_ns))
    most_ns = regions[-1].high_ns
    known_ns = min(known_low_ns, most_ns), min(median_ns, most_ns), min(known_high_ns, most_ns)
    return Largest(regions, known_ns, seen_ns, min(level_ns, high_ns), end_ns, law)


def next_quantiles(
    own: Sequence[RunTail], like: Sequence[RunTail], level: float, prior: Prior = PRIOR
) -> tuple[NextQuantile, ...]:
    """Foretell quantiles of a further run.

    A quantile is above a latency if packets are for more than its share of the time. They come in
    events, as stalls delay many, and events come at rates as bursts do. Classes that came in none
    of several runs are left out: few of them move a quantile.
    """
    every = [*own, *like]
    if len(every) > 1:
        prior = prior._replace(new_bursts=0.0)
    latency = _latencies(own, every, prior)
    delayed = [run.delayed_ns(latency) for run in every]
    ahead_ns = sum(run.duration_ns for run in own) / len(own)
    no_burst = _rates(_Seen.bursts(every, len(own), latency), prior).few(ahead_ns)
    foretold, end_ns = [], _end_ns(every, prior)
    for at, quantile in enumerate(QUANTILES):
        known = [value for run in own if (value := run.quantiles_ns[at]) is not None]
        if len(known) == len(own):
            allowed_ns = (1 - quantile) * ahead_ns
            # A slice that is too long alone counts no more if it is longer: few long stalls would
            # hide how evenly the short ones come.
            enough_ns = allowed_ns + min(1e9 / run.rate_pps for run in own)
            counted = [np.minimum(part, enough_ns) for part in delayed]
            event_ns = _event_ns(own, counted)
            events = np.array([part.sum(0) for part in counted]) / event_ns
            rates = _rates(_Seen.of(every, len(own), latency, events), prior)
            few = rates.few(ahead_ns, np.floor(allowed_ns / event_ns))
            # One stall alone may be too long.
            few = np.minimum(few, np.interp(latency + allowed_ns, latency, no_burst))
            # Events that are longer at some latencies make it no likelier to stay below others.
            few = np.minimum.accumulate(few[::-1])[::-1]
            law = _law(latency, few, prior)
            ends = law.ends_ns(level, known)
            if len(own) > 1:
                regions = _regions(law, ends, known, prior, end_ns)
            else:
                # One run does not tell how far a further one's quantile may be from its own.
                upto = 1.0 if ends[1] >= end_ns else law.probability(ends[1])
                regions = (Region(*ends, upto - law.probability(ends[0])),)
            foretold.append(NextQuantile(quantile, regions, end_ns))
    return tuple(foretold)


def _most_ns(runs: Sequence[RunTail]) -> float:
    return max(1, *(run.max_ns for run in runs))


def _end_ns(runs: Sequence[RunTail], prior: Prior) -> float:
    """Return the largest that an unseen class may have, less what sizes change by."""
    return _most_ns(runs) * prior.new_times * float(np.exp(-prior.size_spread))


def _latencies(own: Sequence[RunTail], every: Sequence[RunTail], prior: Prior) -> Floats:
    """Return the latencies for which rates are told, in equal steps of their logs."""
    bottom = np.log(max(min(run.floor_ns for run in own), 1)) + _STEP / 2
    top = np.log(_most_ns(every) * prior.new_times) + 5 * prior.size_spread + _STEP
    return np.exp(np.arange(bottom, top, _STEP))


def _event_ns(own: Sequence[RunTail], delayed: Sequence[Floats]) -> Floats:
    """Return for how long an event holds packets above each latency.

    If events come at random, that is the variance of the time in slices of a run, by its mean
    (index of dispersion). Those that one's own runs have count, and others above them. The longest
    events just reach the largest latencies, which says nothing of those that reach beyond.
    """
    moments = np.array([[part.var(0, ddof=1), part.mean(0)] for part in delayed])
    (own_variance, own_mean), (variance, mean) = moments[: len(own)].sum(0), moments.sum(0)
    variance, mean = np.where(own_mean > 0, (own_variance, own_mean), (variance, mean))
    lasted = variance / np.maximum(mean, 1e-30)
    return np.maximum(np.maximum.accumulate(lasted), min(1e9 / run.rate_pps for run in own))


def _spread(deviation: float) -> tuple[Floats, int]:
    """Return the weights of a Laplace law on the grid of latencies, and how far they reach.

    Most sizes hardly change, and some change much: more often than by a normal law.
    """
    reach = int(np.ceil(5 * deviation / _STEP))
    steps = np.arange(-reach, reach + 1) * _STEP
    weights = np.exp(-np.sqrt(2) * np.abs(steps) / deviation)
    return weights / weights.sum(), reach


def _rates(seen: _Seen, prior: Prior, *, reaches_beyond: bool = True) -> _Rates:
    """Return what is known of the rates of one's own runs by those of the setting.

    A mixture of gamma laws, one for each shape, is replaced by the one of the same mean and
    variance.
    """
    latency = seen.latency
    count_all, time_all = seen.counts.sum(0), seen.times_ns.sum(0)
    time = seen.times_ns[: seen.own].sum(0)
    more = _one_more(count_all, latency) if reaches_beyond else np.zeros_like(latency)
    expected = count_all + more
    # Whose event that would be is not known.
    count = seen.counts[: seen.own].sum(0) + more * time / time_all
    beyond = np.log(latency / _most_ns(seen.runs)) / np.log(prior.new_times)
    reach = np.clip(1 - beyond, 0, 1)
    mean = np.maximum(np.maximum(expected, prior.new_bursts * reach) / time_all, 1e-30)
    # The mean is known no better than the events of the other runs tell.
    shapes = 1 / (1 / _SHAPES + 1 / (expected - count + prior.unknown_shape))
    weight = _weights(seen, mean)
    rate = (shapes + count) / (shapes / mean + time)
    told = (weight * rate).sum(0)
    variance = (weight * rate * (rate + 1 / (shapes / mean + time))).sum(0) - told**2
    run_ns = sum(run.duration_ns for run in seen.runs[: seen.own]) / seen.own
    return _Rates(told**2 / variance, told, _steadiness(seen, prior), run_ns, prior.long_shape)


def _one_more(count: Floats, latency: Floats) -> Floats:
    """Return how many events are expected above each latency besides those that were seen.

    Of runs that are alike, each is as likely as any other to have the largest, so one event is
    expected where the largest was. Above, it falls off as the largest sizes do: their logs are
    exponential, with a mean known as well as so few of their class can tell. What is larger may be
    a class of its own, so the same is expected of each size as if it were the largest: few sizes
    are a sample of their law, and leave gaps where it has none.
    """
    above = np.maximum.accumulate(count[::-1])[::-1]
    telling = np.minimum(np.clip(above[0] - above, 1, _TELLING), _of_one_class(above))
    top, base = _events_below(above, 1), _events_below(above, telling)
    summed = np.append(0, above.cumsum())
    excess = _STEP * (telling / 2 + summed[top + 1] - summed[base + 1] - above * (top - base))
    beyond = (1 + np.maximum(np.log(latency / latency[top]), 0) / excess) ** -telling
    return np.where(above[0] - above >= 1, beyond, 0)


def _of_one_class(above: Floats) -> Floats:
    """Return how many of the largest events below each latency form one class, as far as they tell.

    Gaps between ordered sizes, times their ranks, are alike and exponential (Rényi). One that is
    larger than those before it leave to chance ends the class.
    """
    ranks = np.arange(1, _TELLING)[:, np.newaxis]
    places = np.array([_events_below(above, events) for events in range(1, _TELLING + 1)])
    gaps = 0.5 - ranks * np.diff(places, axis=0)
    by_chance = (_APART ** (-1 / ranks[:-1]) - 1) * gaps.cumsum(0)[:-1]
    return np.asarray(np.where(gaps[1:] > by_chance, ranks[1:], _TELLING).min(0), np.float64)


def _events_below(above: Floats, events: Floats | int) -> NDArray[np.intp]:
    """Return the place of the so manieth event below each latency."""
    return len(above) - 1 - np.searchsorted(above[::-1], above + events)


def _weights(seen: _Seen, mean: Floats) -> Floats:
    """Return the probability of each shape by the counts of all runs (negative binomial)."""
    from scipy.special import gammaln

    logs = np.zeros((len(_SHAPES), len(mean)))
    for count, time in zip(seen.counts, seen.times_ns, strict=True):
        logs += gammaln(_SHAPES + count) - gammaln(_SHAPES) + _SHAPES * np.log(_SHAPES)
        logs -= (_SHAPES + count) * np.log(_SHAPES + mean * time)
    weight = np.exp(logs - logs.max(0))
    return np.asarray(weight / weight.sum(0))


def _steadiness(seen: _Seen, prior: Prior) -> Mapping[float, Floats]:
    """Return the probability of each shape of the law of rates of what follows.

    Of a further run, it is how repeats have shared the events of their rate above each latency
    (Dirichlet-multinomial): the less evenly, the less steady. Before repeats tell, each shape is
    twice as likely as the one before: a further run is about as steady as the rest of one.
    """
    from scipy.special import gammaln

    if seen.own < 2:
        return {prior.drift_shape: np.ones_like(seen.latency)}
    logs = np.log(_SHAPES) / 2 + np.zeros_like(seen.latency)
    for group in _at_one_rate(seen.runs, seen.own):
        counts = seen.counts[group]
        runs = np.maximum((seen.times_ns[group] > 0).sum(0), 1)
        logs += gammaln(_SHAPES * runs) - gammaln(_SHAPES * runs + counts.sum(0))
        logs += sum(gammaln(_SHAPES + count) - gammaln(_SHAPES) for count in counts)
    weight = np.exp(logs - logs.max(0))
    return dict(zip(_SHAPES.ravel().tolist(), weight / weight.sum(0), strict=True))


def _law(latency: Floats, below: Floats, prior: Prior) -> Law:
    """Return the law of a latency, whose sizes change from what was seen to what follows."""
    spread, reach = _spread(prior.size_spread)
    padded = np.pad(below, 2 * reach, constant_values=(0, below.max()))
    below = np.convolve(padded, spread, "valid")
    logs = np.log(latency[0]) + np.arange(-reach, len(below) - reach) * _STEP
    return Law(np.exp(logs), below)


def _regions(
    law: Law,
    ends_ns: tuple[float, float],
    maxima: Sequence[float],
    prior: Prior,
    end_ns: float,
    *,
    keeps_low: bool = False,
) -> tuple[Region, ...]:
    """Leave out of an interval where the largest hardly lies, but nothing near what was seen.

    All that is larger counts to a region that only the end of the model bounds.
    """
    low_ns, high_ns = ends_ns
    inner = law.latency_ns[(law.latency_ns > low_ns) & (law.latency_ns < high_ns)]
    edges = np.concatenate([[low_ns], inner, [high_ns]])
    logs = np.log(np.maximum(edges, 1))
    at = np.interp(logs, np.log(law.latency_ns), law.below)
    if high_ns >= end_ns:
        at[-1] = 1
    mass = np.diff(at)
    order = np.argsort(mass)
    is_kept = np.ones(len(mass), bool)
    is_kept[order[mass[order].cumsum() <= _DROPPED]] = False
    is_kept[0] |= keeps_low
    for max_ns in maxima:
        is_kept |= np.abs(logs[1:] - np.log(max(max_ns, 1))) <= prior.size_spread
    kept = np.flatnonzero(is_kept)
    breaks = np.flatnonzero(edges[kept[1:]] > _JOINED * edges[kept[:-1] + 1])
    firsts, lasts = np.append(kept[0], kept[breaks + 1]), np.append(kept[breaks], kept[-1])
    return tuple(
        Region(float(edges[first]), float(edges[last + 1]), float(at[last + 1] - at[first]))
        for first, last in zip(firsts, lasts, strict=True)
    )


def _at_one_rate(every: Sequence[RunTail], own: int) -> list[list[int]]:
    """Return the places of runs at one rate each: one's own, then those of others."""
    groups, last_pps = [list(range(own))], 0.0
    for at in sorted(range(own, len(every)), key=lambda at: every[at].rate_pps):
        if last_pps and np.log(every[at].rate_pps / last_pps) <= _RATES_ALIKE:
            groups[-1].append(at)
        else:
            groups.append([at])
        last_pps = every[at].rate_pps
    return groups
