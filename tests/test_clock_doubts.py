"""Packets of times at which a clock is in doubt: the others are matched as if there were none."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import captures
import pytest

from tailscope.engine.analysis import analyze, estimate_clocks

if TYPE_CHECKING:
    from pathlib import Path

BEGIN_NS = 10**18
MS = 1_000_000
PACKETS = 2000


def pair(folder: Path, chance: random.Random, shift_ns: int = 0) -> tuple[Path, Path]:
    """A capture of either side: some packets are lost, and some overtake others."""
    before, behind = [], []
    for number in range(PACKETS):
        at_ns = BEGIN_NS + number * MS + chance.randrange(MS)
        frame = captures.udp(number, payload=chance.randbytes(16))
        before.append(captures.Packet(at_ns, len(frame), frame))
        if chance.random() > 0.05:
            late_ns = 20_000 + chance.randrange(3 * MS)
            behind.append(captures.Packet(at_ns + late_ns + shift_ns, len(frame), frame))
    paths = folder / "pre.pcap", folder / "post.pcap"
    for path, packets in zip(paths, (before, sorted(behind)), strict=True):
        path.write_bytes(captures.pcap(packets))
    return paths


def intervals(chance: random.Random) -> list[tuple[int, int]]:
    starts = [BEGIN_NS + chance.randrange(PACKETS * MS) for _ in range(chance.randrange(5))]
    return [(start, start + chance.randrange(200 * MS)) for start in starts]


def holds(doubts: list[tuple[int, int]], ns: int) -> bool:
    return any(start <= ns <= end for start, end in doubts)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shift_ns", [0, 40 * MS], ids=["one clock", "apart"])
def test_what_is_left_is_what_it_would_be_without_doubts(
    tmp_path: Path, seed: int, shift_ns: int
) -> None:
    chance = random.Random(seed)
    pre, post = pair(tmp_path, chance, shift_ns)
    clocks = f"offset={shift_ns}ns" if shift_ns else "detect"
    before, behind = intervals(chance), intervals(chance)
    whole = analyze(pre, post, clocks=clocks)
    found = analyze(pre, post, clocks=clocks, doubts=(before, behind))
    rows = [*zip(*(column.tolist() for column in whole.series[:3]), strict=True)]
    timed = [
        (seq, sent_ns, took_ns)
        for seq, sent_ns, took_ns in rows
        if not holds(before, sent_ns) and not holds(behind, sent_ns + took_ns + shift_ns)
    ]
    assert [*zip(*(column.tolist() for column in found.series[:3]), strict=True)] == timed
    assert found.summary["untimed"] == found.summary["post_untimed"] == len(rows) - len(timed)
    same = ("sent", "negative", "post_unknown", "pre_packets", "post_packets")
    assert {name: found.summary[name] for name in same} == {
        name: whole.summary[name] for name in same
    }
    # That a packet is lost is not proven by a time in doubt.
    known = {seq for seq, _, _ in rows}
    unfound = [
        packet.ts
        for seq, packet in enumerate(captures.packets(pre.read_bytes()))
        if seq not in known
    ]
    proven = [ns for ns in unfound if not holds(before, ns) and not holds(behind, ns + shift_ns)]
    assert len(unfound) == whole.summary["lost"] + whole.summary["outside"]
    assert len(unfound) - len(proven) <= found.summary["outside"]
    assert found.summary["lost"] + found.summary["outside"] == len(unfound)
    assert len(proven) - whole.summary["outside"] <= found.summary["lost"] <= len(proven)


def test_packets_seen_too_early_in_doubt_do_not_put_the_clocks_apart(tmp_path: Path) -> None:
    chance = random.Random(3)
    pre, post = pair(tmp_path, chance)
    first, last = BEGIN_NS + 500 * MS, BEGIN_NS + 800 * MS
    behind = [
        packet._replace(ts=packet.ts - 50 * MS) if first <= packet.ts < last else packet
        for packet in captures.packets(post.read_bytes())
    ]
    post.write_bytes(captures.pcap(behind))
    found = analyze(pre, post, doubts=([], [(first - 50 * MS, last)])).summary
    assert (found["negative"], found["latency_relative"]) == (0, False)
    assert found["untimed"] > found["post_untimed"] > 0
    assert found["post_negative"] == found["untimed"] - found["post_untimed"]
    estimated = estimate_clocks(pre, post, doubts=([], [(first - 50 * MS, last)]))
    assert abs(estimated.offset_ns) < MS


def test_a_capture_that_is_all_in_doubt_has_no_latencies(tmp_path: Path) -> None:
    pre, post = pair(tmp_path, random.Random(4))
    found = analyze(pre, post, doubts=([(0, 2 * BEGIN_NS)], [])).summary
    assert found["count"] == 0
    assert found["untimed"] + found["lost"] + found["outside"] == PACKETS


def test_a_clock_that_is_set_back_far_is_read(tmp_path: Path) -> None:
    """10,000 packets that lie before others in time are more than are mended without a doubt."""
    frames = [captures.udp(number) for number in range(30_000)]
    at_ns = [BEGIN_NS + number * 5_000 for number in range(len(frames))]
    back = [ns - (50 * MS if 50 * MS < ns - BEGIN_NS < 100 * MS else 0) for ns in at_ns]
    paths = tmp_path / "pre.pcap", tmp_path / "post.pcap"
    for path, times, add_ns in zip(paths, (at_ns, back), (0, 20_000), strict=True):
        packets = [
            captures.Packet(ns + add_ns, len(frame), frame)
            for ns, frame in zip(times, frames, strict=True)
        ]
        path.write_bytes(captures.pcap(packets))
    doubt = (BEGIN_NS, BEGIN_NS + 100 * MS + 20_000)
    found = analyze(*paths, doubts=([], [doubt])).summary
    assert (found["untimed"], found["count"]) == (20_001, 9_999)
    assert found["latency_ns_max"] == 20_000
