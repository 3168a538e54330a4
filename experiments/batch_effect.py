"""Bursts against batches: Figure 5 of Gallenmüller et al. (NOMS 2020), over memif.

The device `work` accepts many packets at once, takes as long for each as Snort did there (15.1 µs),
and hands none of them on before the last was handled: of a burst, most packets wait for others.
With small batches the first ones leave early.

    python -m experiments.batch_effect --out DIR

writes ``batch-effect.csv`` (the distribution of each combination) and ``batch-effect.svg``.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.testbed.cores import Cores, pick_cores, read_topology

BURSTS = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (32, 4)
LAW = "fixed:15100ns"
RATE_PPS = 10_000
SHARES = np.linspace(0, 1, 257)[1:]

Distributions = dict[tuple[int, int], np.ndarray]


def measure(duration_ns: int, cores: Cores) -> Distributions:
    """Latencies in ns at `SHARES`, by (burst, batch)."""
    found = {}
    for batch in BATCHES:
        for burst in BURSTS:
            plan = RunPlan(
                dut="work",
                dut_options={"law": LAW, "batch": str(batch)},
                rate_pps=RATE_PPS,
                burst=burst,
                warm_up_ns=200_000_000,
                duration_ns=duration_ns,
            )
            latency = execute_whole(plan, cores).analysis.histogram(1)
            counts = np.cumsum(latency.counts)
            ranks = np.ceil(SHARES * counts[-1])
            found[burst, batch] = latency.bucket_ns[np.searchsorted(counts, ranks)]
            print(f"burst {burst}, batch {batch}", file=sys.stderr)
    return found


def write(found: Distributions, out: Path) -> None:
    """The distributions as a table, and as the figure."""
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    with (out / "batch-effect.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["batch", "burst", "share", "latency_ns"])
        for (burst, batch), latencies in found.items():
            for share, latency in zip(SHARES, latencies, strict=True):
                writer.writerow([batch, burst, f"{share:.6f}", latency])
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, len(BATCHES), sharey=True)
    for axes, batch in zip(panels, BATCHES, strict=True):
        for burst in BURSTS:
            latencies = found[burst, batch] / 1e3
            axes.plot(latencies, SHARES, drawstyle="steps-pre", label=f"{burst}")
        # Beyond it are stalls of the machine.
        axes.set_xlim(0, 1.8 * np.median(found[max(BURSTS), batch]) / 1e3)
        axes.set_xlabel("latency [µs]")
        axes.set_title(f"batches of {batch}")
        axes.legend(title="burst")
    panels[0].set_ylabel("share of packets")
    figure.savefig(out / "batch-effect.svg")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.batch_effect")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--duration-ms", type=int, default=2000, metavar="MS")
    options = parser.parse_args()
    cores = pick_cores(read_topology(), 2)
    found = measure(options.duration_ms * 1_000_000, cores)
    write(found, options.out)
    print(f"{'batch':>5}{'burst':>6}" + "".join(f"{f'p{share}':>14}" for share in (10, 50, 90)))
    for (burst, batch), latencies in found.items():
        shown = (latencies[np.searchsorted(SHARES, share)] for share in (0.1, 0.5, 0.9))
        print(f"{batch:>5}{burst:>6}" + "".join(f"{each / 1e3:>11.3f} µs" for each in shown))
    print(options.out / "batch-effect.svg")


if __name__ == "__main__":
    main()
