"""Bursts of 128 packets through the device `work`: the parts of latencies, and the device's law."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tailscope.noise.queues import Delayed, delayed, usual_of
from tailscope.store.reader import open_packets, read_run

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("dataplane", "alone"), pytest.mark.long]

Run = Callable[..., "subprocess.CompletedProcess[str]"]

EACH_NS, SIZE = 20_000, 128
REST = {1: 0.0, 4: 0.023, 32: 0.196}
"""Share of the rest of the batch in all waiting for others: what the simulator has."""


def waits_of(out: Path) -> tuple[int, Delayed]:
    """The usual time for each packet of a queue, and the waiting times of all packets."""
    with open_packets(out, read_run(out).info) as packets:
        usual = usual_of(packets)
        assert usual.in_order
        waits = Delayed.joined([*delayed(packets, usual, lambda seq, _: seq >= 0)])
    return usual.each_ns, waits


@pytest.mark.parametrize("batch", REST)
def test_packet_127_waits_as_the_law_of_the_device_says(
    batch: int, tailscope: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    device = ("--dut", "work", "--dut-option", "law=fixed:20us", "--dut-option", f"batch={batch}")
    traffic = ("--rate", "12.8k", "--burst", str(SIZE), "--burst-gap", "0ns", "--duration", "1s")
    done = tailscope("run", *device, *traffic, "--warm-up", "200ms", "--out", out)
    assert done.returncode == 0, done.stderr
    each_ns, waits = waits_of(out)
    assert each_ns == pytest.approx(EACH_NS, rel=0.03)
    whole = len(waits.seq) // SIZE * SIZE
    assert whole >= 50 * SIZE
    earlier_ns, batch_ns, latency_ns = (
        column[:whole].reshape(-1, SIZE)
        for column in (waits.earlier_ns, waits.batch_ns, waits.latency_ns)
    )
    # Those bursts that nothing else held up for long.
    quiet = np.argsort(latency_ns[:, -1])[: len(latency_ns) // 4]
    assert np.median(earlier_ns[quiet, -1]) == pytest.approx((SIZE - 1) * EACH_NS, rel=0.03)
    rest = batch_ns[quiet].sum() / (earlier_ns[quiet] + batch_ns[quiet]).sum()
    assert rest == pytest.approx(REST[batch], abs=0.02)
