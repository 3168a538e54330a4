"""The engine's call, with every figure and series."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import tailscope
from bench.pair import BUCKET_NS, QUANTILES, SECOND_NS, TRIM_NS, WINDOW_NS, WORST, Answer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Analysis, Histogram, Quantile, Rate, Series, Worst


class Found(NamedTuple):
    """Everything that the others compute as well."""

    analysis: Analysis
    quantiles: list[Quantile]
    worst: Worst
    series: Series
    histogram: Histogram
    gaps: tuple[Histogram, Histogram]
    rates: tuple[Rate, Rate]


def analyse(pre: Path, post: Path) -> Found:
    """Analyse a pair and take every result out."""
    found = tailscope.analyze(pre, post, trim=TRIM_NS, window=WINDOW_NS, worst=WORST)
    assert found.series is not None
    return Found(
        found,
        found.quantiles(QUANTILES),
        found.worst,
        found.series,
        found.histogram(BUCKET_NS),
        (found.gaps("pre", BUCKET_NS), found.gaps("post", BUCKET_NS)),
        (found.rate("pre"), found.rate("post")),
    )


def answer(found: Found) -> Answer:
    """Bring what was found into the common form."""
    rates = [_seconds(rate) for rate in found.rates]
    kept = [int(rate.counts.sum()) for rate in found.rates]
    return Answer(
        counts=[found.analysis.summary["count"], *kept],
        quantiles=[quantile.value_ns for quantile in found.quantiles],
        worst=np.column_stack((found.worst.latency_ns, found.worst.pre_ns)),
        latencies=np.column_stack((found.series.pre_ns, found.series.latency_ns)),
        histogram=np.column_stack(found.histogram),
        gaps_pre=np.column_stack(found.gaps[0]),
        gaps_post=np.column_stack(found.gaps[1]),
        rate_pre=rates[0],
        rate_post=rates[1],
    )


def _seconds(rate: Rate) -> NDArray[np.uint64]:
    """Without the empty seconds, which a GROUP BY does not have."""
    table = np.column_stack(((rate.start_ns - rate.start_ns[0]) // SECOND_NS, rate.counts))
    return table[rate.counts > 0]
