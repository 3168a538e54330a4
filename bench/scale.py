"""Many large pairs and a tiny one, by two workers and by all CPUs, beside one process."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

from bench.clock import Contender, medians, say
from bench.pair import simulate, tailscope
from bench.table import Row

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = 8
PAIR_PACKETS = 14_000_000
"""More than 1 GB a file."""
RATE = "100k"
ALONE = "one process"


def scale_rows(folder: Path) -> list[Row]:
    """Whole commands, so the start of workers counts: see the row of a tiny pair."""
    say(f"simulating a pair of {PAIR_PACKETS:,} packets")
    large, tiny = folder / "large", folder / "tiny"
    first = simulate(large / "1", "--packets", PAIR_PACKETS, "--rate", RATE)
    for number in range(2, PAIRS + 1):
        copy = large / str(number)
        copy.mkdir()
        for path in first:
            (copy / path.name).hardlink_to(path)
    simulate(tiny, "--packets", 1_000)
    workers = dict.fromkeys(("local:2", f"local:{len(os.sched_getaffinity(0))}"))
    rows = []
    for what, captures, target in (
        (f"{PAIRS} pairs of 2 GB", large, 1.0),
        ("1 tiny pair", tiny, None),
    ):
        took = medians(
            2,
            {
                name: Contender(partial(_analyze, captures, folder / "out", name))
                for name in (ALONE, *workers)
            },
        )
        rows.append(Row(f"{what}, {ALONE}", "", "absolute", took[ALONE], None, "s", None))
        rows += [
            Row(f"{what}, {name}", ALONE, "speed-up", took[name], took[ALONE], "s", target)
            for name in workers
        ]
    return rows


def _analyze(captures: Path, out: Path, where: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    scheduler = [] if where == ALONE else ["--scheduler", where]
    tailscope("analyze", captures, "--window", "1s", "--out", out, *scheduler)
