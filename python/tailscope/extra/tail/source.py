"""The sources of latencies that ``tailscope model tail`` reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.tail.models.excesses import Excesses

_WORST = ".worst.csv"


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
