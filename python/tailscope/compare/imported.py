"""Imported measurements, reduced to the figures that runs are compared by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailscope.compare.figures import LOST, MAX
from tailscope.compare.measured import MeasuredFigure, RunFigures
from tailscope.compare.surroundings import facts_of, tainted_share
from tailscope.models.differences import Bounds, packets_worth_in_time, ranks_around
from tailscope.models.samples import SUPPORT
from tailscope.verdict.evidence import Doubt
from tailscope.verdict.imported import ImportedSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.compare.figures import Figure
    from tailscope.store.run import Run


def imported_figures(run: Run, figures: Sequence[Figure], errors: Sequence[float]) -> RunFigures:
    """Reduce an imported run; a figure that it does not hold is no estimate, and says why."""
    sample = ImportedSample.of(run)
    doubts: tuple[Doubt, ...] = ()
    if sample.failed is None:
        doubts = (Doubt(sample.lacks("number of lost packets")),)
    return RunFigures(
        name=run.label,
        facts=facts_of(run.info),
        rate_pps=float(run.summary.get("pre_rate_pps") or 0),
        tainted_share=tainted_share(run.summary),
        is_foreign=True,
        as_is={figure.name: _figure(figure, sample, errors) for figure in figures},
        least=None,
        spoilt="",
        window_ns=math.inf,
        resolution_ns=1,
        doubts=doubts,
        time_doubts=(),
    )


def _figure(figure: Figure, sample: ImportedSample, errors: Sequence[float]) -> MeasuredFigure:
    if figure.quantile is not None:
        return _quantile(figure.quantile, sample, errors)
    if figure == MAX:
        at = sample.ranks.at(sample.ranks.count)
        why = "it is a single packet, and grows with the number of packets"
        return _no_estimate(math.nan if at is None else at.high, errors, why)
    if figure == LOST and sample.failed is not None:
        value = sample.failed.low / sample.packets
        return _no_estimate(value, errors, sample.lacks("order of lost packets"))
    return _no_estimate(math.nan, errors, sample.lacks("packets of each second"))


def _quantile(q: float, sample: ImportedSample, errors: Sequence[float]) -> MeasuredFigure:
    n, ranks = sample.packets, sample.ranks
    rank = ranks_around(q, n)[0]
    if rank > ranks.count:
        return _no_estimate(math.inf, errors, "so many packets never came, or were not matched")
    at = ranks.at(rank)
    if at is None:
        return _no_estimate(math.nan, errors, sample.lacks("the quantile"))
    if not ranks.is_among_longest(at.low):
        return _no_estimate(at.high, errors, sample.lacks("order of packets at the quantile"))
    beyond = n - rank
    failed = 0 if sample.failed is None else sample.failed.high
    design = packets_worth_in_time(sample.run.worst.pre_ns, beyond, failed, n, sample.span_ns)
    ends = {}
    for error in errors:
        _, low, high = ranks_around(q, n, design, error)
        lower = ranks.at(low) if low else None
        upper = ranks.at(high) if 0 < high <= ranks.count else None
        ends[error] = Bounds(
            float(at.high),
            -math.inf if lower is None else lower.low,
            math.inf if upper is None else upper.high,
        )
    if beyond / design >= SUPPORT:
        return MeasuredFigure(ends, packets=n, design=design)
    why = f"packets beyond it: {beyond:,}, worth {beyond / design:.1f} independent ones"
    return MeasuredFigure(ends, f"{why}; {SUPPORT} are needed", n)


def _no_estimate(value: float, errors: Sequence[float], why: str) -> MeasuredFigure:
    return MeasuredFigure({error: Bounds(value, -math.inf, math.inf) for error in errors}, why)
