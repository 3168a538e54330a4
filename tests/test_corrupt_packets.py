"""Packets that come out damaged: a slow reference, and cases whose answer is known."""

from __future__ import annotations

import csv
import random
import struct
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from captures import Packet, pcap
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.engine.analysis import Analysis, analyze
from tailscope.exceptions import AnalysisError

if TYPE_CHECKING:
    from conftest import Tailscope

from pathlib import Path

START_NS = 1_700_000_000_000_000_000
MOST_BYTES = 4
ETHERNET, IP_CHECKSUM, HEADERS = 14, 24, 34
CHECKSUM = {17: 40, 6: 50}
"""Place of the checksum of UDP and of TCP in a frame."""


def ones_sum(data: bytes) -> int:
    """The sum that an Internet checksum is made of (RFC 1071)."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total += data[-1] << 8 if len(data) % 2 else 0
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def carried(frame: bytes) -> bytes:
    """The transport header and what follows, with the pseudo header before it."""
    pseudo = frame[26:34] + bytes([0, frame[23]]) + struct.pack(">H", len(frame) - HEADERS)
    return pseudo + frame[HEADERS:]


def is_valid(frame: bytes) -> bool:
    """Whether both checksums of a frame fit."""
    return ones_sum(frame[ETHERNET:HEADERS]) == 0xFFFF == ones_sum(carried(frame))


def made(number: int, payload: bytes, *, port: int = 1000, protocol: int = 17) -> bytes:
    """A frame of UDP or TCP over IPv4 with checksums that fit."""
    if protocol == 17:
        header = struct.pack(">HHHH", port, 443, 8 + len(payload), 0)
    else:
        header = struct.pack(">HHIIBBHHH", port, 443, number * 40, 1, 0x50, 16, 1000, 0, 0)
    size = 20 + len(header) + len(payload)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, size, number, 0x4000, 64, protocol, 0)
    frame = bytearray(bytes(12) + b"\x08\x00" + ip + bytes([10, 0, 0, 1, 10, 0, 0, 2]))
    frame += header + payload
    frame[24:26] = struct.pack(">H", 0xFFFF - ones_sum(bytes(frame[ETHERNET:HEADERS])))
    place = CHECKSUM[protocol]
    frame[place : place + 2] = struct.pack(
        ">H", (0xFFFF - ones_sum(carried(bytes(frame)))) or 0xFFFF
    )
    assert is_valid(bytes(frame))
    return bytes(frame)


def masked(frame: bytes) -> bytes:
    """A frame without its checksums."""
    found = bytearray(frame)
    place = CHECKSUM.get(frame[23], IP_CHECKSUM)
    found[IP_CHECKSUM : IP_CHECKSUM + 2] = bytes(2)
    found[place : place + 2] = bytes(2)
    return bytes(found)


Found = tuple[int, int, int, int, int]
"""Times before and behind, first byte that differs, bytes and bits."""


def reference(pre: list[Packet], post: list[Packet]) -> set[Found]:
    """Damaged packets, straight from the rule; each frame is sent once."""
    key = lambda packet: masked(packet.data)[12:64]  # noqa: E731
    keys = {key(packet): packet.ts for packet in pre}
    seen = {key(packet) for packet in post}
    longest = max((p.ts - keys[key(p)] for p in post if key(p) in keys), default=5 * 10**9 - 1)
    # What was sent before the capture behind the device began is not judged.
    judged = [packet for packet in pre if packet.ts >= post[0].ts]
    lost = [packet for packet in judged if key(packet) not in seen]
    unknown = [packet for packet in post if key(packet) not in keys]
    pairs = [
        (a, b, places)
        for a in lost
        for b in unknown
        if 0 <= b.ts - a.ts <= longest and (places := damaged_at(a.data, b.data))
    ]
    found = set()
    for a, b, places in pairs:
        if sum(x is a for x, _, _ in pairs) == sum(x is b for _, x, _ in pairs) == 1:
            bits = sum((a.data[at] ^ b.data[at]).bit_count() for at in places)
            found.add((a.ts, b.ts, places[0], len(places), bits))
    return found


def damaged_at(sent: bytes, seen: bytes) -> list[int]:
    """Where the second is the first, damaged: with those bytes put back it is whole."""
    if len(sent) != len(seen) or seen[14] != 0x45 or seen[23] != sent[23]:
        return []
    if seen[20] & 0x3F or seen[21] or is_valid(seen):
        return []
    # A length less than that of the header says nothing.
    if 20 <= struct.unpack_from(">H", seen, 16)[0] < len(seen) - ETHERNET:
        return []
    one, other = masked(sent), masked(seen)
    places = [at for at in range(ETHERNET, len(sent)) if one[at] != other[at]]
    mended = bytearray(seen)
    for at in places:
        mended[at] = sent[at]
    return places if 1 <= len(places) <= MOST_BYTES and is_valid(bytes(mended)) else []


def analyzed(pre: list[Packet], post: list[Packet], match_on: str = "frame") -> Analysis:
    """The engine's analysis of two captures."""
    with TemporaryDirectory() as folder:
        taps = [Path(folder, name) for name in ("pre.pcap", "post.pcap")]
        for path, packets in zip(taps, (pre, post), strict=True):
            path.write_bytes(pcap(packets))
        return analyze(*taps, match_on=match_on, clocks="same")


def packet(ts: int, data: bytes) -> Packet:
    return Packet(START_NS + ts, len(data), data)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ffffflccd"), st.integers(1, 6), st.integers(0, 2**32)),
        min_size=3,
        max_size=24,
    ),
    st.sampled_from([6, 17]),
    st.booleans(),
)
def test_damage_is_told_as_the_reference_tells_it(
    doings: list[tuple[str, int, int]], protocol: int, plain: bool
) -> None:
    pre, post = [], []
    for number, (doing, count, seed) in enumerate(doings):
        chance = random.Random(seed)
        payload = bytes(26) if plain else chance.randbytes(26)
        data = made(number, struct.pack(">I", number) + payload, protocol=protocol)
        pre.append(packet(10_000 * number, data))
        seen = bytearray(data)
        if doing in "cd":  # damaged, and some of them by bits alone
            for _ in range(count):
                at = chance.randrange(ETHERNET, len(seen))
                seen[at] ^= 1 << chance.randrange(8) if doing == "c" else chance.randrange(1, 256)
        if doing != "l":
            post.append(packet(10_000 * number + chance.randrange(1, 15_000), bytes(seen)))
    if not post:
        return
    post.sort(key=lambda one: one.ts)
    expected = reference(pre, post)
    try:
        found = analyzed(pre, post)
    except AnalysisError as error:
        assert error.code == "different-traffic"
        assert not {masked(one.data)[12:64] for one in pre} & {
            masked(one.data)[12:64] for one in post
        }
        return
    told = {(c.pre_ns, c.post_ns, c.offset_bytes, c.bytes, c.bits) for c in found.corruptions}
    assert told == expected
    summary = found.summary
    assert summary["corrupt"] == summary["post_corrupt"] == len(expected)


def traffic() -> tuple[list[Packet], list[Packet]]:
    """Forty numbered datagrams: the 10th is lost, a bit of the 20th and two of the 30th changed."""
    pre, post = [], []
    for number in range(40):
        data = made(number, struct.pack(">I", number) + bytes(26))
        pre.append(packet(10_000 * number, data))
        seen = bytearray(data)
        if number == 20:
            seen[44] ^= 0x10
        if number == 30:
            seen[18] ^= 0x01
            seen[50] ^= 0x80
        if number != 10:
            post.append(packet(10_000 * number + 2000, bytes(seen)))
    return pre, post


def test_a_damaged_packet_is_neither_lost_nor_unknown() -> None:
    found = analyzed(*traffic())
    summary = found.summary
    counts = {name: summary[name] for name in ("count", "lost", "lost_proven", "corrupt")}
    assert counts == {"count": 37, "lost": 1, "lost_proven": 1, "corrupt": 2}
    assert (summary["post_unknown"], summary["post_corrupt"]) == (0, 2)
    flow = "10.0.0.1:1000 > 10.0.0.2:443 udp"
    first, second = found.corruptions
    assert first == (START_NS + 200_000, START_NS + 202_000, flow, 72, 44, 1, 1)
    assert second == (START_NS + 300_000, START_NS + 302_000, flow, 72, 18, 2, 2)
    (group,) = found.groups("flow")
    assert (group.sent, group.matched, group.lost) == (40, 37, 1)


def test_a_neighbour_that_fits_its_own_checksum_is_no_damaged_packet() -> None:
    # The capture before the device lacks the 21st, and the device loses the 20th.
    pre, post = traffic()
    del pre[21]
    del post[19]
    summary = analyzed(pre, post).summary
    assert (summary["corrupt"], summary["lost"], summary["post_unknown"]) == (1, 2, 1)


@pytest.mark.parametrize("match_on", ["l3", "payload"])
def test_what_the_device_rewrites_is_no_damage(match_on: str) -> None:
    pre, post = traffic()
    rewritten = []
    for one in post:
        data = bytearray(one.data)
        if match_on == "payload":
            data[26:30] = bytes([192, 168, 7, 9])  # as a NAT does, the checksums follow
            for place in (24, 40):
                _adjust(data, place, bytes([10, 0, 0, 1]), bytes(data[26:30]))
        else:
            data[22] -= 1
            _adjust(data, 24, bytes([64, 17]), bytes([63, 17]))
        rewritten.append(one._replace(data=bytes(data)))
    summary = analyzed(pre, rewritten, match_on).summary
    # By payload, the header is not compared, and the one with a bit changed in it is whole else.
    expected = {"l3": (2, 1), "payload": (1, 2)}
    assert (summary["corrupt"], summary["lost"]) == expected[match_on]


def _adjust(frame: bytearray, place: int, old: bytes, new: bytes) -> None:
    """Update a checksum for words that changed (RFC 1624)."""
    words = lambda data: struct.unpack(f">{len(data) // 2}H", data)  # noqa: E731
    checksum = int.from_bytes(frame[place : place + 2], "big")
    total = 0xFFFF - checksum + sum(0xFFFF - word for word in words(old)) + sum(words(new))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    frame[place : place + 2] = (0xFFFF - total).to_bytes(2, "big")


def test_damaged_packets_have_a_file_and_are_no_lost_ones(
    tailscope: Tailscope, tmp_path: Path
) -> None:
    taps = [tmp_path / "pre.pcap", tmp_path / "post.pcap"]
    for path, packets in zip(taps, traffic(), strict=True):
        path.write_bytes(pcap(packets))
    done = tailscope("analyze", *taps, "--out", tmp_path / "run", "-v")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "run" / "corrupt.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["offset_bytes"], row["bits"]) for row in rows] == [("44", "1"), ("18", "2")]
    assert pq.read_table(tmp_path / "run" / "lost.parquet").num_rows == 1
