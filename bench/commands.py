"""Whole commands on a run: how much CPU time and memory they take."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.clock import Contender, medians, say
from bench.cost import cost_of
from bench.pair import tailscope as command
from bench.table import Row

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 3
WORST, OF_PACKETS = 5_000, 10_000_000
SIGMA_NS, FLOOR_NS, GAP_NS = 10_000.0, 80_000, 16_000


def command_rows(folder: Path) -> list[Row]:
    """Start-up, `explain` of half a million packets and of ten times as many, and `model tail`."""
    argparse = [sys.executable, "-c", "import argparse"]
    took = medians(
        ROUNDS,
        {
            "help": Contender(partial(command, "--help"), 5),
            "argparse": Contender(partial(subprocess.run, argparse, check=True), 5),
        },
    )
    rows = [
        Row("tailscope --help", "import argparse", "cost", took["help"], took["argparse"], "s", 6)
    ]
    runs = {}
    for name, rate in (("500 k", "100k"), ("5 M", "1M")):
        say(f"measuring {name} packets")
        runs[name] = folder / f"run-{rate}"
        lasting = ("--rate", rate, "--duration", "5s")
        command("run", "--dut", "l2fwd", *lasting, "--out", runs[name], "--quiet")
    for name, run in runs.items():
        costs = [cost_of("explain", run) for _ in range(ROUNDS)]
        cpu_s = statistics.median(cost.cpu_s for cost in costs)
        memory = max(cost.peak_mib for cost in costs)
        target_s = 1 if name == "500 k" else None
        rows += [
            Row(f"explain, {name} packets, CPU", "", "absolute", cpu_s, None, "s", target_s),
            Row(f"explain, {name} packets, memory", "", "absolute", memory, None, "MiB", 128),
        ]
    small, large = runs.values()
    memory = cost_of("compare", large, small).peak_mib
    rows.append(Row("compare, 5 M packets, memory", "", "absolute", memory, None, "MiB", 128))
    worst = _worst(folder / "worst.csv")
    model = ("model", "tail", "--worst", worst, "--count", OF_PACKETS)
    cpu_s = statistics.median(cost_of(*model).cpu_s for _ in range(ROUNDS))
    rows.append(Row("model tail, 5000 worst, CPU", "", "absolute", cpu_s, None, "s", 2))
    return rows


def _worst(path: Path) -> Path:
    """Worst packets as the authors' scripts write them: exponential beyond a floor."""
    rng = np.random.default_rng(1)
    latency = FLOOR_NS + rng.exponential(SIGMA_NS, WORST).astype(np.int64)
    sent = np.sort(rng.choice(OF_PACKETS, WORST, replace=False)) * GAP_NS
    rows = np.column_stack((latency, sent))
    np.savetxt(path, rows, "%d", ",", header="latency,prets", comments="")
    return path
