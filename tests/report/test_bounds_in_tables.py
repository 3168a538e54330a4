"""Tables of latencies that lie between two ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import synthetic

from tailscope.store.reader import read_run
from tailscope.words.figures import latency_rows

if TYPE_CHECKING:
    from pathlib import Path


def test_the_least_latency_is_no_longer_than_the_median_may_be(tmp_path: Path) -> None:
    """Every packet met a stall, so even the fastest may have taken less than was measured."""
    stalled = np.full(1_000, fill_value=True)
    path = synthetic.write_run(
        tmp_path / "run", np.full(1_000, 4_000), stalled=stalled, stall_ns=3_000
    )
    summary = read_run(path).summary
    assert summary["least_latency_ns_min"] == summary["least_latency_ns_p50_ci_low"] == 1_000
    rows = {row.label: row.value for row in latency_rows(summary)}
    assert rows["min"] == rows["p50"]
    assert "instrument" in rows["min"]
