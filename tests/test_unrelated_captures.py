"""Captures of different traffic, in which a few packets are alike by chance."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import captures
import pytest
from errors import raises

from tailscope.engine.analysis import analyze
from tailscope.exceptions import AnalysisError

if TYPE_CHECKING:
    from pathlib import Path

PACKETS = 5_000
GAP_NS = 20_000
BEGIN_NS = 10**18


def written(path: Path, payloads: list[bytes], first: int = 0) -> Path:
    packets = [
        captures.Packet(BEGIN_NS + (first + at) * GAP_NS, len(frame), frame)
        for at, payload in enumerate(payloads)
        if (frame := captures.udp(first + at, payload=payload))
    ]
    path.write_bytes(captures.pcap(packets))
    return path


def payloads(seed: int, count: int = PACKETS) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(16) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_packets_alike_by_chance_are_no_pair(tmp_path: Path, seed: int) -> None:
    before, behind = payloads(seed), payloads(100 + seed)
    behind[1_700 * seed + 600] = before[1_700 * seed + 500]
    with raises(AnalysisError, "different-traffic"):
        analyze(written(tmp_path / "pre.pcap", before), written(tmp_path / "post.pcap", behind))


def test_captures_that_overlap_by_a_few_packets_are_a_pair(tmp_path: Path) -> None:
    traffic = payloads(7, 2 * PACKETS - 5)
    pre = written(tmp_path / "pre.pcap", traffic[:PACKETS])
    post = written(tmp_path / "post.pcap", traffic[PACKETS - 5 :], PACKETS - 5)
    assert analyze(pre, post).summary["count"] == 5
