"""A run, reduced to the figures that it is compared by: its packets are read once, and let go."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tailscope.compare.figures import LOST, MAX, RATE, TRANSFER
from tailscope.compare.measured import MeasuredFigure, OwnFigure, RunFigures
from tailscope.compare.surroundings import facts_of, tainted_share
from tailscope.exceptions import RunCorruptError
from tailscope.models.counting import closest, share_beyond
from tailscope.models.differences import Bounds, packets_worth_of, quantile_ends, ratio_ends
from tailscope.models.samples import SUPPORT, packets_for_support, rank_of
from tailscope.store.info import foreign_text
from tailscope.store.layout import SUMMARY
from tailscope.units import QUANTILES, count_text
from tailscope.verdict.taken import NO_PACKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.compare.figures import Figure
    from tailscope.engine.analysis import Figure as Fact
    from tailscope.engine.analysis import Rate
    from tailscope.store.run import Run
    from tailscope.verdict.evidence import PacketSample
    from tailscope.verdict.taken import Taken

_NS_PER_S = 1_000_000_000


def read_samples(
    names: Mapping[Path, str], figures: Sequence[Figure], errors: Sequence[float]
) -> list[RunFigures]:
    """Read runs that are compared: the shortest of their windows counts for all of them."""
    from tailscope.store.reader import read_run

    runs = {path: read_run(path, label=name) for path, name in names.items()}
    window_ns = min(
        (_window_ns(path, run) for path, run in runs.items() if foreign_text(run.info) is None),
        default=math.inf,
    )
    return [_sample(path, run, window_ns, figures, errors) for path, run in runs.items()]


def _window_ns(path: Path, run: Run) -> int:
    window_ns = run.summary.get("window_ns")
    if not isinstance(window_ns, int) or window_ns < 1:
        raise RunCorruptError(
            f"{path / SUMMARY}: window_ns: expected at least 1, got {window_ns!r}", code="window"
        )
    return window_ns


def _sample(
    path: Path, run: Run, window_ns: float, figures: Sequence[Figure], errors: Sequence[float]
) -> RunFigures:
    if foreign_text(run.info) is not None:
        from tailscope.compare.imported import imported_figures

        return imported_figures(run, figures, errors)
    from tailscope.verdict.evidence import evidence_of

    evidence = evidence_of(path, run)

    def reduced(reading: PacketSample) -> dict[str, MeasuredFigure]:
        return _reduced(reading, run, window_ns, figures, errors)

    return RunFigures(
        run.label,
        facts_of(run.info),
        float(run.summary.get("pre_rate_pps") or 0),
        tainted_share(run.summary),
        False,
        reduced(evidence.as_is),
        None if evidence.least is None else reduced(evidence.least),
        evidence.spoilt,
        window_ns,
        evidence.resolution_ns,
        evidence.doubts,
        evidence.time_doubts,
        own=_own_figures(run.summary),
        fastest_ns=float(run.summary["latency_ns_min"] or 0),
        drift_ns=0.0 if evidence.drift is None else evidence.drift.off_ns,
        is_relative=bool(run.summary.get("latency_relative")),
        never_came=sum(int(run.summary[fate] or 0) for fate in ("lost", "late", "corrupt")),
        unsent=_unsent(run),
    )


def _unsent(run: Run) -> int:
    """Return the packets that were not sent; a path has no instrument that tells them."""
    instrument = run.info.instrument
    return int(run.summary.get("unsent") or 0) if instrument is None else instrument.unsent


def _own_figures(summary: Mapping[str, Fact]) -> dict[str, OwnFigure]:
    """Return the latencies that the table of a run has, by the names that people call them."""
    own = {}
    for flat, name in {**QUANTILES, MAX.name: MAX.name}.items():
        latency = summary[f"latency_ns_{flat}"]
        if latency is None:
            continue
        least = summary.get(f"least_latency_ns_{flat}")
        bound = None
        if summary.get(f"latency_ns_{flat}_supported") is False:
            low = summary.get(f"least_latency_ns_{flat}_ci_low")
            low = summary[f"latency_ns_{flat}_ci_low"] if low is None else low
            bound = None if low is None else float(low)
        own[name] = OwnFigure(float(latency if least is None else least), float(latency), bound)
    return own


def _reduced(
    reading: PacketSample,
    run: Run,
    window_ns: float,
    figures: Sequence[Figure],
    errors: Sequence[float],
) -> dict[str, MeasuredFigure]:
    ranked = _Ranked(reading.taken, window_ns)
    if len(ranked):
        quantiles = [figure.quantile for figure in figures if figure.quantile is not None]
        beyond = [ns for q in quantiles for ns in ranked.beyond_ns(ranked.quantile(q))]
        reading.taken.look_for([*beyond, reading.taken.never_ns])
    found = {}
    for figure in figures:
        if figure.quantile is not None:
            came = _of_those_that_came(reading.taken, figure.quantile)
            measured = _quantile(ranked, figure.quantile, errors)
            found[figure.name] = replace(measured, of_those_that_came=came)
        elif figure == MAX:
            found[MAX.name] = _no_estimate(
                ranked[len(ranked) - 1] if len(ranked) else math.nan,
                errors,
                "it is a single packet, and grows with the number of packets",
            )
        elif figure == LOST:
            n = len(reading.taken)
            never = closest(reading.taken.in_stretches(reading.taken.never_ns), reading.lost)
            found[LOST.name] = _lost(reading.lost, n, packets_worth_of(never, n), errors)
        else:
            found[figure.name] = _over_time(figure, run, errors)
    return found


class _Ranked:
    """Latencies in ascending order; a packet that never came counts as the window."""

    def __init__(self, taken: Taken, window_ns: float) -> None:
        self.taken, self.window_ns = taken, window_ns

    def __len__(self) -> int:
        return len(self.taken)

    def __getitem__(self, place: int) -> float:
        return min(self.taken.at_rank(place + 1), self.window_ns)

    def quantile(self, q: float) -> float:
        """Return the smallest latency with at least ``q n`` of them at or below it."""
        return self[rank_of(q, len(self)) - 1]

    def beyond_ns(self, at_ns: float) -> list[int]:
        """Return the latency from which on packets lie beyond another, or at it."""
        from_ns = [self.window_ns] if at_ns >= self.window_ns else [at_ns, at_ns + 1]
        return [math.ceil(ns) for ns in from_ns]

    def worth(self, at_ns: float) -> float:
        """Return the number of packets beyond a latency that are worth one."""
        counts = map(self.taken.in_stretches, self.beyond_ns(at_ns))
        return max(packets_worth_of(count, len(self)) for count in counts)


def _no_estimate(value: float, errors: Iterable[float], why: str) -> MeasuredFigure:
    return MeasuredFigure({error: Bounds(value, -math.inf, math.inf) for error in errors}, why)


def _quantile(ranked: _Ranked, q: float, errors: Sequence[float]) -> MeasuredFigure:
    n = len(ranked)
    if not n:
        return _no_estimate(math.nan, errors, NO_PACKETS)
    rank = rank_of(q, n)
    design = ranked.worth(ranked.quantile(q))
    ends = {error: quantile_ends(ranked, q, design, error) for error in errors}
    independent = (n - rank) / design
    if independent >= SUPPORT:
        return MeasuredFigure(ends, packets=n)
    why = (
        f"packets beyond it: {count_text(n - rank)}, worth {independent:.1f} independent ones;"
        f" {SUPPORT} are needed"
    )
    return MeasuredFigure(ends, why, n, math.ceil(packets_for_support(q) * design))


def _of_those_that_came(taken: Taken, q: float) -> float:
    count = taken.came.count
    return float(taken.came.at_ranks([rank_of(q, count)])[0]) if count else math.nan


def _lost(lost: int, n: int, design: float, errors: Iterable[float]) -> MeasuredFigure:
    if not n:
        return _no_estimate(math.nan, errors, NO_PACKETS)
    ends = {}
    for error in errors:
        share = share_beyond(lost, n, design=design, error=error)
        ends[error] = Bounds(share.estimate, share.ci_low, share.ci_high)
    return MeasuredFigure(ends, packets=n, design=design)


def lost_alike(samples: Sequence[RunFigures]) -> Iterator[RunFigures]:
    """Samples in which lost packets come in bursts as large as in any of them.

    A run that lost nothing does not tell how it would.
    """
    readings = [reading for sample in samples for reading in (sample.as_is, sample.least)]
    design = max(reading[LOST.name].design for reading in readings if reading is not None)

    def again(reading: Mapping[str, MeasuredFigure]) -> Mapping[str, MeasuredFigure]:
        found = reading[LOST.name]
        if found.lacks is not None:
            return reading
        lost = round(found.value * found.packets) if found.packets else 0
        return {**reading, LOST.name: _lost(lost, found.packets, design, found.ends)}

    for sample in samples:
        least = None if sample.least is None else again(sample.least)
        yield replace(sample, as_is=again(sample.as_is), least=least)


def _over_time(figure: Figure, run: Run, errors: Sequence[float]) -> MeasuredFigure:
    """Transfer rate or rate, whose intervals come from whole seconds."""
    sides = [list(_per_second(run.rate[side])) for side in ("pre", "post")]
    seconds = max(0, min(map(len, sides)) - 1)
    sent, came = (np.array(side[:seconds], np.float64) for side in sides)
    name = {TRANSFER: "transfer_rate", RATE: "post_rate_pps"}[figure]
    rate = run.summary.get(name)
    value = float(rate) if isinstance(rate, int | float) else math.nan
    if not seconds or not sent.sum() or math.isnan(value):
        return _no_estimate(value, errors, "the run is shorter than 2 s")
    under = sent if figure == TRANSFER else np.ones(seconds)
    ends = {}
    for error in errors:
        interval = ratio_ends(came, under, error)
        ends[error] = Bounds(
            value, value + interval.low - interval.value, value + interval.high - interval.value
        )
    lacks = None
    if math.isinf(ends[errors[0]].low):
        lacks = f"whole seconds: {seconds}; 5 are needed to see how they vary"
    return MeasuredFigure(ends, lacks, seconds)


def _per_second(rate: Rate) -> Iterator[int]:
    """Return the number of packets in each second from the first to the last with any."""
    counts = dict(
        zip(
            ((rate.start_ns - rate.start_ns[:1]) // _NS_PER_S).tolist(),
            rate.counts.tolist(),
            strict=True,
        )
    )
    for second in range(max(counts, default=-1) + 1):
        yield counts.get(second, 0)
