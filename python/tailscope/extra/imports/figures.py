"""The figures of what was imported: each is as sure as what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Histogram, Quantile, Rate, Worst
from tailscope.exceptions import CaptureError
from tailscope.models.buckets import Ranks
from tailscope.models.differences import ranks_around
from tailscope.models.estimate import LEVEL
from tailscope.models.samples import SUPPORT
from tailscope.store.grid import grid_for
from tailscope.store.info import about_of
from tailscope.store.records.summary import figure_lines
from tailscope.store.run import SIDES, Edges, Run
from tailscope.units import QUANTILES, count_text, duration_text, percentile_name, quantile_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope.engine.analysis import Figure
    from tailscope.extra.imports.foreign import EveryPacket, ForeignRun, WorstPackets
    from tailscope.models.buckets import Between, Buckets
    from tailscope.store.records.run import RunInfo


_NS_PER_S = 1e9
_TOO_MANY = 2
"""So many times the packets that a rate makes are more than its device was sent."""


@dataclass(frozen=True)
class Distribution:
    """The latencies of what was imported, as far as it tells them."""

    source: ForeignRun

    @cached_property
    def ranks(self) -> Ranks:
        """Latencies by rank."""
        worst = self.source.worst
        longest = np.zeros(0, np.uint64) if worst is None else worst.latency_ns
        return Ranks(self.source.count, self.source.buckets, longest)

    def quantile(self, q: float) -> Quantile | None:
        """A quantile; None where nothing tells it.

        Its value is the published one, or else the upper edge of its bucket; its interval reaches
        over whole buckets.
        """
        n = self.source.count
        if not n:
            return None
        rank, low, high = ranks_around(q, n)
        exact, at = self.source.exact.get(q), self.ranks.at(rank)
        if exact is None and at is None:
            return None
        lower, upper = (self.ranks.at(each) if each else None for each in (low, high))
        return Quantile(
            q,
            exact if exact is not None else self._value(at),
            None if lower is None else lower.low,
            None if upper is None else upper.high,
            n - rank,
            n - rank >= SUPPORT,
        )

    def check(self) -> None:
        """See that exact quantiles, and the worst packet, lie where the histogram has them."""
        buckets, n = self.source.buckets, self.source.count
        if buckets is None:
            return
        if self.source.worst is not None and len(self.source.worst.latency_ns):
            longest, at = int(self.source.worst.latency_ns[0]), buckets.at(n)
            if not at.low <= longest <= at.high:
                raise CaptureError(
                    f"{self.source.source}: worst and hist are not of the same run: the longest"
                    f" latency: expected {at.low} to {at.high} ns, got {longest}",
                    code="tables-disagree",
                )
        for q, value in self.source.exact.items():
            rank = ranks_around(q, n)[0]
            low_ns = buckets.at(max(1, rank - 1)).low
            high_ns = buckets.at(min(n, rank + 1)).high
            if not low_ns <= value <= high_ns:
                raise CaptureError(
                    f"{self.source.source}: percentiles and hist are not of the same run:"
                    f" {percentile_name(q)}: expected {low_ns} to {high_ns} ns, got {value}",
                    code="tables-disagree",
                )

    def least_ns(self) -> int | None:
        """The shortest latency, or the lower edge of its bucket."""
        exact, at = self.source.exact.get(0.0), self.ranks.at(1)
        return exact if exact is not None or at is None else at.low

    def most_ns(self) -> int | None:
        """The longest latency, or the upper edge of its bucket."""
        at = self.ranks.at(self.source.count)
        return None if at is None else self._value(at)

    def _value(self, at: Between | None) -> int:
        assert at is not None
        if at.low == at.high:
            return at.low
        if self.source.kind == "moongen":
            return (at.low + at.high) // 2
        return at.high - 1


def run_of(source: ForeignRun, info: RunInfo, path: Path) -> Run:
    """Make a run of what was imported."""
    found = Distribution(source)
    found.check()
    summary = _summary(source, found)
    doubts = _implausible(source, info)
    if doubts:
        summary |= dict.fromkeys(("sent", "lost", "loss_ratio", "transfer_rate"))
    none = np.zeros(0, np.uint64)
    return Run(
        label=path.resolve().name,
        info=info,
        summary=summary,
        warnings=(*doubts, *source.warnings, *_warnings(source)),
        percentiles=[each for q in _grid(source) if (each := found.quantile(q)) is not None],
        latency=_histogram(source.buckets),
        edges=None if source.buckets is None else _edges(source.buckets),
        gaps={side: source.gaps.get(side, Histogram(none, none)) for side in SIDES},
        rate={side: source.rate.get(side, Rate(none, none)) for side in SIDES},
        worst=_worst(source),
        path=path,
    )


def _implausible(source: ForeignRun, info: RunInfo) -> tuple[str, ...]:
    """Return why the packets before the device cannot be all that were sent; empty if they can."""
    rate_pps, sent = about_of(info).rate_pps, source.figures.get("sent")
    if rate_pps is None or sent is None or source.worst is None or not len(source.worst.pre_ns):
        return ()
    known: WorstPackets | EveryPacket = source.worst if source.packets is None else source.packets
    span_ns = int(known.pre_ns.max()) - int(known.pre_ns.min())
    expected = rate_pps * span_ns / _NS_PER_S
    if not expected or int(sent) < _TOO_MANY * expected:
        return ()
    return (
        f"losses are unknown: {count_text(int(sent))} packets before the device are"
        f" {int(sent) / expected:.1f} times as many as {count_text(rate_pps)} packets/s make from"
        f" the first of {'the worst' if known is source.worst else 'them'} to the last: some may"
        " have been captured more than once",
    )


def _summary(source: ForeignRun, found: Distribution) -> dict[str, Figure]:
    known: dict[str, Figure] = {
        name: None for name, line in figure_lines() if line.everywhere and line.kind != "texts"
    }
    known |= source.figures
    has_latencies = source.count > 0
    known |= {
        "count": source.count,
        "latency_ns_min": found.least_ns() if has_latencies else None,
        "latency_ns_max": found.most_ns() if has_latencies else None,
        "ci_level": LEVEL,
        "clock": "imported",
        "trim_ns": source.trim_ns,
    }
    if source.buckets is not None:
        known["latency_ns_mean"] = source.buckets.mean_ns()[0]
    for name, text in QUANTILES.items():
        quantile = found.quantile(quantile_of(text, name))
        known |= _of_quantile(f"latency_ns_{name}", quantile)
    return known


def _of_quantile(name: str, found: Quantile | None) -> dict[str, Figure]:
    if found is None:
        return {}
    return {
        name: found.value_ns,
        f"{name}_ci_low": found.ci_low_ns,
        f"{name}_ci_high": found.ci_high_ns,
        f"{name}_beyond": found.beyond,
        f"{name}_supported": found.supported,
    }


def _warnings(source: ForeignRun) -> Iterator[str]:
    """Describe in words how far figures may be off."""
    buckets = source.buckets
    if not source.count:
        return
    if buckets is None:
        yield (
            "only the worst packets have latencies: quantiles below them, the mean and the"
            " distribution are unknown"
        )
        return
    widths = buckets.high_ns - buckets.low_ns
    if not widths.any():
        return
    least, most = duration_text(int(widths.min())), duration_text(int(widths.max()))
    wide = f"{least} wide" if least == most else f"{least} to {most} wide"
    exact = ", but for quantiles that are published exactly" if source.exact else ""
    yield (
        f"latencies are counted in buckets, {wide}: quantiles are upper edges{exact}; intervals"
        " reach over whole buckets"
        if source.kind != "moongen"
        else f"latencies are counted in buckets, {wide}: intervals reach over whole buckets"
    )
    off = duration_text(buckets.mean_ns()[1])
    yield f"the mean is that of the buckets' centres, off by at most {off}"


def _grid(source: ForeignRun) -> list[float]:
    grid = {*grid_for(source.count), *(q for q in source.exact if (1 - q) * source.count >= 1)}
    return sorted(grid)


def _histogram(buckets: Buckets | None) -> Histogram:
    if buckets is None:
        return Histogram(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    return Histogram(buckets.low_ns.astype(np.uint64), buckets.counts.astype(np.uint64))


def _edges(buckets: Buckets) -> Edges:
    return Edges(
        *(each.astype(np.uint64) for each in (buckets.low_ns, buckets.high_ns, buckets.counts))
    )


def _worst(source: ForeignRun) -> Worst:
    if source.worst is None:
        return Worst(*(np.zeros(0, np.uint64) for _ in Worst._fields))
    worst = source.worst
    return Worst(worst.latency_ns, worst.pre_ns, worst.post_ns, np.zeros(0, np.uint64))
