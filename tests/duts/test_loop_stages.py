"""Stages of packets in forwarders of tailscope, over memif."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from runs import left_behind, sound

from tailscope.noise.stages import divide, read_stages
from tailscope.store.reader import open_packets, read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Measure = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.usefixtures("dataplane")


def stages_of(out: Path) -> Mapping[str, NDArray[np.int64]]:
    """Return the time of each packet in each stage; they sum to its latency."""
    run = read_run(out)
    stages = read_stages(out, run.info)
    assert stages is not None
    with open_packets(out, run.info) as packets:
        columns = packets.columns("seq", "pre_ns", "latency_ns")
    seq, pre_ns, latency_ns = (column.view("i8") for column in columns)
    divided = divide(stages, seq, pre_ns, latency_ns)
    assert divided.is_whole.mean() > 0.99
    whole = divided.stages_ns[divided.is_whole]
    assert (whole.sum(axis=1) == latency_ns[divided.is_whole]).all()
    assert run.explanation is not None
    assert run.explanation.stages is not None
    assert run.explanation.stages.way == "loop"
    assert run.explanation.stages.packets == divided.is_whole.sum()
    return dict(zip(stages.way.stages, whole.T, strict=True))


@pytest.mark.parametrize(
    ("options", "least_ns"),
    [
        (("--dut", "delay", "--dut-option", "law=fixed:50us"), 50_000),
        (("--dut", "work", "--dut-option", "law=fixed:30us"), 30_000),
        (("--dut", "l2fwd", "--dut-option", "tx-drain=70us"), 70_000),
        (("--dut", "l3fwd"), 0),
    ],
)
def test_what_a_device_does_with_packets_is_its_work(
    measure: Measure, options: tuple[str, ...], least_ns: int
) -> None:
    out = measure(*options, "--rate", "2k", "--stages", "on")["out"]
    assert sound(out)["noise"]["stages"] == {
        "way": "loop",
        "every": 1,
        "events": sound(out)["instrument"]["generator"]["gen"]["sent"],
        "lost": 0,
        "clock_error_ns": 1,
    }
    stages_ns = stages_of(out)
    # A full buffer, or a late turn of the loop, hands packets on early: others wait for all of it.
    assert stages_ns["work"].max() >= 0.9 * least_ns
    # Whatever else the machine does, a packet in twenty is not in its way.
    others_ns = np.quantile([stages_ns["rx burst"], stages_ns["tx burst"]], 0.05, axis=1)
    assert others_ns.max() < max(least_ns, 30_000)
    assert not left_behind()


def test_of_many_packets_some_are_looked_at(measure: Measure) -> None:
    out = measure("--dut", "l2fwd", "--rate", "50k", "--stages", "auto")["out"]
    recorded = sound(out)["noise"]["stages"]
    sent = sound(out)["instrument"]["generator"]["gen"]["sent"]
    assert recorded["every"] == 5
    assert recorded["events"] == pytest.approx(sent / 5, abs=2 + sent / 100)
