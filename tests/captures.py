"""Captures read and written with the standard library alone, so that nothing vouches for itself."""

import gzip
import re
import struct
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow

SECOND = 1_000_000_000


class Packet(NamedTuple):
    """One captured packet: time in nanoseconds, length on the wire, captured bytes."""

    ts: int
    orig_len: int
    data: bytes


def unzstd(path: Path) -> bytes:
    """The content of a zstd file."""
    return pyarrow.input_stream(str(path), compression="zstd").read()


def packets(pcap: bytes) -> list[Packet]:
    """The packets of a little-endian nanosecond pcap."""
    assert struct.unpack_from("<I", pcap)[0] == 0xA1B23C4D
    record = struct.Struct("<IIII").unpack_from
    offset, found = 24, []
    while offset < len(pcap):
        seconds, ns, captured, orig_len = record(pcap, offset)
        offset += 16
        found.append(Packet(seconds * SECOND + ns, orig_len, pcap[offset : offset + captured]))
        offset += captured
    return found


def pcapng_packets(pcapng: bytes) -> list[Packet]:
    """The packets of a little-endian pcapng with one interface in nanoseconds."""
    offset, found = 0, []
    while offset < len(pcapng):
        kind, length = struct.unpack_from("<II", pcapng, offset)
        if kind == 6:
            _, high, low, captured, orig_len = struct.unpack_from("<IIIII", pcapng, offset + 8)
            data = pcapng[offset + 28 : offset + 28 + captured]
            found.append(Packet(high << 32 | low, orig_len, data))
        offset += length
    return found


def pcap(packets: list[Packet], *, link: int = 1, order: str = "<", ns: bool = True) -> bytes:
    """A pcap file of `packets`; microseconds where `ns` is false."""
    magic, unit = (0xA1B23C4D, 1) if ns else (0xA1B2C3D4, 1000)
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262_144, link)]
    for ts, orig_len, data in packets:
        times = ts // SECOND, ts % SECOND // unit
        parts.append(struct.pack(f"{order}IIII", *times, len(data), orig_len))
        parts.append(data)
    return b"".join(parts)


def pcapng(packets: list[Packet], *, link: int = 1) -> bytes:
    """A pcapng file of one section and one interface in nanoseconds."""
    resolution = struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)
    parts = [
        _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)),
        _block(1, struct.pack("<HHI", link, 0, 262_144) + resolution),
    ]
    for ts, orig_len, data in packets:
        head = struct.pack("<IIIII", 0, ts >> 32, ts & 0xFFFF_FFFF, len(data), orig_len)
        parts.append(_block(6, head + data))
    return b"".join(parts)


def erf(packets: list[Packet], ports: list[int], *, lost: int = 0, extended: bool = False) -> bytes:
    """A file of a capture card: `lost` packets before each, an extension header if need be.

    Lengths on the wire and bytes include a frame check sequence, and a record without a packet
    comes first.
    """
    parts: list[bytes] = []
    for (ts, orig_len, data), port in zip(packets, ports, strict=True):
        ticks = -(-((ts % SECOND) << 32) // SECOND) | ts // SECOND << 32
        if not parts:
            parts.append(struct.pack("<Q", ticks) + struct.pack(">BBHHH8x", 27, 0, 24, 0, 0))
        whole = data if len(data) < orig_len else data + bytes(4)
        body = (bytes(8) if extended else b"") + bytes(2) + whole
        body += bytes(-len(body) % 8)
        kind = 2 | (0x80 if extended else 0)
        head = struct.pack(">BBHHH", kind, 4 | port, 16 + len(body), lost, orig_len + 4)
        parts.append(struct.pack("<Q", ticks) + head + body)
    return b"".join(parts)


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def udp(number: int, *, payload: bytes = b"") -> bytes:
    """A 60-byte UDP frame that `number` sets apart."""
    ethernet = bytes.fromhex("020000000001 020000000002 0800")
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 46, number & 0xFFFF, 0, 64, 17, 0, b"\n\0\0\1", b"\n\0\0\2"
    )
    header = struct.pack(">HHHH", 1234, 53, 26, 0)
    return (ethernet + ip + header + (payload or struct.pack("<I", number))).ljust(60, b"\0")


def stream(times: list[int], *, first: int = 0) -> list[Packet]:
    """One numbered frame at each time."""
    return [Packet(ts, 60, udp(first + at)) for at, ts in enumerate(times)]


def pair(
    folder: Path,
    latencies: list[int] | list[int | None],
    *,
    start: int = 1_600_000_000 * SECOND,
    gap: int | list[int] = 100_000,
) -> tuple[Path, Path]:
    """Plain captures in which packet i takes `latencies[i]`; `gap` apart, each or all of them.

    A packet without a latency is lost.
    """
    gaps = [gap] * len(latencies) if isinstance(gap, int) else gap
    sent = list(accumulate(gaps[: len(latencies) - 1], initial=start))
    folder.mkdir(parents=True, exist_ok=True)
    pre, post = folder / "x-pre-1.pcap", folder / "x-post-1.pcap"
    pre.write_bytes(pcap(stream(sent)))
    left = enumerate(zip(sent, latencies, strict=True))
    seen = [Packet(ts + ns, 60, udp(at)) for at, (ts, ns) in left if ns is not None]
    post.write_bytes(pcap(sorted(seen, key=lambda packet: packet.ts)))
    return pre, post


def frame_key(frame: bytes) -> bytes:
    """Bytes 12 to 63 of a UDP frame without VLAN tags, without checksums."""
    assert frame[12:15] == b"\x08\x00\x45"
    assert frame[23] == 17
    return frame[12:24] + frame[26:40] + frame[42:64]


def rewritten(path: Path, folder: Path, kind: str) -> Path:
    """The zstd capture `path` as another kind of file in `folder`."""
    name = path.name.removesuffix(".pcap.zst")
    plain = unzstd(path)
    contents = {
        "pcap": lambda: plain,
        "pcap.gz": lambda: gzip.compress(plain, compresslevel=1),
        "pcapng": lambda: pcapng(packets(plain)),
    }
    target = folder / f"{name}.{kind}"
    target.write_bytes(contents[kind]())
    return target


def probe_numbers(path: Path) -> list[int]:
    """Numbers of the probes in a compressed capture, by the bytes that they start with."""
    found = re.findall(rb"\xf5ts\xa1(.{8})", unzstd(path), re.S)
    return [int.from_bytes(number) for number in found]
