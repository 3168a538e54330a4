"""The model of the tail against pyextremes."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import numpy as np

from bench.clock import say
from bench.table import Row
from tailscope.extra.tail.models.excesses import select
from tailscope.extra.tail.models.forecast import LOWEST
from tailscope.extra.tail.models.model import Settings, model

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL = 0.95
HORIZON = 4
LATENCIES = 10_000_000
THRESHOLD = 0.9999
SAMPLES = 1_000
GAP_NS = 100_000
RUN_LENGTH_NS = 1_000_000


def tail_rows() -> list[Row]:
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
