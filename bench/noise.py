"""What recording kernel events costs those who are measured: the same run with and without."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from pathlib import Path

from msgspec.structs import replace

from bench.clock import say
from bench.table import Row
from tailscope.experiment.ablation import paired_ratio
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run import execute_whole
from tailscope.noise.watch import WatchPlan, watch
from tailscope.testbed.cores import pick_cores, read_topology

ROUNDS = 8
QUANTILE = 0.999
LEVEL = 0.95


def noise_rows() -> list[Row]:
    """p99.9 of l2fwd, and the share of a CPU's time in stalls; nothing as an ordinary user."""
    if os.geteuid() != 0:
        say("kernel events are root's: their cost is left out")
        return []
    return [_tail_row(), _share_row()]


def _tail_row() -> Row:
    """The target is the interval of the ratio itself: less than that is no difference."""
    cores = pick_cores(read_topology(), 2)
    plan = RunPlan(dut="l2fwd", rate_pps=100_000, duration_ns=5_000_000_000)
    found: dict[str, list[float]] = {"events": [], "stalls": []}
    chance = random.Random(1)
    for done in range(ROUNDS):
        for noise in chance.sample(list(found), len(found)):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run"
                measured = execute_whole(replace(plan, noise=noise), cores, out=out)
            [value] = measured.analysis.quantiles([QUANTILE])
            found[noise].append(value.value_ns)
        say(f"p99.9 with and without kernel events recorded: round {done + 1} of {ROUNDS}")
    with_ns, without_ns = found["events"], found["stalls"]
    ratio, reach = paired_ratio(with_ns, without_ns, LEVEL)
    without = statistics.median(without_ns) / 1e3
    return Row(
        "l2fwd p99.9, kernel events recorded",
        "without, 95 % interval",
        "cost",
        without * ratio,
        without,
        "us",
        round(reach, 3),
    )


def _share_row() -> Row:
    """Time in stalls of a CPU that only watches, in the median tenth of a second."""
    cores = pick_cores(read_topology(), 1)
    plan = WatchPlan(duration_ns=5_000_000_000, stall_ns=300, noise="events", counter_interval_ns=0)
    costs = [watch(plan, cores).cost for _ in range(3)]
    shares = [cost for cost in costs if cost is not None]
    with_share = statistics.median(cost.share_with for cost in shares)
    without = statistics.median(cost.share_without for cost in shares)
    what = "time in stalls, kernel events recorded"
    return Row(what, "without", "cost", 100 * with_share, 100 * without, "%", None)
