"""The model of a tail: fitted to the first part of a run, checked with the rest, and extended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.bursts import bursts, intervals_index, usual_run_length_ns
from tailscope.extra.tail.models.excesses import Excesses
from tailscope.extra.tail.models.fit import METHODS
from tailscope.extra.tail.models.forecast import forecast
from tailscope.extra.tail.models.setting import RunTail, next_quantiles
from tailscope.models.estimate import LEVEL, Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tailscope.extra.tail.models.fit import Fit, Intervals
    from tailscope.extra.tail.models.forecast import Forecast
    from tailscope.extra.tail.models.setting import NextQuantile


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a model of the tail."""

    split: float = 0.2
    """Share of the packets, the first in time, that the law is fitted to; the rest checks it."""
    threshold: float | None = None
    """Quantile above which the law is fitted; None for the lowest with a law that fits."""
    run_length_ns: int | None = None
    """Largest distance of excesses in one burst; None for `usual_run_length_ns`."""
    level: float = LEVEL
    """Confidence of the intervals."""
    method: str = METHODS[0]
    """One of `tailscope.extra.tail.models.fit.METHODS`."""
    resamples: int = 1000
    """Number of resamples of the bootstrap."""
    horizon_ns: int | None = None
    """Extrapolation horizon; None for none."""


class Check(NamedTuple):
    """The check of the forecast by the rest of the run."""

    packets: int
    """Number of packets in the rest."""
    max_ns: int | None
    """Largest latency; None if it is below the known part of the series."""
    exceedances_packets: int
    exceedances_bursts: int
    """Number of packets, and of bursts, above the return level."""


class Horizon(NamedTuple):
    """The forecast for a horizon."""

    duration_ns: int
    packets: float
    """Number of packets in the horizon, at the rate of the run."""
    forecast: Forecast
    """Forecast from the whole run."""


@dataclass(frozen=True)
class TailModel:
    """A model of the tail, its check and its forecasts."""

    runs: Sequence[Excesses]
    run_length_ns: int
    ahead: Forecast
    """Forecast from the first part."""
    intervals: dict[str, Intervals]
    """Intervals of the law of the bulk, by method."""
    settings: Settings
    extremal_index_intervals: float | None
    """Bursts per excess, without a run length; None for several runs."""
    packets: float
    """Number of packets in the forecast."""
    check: Check | None
    """Check by the rest of the run; None if all of it was fitted."""
    horizon: Horizon | None
    others: Sequence[RunTail]
    """Other runs of the setting."""
    next_quantiles: tuple[NextQuantile, ...]
    """Quantiles of a further run; those without repeats are left out."""

    @property
    def fit(self) -> Fit:
        """Return the fit above the chosen threshold."""
        return self.ahead.fit

    @property
    def limit_ns(self) -> float | None:
        """Return the end of the most likely law; None if it has none, or something was beyond."""
        limit, came = self.ahead.limit_ns, None if self.check is None else self.check.max_ns
        return None if limit is not None and came is not None and came > limit else limit

    @property
    def refused(self) -> str | None:
        """Return the reason why there is no return level; None if there is one."""
        if self.horizon is None or self.horizon.forecast.denied is None:
            return self.ahead.refused
        return f"of the whole run: {self.horizon.forecast.denied}"

    def estimates(self) -> dict[str, Estimate]:
        """Return shape, scale and level, with intervals by the requested method."""
        intervals = self.intervals[self.settings.method]
        points = (self.fit.best.xi, self.fit.best.sigma)
        values = zip(("xi", "sigma_ns"), points, intervals[:2], strict=True)
        level = _level_of(self.ahead, self.settings)
        return {
            "return_level_ns": level,
            **{
                name: Estimate(
                    estimate=float(point),
                    ci_low=float(low),
                    ci_high=float(high),
                    level=self.settings.level,
                    n=len(self.fit.bursts),
                    method=self.settings.method,
                )
                for name, point, (low, high) in values
            },
        }


def model(
    runs: Sequence[Excesses] | Excesses,
    settings: Settings,
    rng: np.random.Generator,
    like: Sequence[RunTail] = (),
) -> TailModel:
    """Model the tail of a run, or of several of one setting, of which there may be more."""
    every = [runs] if isinstance(runs, Excesses) else list(runs)
    whole = settings.split >= 1
    parts = [part.split(settings.split) for part in every]
    length_ns = settings.run_length_ns
    if length_ns is None:
        length_ns = max(usual_run_length_ns(part.gap_ns) for part in every)
    own = every if whole else [part.first for part in parts]
    rest = [] if whole else [part.rest for part in parts]
    follow = sum(part.count for part in rest) if rest else sum(e.count for e in own) / len(own)
    ahead = _forecast(own, like, follow, settings, length_ns, rng)
    quantiles = next_quantiles([RunTail.of(run, length_ns) for run in every], like, settings.level)
    if whole:
        # What follows is one more run, none of whose quantiles is above its largest latency.
        quantiles = tuple(each.at_most(ahead.largest.high_ns) for each in quantiles)
    return TailModel(
        every,
        length_ns,
        ahead,
        ahead.fit.intervals(follow, settings.level, ahead.fit.resample(settings.resamples, rng)),
        settings,
        intervals_index(own[0], ahead.fit.threshold_ns) if len(own) == 1 else None,
        follow,
        _check(ahead, rest, length_ns) if rest else None,
        _horizon(every, like, settings, length_ns, rng),
        like,
        quantiles,
    )


def _forecast(
    parts: Sequence[Excesses],
    like: Sequence[RunTail],
    packets: float,
    settings: Settings,
    run_length_ns: int,
    rng: np.random.Generator,
) -> Forecast:
    return forecast(
        parts,
        like,
        packets,
        threshold=settings.threshold,
        run_length_ns=run_length_ns,
        level=settings.level,
        rng=rng,
    )


def _level_of(ahead: Forecast, settings: Settings) -> Estimate:
    found = ahead.largest
    return Estimate(
        estimate=found.level_ns,
        ci_low=found.low_ns,
        ci_high=found.high_ns,
        level=settings.level,
        n=len(ahead.found),
        method=settings.method,
    )


def _check(ahead: Forecast, rest: Sequence[Excesses], run_length_ns: int) -> Check:
    level_ns = ahead.largest.level_ns
    exceeding = sum(
        int((bursts(part, ahead.base.at_ns, run_length_ns).worst_ns > level_ns).sum())
        for part in rest
    )
    packets = sum(part.count for part in rest)
    return Check(
        packets,
        max((int(part.latency_ns.max()) for part in rest if len(part.latency_ns)), default=None),
        sum(int((part.latency_ns > level_ns).sum()) for part in rest),
        exceeding,
    )


def _horizon(
    runs: Sequence[Excesses],
    like: Sequence[RunTail],
    settings: Settings,
    run_length_ns: int,
    rng: np.random.Generator,
) -> Horizon | None:
    """Look ahead from all that was measured."""
    if settings.horizon_ns is None:
        return None
    count = sum(run.count for run in runs)
    duration_ns = sum(run.duration_ns for run in runs)
    if not duration_ns:
        raise EvidenceError(
            f"expected packets that were sent at different times, got {count} at once",
            code="sent-at-once",
        )
    packets = count * settings.horizon_ns / duration_ns
    ahead = _forecast(runs, like, packets, settings, run_length_ns, rng)
    return Horizon(settings.horizon_ns, packets, ahead)
