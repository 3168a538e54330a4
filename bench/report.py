"""The page of a run of 10 M packets, beside reading that run and nothing more."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from bench.clock import Contender, medians, say
from bench.pair import simulate
from bench.pair import tailscope as command
from bench.table import Row

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
PACKETS = 10_000_000
ROUNDS = 3

READING = """
import sys
from pathlib import Path
from tailscope.store.reader import packets_of, read_run
with packets_of(read_run(Path(sys.argv[1]))) as packets:
    for _ in packets.batches("pre_ns", "latency_ns", "intended_ns"):
        pass
"""


def report_rows(folder: Path) -> list[Row]:
    """How long a page takes beyond reading what it shows, and how large it is."""
    say("simulating and analysing 10 M packets")
    pair = simulate(folder / "report", "--packets", PACKETS, "--rate", "1M")
    run, page = folder / "run", folder / "report.html"
    command("analyze", *pair, "--out", run)
    for path in pair:
        path.unlink()
    reading = [sys.executable, "-c", READING, str(run)]
    took = medians(
        ROUNDS,
        {
            "reading": Contender(partial(subprocess.run, reading, check=True)),
            "report": Contender(partial(command, "report", run, "--out", page)),
        },
    )
    read, whole = took["reading"], took["report"]
    return [
        Row("report of 10 M packets, whole", "reading them", "cost", whole, read, "s", 1.2),
        Row("report, beyond reading", "", "absolute", whole - read, None, "s", 1),
        Row("report.html", "", "absolute", page.stat().st_size / MIB, None, "MiB", 2),
    ]
