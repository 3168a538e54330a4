"""Metrics of a watch while it goes on: names and units as Prometheus has them.

Counts and rough latencies follow the generator once a second; exact figures come when a run ends.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import BucketSpan, NativeHistogram, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from tailscope.extra.watch.records import WatchedRun
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.records.messages import GeneratorProgress

_SCHEMA = 3
"""Schema of native histograms: eight buckets for each doubling, each 9 % wide."""

_MIDDLE = 1 + 3 / 256
"""The middle of a bucket of the generator, whose width is 1/64 to 1/32 of its least latency."""

_BOUNDS_S = tuple(float(f"{digit}e{exponent}") for exponent in range(-6, 1) for digit in (1, 2, 5))
"""Upper bounds of classic buckets."""

_QUANTILES = {
    "0.5": "latency_ns_p50",
    "0.99": "latency_ns_p99",
    "0.999": "latency_ns_p999",
    "0.9999": "latency_ns_p9999",
    "0.99999": "latency_ns_p99999",
}


class WatchFigures(Collector):
    """The figures of a watch; one thread updates them, others read."""

    def __init__(self, about: Mapping[str, str]) -> None:
        self._about = dict(about)
        self._lock = threading.Lock()
        self._now: GeneratorProgress | None = None
        self._before: Counter[str] = Counter()
        self._buckets_before: Counter[int] = Counter()
        self._runs: Counter[str] = Counter(done=0, partial=0, failed=0)
        self._lost = self._tainted = 0
        self._watched_s = 0.0
        self._last: WatchedRun | None = None
        self._causes_ns: Counter[tuple[str, str]] = Counter()

    def progress(self, event: GeneratorProgress) -> None:
        """Take what the generator says once a second."""
        with self._lock:
            self._now = event

    def ended(self, run: WatchedRun, explanation: Explanation | None) -> None:
        """Take what became of a run, and what its tail was made of."""
        with self._lock:
            if self._now is not None:
                self._before.update(_counts(self._now))
                self._buckets_before.update(dict(self._now.latency_ns_buckets))
                self._now = None
            self._runs[run.state] += 1
            self._watched_s += run.watched_s
            self._tainted += run.tainted or 0
            if run.figures is not None:
                self._last = run
                self._lost += run.figures.lost
            for cause in () if explanation is None else explanation.causes:
                self._causes_ns[cause.part, cause.cause] += cause.total_ns

    def collect(self) -> Iterator[Metric]:
        """Make the metrics of what is known now."""
        with self._lock:
            counts, buckets = Counter(self._before), Counter(self._buckets_before)
            if self._now is not None:
                counts.update(_counts(self._now))
                buckets.update(dict(self._now.latency_ns_buckets))
            runs, causes_ns, last = dict(self._runs), dict(self._causes_ns), self._last
            lost, tainted, watched_s = self._lost, self._tainted, self._watched_s
        yield InfoMetricFamily("tailscope_watch", "What is watched.", self._about)
        yield _latency(buckets, counts["latency_ns_sum"])
        for name, about in (
            ("sent", "Packets that left the generator."),
            ("received", "Packets that came back."),
            ("unsent", "Packets that could not leave within 10 ms of their time."),
        ):
            yield CounterMetricFamily(f"tailscope_packets_{name}", about, counts[name])
        yield CounterMetricFamily(
            "tailscope_packets_lost", "Packets of runs that have ended which never came back.", lost
        )
        yield CounterMetricFamily(
            "tailscope_packets_tainted",
            "Packets of runs that have ended whose latency stalls of the instrument may change.",
            tainted,
        )
        yield CounterMetricFamily(
            "tailscope_instrument_stalls", "Stalls of the generator.", counts["stalls"]
        )
        yield CounterMetricFamily(
            "tailscope_instrument_stall_seconds",
            "Time that the generator stalled.",
            counts["stall_ns_total"] / 1e9,
            unit="seconds",
        )
        yield CounterMetricFamily(
            "tailscope_watched_seconds",
            "Time between the first and the last packet of runs that have ended.",
            watched_s,
            unit="seconds",
        )
        family = CounterMetricFamily(
            "tailscope_runs", "Runs that have ended, by what became of them.", labels=["state"]
        )
        for state, count in runs.items():
            family.add_metric([state], count)
        yield family
        family = CounterMetricFamily(
            "tailscope_tail_wait_seconds",
            "How long the slowest packets of runs that have ended waited, by cause.",
            labels=["part", "cause"],
            unit="seconds",
        )
        for (part, cause), total_ns in sorted(causes_ns.items()):
            family.add_metric([part, cause], total_ns / 1e9)
        yield family
        if last is not None:
            yield from _of_last(last)


def _counts(event: GeneratorProgress) -> dict[str, int]:
    return {
        "sent": event.sent,
        "received": event.received,
        "unsent": event.unsent,
        "stalls": event.stalls,
        "stall_ns_total": event.stall_ns_total,
        "latency_ns_sum": event.latency_ns_sum or 0,
    }


def _latency(buckets: Mapping[int, int], sum_ns: int) -> Metric:
    """The histogram: classic buckets, and native ones for those who read these."""
    placed_s = [(edge_ns * _MIDDLE / 1e9, count) for edge_ns, count in sorted(buckets.items())]
    classic = [0] * (len(_BOUNDS_S) + 1)
    native: Counter[int] = Counter()
    for latency_s, count in placed_s:
        classic[bisect_left(_BOUNDS_S, latency_s)] += count
        if latency_s > 0:
            native[math.ceil(math.log2(latency_s) * 2**_SCHEMA)] += count
    names = [*map(str, _BOUNDS_S), "+Inf"]
    cumulative = [*zip(names, accumulate(classic), strict=True)]
    family = HistogramMetricFamily(
        "tailscope_latency_seconds",
        "Latency of packets, sorted into buckets within 3 %; runs have the exact figures.",
        cumulative,
        sum_ns / 1e9,
        unit="seconds",
    )
    spans, deltas = _spans(native)
    histogram = NativeHistogram(
        count_value=sum(classic),
        sum_value=sum_ns / 1e9,
        schema=_SCHEMA,
        zero_threshold=0.0,
        zero_count=buckets.get(0, 0),
        pos_spans=spans,
        pos_deltas=deltas,
    )
    sample = Sample(family.name, {}, None, native_histogram=histogram)  # type: ignore[arg-type]
    family.samples.append(sample)
    return family


def _spans(native: Mapping[int, int]) -> tuple[list[BucketSpan], list[int]]:
    """Buckets by their numbers, as native histograms have them: runs of neighbours, differences."""
    spans: list[BucketSpan] = []
    deltas: list[int] = []
    end, before = 0, 0
    for number in sorted(native):
        if spans and number == end:
            spans[-1] = BucketSpan(spans[-1].offset, spans[-1].length + 1)
        else:
            spans.append(BucketSpan(number - end, 1))
        deltas.append(native[number] - before)
        end, before = number + 1, native[number]
    return spans, deltas


def _of_last(run: WatchedRun) -> Iterator[Metric]:
    """Exact figures of the last run that has any; quantiles that its packets support."""
    figures = run.figures
    assert figures is not None, "it has some"
    family = GaugeMetricFamily(
        "tailscope_last_run_latency_seconds",
        "Exact quantiles of the last run; those that fewer than 10 packets lie beyond are left"
        " out, but for the largest latency.",
        labels=["quantile"],
        unit="seconds",
    )
    for quantile, name in _QUANTILES.items():
        value = getattr(figures, name)
        if value is not None and getattr(figures, f"{name}_supported"):
            family.add_metric([quantile], value / 1e9)
    if figures.latency_ns_max is not None:
        family.add_metric(["1"], figures.latency_ns_max / 1e9)
    yield family
    yield GaugeMetricFamily(
        "tailscope_last_run_end_timestamp_seconds",
        "When the last run ended, in Unix time.",
        run.ended_unix_ns / 1e9,
        unit="seconds",
    )
