"""Captures of different traffic, or of two runs, in which packets are alike."""

from __future__ import annotations

import random
import re
import struct
from functools import partial
from typing import TYPE_CHECKING

import captures
import pytest
from errors import raises

from tailscope.engine.analysis import analyze
from tailscope.exceptions import AnalysisError
from tailscope.experiment.run.pair import PairPlan, analyze_pair

if TYPE_CHECKING:
    from collections.abc import Callable
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


Frames = list[tuple[int, bytes]]
"""When each packet was seen, since the beginning of its run, and its bytes."""


def ip(protocol: int, body: bytes, number: int, *, back: bool = False, net: int = 0) -> bytes:
    """A packet between 10.NET.0.1 and 10.NET.0.2, with an IPv4 identification."""
    ends = [bytes((10, net, 0, host)) for host in ((2, 1) if back else (1, 2))]
    head = struct.pack(
        ">BBHHHBBH", 0x45, 0, 20 + len(body), number & 0xFFFF, 0x4000, 64, protocol, 0
    )
    return bytes(12) + b"\x08\x00" + head + b"".join(ends) + body


def udp(port: int, payload: bytes, number: int, *, back: bool = False, net: int = 0) -> bytes:
    ports = (port, 40_000) if back else (40_000, port)
    body = struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload
    return ip(17, body, number, back=back, net=net)


def paced(chance: random.Random, count: int, gap_ns: int = 2_000_000) -> list[int]:
    """Times of a program that sleeps between packets, and wakes up late."""
    at_ns, times = 0, []
    for _ in range(count):
        at_ns += gap_ns + int(chance.expovariate(1 / 60_000))
        times.append(at_ns)
    return times


def answered(chance: random.Random, ask: Callable[[int], tuple[bytes, bytes]]) -> Frames:
    """A program that asks, and is answered a little later."""
    found: Frames = []
    for number, at_ns in enumerate(paced(chance, 300)):
        question, answer = ask(number)
        found += [(at_ns, question), (at_ns + 40_000 + chance.randrange(9_000), answer)]
    return found


def dns(chance: random.Random) -> Frames:
    first = chance.randrange(1 << 16)

    def ask(number: int) -> tuple[bytes, bytes]:
        query = chance.randbytes(2) + b"\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
        answer = query[:2] + b"\x81\x80" + query[4:] + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\1"
        return udp(53, query, first + number), udp(53, answer, first - number, back=True)

    found = answered(chance, ask)
    # Numbers of queries have 16 bits: some are the same in two runs.
    query = b"\x12\x34\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
    at = 2 * chance.randrange(20, 280)
    found[at] = (found[at][0], udp(53, query, chance.randrange(1 << 16)))
    found[at + 1] = (found[at + 1][0], udp(53, query + b"answer", 1, back=True))
    return found


def ping(chance: random.Random) -> Frames:
    process, began = chance.randrange(1 << 16), chance.randrange(1 << 40)

    def ask(number: int) -> tuple[bytes, bytes]:
        body = struct.pack(">HHQ", process, number, began + number * 2000) + bytes(range(48))
        numbers = chance.randrange(1 << 16), chance.randrange(1 << 16)
        echo, reply = b"\x08\0\0\0" + body, b"\0\0\0\0" + body
        return ip(1, echo, numbers[0]), ip(1, reply, numbers[1], back=True)

    return answered(chance, ask)


def ntp(chance: random.Random) -> Frames:
    def ask(number: int) -> tuple[bytes, bytes]:
        question, answer = chance.randbytes(8), chance.randbytes(24)
        head = b"\x23" + bytes(39)
        return udp(123, head + question, number), udp(123, head + answer, number, back=True)

    return answered(chance, ask)


def stream_of_udp(chance: random.Random) -> Frames:
    """As iperf3 sends it: a number and a time in each packet, and a word that never changes."""
    first = chance.randrange(1 << 16)
    times = paced(chance, 600, 900_000)
    found = [
        (at, udp(5201, struct.pack(">QI", at + first, number) + bytes(400), first + number))
        for number, at in enumerate(times)
    ]
    return [(0, udp(5201, b"6789 of a beginning", first - 1)), *found]


def stream_of_tcp(chance: random.Random) -> Frames:
    sequence, port, first = (chance.randrange(1 << bits) for bits in (32, 15, 16))
    body = b"hello " * 200
    found: Frames = []
    for number, at in enumerate(paced(chance, 400, 800_000)):
        place = (sequence + number * len(body)) & 0xFFFFFFFF
        head = struct.pack(">HHIIBBHHH", port + 32_768, 80, place, 1, 0x50, 0x18, 500, 0, 0)
        found.append((at, ip(6, head + body, first + number)))
    return found


def generator(chance: random.Random, *, net: int = 0, has_numbers: bool = True) -> Frames:
    """Probes of a generator: the same ones in every run."""
    first = chance.randrange(1 << 16) if has_numbers else 0
    return [
        (
            at,
            udp(
                9000,
                b"probe" + struct.pack(">Q", number) + bytes(30),
                has_numbers * (first + number),
                net=net,
            ),
        )
        for number, at in enumerate(paced(chance, 800))
    ]


def seeded(chance: random.Random) -> Frames:
    """Probes with payloads of a seed, at times of that seed."""
    own, first, at_ns = random.Random(7), chance.randrange(1 << 16), 0
    found: Frames = []
    for number in range(800):
        at_ns += int(own.expovariate(1 / 2_000_000)) + chance.randrange(60_000)
        found.append((at_ns, udp(9000, own.randbytes(100), first + number)))
    return found


def zeros(chance: random.Random) -> Frames:
    return [(at, udp(9000, bytes(64), 0)) for at in paced(chance, 400)]


RUNS: dict[str, Callable[[random.Random], Frames]] = {
    "ping": ping,
    "DNS": dns,
    "NTP": ntp,
    "UDP of iperf3": stream_of_udp,
    "TCP": stream_of_tcp,
    "generator": generator,
    "generator, to the byte": partial(generator, has_numbers=False),
    "generator, payloads of a seed": seeded,
    "zeros": zeros,
}
LATER_NS = 38_385 * 1_000_000
"""How much later the second run begins."""


def capture(path: Path, run: Frames, begin_ns: int) -> Path:
    ordered = sorted(run)
    packets = [captures.Packet(begin_ns + at, len(frame), frame) for at, frame in ordered]
    path.write_bytes(captures.pcap(packets))
    return path


def unrelated() -> list[tuple[str, str]]:
    """Thirty pairs: two runs of each kind, either first, and kinds that have much in common."""
    kinds = [*RUNS]
    same = [(kind, kind) for kind in kinds]
    others = [*zip(kinds, [*kinds[1:], kinds[0]], strict=True)]
    more = [("DNS", "NTP"), ("zeros", "generator"), ("generator", "other addresses")]
    return [*same, *same, *others, *more]


@pytest.mark.parametrize("place", range(30), ids=lambda place: " and ".join(unrelated()[place]))
def test_two_runs_are_no_pair(tmp_path: Path, place: int) -> None:
    one, other = unrelated()[place]
    runs = {**RUNS, "other addresses": partial(generator, net=3)}
    first = runs[one](random.Random(2 * place))
    second = runs[other](random.Random(2 * place + 1))
    begins = (BEGIN_NS, BEGIN_NS + LATER_NS) if place % 2 else (BEGIN_NS + LATER_NS, BEGIN_NS)
    pre = capture(tmp_path / "pre.pcap", first, begins[0])
    post = capture(tmp_path / "post.pcap", second, begins[1])
    with pytest.raises(AnalysisError) as refused:
        analyze(pre, post)
    assert refused.value.code in ("different-traffic", "two-runs")
    if one == other and one.startswith("generator"):
        assert refused.value.code == "two-runs"


AHEAD_NS = (0, 41_700_000_000, -123_456_000_000)


@pytest.mark.parametrize(
    ("kind", "ahead_ns"),
    # Of packets all alike, nothing tells which is which if clocks are apart.
    [(kind, ns) for kind in RUNS for ns in AHEAD_NS if kind != "zeros" or not ns],
)
def test_one_run_is_a_pair_whatever_the_clocks_say(
    tmp_path: Path, kind: str, ahead_ns: int
) -> None:
    chance = random.Random(5)
    run = RUNS[kind](chance)
    # What goes forth is seen later behind the device, what comes back earlier.
    behind = [
        (
            at
            + (-1 if frame[26:30] == bytes((10, 0, 0, 2)) else 1) * chance.randrange(5_000, 20_000),
            frame,
        )
        for at, frame in run
    ]
    pre = capture(tmp_path / "pre.pcap", run, BEGIN_NS)
    post = capture(tmp_path / "post.pcap", behind, BEGIN_NS + ahead_ns)
    plan = PairPlan(
        pre=str(pre),
        post=str(post),
        match_on="auto",
        trim_ns=0,
        window_ns=5 * 10**9,
        bucket_ns=100,
        worst=0,
        csv_folder=None,
        out=None,
    )
    summary = analyze_pair(plan, lambda _: "").summary
    assert summary["lost"] == 0
    assert summary["latency_relative"] == bool(ahead_ns)


def test_who_says_that_clocks_are_apart_is_believed(tmp_path: Path) -> None:
    pre = capture(tmp_path / "pre.pcap", generator(random.Random(1)), BEGIN_NS)
    post = capture(tmp_path / "post.pcap", generator(random.Random(2)), BEGIN_NS + LATER_NS)
    with raises(AnalysisError, "two-runs") as refused:
        analyze(pre, post)
    assert re.search(r" 38\.\d\d s ", str(refused.value))
    assert analyze(pre, post, clocks="estimate").summary["count"] == 800
