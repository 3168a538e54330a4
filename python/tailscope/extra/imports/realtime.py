"""Histograms of cyclictest and rtla: a row for each latency, a column for each thread."""

from __future__ import annotations

import re
from math import gcd
from typing import TYPE_CHECKING

import msgspec

from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import (
    UNITS,
    ForeignRun,
    buckets_of,
    count_of,
    text_of,
    unit_differs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.store.records.plan import Foreign

    Row = tuple[int, Sequence[int]]
    """A latency and the count of each thread."""
    Column = list[tuple[int, int, int]]
    """Buckets of one thread: from, up to, and how many."""

CYCLICTEST = re.compile(rb"# (?:/dev/cpu_dma_latency|Histogram)")
JSON = re.compile(rb'"rt_test_version:?"\s*:')
RTLA = re.compile(rb"# RTLA (?:timerlat|osnoise) histogram")

_LATENCY = re.compile(r"\d+(?:\s+\d+)+")
_RTLA_UNIT = re.compile(r"# Time unit is \w+ \((us|ns)\)")


def read_cyclictest(path: Path, unit: str | None) -> list[ForeignRun]:
    """Read ``cyclictest -h`` or ``-H``: one run for each thread, and latencies in µs.

    What is longer than the histogram is counted as overflow, between its end and the longest.
    """
    unit = unit or "us"
    text = text_of(path)
    rows = list(_rows(path, text))
    threads = _columns(path, rows)
    longest = _footer(path, text, "Max Latencies", threads)
    overflows = _footer(path, text, "Histogram Overflows", threads)
    end = rows[-1][0] + 1
    found = []
    for thread in range(threads):
        more = [(end, max(longest[thread] + 1, end), overflows[thread])]
        found.append(_column(rows, thread, 1, more))
    if threads > 1 and longest[-1] == max(longest[:-1]) and _sums(rows, overflows):
        found.pop()
    return _runs("cyclictest", path, unit, found, [f"thread-{n}" for n in range(len(found))])


class _Thread(msgspec.Struct):
    """A thread of cyclictest, in µs."""

    cycles: int
    max: int
    histogram: dict[str, int] = {}


class _Result(msgspec.Struct):
    thread: dict[str, _Thread]


def read_json(path: Path, unit: str | None) -> list[ForeignRun]:
    """Read ``cyclictest --json``: a run for each thread that has a histogram."""
    try:
        result = msgspec.json.decode(text_of(path), type=_Result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CaptureError(
            f"{path}: expected cyclictest's JSON with 'thread': {error}", code="histogram-row"
        ) from None
    found = []
    for name, thread in result.thread.items():
        where = f"{path}: thread {name}"
        counted = sum(thread.histogram.values())
        beyond = thread.cycles - counted
        edges = thread.histogram.items()
        if beyond < 0 or not edges or not all(edge.isdecimal() and n >= 0 for edge, n in edges):
            raise CaptureError(
                f"{where}: histogram: expected counts of at most {thread.cycles} cycles, got"
                f" {counted}",
                code="histogram-row",
                hint="cyclictest -h US --json=FILE has a histogram",
            )
        rows = sorted((count_of(edge, where), [n]) for edge, n in edges)
        end = rows[-1][0] + 1
        found.append(_column(rows, 0, 1, [(end, max(thread.max + 1, end), beyond)]))
    names = [f"thread-{name}" for name in result.thread]
    return _runs("cyclictest", path, unit or "us", found, names)


def read_rtla(path: Path, unit: str | None) -> list[ForeignRun]:
    """Read ``rtla timerlat hist`` or ``rtla osnoise hist``: one run for each column of a CPU."""
    text = text_of(path)
    written = _RTLA_UNIT.search(text)
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("Index ")]
    if written is None or not heads:
        raise CaptureError(
            f"{path}: expected a line 'Time unit is' and one with 'Index', as rtla writes them",
            code="histogram-row",
        )
    if unit not in (None, written[1]):
        raise unit_differs(path, unit, written[1], "rtla's histogram")
    rows = list(_rows(path, text))
    columns = _columns(path, rows)
    if len(heads[0]) != columns:
        raise CaptureError(
            f"{path}: Index: expected {columns} columns, as the rows have, got {len(heads[0])}",
            code="histogram-row",
        )
    longest = _footer(path, text, "max", columns)
    overflows = _footer(path, text, "over", columns)
    # It leaves out rows of zeros, so buckets may be narrower than the rows are apart.
    step = gcd(*(latency for latency, _ in rows)) or max(longest) + 1
    end = rows[-1][0] + 1
    found = []
    for n in range(columns):
        most = longest[n] + 1
        buckets = [
            (latency, max(latency + 1, min(latency + step, most)), counts[n])
            for latency, counts in rows
        ]
        buckets.append((end, max(most, end), overflows[n]))
        found.append([bucket for bucket in buckets if bucket[2]])
    return _runs("rtla", path, written[1], found, heads[0])


def _rows(path: Path, text: str) -> Iterator[Row]:
    last = -1
    for number, line in enumerate(text.splitlines(), 1):
        if not _LATENCY.fullmatch(line.strip()):
            continue
        where = f"{path}: line {number}"
        latency, *counts = (count_of(each, where) for each in line.split())
        if latency <= last:
            raise CaptureError(
                f"{where}: expected latencies in ascending order, got {latency} behind {last}",
                code="histogram-order",
            )
        last = latency
        yield latency, counts


def _columns(path: Path, rows: Sequence[Row]) -> int:
    """Return the number of columns, which is the same in all rows."""
    columns = {len(counts) for _, counts in rows}
    if len(columns) != 1:
        raise CaptureError(
            f"{path}: expected rows with a latency and a count for each thread, got"
            f" {', '.join(map(str, sorted(columns))) or 'no'} counts in a row",
            code="histogram-row",
        )
    return columns.pop()


def _footer(path: Path, text: str, name: str, columns: int) -> list[int]:
    """Return the numbers of a line behind the rows; a dash, which is for none, is 0."""
    found = re.search(rf"^(?:# )?{name}:[ \t]*(.*)$", text, re.MULTILINE)
    numbers = [] if found is None else found[1].split()
    if len(numbers) != columns or not all(re.fullmatch(r"\d+|-", each) for each in numbers):
        got = "no such line" if found is None else repr(found[1][:40])
        raise CaptureError(
            f"{path}: {name}: expected {columns} numbers, got {got}",
            code="histogram-truncated",
            hint="the output was cut off: this line stands behind the rows",
        )
    return [0 if each == "-" else count_of(each, f"{path}: {name}") for each in numbers]


def _column(rows: Sequence[Row], at: int, step: int, more: Column) -> Column:
    buckets = [(latency, latency + step, counts[at]) for latency, counts in rows]
    return [bucket for bucket in (*buckets, *more) if bucket[2]]


def _sums(rows: Sequence[Row], overflows: Sequence[int]) -> bool:
    """Return whether the last column is the sum of the others, as ``cyclictest -H`` writes it."""
    counted = [*(counts for _, counts in rows), overflows]
    return all(sum(counts[:-1]) == counts[-1] for counts in counted)


def _runs(
    kind: Foreign, path: Path, unit: str, columns: Sequence[Column], names: Sequence[str]
) -> list[ForeignRun]:
    scale = UNITS[unit]
    runs = []
    for name, column in zip(names, columns, strict=True):
        if not column:
            continue
        low, high, counts = zip(*column, strict=True)
        low_ns, high_ns = ([edge * scale for edge in edges] for edges in (low, high))
        buckets = buckets_of(path, low_ns, high_ns, counts)
        runs.append(
            ForeignRun(
                kind=kind,
                name=f"{path.stem}-{name}",
                source=str(path),
                tag=name,
                unit=unit,
                files={"histogram": path},
                count=buckets.count,
                buckets=buckets,
                warnings=("latencies of timers and threads of the machine: no packet was sent",),
            )
        )
    if not runs:
        raise CaptureError(f"{path}: expected latencies, got none", code="no-latencies")
    return runs
