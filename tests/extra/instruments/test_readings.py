"""What instruments say is read, and compared with what is true."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
import pytest
from errors import raises

from tailscope.exceptions import TestbedError
from tailscope.extra.instruments import tools
from tailscope.extra.instruments.board import Cell, level_of
from tailscope.extra.instruments.hosts import Hosts
from tailscope.extra.instruments.ranks import CONFIGURATIONS, kendall, rankings
from tailscope.extra.instruments.reading import Reading, one_in_flight, reordered_share
from tailscope.extra.instruments.truths import truths

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Tailscope
    from measurements import Place

MS = 1e6


def simulated(name: str, rate_pps: int = 1_000) -> np.ndarray:
    """Latencies of packets at a steady pace through what a truth's device does; nan if lost."""
    sent_ns = (np.arange(200_000) + 0.37) * 1e9 / rate_pps
    if name != "overload":
        # Their phase to what the device does is even.
        sent_ns += np.random.default_rng(1).uniform(0, 1e9 / rate_pps, len(sent_ns))
    if name == "stalls":
        return np.maximum(0, 4 * MS - sent_ns % (200 * MS))
    if name == "bucket":
        return np.maximum(0, 2 * MS - sent_ns % (10 * MS))
    if name == "batches":
        return 3_713_700 - sent_ns % 3_713_700
    latency_ns, free_ns = np.full(len(sent_ns), np.nan), 0.0
    for at, now_ns in enumerate(sent_ns):
        leaves_ns = max(now_ns, free_ns) + 1.25 * MS
        if leaves_ns - now_ns <= 5 * MS:
            latency_ns[at], free_ns = leaves_ns - now_ns, leaves_ns
    return latency_ns


@pytest.mark.parametrize("name", ["stalls", "bucket", "batches", "overload"])
def test_the_truth_is_what_packets_at_a_steady_pace_meet(name: str) -> None:
    truth, latency_ns = truths(1_000)[name], simulated(name)
    came = latency_ns[np.isfinite(latency_ns)]
    assert 1 - len(came) / len(latency_ns) == pytest.approx(truth.lost, abs=1e-3)
    assert came.mean() == pytest.approx(truth.value("mean", None), rel=0.06)
    for q in (0.5, 0.9, 0.99, 0.999):
        assert np.quantile(came, q) == pytest.approx(truth.value("", q), rel=0.06, abs=0.05 * MS)


def test_a_quantile_needs_ten_packets_beyond_it() -> None:
    values = Reading(np.arange(1, 101, dtype=float), sent=125).values()
    assert (values["p50"], values["p90"]) == (50, 90)
    assert "p99" not in values
    assert (values["lost"], values["max"]) == (pytest.approx(0.2), 100)


def test_a_packet_that_was_overtaken_is_reordered() -> None:
    sent_ns, latency_ns = np.arange(4.0), np.array([5.0, 1.0, 1.0, 9.0])
    assert reordered_share(sent_ns, latency_ns) == 0.25
    assert reordered_share(sent_ns, np.ones(4)) == 0


def test_one_packet_is_in_flight() -> None:
    sent_ns, latency_ns = np.arange(6.0), np.array([2.5, 1.0, 1.0, 0.5, 50.0, 1.0])
    assert one_in_flight(sent_ns, latency_ns, timeout_ns=10.0).tolist() == [2.5, 0.5]


@pytest.mark.parametrize(
    ("measured", "tau"), [([1, 2, 3, 4], 1), ([4, 3, 2, 1], -1), ([1, 1, 1, 1], 0)]
)
def test_ranks(measured: list[float], tau: float) -> None:
    assert kendall([10, 20, 30, 40], np.array(measured)) == tau


def test_rankings_need_all_configurations() -> None:
    cells = [
        Cell("ping", truth, "p50", float(at), (float(-at),) * 3)
        for at, truth in enumerate(CONFIGURATIONS)
    ]
    [ranking] = rankings(cells)
    assert (ranking.tau, ranking.ci_low, ranking.ci_high) == (-1, -1, -1)
    assert ranking.order == tuple(reversed(CONFIGURATIONS))
    assert rankings(cells[1:]) == []


def test_five_repeats_hold_the_median_with_94_percent() -> None:
    assert level_of(5) == 0.9375
    assert level_of(1) == 0


@pytest.mark.usefixtures("dataplane")
def test_an_option_of_calibrate_leads_to_the_instruments(
    tailscope: Tailscope, place: Place
) -> None:
    words = "calibrate --instruments tailscope-memif --truths constant --duration 300ms --repeats 2"
    done = tailscope(*words.split(), "--json", "-", env=place.environment)
    assert done.returncode == 0, done.stderr
    board = json.loads(done.stdout)
    [cell] = [each for each in board["cells"] if each["quantile"] == "p50"]
    assert (cell["instrument"], cell["truth"], cell["true"]) == (
        "tailscope-memif",
        "constant",
        200_000,
    )
    assert cell["ci_low"] <= cell["measured"] <= cell["ci_high"]
    assert cell["measured"] > 190_000
    assert board["failures"] == []


@pytest.mark.parametrize("look", [tools.iperf3_tcp, tools.iperf3_udp, tools.irtt])
@pytest.mark.parametrize("said", ["", "{}", '{"end": {}, "error": "the control socket closed"}'])
def test_a_program_that_ends_without_figures_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, look: Callable[..., Reading], said: str
) -> None:
    monkeypatch.setattr(tools, "_program", lambda *names: names[0])
    on = Mock(spec=Hosts, serving=lambda *_: nullcontext(), run=lambda *_, **__: said)
    with raises(TestbedError, "instrument-failed") as error:
        look(on, 1_000, 10**9)
    assert said in str(error.value)
