"""``tailscope model aliasing --recorded``: interruptions of a measured device, and its packets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from documentation import undocumented
from runs import AS_ROOT

from tailscope.units import count_text

Run = Callable[..., Any]
Measure = Callable[..., dict[str, Any]]


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_simulated_beside_measured_on_this_machine(measure: Measure, tailscope: Run) -> None:
    """The device's own interruptions, its timer's ticks among them, delay packets as predicted."""
    models, words = simulated_beside_measured(measure, tailscope, rounds=3)
    assert not undocumented(models[0], "extra/patterns/aliasing.md")
    assert 0.5 < usual_ratio(models, "delayed") < 2
    assert 0.25 < usual_ratio(models, "latency_ns_p999") < 4
    assert words.startswith(f"{count_text(models[-1]['interruptions'])} ")


@AS_ROOT
@pytest.mark.long
@pytest.mark.usefixtures("alone")
def test_simulated_and_measured_latencies_agree(measure: Measure, tailscope: Run) -> None:
    """Most rounds agree, except where a hypervisor holds the CPU for milliseconds."""
    models, _ = simulated_beside_measured(measure, tailscope, rounds=9)
    assert np.median([model["agreement"] for model in models]) > 0.4


def simulated_beside_measured(
    measure: Measure, tailscope: Run, rounds: int
) -> tuple[list[dict[str, Any]], str]:
    """Return the model's figures for some runs, and its words for the last one."""
    models = []
    for _ in range(rounds):
        measured = measure(
            "--dut", "l2fwd", "--rate", "10k", "--duration", "10s", "--noise", "events"
        )
        done = tailscope("model", "aliasing", measured["out"], "--recorded", "--json", "-")
        assert done.returncode == 0, done.stderr
        model = json.loads(done.stdout)
        assert model["interruptions"] > 100
        assert model["measured"]["delayed"] > 50
        models.append(model)
    return models, tailscope("model", "aliasing", measured["out"], "--recorded").stdout


def usual_ratio(models: list[dict[str, Any]], figure: str) -> float:
    """Return the median of predicted over measured."""
    ratios = [model["predicted"][figure] / model["measured"][figure] for model in models]
    return float(np.median(ratios))
