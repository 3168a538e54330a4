"""The device of known capacity, whose whole batches leave at once and never early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from errors import code_of

pytestmark = pytest.mark.usefixtures("dataplane")

Measure = Callable[..., dict[str, Any]]

WORK_NS = 50_000


def batches_of(out: Any, batch: int, burst: int) -> tuple[list[list[int]], list[float]]:
    """Return the batch sizes of each whole burst, and the time between full batches."""
    latency = pq.read_table(out / "latency.parquet")
    seq, pre, took = (
        latency[name].to_numpy().astype(np.int64) for name in ("seq", "pre_ns", "latency_ns")
    )
    sizes, apart = [], []
    for number in np.unique(seq // burst):
        own = seq // burst == number
        if own.sum() < burst:
            continue
        left = np.sort((pre + took)[own])
        ends = np.flatnonzero(np.append(np.diff(left) > WORK_NS / 2, True))
        batches = np.diff(ends, prepend=-1).tolist()
        sizes.append(batches)
        full = [
            left[end] - left[before]
            for before, end, size in zip(ends, ends[1:], batches[1:], strict=False)
            if size == batch
        ]
        apart.extend(full)
    return sizes, apart


@pytest.mark.parametrize("batch", [4, 16])
def test_a_burst_leaves_in_steps(measure: Measure, batch: int) -> None:
    """Most packets of a burst leave together with a whole batch (figure 5 of noms2020)."""
    burst = 64
    figures = measure(
        *("--dut", "work", "--dut-option", f"law=fixed:{WORK_NS}ns"),
        *("--dut-option", f"batch={batch}", "--burst", burst, "--rate", "5k", "--duration", "1s"),
    )
    sizes, apart = batches_of(figures["out"], batch, burst)
    assert sizes
    together = Counter(size for batches in sizes for size in batches)
    # On a busy machine, receiving may split or join batches.
    assert together.most_common(1)[0][0] == batch
    assert np.median(apart) == pytest.approx(batch * WORK_NS, rel=0.2)


@pytest.mark.parametrize("law", ["fixed:50us", "uniform:50us,60us"])
def test_work_is_part_of_every_latency(measure: Measure, law: str) -> None:
    assert measure("--dut", "work", "--dut-option", f"law={law}")["latency_ns_min"] >= WORK_NS


@pytest.mark.parametrize(
    ("option", "code", "value"),
    [("batch=0", "dut-option", "'0'"), ("rate=9", "unknown-dut-option", "law, batch, seed")],
)
def test_options_of_work_are_checked(
    tailscope: Callable[..., Any], option: str, code: str, value: str
) -> None:
    done = tailscope("run", "--dut", "work", "--dut-option", option, "--dry-run")
    assert done.returncode == 1 and code_of(done) == code and value in done.stderr
