"""``tail.json``: what lies beyond the measurement."""

from __future__ import annotations

from tailscope.store.records.base import Count, Section
from tailscope.store.records.kept import KeptRecord


class TailIntervals(Section, frozen=True, kw_only=True):
    """The intervals that a method gives."""

    xi: tuple[float, float]
    """Interval of the law's shape."""
    sigma_ns: tuple[float, float]
    """Interval of its scale."""
    level_ns: tuple[float, float]
    """Interval of the level of the fitted law alone (as `return_level_ns_most_likely`), by this
    method, without a horizon; it is not that of the answer, which is `rest_max_ns_*`."""


class TestedStationarity(Section, frozen=True, kw_only=True):
    """A test of stationarity."""

    statistic: float
    """The test's statistic."""
    critical: float
    """Its critical value."""
    p_value: float
    """Its p-value."""
    lags: Count
    """Number of lags."""


class TriedThreshold(Section, frozen=True, kw_only=True):
    """A threshold that was tried."""

    threshold: float
    """Its quantile."""
    threshold_ns: Count | None
    """Its value."""
    bursts: Count | None
    """Bursts beyond it."""
    xi: float | None
    """Shape of the law that fits."""
    sigma_ns: float | None
    """Scale of the law that fits."""
    js_divergence_bits: float | None
    """Distance of the law from the measurement (Jensen-Shannon)."""
    js_by_chance_bits: float | None
    """The distance that chance alone would give."""
    refused: str | None
    """Reason why it was not taken; null if it could be."""
    fit_p_value: float | None = None
    """How often a sample of the law is at least as far from it (Anderson-Darling)."""


class LatencyRegion(Section, frozen=True, kw_only=True):
    """Latencies between which the largest to come may lie, or a quantile."""

    low: float
    """Lower end of the region."""
    high: float | None
    """Upper end of the region; null if nothing that was seen bounds it."""
    probability: float
    """Probability that it lies in it."""


class SetAsideRun(Section, frozen=True, kw_only=True):
    """A run that is no part of the law, but of what is foretold."""

    run: Count
    """The run, from 0."""
    floor_ns: Count
    """Latency above which its packets are known."""
    reason: str
    """Reason why it was set aside."""


class ForetoldQuantile(Section, frozen=True, kw_only=True):
    """A quantile of a further run."""

    quantile: float
    """Which quantile."""
    latency_ns_ci_low: float
    """Lower end of its predictive interval."""
    latency_ns_ci_high: float | None
    """Upper end of it; null if nothing that was seen bounds it."""
    latency_ns_regions: tuple[LatencyRegion, ...] = ()
    """The parts of that interval in which it may lie; the gaps between hold less than 1 %."""


class TailHorizon(Section, frozen=True, kw_only=True):
    """The expectation until a horizon."""

    duration_s: float
    """The horizon."""
    packets: float
    """Packets until then, at the rate of the run."""
    return_level_ns: float | None
    """The return level of that time; null if nothing that was seen bounds it."""
    return_level_ns_ci_low: float
    """Lower end of the interval of the largest latency of that time; no interval of its median."""
    return_level_ns_ci_high: float | None
    """Upper end of the interval of the largest latency of that time; null if nothing that was seen
    bounds it."""
    bounded: bool
    """True if the tail ends."""
    limit_ns: float | None
    """The latency where it ends; null if it does not."""
    rest_max_ns: Count | None = None
    """The largest latency of what follows, as measured; null if nothing was."""
    rest_max_ns_ci_low: float | None = None
    """Lower end of its predictive interval."""
    rest_max_ns_ci_high: float | None = None
    """Upper end of it; null if nothing that was seen bounds it."""
    rest_max_ns_regions: tuple[LatencyRegion, ...] = ()
    """The parts of that interval in which it may lie; the gaps between hold less than 1 %."""
    known_max_ns_ci_low: float | None = None
    """Lower end of the interval of the largest if bursts are of classes that were seen."""
    known_max_ns_median: float | None = None
    """Median of the largest if bursts are of classes that were seen; null if they do not bound
    it."""
    known_max_ns_ci_high: float | None = None
    """Upper end of the interval of the largest if bursts are of classes that were seen; null if
    they do not bound it."""
    fit_p_value: float | None = None
    """How often a sample of the law is at least as far from it as the bursts (Anderson-Darling)."""
    promise: str | None = None
    """Regime of the largest latency: `bulk`, `rare` or `scheduled`."""
    return_level_exceeded_probability: float | None = None
    """Probability that something exceeds the return level."""


class RareBursts(Section, frozen=True, kw_only=True):
    """Bursts of a class of their own, far above all others."""

    bursts: Count
    """Their number."""
    rate_per_s: float
    """Bursts per second."""
    rate_per_s_ci_low: float
    """Lower end of its interval."""
    rate_per_s_ci_high: float
    """Upper end of its interval."""
    latency_ns_min: Count
    """The worst packet of the smallest."""
    latency_ns_max: Count
    """The worst packet of the largest."""


class ScheduledBursts(Section, frozen=True, kw_only=True):
    """Bursts that come by a clock."""

    bursts: Count
    """Their number."""
    period_s: float | None
    """Gap from one to the next; null if gaps differ, but are the same in several runs."""
    offsets_s: tuple[float, ...]
    """Times at which they come, since the first of them."""
    runs: Count
    """Runs in which they were found."""
    first_s: tuple[float | None, ...]
    """Time at which the first is due in each run; null if the run has none."""
    latency_ns: Count
    """The median of their worst packets."""


class StartUpBursts(Section, frozen=True, kw_only=True):
    """Bursts of the beginning: they are no part of the law."""

    run: Count
    """The run, from 0."""
    until_s: float
    """Since the first packet."""
    bursts: Count
    """Their number."""
    latency_ns_max: Count
    """The worst packet."""


class StabilityAt(Section, frozen=True, kw_only=True):
    """The estimates with another threshold, and the ends of their intervals."""

    threshold_ns: Count
    """The threshold."""
    bursts: Count
    """Bursts beyond it."""
    xi: tuple[float, float, float]
    """Shape of the law."""
    sigma_star_ns: tuple[float, float, float]
    """Modified scale of the law."""
    mean_excess_ns: tuple[float, float, float]
    """Mean excess over the threshold."""


class LevelAhead(Section, frozen=True, kw_only=True):
    """A return level."""

    packets: float
    """Number of packets."""
    return_level_ns: float | None
    """The return level of so many packets; null if nothing that was seen bounds it."""
    return_level_ns_ci_low: float
    """Lower end of the interval of the largest latency of that time; no interval of its median."""
    return_level_ns_ci_high: float | None
    """Upper end of the interval of the largest latency of that time; null if nothing that was seen
    bounds it."""


class QuantilePair(Section, frozen=True, kw_only=True):
    """A quantile of the law beside the measured one."""

    law_ns: float
    """The law's."""
    measured_ns: float
    """The measured one."""


class TailRecord(KeptRecord, frozen=True, kw_only=True):
    """What a model of the tail found."""

    count: Count
    """Number of packets."""
    tainted: Count
    """Packets whose latency the instrument's own stalls could change in its first four digits; all
    count with the least that they can have taken."""
    duration_s: float
    """Duration of the measurement."""
    split: float
    """Share of the measurement that the law was fitted to."""
    fit_packets: Count
    """Packets of that share."""
    threshold: float
    """Quantile beyond which the law holds."""
    threshold_ns: Count
    """Its value."""
    threshold_lowered_from: float | None
    """The quantile that was asked for, if it had too few excesses; null if it had enough."""
    run_length_ns: Count
    """Excesses closer than this form one burst."""
    excesses: Count
    """Packets beyond the threshold."""
    bursts: Count
    """Bursts of them."""
    extremal_index: float
    """Bursts per excess."""
    extremal_index_intervals: float | None
    """The same, estimated from the times between excesses."""
    xi: float
    """Shape of the law; the tail ends if it is negative."""
    xi_ci_low: float
    """Lower end of its interval."""
    xi_ci_high: float
    """Upper end of its interval."""
    sigma_ns: float
    """Scale of the law."""
    sigma_ns_ci_low: float
    """Lower end of its interval."""
    sigma_ns_ci_high: float
    """Upper end of its interval."""
    return_packets: float
    """Number of packets to come that the return level is of."""
    return_level_ns: float | None
    """The return level; null if nothing that was seen bounds it."""
    return_level_ns_ci_low: float
    """Lower end of the interval of the largest latency of that time; no interval of its median."""
    return_level_ns_ci_high: float | None
    """Upper end of the interval of the largest latency of that time; null if nothing that was seen
    bounds it."""
    return_level_ns_most_likely: float
    """The return level of the most likely law."""
    level: float
    """Confidence of the intervals."""
    method: str
    """Method of the intervals."""
    intervals: dict[str, TailIntervals]
    """The intervals of each method."""
    bounded: bool
    """True if the most likely law ends, and nothing was beyond."""
    limit_ns: float | None
    """End of the law; null if it has none, or something was beyond."""
    js_divergence_bits: float
    """Distance of the law from the measurement (Jensen-Shannon)."""
    exceedances_packets: Count | None
    """Packets of the rest beyond the return level; null if nothing is left to check with."""
    exceedances_bursts: Count | None
    """Bursts of them."""
    stationary: bool
    """True if both tests find the measurement stationary."""
    adf: TestedStationarity
    """Augmented Dickey-Fuller test."""
    kpss: TestedStationarity
    """Test of Kwiatkowski, Phillips, Schmidt and Shin."""
    candidates: tuple[TriedThreshold, ...]
    """The thresholds that were tried."""
    horizon: TailHorizon | None
    """Expectation until `--horizon`; null without."""
    refused: str | None
    """Reason why there is no return level; null if there is one."""
    latency_ns_max: Count
    """The largest latency."""
    stability: tuple[StabilityAt, ...]
    """Estimates of the model with other thresholds."""
    levels_ahead: tuple[LevelAhead, ...]
    """Return levels beyond the measurement."""
    quantile_pairs: tuple[QuantilePair, ...]
    """Quantiles of the law beside the measured ones."""
    rest_max_ns: Count | None = None
    """The largest latency of what follows, as measured; null if nothing was."""
    rest_max_ns_ci_low: float | None = None
    """Lower end of its predictive interval."""
    rest_max_ns_ci_high: float | None = None
    """Upper end of it; null if nothing that was seen bounds it."""
    rest_max_ns_regions: tuple[LatencyRegion, ...] = ()
    """The parts of that interval in which it may lie; the gaps between hold less than 1 %."""
    known_max_ns_ci_low: float | None = None
    """Lower end of the interval of the largest if bursts are of classes that were seen."""
    known_max_ns_median: float | None = None
    """Median of the largest if bursts are of classes that were seen; null if they do not bound
    it."""
    known_max_ns_ci_high: float | None = None
    """Upper end of the interval of the largest if bursts are of classes that were seen; null if
    they do not bound it."""
    fit_p_value: float | None = None
    """How often a sample of the law is at least as far from it as the bursts (Anderson-Darling)."""
    promise: str | None = None
    """Regime of the largest latency: `bulk`, `rare` or `scheduled`."""
    return_level_exceeded_probability: float | None = None
    """Probability that something exceeds the return level."""
    runs: Count = 1
    """Runs that were taken together."""
    set_aside: tuple[SetAsideRun, ...] = ()
    """Runs that are no part of the law, but of what is foretold."""
    start_up: tuple[StartUpBursts, ...] = ()
    """Bursts of the beginning that do not return."""
    rare: RareBursts | None = None
    """Bursts of a class of their own."""
    schedule: ScheduledBursts | None = None
    """Bursts that come by a clock."""
    exceedances_p_value: float | None = None
    """No longer made; files of before have it."""
    block_maxima: dict[str, float] | None = None
    """No longer made; files of before have it."""
    like: Count = 0
    """Other runs of the setting whose bursts were pooled with theirs."""
    next_quantiles: tuple[ForetoldQuantile, ...] = ()
    """Quantiles of a further run; those that no two runs at one rate have are left out."""
