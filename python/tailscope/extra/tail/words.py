"""A kept model of the tail in words, for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.extra.tail.records import TailRecord
from tailscope.units import count_text, duration_text, percentile_name
from tailscope.words.figures import Row, interval_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.store.kept import Conclusions


def conclusion_rows(kept: Conclusions) -> Iterator[Row]:
    """Say what lies beyond the measurement."""
    found = kept.of(TailRecord)
    if found is None:
        return
    if found.return_level_ns is None:
        return
    yield Row(
        f"largest of the next {count_text(round(found.return_packets))} packets",
        duration_text(found.return_level_ns),
        reach_text(found.return_level_ns_ci_low, found.return_level_ns_ci_high),
    )


def conclusion_doubts(kept: Conclusions) -> Iterator[str]:
    """Say why there is no return level, if there is none."""
    found = kept.of(TailRecord)
    if found is not None and found.refused:
        yield f"no return level of the tail: {found.refused}"


def reach_text(low_ns: float, high_ns: float | None) -> str:
    """Return an interval, whose upper end may not be bounded by what was seen."""
    if high_ns is None:
        return f"{duration_text(low_ns)} or more"
    return interval_text(low_ns, high_ns)


def regions_text(regions: Sequence[tuple[float, float | None, float]]) -> str:
    """Return where a figure may lie; if in several parts, with the probability of each."""
    if len(regions) == 1:
        return reach_text(*regions[0][:2])
    parts = (f"{reach_text(low, high)} ({chance:.0%})" for low, high, chance in regions)
    return " or ".join(parts)


def next_run(path: Path, quantile: float, limit_ns: float | None = None) -> str | None:
    """Say where a quantile of a further run lies, by the kept model, and if that is in a limit."""
    from tailscope.store.reader import read_run

    found = read_run(path).kept.of(TailRecord)
    for each in () if found is None else found.next_quantiles:
        if each.quantile == quantile:
            low_ns, high_ns = each.latency_ns_ci_low, each.latency_ns_ci_high
            regions = [(part.low, part.high, part.probability) for part in each.latency_ns_regions]
            where = regions_text(regions or [(low_ns, high_ns, 1.0)])
            text = f"{percentile_name(quantile)} of a further run: {where}"
            if limit_ns is None:
                return text
            is_within = high_ns is not None and high_ns < limit_ns
            where = "within" if is_within else "beyond" if low_ns > limit_ns else "about"
            return f"{text}, {where} the limit"
    return None
