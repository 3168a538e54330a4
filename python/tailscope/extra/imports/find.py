"""Finding results of others: what a file is, its content says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tailscope.exceptions import CaptureError, UsageError
from tailscope.extra.imports import hdr, iperf, moongen, realtime, trex, values
from tailscope.extra.imports.authors import KINDS, grouped
from tailscope.extra.imports.loops import SUFFIX, read_loops

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.extra.imports.foreign import ForeignRun
    from tailscope.extra.imports.loops import Loops

    Reader = Callable[[Path, str | None], list[ForeignRun] | ForeignRun]

_BEGINNING_BYTES = 65_536
_EXPECTED = (
    f"expected tables of the papers' authors (STEM.trim_msN.KIND.csv, KIND one of"
    f" {', '.join(KINDS)}), an HdrHistogram log or percentile output, a histogram of MoonGen,"
    " cyclictest or rtla, sockperf's full log, JSON of irtt, TRex, iperf3 or cyclictest, or a"
    " latency a line"
)


@dataclass(frozen=True)
class Source:
    """Files that are read together."""

    path: Path
    """The folder that they are in."""
    read: Callable[[], list[ForeignRun]]
    """Reads them: the runs in it."""


@dataclass(frozen=True)
class Found:
    """The importable sources at a path."""

    sources: tuple[Source, ...]
    unread: tuple[Path, ...]
    """Files that nothing is read of."""
    counters: tuple[Path, ...]
    """Counters of interrupts that were polled meanwhile."""
    loops: Loops


def find(path: Path, unit: str | None) -> Found:
    """Find results of others."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    beside = files if path.is_dir() else sorted(path.parent.glob("*"))
    wanted = set(files)
    tables = [each for each in grouped(beside) if wanted & {*each.files.values()}]
    taken = {file for each in tables for file in each.files.values()}
    if tables and unit not in (None, "ns"):
        raise UsageError(
            f"{path}: --unit: got {unit}, expected ns: the authors' tables are in ns",
            code="unit-differs",
            hint="import files of other units by themselves",
        )
    sources = [Source(each.folder, lambda each=each: [each.read()]) for each in tables]  # type: ignore[misc]
    unread, counters = [], []
    for file in files:
        if file in taken or (path.is_dir() and file.suffix == SUFFIX):
            continue
        if path.is_dir() and _is_counters(file):
            counters.append(file)
            continue
        source = _source(file, unit)
        if source is None:
            unread.append(file)
        else:
            sources.append(source)
    if not sources:
        raise CaptureError(
            f"{path}: {_EXPECTED}",
            code="nothing-to-import",
            hint="captures are no results yet: tailscope analyze PRE POST",
        )
    loops = read_loops(files if path.is_dir() else beside)
    return Found(tuple(sources), tuple(unread), tuple(counters), loops)


def _is_counters(file: Path) -> bool:
    with file.open("rb") as content:
        first = content.readline(_BEGINNING_BYTES)
    return file.suffix == ".csv" and b"timestamp_us" in first


def _source(file: Path, unit: str | None) -> Source | None:
    """A single file that is a source by itself."""
    with file.open("rb") as content:
        beginning = content.read(_BEGINNING_BYTES)
    lines = [line.strip() for line in beginning.splitlines() if line.strip()]
    first = next(iter(lines), b"")
    value = next((line for line in lines if not line.startswith(b"#")), b"")
    readers = (
        (moongen.LINE.fullmatch(first), moongen.read),
        (realtime.CYCLICTEST.match(first), realtime.read_cyclictest),
        (realtime.RTLA.match(first), realtime.read_rtla),
        (first.startswith((b"#[", b'"StartTimestamp"', b"Tag=")), hdr.read_log),
        (file.suffix == ".hlog", hdr.read_log),
        (hdr.HEADER.search(beginning), hdr.read_percentiles),
        (values.SOCKPERF.search(beginning), values.read_sockperf),
        (values.IRTT.match(beginning), values.read_irtt),
        (first.startswith(b"{") and trex.STATISTICS.search(beginning), trex.read_trex),
        (first.startswith(b"{") and iperf.IPERF3.search(beginning), iperf.read_iperf),
        (first.startswith(b"{") and realtime.JSON.search(beginning), realtime.read_json),
        (values.VALUE.fullmatch(value), values.read_values),
    )
    read = next((read for is_it, read in readers if is_it), None)
    return None if read is None else Source(file.parent, partial(_all, read, file, unit))


def _all(read: Reader, file: Path, unit: str | None) -> list[ForeignRun]:
    runs = read(file, unit)
    return runs if isinstance(runs, list) else [runs]
