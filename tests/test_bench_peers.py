"""The pair that direct peers are measured with, and peers that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bench import peers
from bench.peers import PEERS, iperf3_pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKETS = 5_000


def test_the_pair_is_what_it_was_made_of(
    tmp_path: Path, figures: Callable[..., dict[str, Any]]
) -> None:
    found = figures(*iperf3_pair(tmp_path / "captures", PACKETS))
    assert (found["count"], found["lost"], found["ambiguous"]) == (PACKETS, 0, 0)
    drawn = np.random.default_rng(1).integers(3_000, 40_000, PACKETS)
    sent = np.arange(PACKETS) * 10_000
    latencies = np.sort(np.maximum.accumulate(sent + drawn) - sent)
    assert found["latency_ns_p50"] == latencies[PACKETS // 2 - 1]
    assert found["latency_ns_max"] == latencies[-1]


@pytest.mark.parametrize("is_named", [False, True])
def test_peers_that_are_not_there_are_left_out_with_a_word(
    is_named: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(peers.VARIABLE, raising=False)
    if is_named:
        monkeypatch.setenv(peers.VARIABLE, str(tmp_path))
    assert list(peers._built(tmp_path)) == []
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (len(PEERS) if is_named else 1)
    assert all("left out: " in line for line in said)
