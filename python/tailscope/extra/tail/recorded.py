"""The record that ``tailscope model tail`` writes."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from tailscope.models.estimate import LEVEL

if TYPE_CHECKING:
    from tailscope.extra.tail.models.forecast import Candidate, Forecast
    from tailscope.extra.tail.models.model import Horizon, TailModel
    from tailscope.extra.tail.models.setting import Largest, NextQuantile
    from tailscope.extra.tail.records import (
        LatencyRegion,
        TailHorizon,
        TailRecord,
        TriedThreshold,
    )

DRAWN = ("stability", "levels_ahead", "quantile_pairs")
"""Figures that only drawings need."""

_NS_PER_S = 1e9


def record_of(fitted: TailModel, tainted: int, *, is_drawn: bool = True) -> TailRecord:
    """Return the content of ``--json`` for a model."""
    from tailscope.extra.tail.records import (
        ForetoldQuantile,
        SetAsideRun,
        TailIntervals,
        TailRecord,
        TestedStationarity,
    )

    fit, ahead, check = fitted.fit, fitted.ahead, fitted.check
    estimates = fitted.estimates()
    named: dict[str, Any] = {
        name: value
        for name, estimate in estimates.items()
        for name, value in estimate.record(name).items()
    }
    named |= _level(ahead, is_refused=fitted.refused is not None)
    return TailRecord(
        count=sum(run.count for run in fitted.runs),
        tainted=tainted,
        duration_s=sum(run.duration_ns for run in fitted.runs) / _NS_PER_S,
        split=fitted.settings.split,
        fit_packets=fit.packets,
        threshold=ahead.chosen.quantile,
        threshold_ns=fit.threshold_ns,
        threshold_lowered_from=lowered_from(fitted),
        run_length_ns=fitted.run_length_ns,
        excesses=int(fit.bursts.packets.sum()),
        bursts=len(fit.bursts),
        extremal_index=fit.bursts.extremal_index,
        extremal_index_intervals=fitted.extremal_index_intervals,
        **named,
        return_packets=fitted.packets,
        return_level_ns_most_likely=fit.best_level_ns(fitted.packets),
        level=fitted.settings.level,
        method=fitted.settings.method,
        intervals={
            method: TailIntervals(**each._asdict()) for method, each in fitted.intervals.items()
        },
        bounded=fitted.limit_ns is not None,
        limit_ns=fitted.limit_ns,
        js_divergence_bits=fit.divergence_bits,
        exceedances_packets=None if check is None else check.exceedances_packets,
        exceedances_bursts=None if check is None else check.exceedances_bursts,
        stationary=bool(ahead.stationarity.holds),
        adf=TestedStationarity(**ahead.stationarity.adf._asdict()),
        kpss=TestedStationarity(**ahead.stationarity.kpss._asdict()),
        candidates=tuple(map(_tried, ahead.candidates)),
        horizon=None if fitted.horizon is None else _horizon(fitted.horizon),
        refused=fitted.refused,
        latency_ns_max=max(int(run.latency_ns.max()) for run in fitted.runs),
        **(_drawn(fitted) if is_drawn else dict.fromkeys(DRAWN, ())),
        rest_max_ns=None if check is None else check.max_ns,
        **_outlook(ahead, is_refused=fitted.refused is not None),
        runs=len(fitted.runs),
        set_aside=tuple(
            SetAsideRun(run=run, floor_ns=floor_ns, reason=reason)
            for run, floor_ns, reason in ahead.set_aside
        ),
        like=len(fitted.others),
        next_quantiles=tuple(
            ForetoldQuantile(
                quantile=each.quantile,
                latency_ns_ci_low=each.low_ns,
                latency_ns_ci_high=each.told_ns(each.high_ns),
                latency_ns_regions=_regions(each),
            )
            for each in fitted.next_quantiles
        ),
        **_causes(ahead),
    )


def _drawn(fitted: TailModel) -> dict[str, Any]:
    """Return the data that drawings need."""
    from tailscope.extra.tail.models.diagnostics import levels_ahead, quantile_pairs, stability
    from tailscope.extra.tail.records import LevelAhead, QuantilePair, StabilityAt

    ahead, level = fitted.ahead, fitted.settings.level
    levels = (each.tolist() for each in levels_ahead(ahead, fitted.others, level))
    pairs = (pair.tolist() for pair in quantile_pairs(fitted.fit))
    thresholds = stability(ahead.found, ahead.packets, ahead.base.at_ns, level)
    return {
        "stability": tuple(StabilityAt(**threshold._asdict()) for threshold in thresholds),
        "levels_ahead": tuple(
            LevelAhead(
                packets=packets,
                return_level_ns=None if isnan(level_ns) else level_ns,
                return_level_ns_ci_low=low,
                return_level_ns_ci_high=None if isnan(high) else high,
            )
            for packets, level_ns, low, high in zip(*levels, strict=True)
        ),
        "quantile_pairs": tuple(
            QuantilePair(law_ns=law, measured_ns=measured)
            for law, measured in zip(*pairs, strict=True)
        ),
    }


def _outlook(ahead: Forecast, *, is_refused: bool) -> dict[str, Any]:
    """Return the figures of the prediction, named after the run or the horizon."""
    largest = ahead.largest
    return {
        "rest_max_ns_ci_low": largest.low_ns,
        "rest_max_ns_ci_high": largest.told_ns(largest.high_ns),
        "rest_max_ns_regions": _regions(largest),
        "known_max_ns_ci_low": largest.known_ns[0],
        "known_max_ns_median": largest.told_ns(largest.known_ns[1]),
        "known_max_ns_ci_high": largest.told_ns(largest.known_ns[2]),
        "fit_p_value": ahead.chosen.p_value,
        "promise": ahead.promise,
        "return_level_exceeded_probability": None
        if is_refused or largest.told_ns(largest.level_ns) is None
        else largest.exceeds_level,
    }


def _level(ahead: Forecast, *, is_refused: bool) -> dict[str, Any]:
    """Return the return level; null if nothing bounds it, or it is refused."""
    largest = ahead.largest
    return {
        "return_level_ns": None if is_refused else largest.told_ns(largest.level_ns),
        "return_level_ns_ci_low": largest.low_ns,
        "return_level_ns_ci_high": largest.told_ns(largest.high_ns),
    }


def _regions(found: Largest | NextQuantile) -> tuple[LatencyRegion, ...]:
    from tailscope.extra.tail.records import LatencyRegion

    return tuple(
        LatencyRegion(low=low, high=found.told_ns(high), probability=probability)
        for low, high, probability in found.regions
    )


def _causes(ahead: Forecast) -> dict[str, Any]:
    """Return the figures of the bursts that the law leaves out."""
    from tailscope.extra.tail.records import (
        RareBursts,
        ScheduledBursts,
        StartUpBursts,
    )

    rare, clocked, clock = ahead.rare, ahead.clocked, ahead.schedule
    figures: dict[str, Any] = {
        "start_up": tuple(
            StartUpBursts(
                run=run,
                until_s=start.until_ns / _NS_PER_S,
                bursts=start.bursts,
                latency_ns_max=start.worst_ns,
            )
            for run, start in enumerate(ahead.starts)
            if start is not None
        )
    }
    if rare is not None:
        rate, low, high = rare.rate_per_s(LEVEL)
        figures["rare"] = RareBursts(
            bursts=len(rare),
            rate_per_s=rate,
            rate_per_s_ci_low=low,
            rate_per_s_ci_high=high,
            latency_ns_min=int(rare.sizes_ns[-1]),
            latency_ns_max=int(rare.sizes_ns[0]),
        )
    if clock is not None:
        # Its shifts count from the end of the start-up.
        begin_ns = [0 if start is None else start.until_ns + 1 for start in ahead.starts]
        figures["schedule"] = ScheduledBursts(
            bursts=len(clock.offsets_ns) if clocked is None else len(clocked),
            period_s=None if clock.period_ns is None else clock.period_ns / _NS_PER_S,
            offsets_s=tuple(each / _NS_PER_S for each in clock.offsets_ns),
            runs=clock.runs,
            first_s=tuple(
                None if at is None else (at + begins_ns) / _NS_PER_S
                for at, begins_ns in zip(clock.shifts_ns, begin_ns, strict=True)
            ),
            latency_ns=clock.size_ns,
        )
    return figures


def _tried(candidate: Candidate) -> TriedThreshold:
    from tailscope.extra.tail.records import TriedThreshold

    fit = candidate.fit
    return TriedThreshold(
        threshold=candidate.quantile,
        threshold_ns=candidate.threshold_ns,
        bursts=None if fit is None else len(fit.bursts),
        xi=None if fit is None else fit.best.xi,
        sigma_ns=None if fit is None else fit.best.sigma,
        js_divergence_bits=None if fit is None else fit.divergence_bits,
        js_by_chance_bits=None if fit is None else fit.divergence_by_chance_bits,
        refused=candidate.refused,
        fit_p_value=candidate.p_value,
    )


def _horizon(horizon: Horizon) -> TailHorizon:
    from tailscope.extra.tail.records import TailHorizon

    is_refused = horizon.forecast.refused is not None
    return TailHorizon(
        duration_s=horizon.duration_ns / _NS_PER_S,
        packets=horizon.packets,
        **_level(horizon.forecast, is_refused=is_refused),
        bounded=horizon.forecast.limit_ns is not None,
        limit_ns=horizon.forecast.limit_ns,
        **_outlook(horizon.forecast, is_refused=is_refused),
    )


def lowered_from(fitted: TailModel) -> float | None:
    """Return the quantile that was asked for, where it left too few bursts."""
    asked = fitted.settings.threshold
    return asked if asked is not None and fitted.ahead.base.is_lowered else None
