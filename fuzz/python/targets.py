"""What must hold of every parser written in Python, whatever bytes it is given.

It returns, or raises an error of tailscope. Each target takes the bytes, and a folder of its own
that it may write to.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

from tailscope.compare.baseline import read_baseline
from tailscope.exceptions import TailscopeError
from tailscope.experiment.campaign.spec import load_experiment
from tailscope.extra.imports import hdr, moongen
from tailscope.extra.imports.authors import KINDS, grouped
from tailscope.extra.imports.figures import run_of
from tailscope.extra.laboratory.protocol import read_message, read_order
from tailscope.noise.counters import read_readings
from tailscope.noise.traces import Trace
from tailscope.plan.yaml_file import read_yaml
from tailscope.store import layout
from tailscope.store.about import read_about_file
from tailscope.store.campaign import read_record as read_campaign
from tailscope.store.notes import read_notes
from tailscope.store.provenance import import_info
from tailscope.store.reader import read_info, read_summary
from tailscope.store.records.about import AboutRecord
from tailscope.store.records.base import LINES
from tailscope.store.records.plan import ImportPlan
from tailscope.testbed.messages import FORWARDERS, GENERATOR, STAMP, WATCH
from tailscope.units import duration_ns, quantile_of, rate_pps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from tailscope.extra.imports.foreign import ForeignRun
    from tailscope.extra.laboratory.protocol import Role
    from tailscope.noise.traces import Reader
    from tailscope.store.records.run import RunInfo

    Target: TypeAlias = Callable[[bytes, Path], None]

__all__ = ["TARGETS", "survives"]

_READERS: tuple[Reader, ...] = ("perf", "trace-cmd", "babeltrace2")
_ROLES: tuple[Role, ...] = ("loadgen", "dut", "timestamper")


def survives(target: Target, content: bytes, folder: Path) -> bool:
    """Whether the parser took it; an error of tailscope is the other answer, and the only one."""
    try:
        target(content, folder)
    except TailscopeError:
        return False
    return True


def hlog(content: bytes, folder: Path) -> None:
    """An interval log of HdrHistogram."""
    _import(hdr.read_log(_file(folder, "x.hlog", content), "ns"), folder)


def hgrm(content: bytes, folder: Path) -> None:
    """Percentile output of HdrHistogram."""
    _import([hdr.read_percentiles(_file(folder, "x.hgrm", content), "us")], folder)


def moongen_csv(content: bytes, folder: Path) -> None:
    """A histogram of MoonGen."""
    _import([moongen.read(_file(folder, "x.csv", content), None)], folder)


def authors(content: bytes, folder: Path) -> None:
    """Tables of the papers' authors, one after the other; a zero byte stands between two."""
    paths = []
    for kind, table in zip(KINDS, content.split(b"\0"), strict=False):
        bucket = ".bucket_size100" if kind == "hist" else ""
        if table:
            paths.append(_file(folder, f"x.pcap{bucket}.trim_ms0.{kind}.csv", table))
    try:
        _import([tables.read() for tables in grouped(paths)], folder)
    finally:
        for path in paths:
            path.unlink()


def run_record(content: bytes, folder: Path) -> None:
    """``run.json``: with a checksum that is right, as whoever made it would write one."""
    _file(folder, layout.RUN, _with_digest(content))
    read_info(folder)


def other_record(content: bytes, folder: Path) -> None:
    """``campaign.json``, ``summary.json``, ``notes.json`` or a baseline, as the first byte says."""
    which, record = content[:1], content[1:]
    if which == b"c":
        _file(folder, "campaign.json", record)
        read_campaign(folder)
    elif which == b"b":
        read_baseline(_file(folder, "baseline.json", _with_digest(record)))
    elif which == b"n":
        _file(folder, layout.NOTES, record)
        read_notes(folder)
    else:
        read_summary(record, folder / layout.SUMMARY)


def experiment(content: bytes, folder: Path) -> None:
    """An experiment."""
    load_experiment(_file(folder, "x.yaml", content))


def labels(content: bytes, folder: Path) -> None:
    """Labels, and any other YAML."""
    path = _file(folder, "x.yaml", content)
    read_yaml(path)
    read_about_file(path)


def trace_text(content: bytes, folder: Path) -> None:
    """The text of a trace, as the program that the first byte chooses writes it."""
    reader = _READERS[content[0] % len(_READERS)] if content else "perf"
    path = _file(folder, "x.txt", content[1:])
    for _ in Trace(path, reader, is_text=True, to_unix_ns=None).lines():
        """Read it to its end."""


def counters(content: bytes, folder: Path) -> None:
    """Counters of interrupts: the authors' CSV, or copies of ``/proc/interrupts``."""
    readings = read_readings(_file(folder, "x.csv", content), "x")
    assert readings.counts.shape == (len(readings.times_ns), len(readings.names))
    assert readings.period_ns > 0


def message(content: bytes, _folder: Path) -> None:
    """A line of ``tailscope-dp``, or between the machines of a laboratory."""
    line = content.decode(errors="replace")
    for program in (GENERATOR, STAMP, WATCH, *FORWARDERS.values()):
        survives(lambda _, __, program=program: program.read("x", line), b"", _folder)  # type: ignore[misc]
    for role in _ROLES:
        survives(lambda _, __, role=role: read_message(role, line), b"", _folder)  # type: ignore[misc]
    read_order(line)


def quantity(content: bytes, _folder: Path) -> None:
    """A duration, a quantile or a rate, as the first byte says."""
    text = content[1:].decode(errors="replace")
    read = {b"d": duration_ns, b"q": quantile_of}.get(content[:1], rate_pps)
    read(text, "--x")


TARGETS: dict[str, Target] = {
    "authors": authors,
    "counters": counters,
    "experiment": experiment,
    "hgrm": hgrm,
    "hlog": hlog,
    "labels": labels,
    "message": message,
    "moongen": moongen_csv,
    "quantity": quantity,
    "record": other_record,
    "run": run_record,
    "trace-text": trace_text,
}


def _file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _import(found: list[ForeignRun], folder: Path) -> None:
    for each in found:
        run = run_of(each, _info(), folder)
        assert run.latency.counts.sum() in (0, each.count)


@cache
def _info() -> RunInfo:
    plan = ImportPlan(kind="moongen", source="x", tag=None, unit="ns", bucket_ns=1, trim_ns=None)
    return import_info(plan, {}, AboutRecord())


def _with_digest(content: bytes) -> bytes:
    lines, mark, _ = content.rpartition(f'  "{LINES}": "'.encode())
    digest = hashlib.sha256(lines).hexdigest().encode()
    return lines + mark + digest + b'"\n}\n' if mark else content
