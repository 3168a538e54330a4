"""Power of a machine that idles, runs a device or processes packets, and energy per packet.

After noms2020, section V-E and Table III: idle (no device), running ("available": the device is
there, no packets come), processing (packets come).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from tailscope.exceptions import EvidenceError
from tailscope.models.estimate import LEVEL, Estimate
from tailscope.models.special import stdtrit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

PHASES = ("idle", "running", "processing")

METHOD = "Student's t over stretches of equal power, weighed by time; half of the last digit added"
_COMBINED = "MOVER"
_UJ_PER_J = 1e6
_NS_PER_S = 1e9
_MILLION = 1_000_000
_MOST_WATTS = 1000.0
"""Highest plausible power, in watts; a gap in which a counter could have wrapped is unknown."""
_REACH = 2.0
"""Largest reach of a reading to either side, in usual distances between readings."""
_LEAST_COVERED = 0.9
"""Smallest share of a phase that readings must cover."""


class TooLittleError(EvidenceError):
    """Readings that do not suffice to determine the power."""


class Span(NamedTuple):
    """A time span."""

    start_ns: int
    end_ns: int

    @property
    def lasts_s(self) -> float:
        """Return the duration in seconds."""
        return (self.end_ns - self.start_ns) / _NS_PER_S


@dataclass(frozen=True)
class Power:
    """Power over time: ordered stretches of constant power, with gaps where it is unknown."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    watts: NDArray[np.float64]
    """Power of each domain, in watts; the sum is the consumption."""
    resolution_w: float = 0.0
    """Last digit of the meter, in watts."""

    @classmethod
    def from_counters(cls, time_ns: ArrayLike, energy_uj: ArrayLike, range_uj: ArrayLike) -> Self:
        """Make it of counters of energy: exact means between readings."""
        times, ranges = _times(time_ns), np.asarray(range_uj, np.int64)
        counts = np.asarray(energy_uj, np.int64).reshape(len(times), len(ranges))
        _refuse((counts < 0) | (counts > ranges), counts, "energy_uj", f"0 to {ranges.tolist()}")
        steps = np.diff(counts, axis=0)
        steps += np.where(steps < 0, ranges, 0)
        seconds = np.diff(times)[:, None] / _NS_PER_S
        plausible = (ranges / _UJ_PER_J > _MOST_WATTS * seconds).all(axis=1)
        watts = steps / _UJ_PER_J / seconds
        return cls(times[:-1][plausible], times[1:][plausible], watts[plausible])

    @classmethod
    def from_readings(
        cls, time_ns: ArrayLike, watts: ArrayLike, *, resolution_w: float = 0.0
    ) -> Self:
        """Make it of readings of power: each stands for the time until half way to the next."""
        times = _times(time_ns)
        values = np.asarray(watts, np.float64).reshape(len(times))
        _refuse(~((values >= 0) & np.isfinite(values)), values, "watts", "at least 0")
        distances = np.diff(times)
        reach_ns = int(_REACH * np.median(distances)) if len(distances) else 0
        middle = times[:-1] + distances // 2
        start_ns = np.maximum(times - reach_ns, np.concatenate((times[:1], middle)))
        end_ns = np.minimum(times + reach_ns, np.concatenate((middle, times[-1:])))
        return cls(start_ns, end_ns, values[:, None], resolution_w)


@dataclass(frozen=True)
class Energy:
    """The energy figures of a run."""

    estimates: Mapping[str, Estimate | None]
    """``power_w_idle``, ``power_w_running``, ``power_w_processing``, and of
    ``energy_j_per_packet`` and ``energy_j_per_million_packets`` the total and the part
    ``_above_idle``; None for a figure without enough evidence."""
    reasons: Mapping[str, str]
    """Reasons for the missing figures, by the same names."""

    def record(self) -> dict[str, float | None]:
        """Return the figures as flat JSON content."""
        flat: dict[str, float | None] = {}
        for name, estimate in self.estimates.items():
            nothing: dict[str, float | None] = {
                name: None,
                f"{name}_ci_low": None,
                f"{name}_ci_high": None,
            }
            flat |= nothing if estimate is None else estimate.record(name)
        return flat


def account(power: Power, phases: Mapping[str, Span], packets: int) -> Energy:
    """Account for the energy of a run."""
    estimates: dict[str, Estimate | None] = {}
    reasons: dict[str, str] = {}
    for phase in PHASES:
        name = f"power_w_{phase}"
        try:
            if phase not in phases:
                raise TooLittleError("there was no such phase", code="power-phase")
            estimates[name] = mean_power(power, phases[phase])
        except TooLittleError as error:
            estimates[name], reasons[name] = None, str(error)
    total, idle = estimates["power_w_processing"], estimates["power_w_idle"]
    above = None if total is None or idle is None else difference(total, idle)
    reason = reasons.get("power_w_processing") or reasons.get("power_w_idle", "")
    for suffix, watts in (("", total), ("_above_idle", above)):
        for count, what in ((1, "packet"), (_MILLION, "million_packets")):
            name = f"energy_j_per_{what}{suffix}"
            estimates[name] = None
            if watts is None:
                reasons[name] = reason
            elif packets < 1:
                reasons[name] = "no packet was sent"
            else:
                seconds = phases["processing"].lasts_s * count / packets
                estimates[name] = _mapped(watts, partial(mul, seconds))
    return Energy(estimates, reasons)


def mean_power(power: Power, span: Span, *, level: float = LEVEL) -> Estimate:
    """Say how much power there was in a time, in watts.

    Its interval is of the mean of such times: of what varies within this one, not of what drifts
    from one run to the next. A power that stays the same counts once, however often it was read:
    a meter may be slower than who reads it.
    """
    lasted_ns = np.minimum(power.end_ns, span.end_ns) - np.maximum(power.start_ns, span.start_ns)
    within = lasted_ns > 0
    seconds, watts = lasted_ns[within] / _NS_PER_S, power.watts[within].sum(axis=1)
    if len(watts) < 2:
        raise TooLittleError(
            f"got {len(watts)} readings in {span.lasts_s:g} s, expected 2 or more",
            code="power-readings",
        )
    covered_s = float(seconds.sum())
    if covered_s < _LEAST_COVERED * span.lasts_s:
        raise TooLittleError(
            f"readings cover {covered_s:.3g} of {span.lasts_s:.3g} s,"
            f" expected at least {_LEAST_COVERED:.0%}",
            code="power-gap",
        )
    mean = float(seconds @ watts) / covered_s
    begins = np.flatnonzero(np.concatenate(([True], np.diff(watts) != 0)))
    count = len(begins)
    deviations_j = np.add.reduceat(seconds * (watts - mean), begins)
    half = power.resolution_w / 2
    if count > 1:
        variance = count / (count - 1) * float(deviations_j @ deviations_j) / covered_s**2
        half += _student_t(level, count - 1) * math.sqrt(variance)
    if not 2 * half < mean:
        raise TooLittleError(
            f"got {mean:.3g} W, {mean - half:.3g} to {mean + half:.3g},"
            " expected an interval narrower than that",
            code="power-varies",
        )
    return Estimate(
        estimate=mean,
        ci_low=mean - half,
        ci_high=mean + half,
        level=level,
        n=count,
        method=METHOD,
    )


def difference(after: Estimate, before: Estimate) -> Estimate:
    """Subtract two independent figures; intervals are recovered (MOVER, Zou and Donner 2008)."""
    middle = after.estimate - before.estimate
    return replace(
        after,
        estimate=middle,
        ci_low=middle - math.hypot(after.estimate - after.ci_low, before.ci_high - before.estimate),
        ci_high=middle
        + math.hypot(after.ci_high - after.estimate, before.estimate - before.ci_low),
        n=min(after.n, before.n),
        method=_COMBINED,
    )


def relative_change(after: Estimate, before: Estimate) -> Estimate:
    """Say how much larger a positive figure is than another, as a share of that one.

    >>> watts = dict(level=0.95, n=10, method="")
    >>> enabled = Estimate(estimate=31.0, ci_low=30.5, ci_high=31.5, **watts)
    >>> disabled = Estimate(estimate=46.0, ci_low=45.5, ci_high=46.5, **watts)
    >>> round(relative_change(disabled, enabled).estimate, 2)
    0.48
    """
    return _mapped(difference(_mapped(after, math.log), _mapped(before, math.log)), math.expm1)


def _mapped(of: Estimate, by: Callable[[float], float]) -> Estimate:
    """Return a figure under an increasing function, with its interval."""
    return replace(of, estimate=by(of.estimate), ci_low=by(of.ci_low), ci_high=by(of.ci_high))


def _student_t(level: float, freedom: int) -> float:
    return stdtrit(freedom, (1 + level) / 2)


def _times(time_ns: ArrayLike) -> NDArray[np.int64]:
    times = np.asarray(time_ns, np.int64)
    steps = np.diff(times)
    if (steps <= 0).any():
        at = int(np.argmax(steps <= 0)) + 1
        raise ValueError(f"time_ns[{at}]: got {times[at]}, expected more than {times[at - 1]}")
    return times


def _refuse(
    wrong: NDArray[np.bool_], values: NDArray[np.generic], name: str, expected: str
) -> None:
    if wrong.any():
        at = int(np.flatnonzero(wrong.reshape(len(values), -1).any(axis=1))[0])
        raise ValueError(f"{name}[{at}]: got {values[at].tolist()}, expected {expected}")
