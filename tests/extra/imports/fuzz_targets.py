"""Parsers of results of others, for ``python -m fuzz.python`` and the corpus."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fuzz.python.files import write_input

from tailscope.extra.imports import hdr, iperf, moongen, realtime, trex, values
from tailscope.extra.imports.authors import KINDS, grouped
from tailscope.extra.imports.figures import run_of
from tailscope.extra.imports.loops import read_loops
from tailscope.store.provenance import import_info
from tailscope.store.records.about import AboutRecord
from tailscope.store.records.plan import ImportPlan

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.imports.foreign import ForeignRun
    from tailscope.store.records.run import RunInfo


def hlog(content: bytes, folder: Path) -> None:
    """An interval log of HdrHistogram."""
    _import(hdr.read_log(write_input(folder, "x.hlog", content), "ns"), folder)


def hgrm(content: bytes, folder: Path) -> None:
    """Percentile output of HdrHistogram."""
    _import([hdr.read_percentiles(write_input(folder, "x.hgrm", content), "us")], folder)


def moongen_csv(content: bytes, folder: Path) -> None:
    """A histogram of MoonGen."""
    _import([moongen.read(write_input(folder, "x.csv", content), None)], folder)


def cyclictest(content: bytes, folder: Path) -> None:
    """A histogram of cyclictest."""
    _import(realtime.read_cyclictest(write_input(folder, "x.txt", content), None), folder)


def rtla(content: bytes, folder: Path) -> None:
    """A histogram of rtla."""
    _import(realtime.read_rtla(write_input(folder, "x.txt", content), None), folder)


def sockperf(content: bytes, folder: Path) -> None:
    """A full log of sockperf."""
    _import([values.read_sockperf(write_input(folder, "x.csv", content), None)], folder)


def irtt(content: bytes, folder: Path) -> None:
    """A result of irtt."""
    _import([values.read_irtt(write_input(folder, "x.json", content), None)], folder)


def statistics(content: bytes, folder: Path) -> None:
    """Statistics of TRex."""
    _import(trex.read_trex(write_input(folder, "x.json", content), None), folder)


def iperf3(content: bytes, folder: Path) -> None:
    """A result of iperf3."""
    _import([iperf.read_iperf(write_input(folder, "x.json", content), None)], folder)


def cyclictest_json(content: bytes, folder: Path) -> None:
    """A result of cyclictest as JSON."""
    _import(realtime.read_json(write_input(folder, "x.json", content), None), folder)


def loops(content: bytes, folder: Path) -> None:
    """Loop variables of pos."""
    path = write_input(folder, "x_run0.loop", content)
    read_loops([path]).labels(None, folder, "x_run0")


def authors(content: bytes, folder: Path) -> None:
    """Tables of the papers' authors, one after the other; a zero byte stands between two."""
    paths = []
    for kind, table in zip(KINDS, content.split(b"\0"), strict=False):
        bucket = ".bucket_size100" if kind == "hist" else ""
        if table:
            paths.append(write_input(folder, f"x.pcap{bucket}.trim_ms0.{kind}.csv", table))
    try:
        _import([tables.read() for tables in grouped(paths)], folder)
    finally:
        for path in paths:
            path.unlink()


def _import(found: list[ForeignRun], folder: Path) -> None:
    for each in found:
        run = run_of(each, _info(), folder)
        assert run.latency.counts.sum() in (0, each.count)


@cache
def _info() -> RunInfo:
    plan = ImportPlan(kind="moongen", source="x", tag=None, unit="ns", bucket_ns=1, trim_ns=None)
    return import_info(plan, {}, AboutRecord())


TARGETS = {
    "authors": authors,
    "cyclictest": cyclictest,
    "cyclictest-json": cyclictest_json,
    "hgrm": hgrm,
    "hlog": hlog,
    "iperf3": iperf3,
    "irtt": irtt,
    "loops": loops,
    "moongen": moongen_csv,
    "rtla": rtla,
    "sockperf": sockperf,
    "trex": statistics,
}
