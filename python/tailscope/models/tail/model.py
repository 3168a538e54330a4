"""The model of a tail: fitted to the first part of a run, checked with the rest, and extended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import EvidenceError
from tailscope.models.estimate import LEVEL, Estimate
from tailscope.models.tail.bursts import bursts, intervals_index, usual_run_length_ns
from tailscope.models.tail.fit import FEWEST_BURSTS, METHODS, fit
from tailscope.models.tail.stationarity import stationarity

if TYPE_CHECKING:
    import numpy as np

    from tailscope.models.tail.excesses import Excesses
    from tailscope.models.tail.fit import Fit, Intervals
    from tailscope.models.tail.stationarity import Stationarity

__all__ = [
    "CANDIDATES",
    "LOWEST",
    "Candidate",
    "Check",
    "Horizon",
    "Settings",
    "TailModel",
    "model",
]

CANDIDATES = (0.995, 0.999, 0.9995, 0.9999, 0.99999)
"""Thresholds that are tried, as quantiles (containers2024 section 6.2)."""

LOWEST = 0.99
"""What has to be known of a series: a part of it may have a lower quantile than the whole."""

_REFUTED = 0.01
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to model a tail.

    Attributes
    ----------
    split : float
        Share of the packets, the first in time, that the law is fitted to; the rest checks it.
    thresholds : tuple of float
        Quantiles; of several the one whose law fits best is taken.
    run_length_ns : int or None
        Excesses less far apart are one burst; None for `usual_run_length_ns`.
    level : float
        Of intervals.
    method : str
        One of `tailscope.models.tail.fit.METHODS`.
    resamples : int
        Of the bootstrap.
    horizon_ns : int or None
        How far to look ahead.
    """

    split: float = 0.2
    thresholds: tuple[float, ...] = CANDIDATES
    run_length_ns: int | None = None
    level: float = LEVEL
    method: str = METHODS[0]
    resamples: int = 1000
    horizon_ns: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A threshold that was tried.

    Attributes
    ----------
    quantile : float
        Of the part that is fitted.
    threshold_ns : int or None
        None where it lies below what is known of the series.
    fit : Fit or None
    refused : str or None
        Why nothing was fitted.
    """

    quantile: float
    threshold_ns: int | None
    fit: Fit | None
    refused: str | None

    @property
    def misfit_bits(self) -> float:
        """How much further the excesses are from the law than chance alone puts them."""
        assert self.fit is not None
        return self.fit.divergence_bits - self.fit.divergence_by_chance_bits


class Check(NamedTuple):
    """What the rest of the run says of the law.

    Attributes
    ----------
    packets : int
        In the rest.
    exceedances_packets, exceedances_bursts : int
        That took longer than one burst was expected to.
    p_value : float
        How probable as many bursts or more are, if the law is right.
    """

    packets: int
    exceedances_packets: int
    exceedances_bursts: int
    p_value: float


class Horizon(NamedTuple):
    """What to expect.

    Attributes
    ----------
    duration_ns : int
    packets : float
        At the rate of the run.
    level_ns : Estimate
        The latency that one burst is expected to exceed, by a law for the whole run.
    limit_ns : float or None
        What that law never exceeds.
    """

    duration_ns: int
    packets: float
    level_ns: Estimate
    limit_ns: float | None


@dataclass(frozen=True)
class TailModel:
    """A model, its check, and what follows.

    Attributes
    ----------
    excesses : Excesses
        Of the whole run.
    run_length_ns : int
    candidates : list of Candidate
    chosen : Candidate
    lowered_from : float or None
        The lowest quantile that was tried, where each left too few bursts.
    intervals : dict of str to Intervals
        By each method.
    settings : Settings
    extremal_index_intervals : float or None
        Bursts per excess, without a run length.
    stationarity : Stationarity
        Of the worst latencies of the bursts, in order of time.
    level_packets, level_ns : float
        Of how many packets one burst is expected to exceed which latency.
    check : Check or None
        None where all of the run was fitted.
    horizon : Horizon or None
    """

    excesses: Excesses
    run_length_ns: int
    candidates: list[Candidate]
    chosen: Candidate
    lowered_from: float | None
    intervals: dict[str, Intervals]
    settings: Settings
    extremal_index_intervals: float | None
    stationarity: Stationarity
    level_packets: float
    level_ns: float
    check: Check | None
    horizon: Horizon | None

    @property
    def fit(self) -> Fit:
        """Of the threshold that was chosen."""
        assert self.chosen.fit is not None
        return self.chosen.fit

    @property
    def refused(self) -> str | None:
        """Why nothing should be concluded about the future; None where something may be."""
        tests, check = self.stationarity, self.check
        if not tests.holds:
            return (
                "the worst latencies of the bursts are not stationary: ADF"
                f" {tests.adf.statistic:.2f} (below {tests.adf.critical:.2f} expected), KPSS"
                f" {tests.kpss.statistic:.3f} (below {tests.kpss.critical:.3f} expected)"
            )
        if check is not None and check.p_value < _REFUTED:
            return (
                f"the rest of the run contradicts the law: {check.exceedances_bursts} bursts above"
                f" the level that one was expected to exceed (probability {check.p_value:.2g})"
            )
        return None

    def estimates(self) -> dict[str, Estimate]:
        """Shape, scale and level, by the method that was asked for."""
        found = self.intervals[self.settings.method]
        points = (self.fit.best.xi, self.fit.best.sigma, self.level_ns)
        names = ("xi", "sigma_ns", "return_level_ns")
        return {
            name: Estimate(
                estimate=float(point),
                ci_low=float(low),
                ci_high=float(high),
                level=self.settings.level,
                n=len(self.fit.bursts),
                method=self.settings.method,
            )
            for name, point, (low, high) in zip(names, points, found, strict=True)
        }


def model(excesses: Excesses, settings: Settings, rng: np.random.Generator) -> TailModel:
    """Model the tail of a run.

    Parameters
    ----------
    excesses : Excesses
    settings : Settings
    rng : Generator
        Of the bootstrap.

    Raises
    ------
    EvidenceError
        If there are too few bursts, or all latencies are alike.
    """
    whole = settings.split >= 1
    part, rest = excesses.split(settings.split)
    if part.count < FEWEST_BURSTS:
        raise EvidenceError(
            f"expected at least {FEWEST_BURSTS} packets to fit a law to, got {part.count}",
            hint="measure for longer",
        )
    run_length_ns = settings.run_length_ns
    if run_length_ns is None:
        run_length_ns = usual_run_length_ns(excesses.gap_ns)
    candidates = [_candidate(part, quantile, run_length_ns) for quantile in settings.thresholds]
    fitted = [each for each in candidates if each.fit is not None]
    lowered_from = None
    if not fitted:
        first = _lowest_known(part, candidates, run_length_ns)
        lowered_from = first.quantile
        fitted = [_lowered(part, first, run_length_ns)]
        candidates += fitted
    chosen = min(fitted, key=lambda each: each.misfit_bits)
    fit_, packets = chosen.fit, excesses.count if whole else rest.count
    assert fit_ is not None
    level_ns = fit_.level_ns(packets)
    return TailModel(
        excesses,
        run_length_ns,
        candidates,
        chosen,
        lowered_from,
        fit_.intervals(packets, settings.level, fit_.resample(settings.resamples, rng)),
        settings,
        intervals_index(part, fit_.threshold_ns),
        stationarity(fit_.bursts.worst_ns.astype(float)),
        packets,
        level_ns,
        None if whole else _check(fit_, rest, level_ns, run_length_ns),
        _horizon(excesses, fit_.threshold_ns, run_length_ns, settings, rng),
    )


def _candidate(part: Excesses, quantile: float, run_length_ns: int) -> Candidate:
    threshold_ns = part.threshold_ns(quantile)
    if threshold_ns is None:
        return Candidate(
            quantile, None, None, "the table of the worst packets does not reach that low"
        )
    try:
        return Candidate(quantile, threshold_ns, fit(part, threshold_ns, run_length_ns), None)
    except EvidenceError as error:
        return Candidate(quantile, threshold_ns, None, str(error))


def _lowest_known(part: Excesses, tried: list[Candidate], run_length_ns: int) -> Candidate:
    """Of what was tried, the lowest threshold that is known; else the lowest that there is."""
    known = [each for each in tried if each.threshold_ns is not None]
    found = min(known, key=lambda each: each.quantile, default=None)
    return found or _candidate(part, _reach(part), run_length_ns)


def _lowered(part: Excesses, found: Candidate, run_length_ns: int) -> Candidate:
    """The first threshold below that leaves bursts enough: each has twice the packets beyond it.

    Raises
    ------
    EvidenceError
        If none does that is known of.
    """
    while found.fit is None:
        if found.quantile <= _reach(part):
            raise EvidenceError(str(found.refused), hint="measure for longer")
        lower = max(_reach(part), 1 - 2 * (1 - found.quantile))
        found = _candidate(part, lower, run_length_ns)
    return found


def _reach(part: Excesses) -> float:
    """The lowest quantile that may be asked for."""
    return max(LOWEST, 1 - len(part.latency_ns) / part.count)


def _check(found: Fit, rest: Excesses, level_ns: float, run_length_ns: int) -> Check:
    beyond = bursts(rest, found.threshold_ns, run_length_ns).worst_ns > level_ns
    exceeding = int(beyond.sum())
    return Check(
        rest.count,
        int((rest.latency_ns > level_ns).sum()),
        exceeding,
        found.exceeded(level_ns, rest.count, exceeding),
    )


def _horizon(
    excesses: Excesses,
    threshold_ns: int,
    run_length_ns: int,
    settings: Settings,
    rng: np.random.Generator,
) -> Horizon | None:
    """Look ahead, by a law for the whole run above the threshold that was chosen."""
    if settings.horizon_ns is None:
        return None
    if not excesses.duration_ns:
        raise EvidenceError(
            f"expected packets that were sent at different times, got {excesses.count} at once"
        )
    found = fit(excesses, threshold_ns, run_length_ns)
    packets = excesses.count * settings.horizon_ns / excesses.duration_ns
    intervals = found.intervals(packets, settings.level, found.resample(settings.resamples, rng))
    low, high = intervals[settings.method].level_ns
    estimate = Estimate(
        estimate=found.level_ns(packets),
        ci_low=float(low),
        ci_high=float(high),
        level=settings.level,
        n=len(found.bursts),
        method=settings.method,
    )
    return Horizon(settings.horizon_ns, packets, estimate, found.limit_ns)
