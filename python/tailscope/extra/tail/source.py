"""The sources of latencies that ``tailscope model tail`` reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.extra.tail.models.excesses import Excesses
    from tailscope.extra.tail.models.setting import RunTail

_WORST = ".worst.csv"
_STATS = ".stats.csv"
_RATE = "rate"


@dataclass(frozen=True)
class LatencySource:
    """A run, or the worst packets of so many."""

    path: Path
    count: int | None

    @property
    def is_folder(self) -> bool:
        """True if it is a campaign, or a folder with the authors' tables."""
        from tailscope.store.campaign import is_campaign
        from tailscope.store.layout import RUN

        if self.count is not None or not self.path.is_dir() or (self.path / RUN).exists():
            return False
        return is_campaign(self.path) or bool(tables(self.path))


class NamedSource(NamedTuple):
    """A run of a table."""

    setting: str
    name: str
    source: LatencySource


def tables(path: Path) -> list[Path]:
    """Return the authors' tables of the worst packets, below a folder."""
    return sorted(path.rglob(f"*{_WORST}*"))


def excesses_of(source: LatencySource, split: float) -> tuple[Excesses, int]:
    """Return the excesses, and the number of packets that stalls could change."""
    import numpy as np

    from tailscope.extra.tail.models.excesses import of_worst, select
    from tailscope.extra.tail.models.forecast import LOWEST
    from tailscope.store.authors import read_worst
    from tailscope.store.info import foreign_text
    from tailscope.store.layout import WORST
    from tailscope.store.reader import check_held, open_packets, read_run

    if source.count is not None:
        return of_worst(*read_worst(source.path), source.count), 0
    run = read_run(source.path)
    if foreign_text(run.info) is not None:
        check_held(source.path, run.info, WORST, "the worst packets and their times")
        excesses = of_worst(run.worst.pre_ns, run.worst.latency_ns, int(run.summary["count"] or 0))
        return excesses, 0
    with open_packets(source.path, run.info) as packets:
        columns = packets.columns("pre_ns", "latency_ns", "tainted", "instrument_stall_ns")
    pre_ns, latency_ns, tainted, stall_ns = columns
    if stall_ns is None or tainted is None:
        return select(pre_ns, latency_ns, LOWEST, split), 0
    return select(pre_ns, latency_ns - stall_ns, LOWEST, split), int(np.count_nonzero(tainted))


def named_sources(source: LatencySource) -> Iterator[NamedSource]:
    """Return the runs of a campaign or a folder; a run for itself."""
    from tailscope.store.campaign import is_campaign, read_campaign

    path = source.path
    if not source.is_folder:
        yield NamedSource(path.parent.name, path.name, source)
    elif is_campaign(path):
        for run in read_campaign(path):
            if run.path is not None:
                varied = {**(run.values or {"cell": run.cell})}
                varied.pop(_RATE, None)
                setting = " ".join(varied.values()) or "-"
                yield NamedSource(setting, run.name, LatencySource(run.path, None))
    else:
        for file in tables(path):
            where = file.parent.relative_to(path)
            name = file.name.split(".")[0]
            yield NamedSource(str(where), name, LatencySource(file, _count(file)))


def _count(worst: Path) -> int:
    """Return the number of packets, which the ``stats`` table beside the worst packets has."""
    from tailscope.exceptions import RunError
    from tailscope.store.authors import read_columns

    stem = worst.name.split(".num_worst")[0]
    paths = sorted(worst.parent.glob(f"{stem}{_STATS}*"))
    if not paths:
        raise RunError(
            f"{worst}: expected a table {stem}{_STATS} beside it, got none",
            code="no-statistics-table",
            hint="it has the number of packets",
        )
    (received,) = read_columns(paths[0], ("post_received",))
    return int(received[0])


def tail_of(source: LatencySource, split: float = 1) -> RunTail:
    """Reduce the first part of a run to its bursts."""
    from tailscope.extra.tail.models.bursts import usual_run_length_ns
    from tailscope.extra.tail.models.setting import RunTail

    excesses, _ = excesses_of(source, split)
    part = excesses if split >= 1 else excesses.split(split).first
    return RunTail.of(part, usual_run_length_ns(excesses.gap_ns))


def tails_like(paths: Sequence[Path], but: Sequence[LatencySource]) -> list[RunTail]:
    """Reduce runs of the same set-up, without those that are modelled themselves."""
    from contextlib import suppress

    from tailscope.exceptions import TailscopeError

    modelled = {run.source.path.resolve() for source in but for run in named_sources(source)}
    tails = []
    for path in paths:
        folder = LatencySource(path, None)
        for run in named_sources(folder):
            if run.source.path.resolve() not in modelled:
                # An empty table in a folder says nothing; a run that was named must be readable.
                with suppress(*((TailscopeError,) if folder.is_folder else ())):
                    tails.append(tail_of(run.source))
    return tails
