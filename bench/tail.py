"""The model of the tail: how often its intervals hold the truth, and how fast it is."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import numpy as np

from bench.clock import say
from bench.table import Row
from tailscope.models.tail.excesses import Excesses, select
from tailscope.models.tail.fit import FEWEST_BURSTS, METHODS, fit
from tailscope.models.tail.forecast import LOWEST
from tailscope.models.tail.model import Settings, model
from tailscope.models.tail.pareto import Pareto

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHAPES = (-0.3, 0.0, 0.3)
BURSTS = (50, 350)
RUNS = 500
RESAMPLES = 200
LEVEL = 0.95
HORIZON = 4
"""The rest of a run of which the first fifth was fitted."""

SIGMA_NS, THRESHOLD_NS = 10_000.0, 1_000
LATENCIES = 10_000_000
THRESHOLD = 0.9999
SAMPLES = 1_000
GAP_NS = 100_000
RUN_LENGTH_NS = 1_000_000


def tail_rows() -> list[Row]:
    """Coverage in 500 seeded runs each, exceedances where one is expected, and time."""
    rows = []
    for bursts in BURSTS:
        for xi in SHAPES:
            say(f"intervals of {RUNS} seeded runs: {bursts} bursts, shape {xi}")
            rows += _coverage_rows(xi, bursts)
    return rows + _speed_rows()


def _coverage_rows(xi: float, bursts: int) -> list[Row]:
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


def _speed_rows() -> list[Row]:
    """Five thresholds, tests, and the bootstrap, against one threshold and its bootstrap."""
    say(f"{LATENCIES} latencies, by us and by pyextremes")
    rng = np.random.default_rng(1)
    latency = np.rint(3_000 + rng.gamma(2, 2_000, LATENCIES)).astype(np.uint64)
    sent = np.arange(LATENCIES) * GAP_NS
    settings = Settings(split=1, resamples=SAMPLES, run_length_ns=RUN_LENGTH_NS)
    _ours(sent[:100_000], latency[:100_000], settings)
    ours = _ours(sent, latency, settings)
    theirs = _pyextremes(sent, latency)
    return [
        Row("5 thresholds, 10 M latencies", "pyextremes, 1", "speed-up", ours, theirs, "s", 5),
    ]


def _ours(sent: NDArray[np.int64], latency: NDArray[np.uint64], settings: Settings) -> float:
    begin = time.perf_counter()
    model(select(sent, latency, LOWEST), settings, np.random.default_rng(1))
    return time.perf_counter() - begin


def _pyextremes(sent: NDArray[np.int64], latency: NDArray[np.uint64]) -> float:
    import pandas as pd
    from pyextremes import EVA

    series = pd.Series(latency.astype(float), index=pd.to_datetime(sent))
    threshold = float(np.quantile(latency, THRESHOLD))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = EVA(series)
        found.get_extremes("POT", threshold=threshold, r=pd.Timedelta(RUN_LENGTH_NS, "ns"))
        found.fit_model("MLE", distribution="genpareto")
        size = pd.Timedelta(LATENCIES * GAP_NS, "ns")
        found.get_return_value(HORIZON, return_period_size=size, alpha=LEVEL, n_samples=SAMPLES)
    return time.perf_counter() - begin
