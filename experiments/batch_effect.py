"""Bursts against batches: Figure 5 of Gallenmüller et al. (NOMS 2020), with l2fwd over memif.

A forwarder that accepts many packets at once hands none of them on before the last was handled: of
a burst, most packets wait for others. With small batches the first ones leave early.

    python -m experiments.batch_effect --out DIR

writes ``batch-effect.csv`` and ``batch-effect.svg``.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from pathlib import Path

from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run import execute_whole
from tailscope.testbed.cores import Cores, pick_cores, read_topology

BURSTS = (2, 4, 8, 16, 32, 64)
BATCHES = (32, 4)


def measure(rounds: int, duration_ns: int, cores: Cores) -> dict[tuple[int, int], list[int]]:
    """Medians of latency in ns by (burst, batch), one for each round; all take turns."""
    found: dict[tuple[int, int], list[int]] = {
        (burst, batch): [] for burst in BURSTS for batch in BATCHES
    }
    for number in range(rounds):
        for (burst, batch), medians in found.items():
            plan = RunPlan(
                dut="l2fwd",
                dut_options={"batch": str(batch)},
                rate_pps=100_000,
                burst=burst,
                warm_up_ns=200_000_000,
                duration_ns=duration_ns,
            )
            medians.append(int(execute_whole(plan, cores).analysis.summary["latency_ns_p50"] or 0))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return found


def write(found: dict[tuple[int, int], list[int]], out: Path) -> None:
    """The medians as a table, and as a figure with the range of all rounds."""
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    with (out / "batch-effect.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["burst", "batch", "latency_ns_p50", "lowest_ns", "highest_ns"])
        for (burst, batch), medians in found.items():
            median = round(statistics.median(medians))
            writer.writerow([burst, batch, median, min(medians), max(medians)])
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for batch in BATCHES:
        rounds = [found[burst, batch] for burst in BURSTS]
        middle = [statistics.median(medians) / 1e3 for medians in rounds]
        low = [value - min(medians) / 1e3 for value, medians in zip(middle, rounds, strict=True)]
        high = [max(medians) / 1e3 - value for value, medians in zip(middle, rounds, strict=True)]
        axes.errorbar(BURSTS, middle, [low, high], marker="o", capsize=3, label=f"batch {batch}")
    axes.set_xscale("log", base=2)
    axes.set_xticks(BURSTS, [str(burst) for burst in BURSTS])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("burst [packets]")
    axes.set_ylabel("median latency [µs]")
    axes.legend()
    figure.savefig(out / "batch-effect.svg")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.batch_effect")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--duration-ms", type=int, default=1000, metavar="MS")
    options = parser.parse_args()
    cores = pick_cores(read_topology(), 2)
    found = measure(options.rounds, options.duration_ms * 1_000_000, cores)
    write(found, options.out)
    print(f"{'burst':>5}" + "".join(f"{f'batch {batch}':>14}" for batch in BATCHES))
    for burst in BURSTS:
        cells = (statistics.median(found[burst, batch]) for batch in BATCHES)
        print(f"{burst:>5}" + "".join(f"{cell / 1e3:>11.3f} µs" for cell in cells))
    print(options.out / "batch-effect.svg")


if __name__ == "__main__":
    main()
