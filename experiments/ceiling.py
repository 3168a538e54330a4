"""The most packets a second that the generator sends, stamps, gets back and matches, over memif.

By the length of frames and by the number of flows, through our l2fwd, which changes nothing.

    python -m experiments.ceiling --out DIR

prints every measurement, and writes ``ceiling.svg``: the same, and a line through the largest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.dataplane import overloaded

from tailscope.testbed.cores import Cores, pick_cores, read_topology

ROUNDS = 3
SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
"""In bytes with the check sequence: those of RFC 2544."""
FLOWS = (1, 10, 100, 1_000, 10_000, 60_000)

Rates = dict[tuple[str, int], list[float]]


def measure(cores: Cores) -> Rates:
    """Packets per second by what was varied and its value, one for each round."""
    points = [("size", size) for size in SIZES] + [("flows", flows) for flows in FLOWS]
    found: Rates = {point: [] for point in points}
    for done in range(ROUNDS):
        for what, value in points:
            found[what, value].append(overloaded(cores, None, f"--{what}={value}"))
        print(f"round {done + 1} of {ROUNDS}", file=sys.stderr)
    return found


def write(found: Rates, out: Path) -> None:
    """The rates as a figure."""
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, what, label in zip(
        panels,
        ("size", "flows"),
        ("frame [bytes], 1 flow", "flows, frames of 64 bytes"),
        strict=True,
    ):
        values = [value for varied, value in found if varied == what]
        axes.plot(values, [max(found[what, value]) / 1e6 for value in values])
        for value in values:
            rates = found[what, value]
            axes.scatter([value] * len(rates), [rate / 1e6 for rate in rates], color="C0", s=16)
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[1].set_xscale("log")
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("million packets a second")
    untold = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out / "ceiling.svg", metadata=untold)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.ceiling")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    found = measure(pick_cores(read_topology(), ["generator", "dut"]))
    write(found, options.out)
    for (what, value), rates in found.items():
        shown = ", ".join(f"{rate / 1e6:.1f}" for rate in sorted(rates))
        print(f"{what:>5} {value:>6}: {shown} Mpps")
    print(options.out / "ceiling.svg")


if __name__ == "__main__":
    main()
