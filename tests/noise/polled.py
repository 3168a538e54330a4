"""Series of interrupt counters, as somebody has polled them beside captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.noise.association import Slow
from tailscope.noise.counters import Readings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SECOND = 1_000_000_000
LATE_NS = 200_000


def readings(increments: NDArray[np.int64], *, name: str = "guest", start_ns: int = 0) -> Readings:
    """Counters that are read each second; a column of `increments` for each of CPU 0, 1, ..."""
    n, many = increments.shape
    counts = np.concatenate([np.zeros((1, many), np.int64), np.cumsum(increments, axis=0)])
    times = start_ns + np.arange(n + 1, dtype=np.int64) * SECOND
    return Readings(name, f"{name}.csv", times, counts, [("TLB", cpu) for cpu in range(many)], 0)


def slow_at(seconds: Sequence[float], lasted_s: int, *, packets: int = 5) -> Slow:
    """Slow packets at some times, several in a row, in captures that begin at 0."""
    start = np.sort(
        np.concatenate([np.arange(packets) * 100_000 + int(at * SECOND) for at in seconds])
    ).astype(np.int64)
    return Slow(0.9999, LATE_NS, start, start + LATE_NS, (0, lasted_s * SECOND))


def write_authors_csv(path: Path, file: Readings, counter: str = "TLB_TLB_shootdowns") -> Path:
    """The same as the authors publish it; columns in an arbitrary order."""
    names = [f"{counter}_CPU{cpu}" for _, cpu in file.names]
    rows = [
        (*map(str, counts), str(time // 1000))
        for time, counts in zip(file.times_ns.tolist(), file.counts.tolist(), strict=True)
    ]
    path.write_text("\n".join(";".join(row) for row in [(*names, "timestamp_us"), *rows]) + "\n")
    return path


def write_snapshots(path: Path, file: Readings) -> Path:
    """Copies of /proc/interrupts, each below its time."""
    cpus = [f"CPU{cpu}" for _, cpu in file.names]
    parts = []
    for time, counts in zip(file.times_ns.tolist(), file.counts.tolist(), strict=True):
        parts.append(f"{time // SECOND}.{time % SECOND:09}")
        parts.append("      " + " ".join(cpus))
        parts.append("TLB: " + " ".join(map(str, counts)) + "   TLB shootdowns")
        parts.append("ERR: 0")
    path.write_text("\n".join(parts) + "\n")
    return path
