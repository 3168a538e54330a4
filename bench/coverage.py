"""How often intervals of the tail's laws hold the truth, for sizes and shapes of one's choice."""

from __future__ import annotations

import numpy as np

from bench.clock import say
from bench.table import Row
from tailscope.extra.tail.models.excesses import Excesses
from tailscope.extra.tail.models.fit import FEWEST_BURSTS, METHODS, fit
from tailscope.extra.tail.models.pareto import Pareto

SHAPES = (-0.3, 0.0, 0.3)
BURSTS = (50, 350)
RUNS = 500
RESAMPLES = 200
LEVEL = 0.95
HORIZON = 4
"""The rest of a run of which the first fifth was fitted."""

SIGMA_NS, THRESHOLD_NS = 10_000.0, 1_000


def coverage_rows() -> list[Row]:
    """Coverage in 500 seeded runs each, and exceedances where one is expected."""
    rows = []
    for bursts in BURSTS:
        for xi in SHAPES:
            say(f"intervals of {RUNS} seeded runs: {bursts} bursts, shape {xi}")
            rows += _rows(xi, bursts)
    return rows


def _rows(xi: float, bursts: int) -> list[Row]:
    law, packets = Pareto(xi, SIGMA_NS), 1_000_000
    level_ns = THRESHOLD_NS + float(law.quantile(1 / (HORIZON * bursts)))
    truth = (xi, SIGMA_NS, level_ns)
    held = {method: np.zeros(len(truth)) for method in METHODS}
    exceeding, promised = [], []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        count = max(FEWEST_BURSTS, int(rng.poisson(bursts)))
        sent = np.sort(rng.integers(0, 10**12, count))
        latency = np.rint(THRESHOLD_NS + law.draw(count, rng)).astype(np.int64) + 1
        excesses = Excesses(sent, latency, sent // 10**6, THRESHOLD_NS, packets, 0, 10**12)
        found = fit(excesses, THRESHOLD_NS, 1)
        ahead = HORIZON * packets
        every = found.intervals(ahead, LEVEL, found.resample(RESAMPLES, rng))
        for method, intervals in every.items():
            inside = [low <= one <= high for (low, high), one in zip(intervals, truth, strict=True)]
            held[method] += inside
        for level, into in (
            (found.level_ns(ahead), exceeding),
            (found.best_level_ns(ahead), promised),
        ):
            into.append(HORIZON * bursts * float(law.survival(level - THRESHOLD_NS)))
    name = f"{bursts} bursts, shape {xi:+}"
    rows = [
        Row(f"{name}: {figure} held", method, "share", held[method][at] / RUNS, None, "", target)
        for method in METHODS
        for at, figure in enumerate(("shape", "scale", "level"))
        for target in (0.92 if method == METHODS[0] else None,)
    ]
    for label, values in (("level", exceeding), ("Equation 1", promised)):
        mean = float(np.mean(values))
        rows.append(Row(f"{name}: bursts above the {label}", "1", "absolute", mean, None, "", None))
    return rows
