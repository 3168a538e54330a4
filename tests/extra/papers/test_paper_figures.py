"""Figure 8 of containers2024 against the figures that it joins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from whole_run import PACKETS, whole_run

from tailscope.extra.papers.figures import worst_and_interrupts
from tailscope.report.figures.noise import interrupt_rates
from tailscope.report.material import Material

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.store.run import Run


@pytest.fixture(scope="module")
def run(tailscope: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return whole_run(tailscope, tmp_path_factory.mktemp("whole"))


def test_packets_and_counters_share_an_axis(run: Run) -> None:
    picture, rates = (draw([Material(run)]) for draw in (worst_and_interrupts, interrupt_rates))
    assert picture is not None and rates is not None
    packets, *counters = picture.layers
    latency, highest = run.worst.latency_ns.astype(float), int(run.worst.latency_ns.max())
    assert len(packets.columns["y"]) == PACKETS
    assert packets.columns["y"] * highest == pytest.approx(latency)
    assert [layer.part for layer in counters] == [layer.part for layer in rates.layers]
    for layer, rate in zip(counters, rates.layers, strict=True):
        assert layer.columns["x"].tolist() == rate.columns["x"].tolist()
        assert layer.columns["y"].max() == 1
        assert layer.columns["y"] * rate.columns["y"].max() == pytest.approx(rate.columns["y"])
    assert len({layer.colour for layer in picture.layers}) == len(picture.layers)


def test_it_is_of_one_run_with_counters(run: Run) -> None:
    assert worst_and_interrupts([Material(run), Material(run)]) is None
    assert worst_and_interrupts([Material(replace(run, path=None))]) is None
