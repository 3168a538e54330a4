"""TCP matched by the bytes of its streams: a slow reference, and cases whose answer is known."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from captures import Packet, pcap
from errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from tcp_reference import Answer, Segment, answer

from tailscope.engine.analysis import Analysis, analyze
from tailscope.exceptions import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_NS = 5_000_000_000
START_NS = 1_700_000_000_000_000_000
CLIENT, FRONT = ("10.1.0.2", 40_000), ("10.1.0.1", 443)
BACK, SERVER = ("10.2.0.1", 50_000), ("10.2.0.2", 8443)
FLAGS = {"F": 1, "S": 2, "R": 4}


def frame(one: Segment) -> bytes:
    """An Ethernet frame with a segment; checksums are left out."""
    address = lambda end: bytes(map(int, end[0].split(".")))  # noqa: E731
    flags = sum(FLAGS[letter] for letter in one.flags) | (16 if one.acknowledged is not None else 0)
    tcp = struct.pack(
        ">HHIIBBHHH",
        one.source[1],
        one.target[1],
        one.sequence,
        one.acknowledged or 0,
        0x50,
        flags,
        1000,
        0,
        0,
    )
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(one.data), 1, 0x4000, 64, 6, 0)
    ends = address(one.source) + address(one.target)
    return bytes(12) + b"\x08\x00" + ip + ends + tcp + one.data


def write(path: Path, segments: list[Segment]) -> Path:
    """A capture of segments."""
    frames = [(one.ts, frame(one)) for one in segments]
    path.write_bytes(pcap([Packet(ts, len(data), data) for ts, data in frames]))
    return path


def analyzed(pre: list[Segment], post: list[Segment], match_on: str = "tcp-bytes") -> Analysis:
    """The engine's analysis of two captures."""
    with TemporaryDirectory() as folder:
        taps = [write(Path(folder, name), of) for name, of in (("pre", pre), ("post", post))]
        return analyze(*taps, match_on=match_on, clocks="same", window=WINDOW_NS)


# --- connections that are played ----------------------------------------------


@dataclass(frozen=True)
class Played:
    """A connection through a proxy, and what is odd about it."""

    port: int
    start_ns: int
    messages: tuple[tuple[bool, int], ...]
    """Whether the client sends, and how many bytes."""
    content: int
    """Connections of one number carry the same bytes."""
    sequences: tuple[int, int, int, int]
    sizes: tuple[int, int]
    """Largest segments on either side."""
    handshake: int
    """Bytes that the proxy keeps for itself."""
    opened: bool
    closed: str
    """Flags of the last packet of each end, if any."""
    seed: int
    confirms: bool


def played(of: Played) -> tuple[list[Segment], list[Segment]]:
    """The segments of both sides, in order of time."""
    chance = random.Random(of.seed)
    content = random.Random(of.content)
    ends = [
        {True: (CLIENT[0], of.port), False: FRONT},
        {True: (BACK[0], of.port + 1), False: SERVER},
    ]
    numbers = [dict(zip((True, False), of.sequences[at : at + 2], strict=True)) for at in (0, 2)]
    taps: list[list[Segment]] = [[], []]
    now = of.start_ns

    def send(side: int, sender: bool, data: bytes, flags: str = "", ack: bool = True) -> None:
        """One segment, a moment later."""
        nonlocal now
        now += chance.randrange(1, 50_000)
        mine, other = numbers[side][sender], numbers[side][not sender]
        confirmed = other if ack else None
        source, target = ends[side][sender], ends[side][not sender]
        taps[side].append(Segment(now, source, target, mine, confirmed, flags, data))
        numbers[side][sender] = (mine + len(data) + len(set("SF") & set(flags))) % 2**32
        if of.confirms and data:
            now += 100
            back = numbers[side][not sender], numbers[side][sender]
            taps[side].append(Segment(now, target, source, *back, "", b""))

    def stream(side: int, sender: bool, data: bytes) -> None:
        while data:
            size = chance.randrange(of.sizes[side]) + 1
            send(side, sender, data[:size])
            data = data[size:]

    for side in (0, 1):
        send(side, True, b"", "S", ack=False)
        send(side, False, b"", "S")
    if of.handshake:
        stream(0, True, content.randbytes(of.handshake))
        stream(0, False, content.randbytes(2))
    for sender, size in of.messages:
        data = content.randbytes(size)
        for side in (0, 1) if sender else (1, 0):
            stream(side, sender, data)
    for side in (0, 1):
        if of.closed:
            send(side, True, b"", of.closed)
    if not of.opened:
        taps = [[one for one in tap if "S" not in one.flags] for tap in taps]
    return taps[0], taps[1]


def disturbed(
    segments: list[Segment], chance: random.Random, doings: Sequence[str]
) -> list[Segment]:
    """Segments of which some are sent again, cut anew, swapped, or missing."""
    found = list(segments)
    for doing in doings:
        carrying = [at for at, one in enumerate(found) if one.data]
        if not carrying:
            break
        at = chance.choice(carrying)
        one = found[at]
        if doing == "again":
            cut = chance.randrange(len(one.data))
            later = replace_segment(one, found[-1].ts + chance.randrange(1, 1000), cut)
            found.append(later)
        elif doing == "wider":
            following = next(
                (e for e in found[at + 1 :] if e.source == one.source and e.data), None
            )
            if following and following.sequence == (one.sequence + len(one.data)) % 2**32:
                data = one.data + following.data[: chance.randrange(len(following.data)) + 1]
                found.insert(at + 1, one._replace(data=data))
        elif doing == "swap" and at + 1 < len(found):
            other = found[at + 1]
            found[at : at + 2] = [other._replace(ts=one.ts), one._replace(ts=other.ts)]
        elif doing == "lose":
            del found[at]
        elif doing == "cut":
            del found[at:]
    return sorted(found, key=lambda one: one.ts)


def replace_segment(one: Segment, ts: int, cut: int) -> Segment:
    """The end of a segment, sent again."""
    sequence = (one.sequence + cut) % 2**32
    return one._replace(ts=ts, sequence=sequence, data=one.data[cut:])


NEAR_THE_END = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 300, 2**32 - 1))
PLAYED = st.builds(
    Played,
    port=st.just(0),
    start_ns=st.integers(0, 2_000_000),
    messages=st.lists(st.tuples(st.booleans(), st.integers(1, 150)), min_size=1, max_size=4).map(
        tuple
    ),
    content=st.integers(0, 5),
    sequences=st.tuples(NEAR_THE_END, NEAR_THE_END, NEAR_THE_END, NEAR_THE_END),
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    handshake=st.sampled_from([0, 0, 0, 13]),
    opened=st.sampled_from([True, True, True, False]),
    closed=st.sampled_from(["F", "F", "", "R"]),
    seed=st.integers(0, 2**32),
    confirms=st.booleans(),
)
DOINGS = st.lists(st.sampled_from(["again", "wider", "swap", "lose", "cut"]), max_size=3)


def merged(
    connections: list[Played], doings: list[tuple[list[str], list[str]]]
) -> list[list[Segment]]:
    """Both captures of several connections."""
    taps: list[list[Segment]] = [[], []]
    for number, (of, odd) in enumerate(zip(connections, doings, strict=True)):
        sides = played(replace(of, port=40_000 + 2 * number, start_ns=START_NS + of.start_ns))
        for tap, segments, these in zip(taps, sides, odd, strict=True):
            tap += disturbed(segments, random.Random(of.seed + 1), these)
    return [sorted(tap, key=lambda one: one.ts) for tap in taps]


def compare(pre: list[Segment], post: list[Segment]) -> Answer:
    """Compare the engine with the reference; what both say."""
    expected = answer(pre, post, WINDOW_NS)
    found = analyzed(pre, post)
    latency_ns = {
        int(seq): int(ns) for seq, ns in zip(found.series.seq, found.series.latency_ns, strict=True)
    }
    kept = {seq: ns for seq, ns in expected.latency_ns.items() if ns >= 0}
    assert latency_ns == kept
    summary = found.summary
    assert {
        name: summary[name]
        for name in ("lost", "outside", "ambiguous", "reverse", "negative", "lost_proven")
    } == {
        "lost": len(expected.lost),
        "outside": len(expected.outside),
        "ambiguous": len(expected.ambiguous),
        "reverse": len(expected.reverse),
        "negative": len(expected.latency_ns) - len(kept),
        "lost_proven": len(expected.lost),
    }
    again = summary["pre_tcp_retransmitted"], summary["post_tcp_retransmitted"]
    assert again == expected.retransmitted
    assert summary["tcp_connections_paired"] == expected.paired
    return expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_are_found_again_as_the_reference_finds_them(data: st.DataObject) -> None:
    connections = data.draw(st.lists(PLAYED, min_size=1, max_size=4))
    doings = [data.draw(st.tuples(DOINGS, DOINGS)) for _ in connections]
    pre, post = merged(connections, doings)
    if not pre or not post:
        return
    try:
        compare(pre, post)
    except AnalysisError as error:
        expected = answer(pre, post, WINDOW_NS)
        assert not any(ns >= 0 for ns in expected.latency_ns.values()), error
        assert error.code in {"different-traffic", "swapped-or-apart"}


# --- cases whose answer is known -----------------------------------------------

TEXT = random.Random(1).randbytes(400)
ISNS = (2**32 - 50, 7, 2**32 - 3, 99)
"""Numbers of client and proxy before the device, of proxy and server behind it."""


def side(number: int, *parts: tuple[int, int, int], fin: int | None = None) -> list[Segment]:
    """One direction: a SYN at 0, then segments at a time in µs with a range of `TEXT`."""
    source, target = ((CLIENT, FRONT), (BACK, SERVER))[number]
    first = ISNS[2 * number]
    segments = [Segment(START_NS + number, source, target, first, None, "S", b"")]
    for at_us, start, end in parts:
        sequence = (first + 1 + start) % 2**32
        ts = START_NS + at_us * 1000
        segments.append(Segment(ts, source, target, sequence, None, "", TEXT[start:end]))
    if fin is not None:
        ts = segments[-1].ts + 1000
        segments.append(Segment(ts, source, target, (first + 1 + fin) % 2**32, None, "F", b""))
    return segments


def latencies_us(found: Analysis) -> dict[int, float]:
    """Latency in µs by place before the device."""
    series = found.series
    return {int(seq): ns / 1000 for seq, ns in zip(series.seq, series.latency_ns, strict=True)}


def test_segments_are_behind_when_their_last_byte_is() -> None:
    # Two are merged, and the third is cut into two, across the wrap of both numbers.
    pre = side(0, (10, 0, 40), (20, 40, 100), (30, 100, 300))
    post = side(1, (25, 0, 100), (50, 100, 150), (70, 150, 300))
    found = analyzed(pre, post)
    assert latencies_us(found) == {1: 15, 2: 5, 3: 40}
    assert (found.summary["tcp_bytes"], found.summary["tcp_bytes_matched"]) == (300, 300)
    assert found.summary["post_resegmented"] == 1


def test_the_first_copy_of_a_byte_counts_on_both_sides() -> None:
    pre = side(0, (10, 0, 50), (15, 0, 50), (20, 30, 90), (30, 89, 90))
    post = side(1, (40, 0, 60), (45, 40, 90), (60, 0, 90))
    found = analyzed(pre, post)
    assert latencies_us(found) == {1: 30, 3: 25}
    again = found.summary["pre_tcp_retransmitted"], found.summary["post_tcp_retransmitted"]
    assert again == (2, 1)


@pytest.mark.parametrize(
    ("post", "lost"),
    [
        (side(1, (40, 0, 50), (80, 60, 120)), 1),  # it went on
        (side(1, (40, 0, 50), fin=50), 2),  # it ended
        (side(1, (40, 0, 50), (90, 0, 50)), 0),  # who knows
    ],
)
def test_bytes_are_lost_only_if_the_stream_proves_it(post: list[Segment], lost: int) -> None:
    pre = side(0, (10, 0, 50), (12, 50, 60), (14, 60, 120))
    # The slowest takes 66 µs: until then what is missing may still come.
    other = replace_ends(side(1, (300, 200, 260)), 7)
    found = analyzed(
        [*pre, *replace_ends(side(0, (250, 200, 260)), 5)],
        sorted([*post, *other], key=lambda one: one.ts),
    )
    judged = found.summary["lost"], found.summary["lost_proven"], found.summary["outside"]
    arrived = found.summary["count"]
    assert judged == (lost, lost, 4 - arrived - lost)


def replace_ends(segments: list[Segment], more: int) -> list[Segment]:
    """The same between other ports."""
    return [one._replace(source=(one.source[0], one.source[1] + more)) for one in segments]


def test_bytes_that_the_other_end_confirms_are_not_lost() -> None:
    pre = side(0, (10, 0, 50), (12, 50, 60), (14, 60, 120))
    post = side(1, (40, 0, 50), (80, 60, 120))
    number = (ISNS[2] + 1 + 120) % 2**32
    confirmed = Segment(START_NS + 90_000, SERVER, BACK, ISNS[3], number, "", b"")
    found = analyzed(pre, [*post, confirmed])
    assert (found.summary["lost"], found.summary["outside"]) == (0, 1)


def test_connections_alike_are_told_apart_by_time_or_not_at_all() -> None:
    def twice(gap_us: int) -> tuple[list[Segment], list[Segment]]:
        """Two connections with the same question and answer."""
        taps: tuple[list[Segment], list[Segment]] = [], []
        for number, start_us in enumerate((0, gap_us)):
            port = 10 * number
            asked = [(start_us + 10, 0, 50)], [(start_us + 30, 0, 50)]
            for at, tap in enumerate(taps):
                tap += replace_ends(side(at, *asked[at]), port)
            answers = start_us + 60, start_us + 40
            ends = (FRONT, CLIENT), (SERVER, BACK)
            for at, tap in enumerate(taps):
                source, target = ends[at]
                target = target[0], target[1] + port
                ts = START_NS + answers[at] * 1000
                first = ISNS[2 * at + 1]
                tap.append(Segment(ts, source, target, first, None, "", TEXT[100:180]))
        return sorted(taps[0]), sorted(taps[1])

    apart = analyzed(*twice(100))
    assert (apart.summary["count"], apart.summary["ambiguous"]) == (2, 0)
    assert set(latencies_us(apart).values()) == {20}
    together = analyzed(*twice(5))
    assert (together.summary["count"], together.summary["ambiguous"]) == (0, 4)


def test_other_keys_come_first_and_streams_are_found_by_themselves() -> None:
    rewritten = side(1, (25, 0, 100), (50, 100, 150), (70, 150, 300))
    pre = side(0, (10, 0, 40), (20, 40, 100), (30, 100, 300))
    assert analyzed(pre, rewritten, "auto").summary["match_on"] == "tcp-bytes"
    forwarded = [one._replace(ts=one.ts + 5000) for one in pre]
    assert analyzed(pre, forwarded, "auto").summary["match_on"] == "frame"


def test_streams_are_found_beside_a_few_packets_that_match(tmp_path: Path) -> None:
    text = random.Random(2).randbytes(9000)
    sides = streamed(0, text, 300), streamed(1, text, 450)
    stray = datagrams(0, TEXT[:90], TEXT[90:200])
    taps = [tmp_path / "pre.pcap", tmp_path / "post.pcap"]
    for number, (path, segments) in enumerate(zip(taps, sides, strict=True)):
        frames = [Packet(one.ts, len(frame(one)), frame(one)) for one in segments]
        later = [each._replace(ts=each.ts + 700 * number) for each in stray]
        path.write_bytes(pcap(sorted([*frames, *later])))
    summary = analyze(*taps).summary
    assert (summary["match_on"], summary["count"], summary["pre_not_tcp"]) == ("tcp-bytes", 30, 2)


def test_keep_alives_are_no_data() -> None:
    pre = side(0, (10, 0, 40), (500, 39, 40), (600, 40, 80))
    post = side(1, (25, 0, 40), (700, 40, 80))
    found = analyzed(pre, post)
    assert latencies_us(found) == {1: 15, 3: 100}
    alone = side(0, (5, -1, 0), (10, 0, 40))
    assert analyzed(alone, post).summary["tcp_bytes"] == 40


def test_captures_that_begin_within_a_connection_are_anchored_by_content() -> None:
    pre = side(0, (10, 0, 40), (20, 40, 100), (30, 100, 300))[2:]
    post = side(1, (25, 0, 100), (50, 100, 150), (70, 150, 300))[2:]
    found = analyzed(pre, post)
    assert latencies_us(found) == {1: 40}
    assert (found.summary["outside"], found.summary["lost"]) == (1, 0)


def test_two_clocks_are_refused_by_name(tmp_path: Path) -> None:
    pre = side(0, (10, 0, 40), (20, 40, 100))
    post = [one._replace(ts=one.ts + 37_000_000_000) for one in side(1, (25, 0, 100))]
    taps = write(tmp_path / "pre.pcap", pre), write(tmp_path / "post.pcap", post)
    for clocks in ("detect", "estimate"):
        with raises(AnalysisError, "stream-clocks-apart"):
            analyze(*taps, match_on="tcp-bytes", clocks=clocks)
    found = analyze(*taps, match_on="tcp-bytes", clocks="offset=37s")
    assert latencies_us(found) == {1: 15, 2: 5}


def test_a_capture_of_the_beginnings_of_packets_is_refused(tmp_path: Path) -> None:
    pre, post = side(0, (10, 0, 40)), side(1, (25, 0, 40))
    whole = write(tmp_path / "whole.pcap", post)
    taps = [tmp_path / "pre.pcap", tmp_path / "post.pcap"]
    for path, segments in zip(taps, (pre, post), strict=True):
        frames = [(one.ts, frame(one)) for one in segments]
        path.write_bytes(pcap([Packet(ts, len(data), data[:70]) for ts, data in frames]))
    with raises(AnalysisError, "packet-too-short"):
        analyze(*taps, match_on="tcp-bytes")
    for behind in (taps[1], whole):
        with raises(AnalysisError, "packets-cut") as error:
            analyze(taps[0], behind)
        assert "tcpdump -s 0" in str(error.value.hint)
        assert f"{taps[0]}: 1 of the first {len(pre)} packets" in str(error.value)


# --- what is encrypted ---------------------------------------------------------

CLIENT_HELLO = bytes.fromhex("16030100c8010000c4") + TEXT[:196]
TLS_DATA = bytes.fromhex("1703030064") + TEXT[200:300]
QUIC_INITIAL = bytes.fromhex("c300000001") + TEXT[:95]
QUIC_DATA = b"\x43" + TEXT[:60]
DTLS_HELLO = bytes.fromhex("16fefd00000000000000000040") + TEXT[:64]


def datagrams(number: int, *payloads: bytes) -> list[Packet]:
    """UDP datagrams of one side, 1 ms apart, and 20 µs later behind the device."""
    source, target = ((CLIENT, FRONT), (BACK, SERVER))[number]
    frames = []
    for at, payload in enumerate(payloads):
        one = Segment(0, source, target, 0, None, "", b"")
        udp = struct.pack(">HHHH", source[1], target[1], 8 + len(payload), 0)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(payload), at, 0, 64, 17, 0)
        data = frame(one)[:14] + ip + frame(one)[26:34] + udp + payload
        frames.append(Packet(START_NS + at * 1_000_000 + number * 20_000, len(data), data))
    return frames


def refusal(folder: Path, *sides: list[Packet]) -> str:
    """The code of the error that two captures end with."""
    taps = [folder / "pre.pcap", folder / "post.pcap"]
    for path, packets in zip(taps, sides, strict=True):
        path.write_bytes(pcap(packets))
    with pytest.raises(AnalysisError) as raised:
        analyze(*taps)
    return raised.value.code


@pytest.mark.parametrize(
    ("payloads", "code"),
    [
        ([QUIC_INITIAL, QUIC_DATA], "encrypted-quic"),
        ([DTLS_HELLO, DTLS_HELLO], "encrypted-dtls"),
        ([TEXT[:90], TEXT[90:200]], "different-traffic"),
    ],
)
def test_datagrams_that_are_encrypted_anew_are_refused_by_name(
    payloads: list[bytes], code: str, tmp_path: Path
) -> None:
    # Each connection has other keys: behind the first bytes nothing is the same.
    anew = [payload[:13] + bytes(255 - byte for byte in payload[13:]) for payload in payloads]
    assert refusal(tmp_path, datagrams(0, *payloads), datagrams(1, *anew)) == code


def test_datagrams_that_are_only_forwarded_match_by_payload(tmp_path: Path) -> None:
    payloads = [QUIC_INITIAL, *(QUIC_DATA[:20] + bytes([at]) * 30 for at in range(9))]
    taps = [tmp_path / "pre.pcap", tmp_path / "post.pcap"]
    for number, path in enumerate(taps):
        path.write_bytes(pcap(datagrams(number, *payloads)))
    summary = analyze(*taps).summary
    assert (summary["match_on"], summary["count"]) == ("payload", 10)


def streamed(number: int, data: bytes, size: int) -> list[Segment]:
    """A stream in segments of a size, 10 µs apart, and 5 µs later behind the device."""
    source, target = ((CLIENT, FRONT), (BACK, SERVER))[number]
    first = ISNS[2 * number]
    segments = [Segment(START_NS + number, source, target, first, None, "S", b"")]
    for at in range(0, len(data), size):
        ts = START_NS + 10_000 + (at + size) * 100 + 5000 * number
        sequence = (first + 1 + at) % 2**32
        segments.append(Segment(ts, source, target, sequence, None, "", data[at : at + size]))
    return segments


HEADS = "User-Agent: one\r\n", "X-Forwarded-For: 10.1.0.2\r\n"
"""A line that a proxy takes for another."""


def posts(chance: random.Random, line: str, count: int, size: int) -> bytes:
    """Posts of bodies that differ, with a line that a proxy changes."""
    heads = (f"POST /{at} HTTP/1.1\r\n{line}Content-Length: {size}\r\n\r\n" for at in range(count))
    return b"".join(head.encode() + chance.randbytes(size) for head in heads)


def test_messages_that_begin_alike_are_told_apart() -> None:
    """A proxy spreads what comes on one connection over three, each with heads that begin alike."""
    chance = random.Random(3)
    pre, post, reached = [], [], [1_000] * 4
    for number in range(24):
        body, link = chance.randbytes(3000), 1 + chance.randrange(3)
        for at, line, side in ((0, "Client: one", pre), (link, "Forwarded: yes", post)):
            ends = ((BACK[0], BACK[1] + at), SERVER) if at else (CLIENT, FRONT)
            head = f"POST /upload HTTP/1.1\r\nHost: one\r\n{line}\r\n\r\n".encode()
            ts = START_NS + 10**8 * (1 + number) + 10**6 * (at > 0)
            if reached[at] == 1_000:
                side.append(Segment(ts - 1, *ends, 999, None, "S", b""))
            side.append(Segment(ts, *ends, reached[at], None, "", head + body))
            reached[at] += len(head + body)
    assert analyzed(pre, post).series.latency_ns.tolist() == [10**6] * 24


def test_bodies_that_a_proxy_gives_other_heads_are_matched() -> None:
    pre, post = (posts(random.Random(11), line, 20, 700) for line in HEADS)
    sides = streamed(0, pre, 900), streamed(1, post, 900)
    # Both lines end alike; what is before the first one is too short to be known.
    lines = [found.start() for found in re.finditer(HEADS[0].encode(), pre)]
    changed = [(at, at + len(HEADS[0]) - len("\r\n")) for at in lines]
    expected = {}
    for seq, one in enumerate(sides[0][1:], 1):
        last = min(900 * seq, len(pre)) - 1
        if last >= lines[0] and not any(start <= last < end for start, end in changed):
            there = last + (len(post) - len(pre)) // len(lines) * sum(at < last for at in lines)
            expected[seq] = (sides[1][1 + there // 900].ts - one.ts) / 1000
    for match_on in ("auto", "tcp-bytes"):
        found = analyzed(*sides, match_on)
        summary = found.summary
        assert latencies_us(found) == expected
        assert (summary["match_on"], summary["tcp_stretches"]) == ("tcp-bytes", 20)
        unjudged = len(sides[0]) - 1 - len(expected)
        assert (summary["lost"], summary["outside"]) == (0, unjudged)
    back = analyzed(sides[0], sides[1][:8]).summary
    assert (back["lost"], back["negative"]) == (0, 0), "what is not there is not lost"


@pytest.mark.parametrize(
    ("size", "others", "code"), [(100, 11, "bytes-changed"), (700, 12, "http-proxy")]
)
def test_what_a_proxy_of_http_changes_is_told_by_name(
    size: int, others: int, code: str, tmp_path: Path
) -> None:
    taps = [tmp_path / "pre.pcap", tmp_path / "post.pcap"]
    write(taps[0], streamed(0, posts(random.Random(11), HEADS[0], 60, size), 900))
    write(taps[1], streamed(1, posts(random.Random(others), HEADS[1], 60, size), 900))
    for match_on in ("auto", "tcp-bytes"):
        with raises(AnalysisError, code) as error:
            analyze(*taps, match_on=match_on)
    share = re.search(r"but (\d+) %", str(error.value))
    # The bodies, and no stretch of a head that a changed line is in.
    assert share is None if code == "http-proxy" else share and 55 <= int(share[1]) < 100


def test_tls_passes_a_proxy_as_it_is_and_is_refused_where_it_ends(tmp_path: Path) -> None:
    data = CLIENT_HELLO + TLS_DATA
    found = analyzed(streamed(0, data, 155), streamed(1, data, 62), "auto")
    assert (found.summary["match_on"], found.summary["count"]) == ("tcp-bytes", 2)
    plain = streamed(1, b"GET /index.html HTTP/1.1\r\nHost: example\r\n\r\n", 30)
    taps = (
        write(tmp_path / "pre.pcap", streamed(0, data, 155)),
        write(tmp_path / "post.pcap", plain),
    )
    for match_on in ("auto", "tcp-bytes"):
        with raises(AnalysisError, "encrypted-tls"):
            analyze(*taps, match_on=match_on)
