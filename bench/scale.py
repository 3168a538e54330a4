"""Many pairs, and a large one, on one worker, on two and on all CPUs, beside one process."""

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
PACKETS = 1_000_000
"""1.2 GB in all."""
LARGE_PACKETS = 3_000_000
RATE = "100k"
ONE, ALONE = "local:1", "one process"


def scale_rows(folder: Path) -> list[Row]:
    """Whole commands, so the start of workers counts: see the row of an empty one."""
    say(f"simulating {PAIRS} pairs of {PACKETS:,} packets, and one of {LARGE_PACKETS:,}")
    many, large, tiny = (folder / name for name in ("many", "large", "tiny"))
    for number in range(PAIRS):
        simulate(many / str(number), "--packets", PACKETS, "--rate", RATE)
    simulate(large, "--packets", LARGE_PACKETS, "--rate", RATE)
    simulate(tiny, "--packets", 1_000)
    workers = [ONE, *dict.fromkeys(("local:2", f"local:{len(os.sched_getaffinity(0))}"))]
    rows = []
    for what, captures in (
        (f"{PAIRS} pairs", many),
        ("1 large pair", large),
        ("1 tiny pair", tiny),
    ):
        took = medians(
            3,
            {
                name: Contender(partial(_analyze, captures, folder / "out", name))
                for name in (ALONE, *workers)
            },
        )
        rows.append(Row(f"{what}, {ALONE}", "", "absolute", took[ALONE], None, "s", None))
        for name in workers:
            for other in (ALONE, ONE)[: 1 if name == ONE else 2]:
                speed_up = (took[name], took[other], "s", None)
                rows.append(Row(f"{what}, {name}", other, "speed-up", *speed_up))
    return rows


def _analyze(captures: Path, out: Path, where: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    scheduler = [] if where == ALONE else ["--scheduler", where]
    tailscope("analyze", captures, "--window", "1s", "--out", out, *scheduler)
