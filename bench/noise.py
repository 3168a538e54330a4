"""What recording the kernel costs those who are measured: the same run with and without."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from pathlib import Path

from msgspec.structs import replace

from bench.clock import say
from bench.table import Row
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.tune.ablation import paired_ratio
from tailscope.noise.watch import WatchPlan, watch
from tailscope.testbed.cores import pick_cores, read_topology

ROUNDS = 5
LEVEL = 0.95


def noise_rows() -> list[Row]:
    """What latencies are with and without; nothing as an ordinary user."""
    if os.geteuid() != 0:
        say("kernel events and stages are root's: their cost is left out")
        return []
    l2fwd = RunPlan(dut="l2fwd", rate_pps=100_000, duration_ns=3_000_000_000)
    rows = [
        _cost_row(
            "l2fwd p99.9, kernel events recorded",
            replace(l2fwd, noise="events"),
            replace(l2fwd, noise="stalls"),
            0.999,
        ),
        _share_row(),
    ]
    for dut, wire in (("router", "veth"), ("bridge", "veth"), ("l2fwd", "memif")):
        plan = RunPlan(dut=dut, wire=wire, duration_ns=1_000_000_000)
        what = f"{dut} p5, stages recorded"
        rows.append(_cost_row(what, replace(plan, stages="on"), plan, 0.05))
    return rows


def _cost_row(what: str, looking: RunPlan, blind: RunPlan, quantile: float) -> Row:
    """The target is the interval of the ratio itself: less than that is no difference."""
    cores = pick_cores(read_topology(), looking.device.poller_roles)
    plans = {"with": looking, "without": blind}
    found: dict[str, list[float]] = {name: [] for name in plans}
    chance = random.Random(1)
    for done in range(ROUNDS):
        for name in chance.sample(list(plans), len(plans)):
            with tempfile.TemporaryDirectory() as folder:
                measured = execute_whole(plans[name], cores, out=Path(folder) / "run")
            [value] = measured.analysis.quantiles([quantile])
            found[name].append(value.value_ns)
        say(f"{what}, and not: round {done + 1} of {ROUNDS}")
    ratio, reach = paired_ratio(found["with"], found["without"], LEVEL)
    without = statistics.median(found["without"]) / 1e3
    return Row(
        what,
        "without, 95 % interval",
        "cost",
        without * ratio,
        without,
        "us",
        round(reach, 3),
    )


def _share_row() -> Row:
    """Time in stalls of a CPU that only watches, in the median tenth of a second."""
    cores = pick_cores(read_topology(), ["watch"])
    plan = WatchPlan(duration_ns=3_000_000_000, stall_ns=300, noise="events", counter_interval_ns=0)
    costs = [watch(plan, cores).cost for _ in range(3)]
    shares = [cost for cost in costs if cost is not None]
    with_share = statistics.median(cost.share_with for cost in shares)
    without = statistics.median(cost.share_without for cost in shares)
    what = "time in stalls, kernel events recorded"
    return Row(what, "without", "cost", 100 * with_share, 100 * without, "%", None)
