"""The rate up to which a tail holds, beside the rate at which a function overloads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from tailscope.exceptions import EvidenceError, RunError, UsageError
from tailscope.experiment.search.overload import TailRate, queues_in
from tailscope.extra.tail.models.replay import Limit, Seen, highest_rate_within, work_of
from tailscope.noise.taken import taken_from_instrument
from tailscope.store.reader import open_packets, read_run
from tailscope.units import duration_text

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.experiment.search.overload import Forecast
    from tailscope.extra.tail.models.replay import Floats, Replayed
    from tailscope.models.overload.prediction import Prediction
    from tailscope.verdict.slo import Level

    Arrivals: TypeAlias = Literal["even", "random", "bursts"]

_QUANTILE, _MEDIANS = 0.999, 10
_EVEN, _RANDOM = 0.5, 1.5
"""Standard deviation of the time between packets, over its mean, below which they come evenly, or
at random."""
_OVERLOADED = (
    "the rate up to which the tail holds is not known: at low load the function's run would show"
    " what is replayed"
)
_STALLED = 0.03
"""Share of a queue's time that the instrument may stall: it sees packets late meanwhile."""


def tail_rate(
    forecast: Forecast, function: Path, bursts: Path | None, level: Level | None
) -> Forecast:
    """Add the rate up to which packets meet a level, or a warning that says why there is none."""
    found = forecast.prediction
    text, limits = _limits(level, found.e2e_ns.estimate)
    if not found.is_bounded:
        return forecast
    if found.cpu_ns is None:
        # Multiples of its median are no limit that anybody has.
        tail = None if level is None else TailRate(text, None)
        return replace(forecast, tail=tail, warnings=(*forecast.warnings, _OVERLOADED))
    try:
        replayed, arrivals = _replayed(function, bursts or function, found, limits)
    except (EvidenceError, RunError) as error:
        warnings = (*forecast.warnings, str(error))
        return replace(forecast, tail=TailRate(text, None), warnings=warnings)
    tail = TailRate(text, replayed.rate_pps, arrivals)
    warnings = forecast.warnings if tail.is_told else (*forecast.warnings, _unclear(replayed))
    return replace(forecast, tail=tail, warnings=warnings)


def _unclear(replayed: Replayed) -> str:
    """Say why the rate is not known, and what it is if what took long is of one kind."""
    by_packet, by_time = (
        f"{round(low):,} to {round(high):,} packets/s"
        for low, high in (replayed.by_packet_pps, replayed.by_time_pps)
    )
    return (
        "the rate up to which the tail holds is not known to within a factor of two: it is"
        f" {by_packet} if the work that took long belongs to its packets, and {by_time} if it comes"
        " in time, whether packets are there or not; the less of it was seen, the wider these are:"
        " measure for longer"
    )


def _limits(level: Level | None, median_ns: float) -> tuple[str, list[Limit]]:
    """Return the limits of a level in words and in figures."""
    if level is None:
        limit_ns = _MEDIANS * median_ns
        return f"p99.9<={duration_text(limit_ns)}", [Limit(limit_ns, 1 - _QUANTILE)]
    terms = [term for term in level.terms if term.kind == "latency"]
    limits = [Limit(term.limit, term.allowed) for term in terms if term.allowed is not None]
    if not limits:
        raise UsageError(
            f"--slo: got {level.text!r}, expected a quantile of the latency",
            code="slo-no-latency",
            hint="such as 'p99.9<350us': loss, the maximum and counts follow from no replay",
        )
    return ", ".join(term.text for term in terms), limits


def _replayed(
    function: Path, queued: Path, found: Prediction, limits: list[Limit]
) -> tuple[Replayed, Arrivals]:
    """Replay what the runs have shown; returns how packets came, too."""
    run = read_run(queued)
    left_ns, queues = queues_in(queued, run, found.transfer_ns)
    stalled_ns = taken_from_instrument(queued, run, queues.begin_ns, queues.end_ns)
    queues = queues.where(stalled_ns <= _STALLED * (queues.end_ns - queues.begin_ns))
    work = work_of(left_ns, queues)
    with open_packets(function, read_run(function).info) as packets:
        pre_ns, latency_ns, tainted = packets.columns("pre_ns", "latency_ns", "tainted")
    is_clean = np.ones(len(pre_ns), bool) if tainted is None else ~tainted.astype(bool)
    seen = Seen.of(
        work,
        found.transfer_ns.estimate,
        pre_ns.astype(np.int64),
        latency_ns.astype(np.int64),
        is_clean,
    )
    rate_max_pps, chance = found.rate_max_pps.ci_high, np.random.default_rng(len(pre_ns))
    replayed = highest_rate_within(seen, limits, rate_max_pps, chance)
    return replayed, _arrivals(seen.apart_ns)


def _arrivals(apart_ns: Floats) -> Arrivals:
    """Say how packets come, by how much the time between them varies."""
    varies = float(apart_ns.std() / apart_ns.mean())
    return "even" if varies < _EVEN else "random" if varies < _RANDOM else "bursts"
