"""HdrHistogram: interval logs (``.hlog``) and percentile output (``.hgrm``)."""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from decimal import Decimal
from math import ceil, floor
from typing import TYPE_CHECKING

from tailscope.exceptions import CaptureError, UsageError
from tailscope.extra.imports.foreign import (
    UNITS,
    ForeignRun,
    buckets_of,
    count_of,
    ns_of,
    text_of,
    unit_differs,
    unit_needed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope.models.buckets import Buckets

    Counted = dict[tuple[int, int], int]
    """Latencies by their lowest and highest value in a bucket."""

OWN_COMMENT = "tailscope: latency in ns"
"""Comment of a log that tailscope has written."""
HEADER = re.compile(rb"^\s*Value\s+Percentile\s+TotalCount\s+1/\(1-Percentile\)\s*$", re.MULTILINE)
"""The first line of percentile output, above which wrk2 writes what it did."""

_INTERVAL = re.compile(
    r"(?:Tag=(?P<tag>[^,]*),)?[\d.]+,(?P<length_s>\d+(?:\.\d+)?),[\d.]+,(?P<histogram>[\w+/=]+)"
)
_ROW = re.compile(r"\s*([\d.]+)\s+([\d.]+)\s+(\d+)(?:\s+(?:[\d.]+|inf|Infinity))?\s*")
_TOTAL = re.compile(r"#\[Max\s*=\s*[\d.]+,\s*Total ?[Cc]ount\s*=\s*(\d+)(?:\.0*)?\]")
_SUB_BUCKETS = re.compile(r"#\[Buckets\s*=\s*\d+,\s*SubBuckets\s*=\s*(\d+)\]")
_WRK2 = "(HdrHistogram - "
"""wrk2 writes it above its percentiles, which are in ms."""
_V1, _V2 = 0x1C849302, 0x1C849304
_WORD_BITS = 0xF0
_OUTER = struct.Struct(">II")
_MOST_BYTES = 64 << 20
"""Maximum size of a decompressed histogram: five digits of 64 bits make six million counts."""
_MOST_VALUES = 1 << 19
"""Maximum number of values with a count, in all intervals."""
_MOST_INTERVALS = 10
"""A mean of more intervals than these is of another unit."""
_CANNOT = "an interval of an HdrHistogram log"


def read_log(path: Path, unit: str | None) -> list[ForeignRun]:
    """Read an interval log: the sum of its intervals, one run for each tag."""
    text = text_of(path)
    if OWN_COMMENT in text:
        if unit not in (None, "ns"):
            raise UsageError(
                f"{path}: --unit: got {unit}, expected ns, as the log says", code="unit-differs"
            )
        unit = "ns"
    if unit is None:
        raise unit_needed(path, "an HdrHistogram log")
    tags: dict[str | None, Counted] = {}
    intervals: dict[str | None, int] = {}
    longest_s = 0.0
    for where, tag, length_s, histogram in _intervals(path, text):
        counted = tags.setdefault(tag, {})
        intervals[tag] = intervals.get(tag, 0) + 1
        longest_s = max(longest_s, length_s)
        for ends, count in _decoded(histogram, where):
            counted[ends] = counted.get(ends, 0) + count
        if (values := sum(map(len, tags.values()))) > _MOST_VALUES:
            raise CaptureError(
                f"{where}: expected at most {_MOST_VALUES} values, got {values}",
                code="too-many-values",
            )
    if not any(tags.values()):
        raise CaptureError(f"{path}: expected latencies, got none", code="no-latencies")
    stem = path.name.removesuffix(".hlog")
    runs = [
        ForeignRun(
            kind="hdr-log",
            name=stem if len(tags) == 1 else f"{stem}-{tag or 'untagged'}",
            source=str(path),
            tag=tag,
            unit=unit,
            files={"log": path},
            count=sum(counted.values()),
            buckets=_buckets(path, counted, UNITS[unit]),
            warnings=_summed(intervals[tag]),
        )
        for tag, counted in tags.items()
        if counted
    ]
    for run in runs:
        _check_unit(run, longest_s)
    return runs


def _check_unit(run: ForeignRun, interval_s: float) -> None:
    """Refuse a mean that is many times as long as the intervals in which it was recorded."""
    assert run.buckets is not None
    mean_s = run.buckets.mean_ns()[0] / 1e9
    if interval_s and mean_s > _MOST_INTERVALS * interval_s:
        raise UsageError(
            f"{run.source}: --unit: got {run.unit}, a mean latency of {mean_s:,.4g} s in intervals"
            f" of {interval_s:g} s; expected a shorter unit",
            code="unit-implausible",
            hint="HdrHistogram's logs are mostly in ns or us",
        )


def _summed(intervals: int) -> tuple[str, ...]:
    return () if intervals == 1 else (f"the sum of {intervals} intervals",)


def _intervals(path: Path, text: str) -> Iterator[tuple[str, str | None, float, str]]:
    """Yield the place of each interval, its tag, its length in s and its histogram."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith(("#", '"')):
            continue
        found = _INTERVAL.fullmatch(line.strip())
        if found is None:
            raise CaptureError(
                f"{path}: line {number}: expected [Tag=NAME,]start,length,max,histogram,"
                f" got {line[:40]!r}",
                code="log-line",
                hint="a log that was cut off can be read up to there: remove the line",
            )
        length_s = float(found["length_s"])
        yield f"{path}: line {number}", found["tag"], length_s, found["histogram"]


def _decoded(encoded: str, where: str) -> Iterator[tuple[tuple[int, int], int]]:
    """Counts of a histogram by the lowest and the highest value of each bucket."""
    import tailscope._engine as _engine

    try:
        content = base64.b64decode(encoded, validate=True)
        cookie, length = _OUTER.unpack_from(content)
        if cookie & ~_WORD_BITS not in (_V1, _V2):
            raise CaptureError(
                f"{where}: encoding of the histogram: expected V1 or V2, compressed,"
                f" got cookie {cookie:#x}",
                code="histogram-encoding",
                hint="HdrHistogram's HistogramLogProcessor writes V2",
            )
        inner = _decompressed(content[_OUTER.size :][:length])
        columns = _engine.read_hdr(inner, _MOST_VALUES)
    except (binascii.Error, struct.error, zlib.error, ValueError, _engine.EngineError) as error:
        raise CaptureError(f"{where}: expected {_CANNOT}: {error}", code="histogram") from None
    for low, high, count in zip(*(column.tolist() for column in columns), strict=True):
        yield (low, high), count


def _decompressed(content: bytes) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(content, _MOST_BYTES)
    if not stream.eof:
        what = "more" if len(found) == _MOST_BYTES else "the end within it"
        raise ValueError(f"expected a histogram of at most {_MOST_BYTES} bytes, got {what}")
    return found


def _buckets(path: Path, counted: Counted, unit_ns: int) -> Buckets:
    ends = sorted(counted)
    return buckets_of(
        path,
        [low * unit_ns for low, _ in ends],
        [(high + 1) * unit_ns for _, high in ends],
        [counted[each] for each in ends],
    )


def read_percentiles(path: Path, unit: str | None) -> ForeignRun:
    """Read percentile output: each row says how many values lie at or below its own."""
    text = text_of(path)
    if _WRK2 in text:
        if unit not in (None, "ms"):
            raise unit_differs(path, unit, "ms", "wrk2's output")
        unit = "ms"
    if unit is None:
        raise unit_needed(path, "HdrHistogram's percentile output")
    rows = list(_rows(path, text, unit))
    total, sub_buckets = _TOTAL.search(text), _SUB_BUCKETS.search(text)
    if total is None or not rows or rows[-1][1] != count_of(total[1], f"{path}: Total count"):
        got = "no such line" if total is None else total[1]
        listed = rows[-1][1] if rows else 0
        raise CaptureError(
            f"{path}: Total count: expected {listed}, as the last row says, got {got}",
            code="histogram-truncated",
            hint="the output was cut off: HdrHistogram writes `#[Max = ..., Total count = ...]`"
            " behind the rows",
        )
    return ForeignRun(
        kind="hdr-percentiles",
        name=path.name.removesuffix(".hgrm"),
        source=str(path),
        unit=unit,
        files={"percentiles": path},
        count=rows[-1][1],
        buckets=_between_rows(path, rows, sub_buckets and Decimal(sub_buckets[1])),
    )


def _rows(path: Path, text: str, unit: str) -> Iterator[tuple[Decimal, int, Decimal]]:
    """The value of each row in ns, how many are at or below it, and how far it was rounded."""
    last = (Decimal(-1), 0)
    lines = text.splitlines()
    begins = next((n for n, line in enumerate(lines, 1) if HEADER.match(line.encode())), 0)
    for number, line in enumerate(lines[begins:], begins + 1):
        if line.lstrip().startswith("#["):
            return
        if not line.strip():
            continue
        found = _ROW.fullmatch(line)
        where = f"{path}: line {number}"
        if found is None:
            raise CaptureError(
                f"{where}: expected value, percentile and count, got {line[:60]!r}",
                code="histogram-row",
            )
        value, count = ns_of(found[1], unit, where), count_of(found[3], where)
        if value < last[0] or count < last[1]:
            raise CaptureError(
                f"{where}: expected rows in ascending order, got {line.strip()!r}",
                code="histogram-order",
            )
        last = value, count
        places = len(found[1].partition(".")[2])
        yield value, count, UNITS[unit] / (2 * Decimal(10) ** places)


def _between_rows(
    path: Path, rows: list[tuple[Decimal, int, Decimal]], sub_buckets: Decimal | None
) -> Buckets:
    """Return the buckets between rows; that of the first is as wide as its value allows."""
    first = rows[0][0]
    below = first * (1 - Decimal(2) / sub_buckets) if sub_buckets else Decimal(0)
    low_ns, high_ns, counts = [], [], []
    before = 0
    for value, count, rounded in rows:
        if count > before:
            low_ns.append(max(0, floor(below - rounded)))
            high_ns.append(ceil(value + rounded))
            counts.append(count - before)
            before, below = count, value
    return buckets_of(path, low_ns, high_ns, counts)
