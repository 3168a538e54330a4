"""Latency statistics of TRex: a histogram for each group of packets (``pg_id``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import ForeignRun, buckets_of, count_of, text_of, unit_differs

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.engine.analysis import Figure

STATISTICS = re.compile(rb'"err_cntrs"\s*:\s*\{')
"""What no other statistics have."""

_NS_PER_US = 1_000
_WIDTH_OF_FIRST_US = 10
_NO_GROUP = "global"
_GROUP_HINT = "a stream with flow_stats=STLFlowLatencyStats(pg_id=...) has latencies"
_IN_SOFTWARE = "TRex takes both times in software: its own delays are in the latencies"


class _Latency(msgspec.Struct):
    """What TRex has counted of a group's latencies, in µs."""

    histogram: dict[str, int]
    """Counts by the lower edge of their bucket."""
    total_max: float


class _Group(msgspec.Struct):
    latency: _Latency
    err_cntrs: dict[str, int] = {}


class _Statistics(msgspec.Struct):
    latency: dict[str, Any]
    flow_stats: dict[str, Any] = {}


def read_trex(path: Path, unit: str | None) -> list[ForeignRun]:
    """Read what ``STLClient.get_stats()`` returns, as JSON: a run for each group of packets.

    A bucket reaches from its key to the next of the same decade: 20 to 30 µs, 200 to 300 µs.
    """
    if unit not in (None, "us"):
        raise unit_differs(path, unit, "us", "TRex' histogram")
    try:
        statistics = msgspec.json.decode(text_of(path), type=_Statistics)
        groups = {
            name: msgspec.convert(group, _Group)
            for name, group in statistics.latency.items()
            if name != _NO_GROUP
        }
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CaptureError(
            f"{path}: expected TRex' statistics with 'latency' by group: {error}",
            code="trex",
            hint=_GROUP_HINT,
        ) from None
    runs = [
        _run(path, name, group, statistics.flow_stats.get(name))
        for name, group in groups.items()
        if group.latency.histogram
    ]
    if not runs:
        raise CaptureError(
            f"{path}: expected latencies, got none", code="no-latencies", hint=_GROUP_HINT
        )
    return runs


def _run(path: Path, name: str, group: _Group, counters: object) -> ForeignRun:
    where = f"{path}: pg_id {name}"
    edges = []
    for text, number in group.latency.histogram.items():
        if not text.isdecimal() or number < 0:
            raise CaptureError(
                f"{where}: histogram: expected a latency in µs with a count, got"
                f" {text[:20]!r}: {number}",
                code="histogram-row",
            )
        edges.append((count_of(text, where), number))
    buckets = [(low, low + _width_us(low), number) for low, number in sorted(edges) if number]
    low_us, high_us, counts = zip(*buckets, strict=True) if buckets else ((), (), ())
    low_ns, high_ns = ([edge * _NS_PER_US for edge in each] for each in (low_us, high_us))
    longest_ns = round(group.latency.total_max * _NS_PER_US)
    if low_ns and low_ns[-1] <= longest_ns < high_ns[-1]:
        high_ns[-1] = longest_ns + _NS_PER_US
    found = buckets_of(where, low_ns, high_ns, counts)
    if not found.count:
        raise CaptureError(f"{where}: expected latencies, got none", code="no-latencies")
    return ForeignRun(
        kind="trex",
        name=f"{path.stem}-{name}",
        source=str(path),
        tag=name,
        unit="us",
        files={"statistics": path},
        count=found.count,
        buckets=found,
        figures=_lost(group, counters),
        warnings=(_IN_SOFTWARE,),
    )


def _width_us(low_us: int) -> int:
    return 10 ** (len(str(low_us)) - 1) if low_us else _WIDTH_OF_FIRST_US


def _lost(group: _Group, counters: object) -> dict[str, Figure]:
    """Return how many were sent, and lost by their numbers, where TRex tells both."""
    try:
        sent = msgspec.convert(counters, dict[str, dict[str, int]])["tx_pkts"]["total"]
        lost = group.err_cntrs["dropped"]
    except (msgspec.ValidationError, KeyError):
        return {}
    if not 0 <= lost <= sent:
        return {}
    return {"sent": sent, "lost": lost, "loss_ratio": lost / sent if sent else None}
