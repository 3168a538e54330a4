"""Captures written and read with `struct` alone."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

SECOND = 1_000_000_000

ETHERNET, RAW, LOOPBACK, SLL, SLL2 = 1, 101, 0, 113, 276
"""Link types."""


class Packet(NamedTuple):
    """One captured packet: when, its bytes, and its length on the wire."""

    ts: int
    data: bytes
    length: int


def packet(ts: int, data: bytes) -> Packet:
    """A packet that was captured whole."""
    return Packet(ts, data, len(data))


def snapped(packets: Sequence[Packet], size: int) -> list[Packet]:
    """Packets of which at most `size` bytes were kept."""
    return [Packet(ts, data[:size], length) for ts, data, length in packets]


def pcap(
    packets: Sequence[Packet],
    *,
    link: int = ETHERNET,
    order: str = "<",
    unit_ns: int = 1,
) -> bytes:
    """A pcap file, of nanoseconds or of microseconds."""
    magic = {1: 0xA1B23C4D, 1000: 0xA1B2C3D4}[unit_ns]
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262_144, link)]
    head = struct.Struct(f"{order}IIII")
    for ts, data, length in packets:
        parts.append(head.pack(ts // SECOND, ts % SECOND // unit_ns, len(data), length))
        parts.append(data)
    return b"".join(parts)


def erf(packets: Iterable[tuple[Packet, int]], *, extended: bool = False) -> bytes:
    """A file of a capture card: packets with the port of each, and their check sequences."""
    parts = []
    for (ts, data, length), port in packets:
        ticks = ts // SECOND << 32 | -(-(ts % SECOND << 32) // SECOND)
        body = (bytes(8) if extended else b"") + bytes(2) + data + bytes(4)
        body += bytes(-len(body) % 8)
        kind = 2 | (0x80 if extended else 0)
        head = struct.pack(">BBHHH", kind, 4 | port, 16 + len(body), 0, length + 4)
        parts.append(struct.pack("<Q", ticks) + head + body)
    return b"".join(parts)


def read_pcap(path: Path) -> list[Packet]:
    """The packets of a little-endian pcap, in nanoseconds or microseconds."""
    content = path.read_bytes()
    unit_ns = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}[struct.unpack_from("<I", content)[0]]
    return list(_records(content, unit_ns))


def _records(content: bytes, unit_ns: int) -> Iterator[Packet]:
    """Whole packets; a cut file ends before the one that was cut."""
    offset = 24
    while offset + 16 <= len(content):
        seconds, fraction, size, length = struct.unpack_from("<IIII", content, offset)
        offset += 16 + size
        if offset > len(content):
            return
        ts = seconds * SECOND + fraction * unit_ns
        yield Packet(ts, content[offset - size : offset], length)


def packets_in(content: bytes) -> int:
    """How many whole packets a nanosecond pcap holds, which may be cut."""
    return sum(1 for _ in _records(content, 1))


def nanoseconds(ts: int) -> int:
    return ts


@dataclass(frozen=True)
class Interface:
    """One interface of a pcapng, and what was captured there.

    `resolution` is the value of `if_tsresol`, and `ticks` counts a time in it. `dropped` is how
    many packets the capture lost, as statistics at its end say; None leaves the statistics out.
    """

    packets: Sequence[Packet]
    name: str = ""
    resolution: int = 9
    ticks: Callable[[int], int] = nanoseconds
    offset_s: int = 0
    dropped: int | None = None
    link: int = ETHERNET

    def described(self) -> bytes:
        """Its description block."""
        options = [(2, self.name.encode())] if self.name else []
        options += [(9, bytes([self.resolution]))]
        if self.offset_s:
            options.append((14, struct.pack("<q", self.offset_s)))
        return _block(1, struct.pack("<HHI", self.link, 0, 262_144) + _options(options))


def pcapng(*interfaces: Interface) -> bytes:
    """A pcapng file of one section: packets of all interfaces in order of time."""
    parts = [_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    parts += [each.described() for each in interfaces]
    merged = sorted(
        ((one.ts, number, one) for number, each in enumerate(interfaces) for one in each.packets),
        key=lambda entry: entry[:2],
    )
    for ts, number, one in merged:
        parts.append(_enhanced(number, _ticks(interfaces[number], ts), one))
    parts += [
        _statistics(number, each, each.dropped)
        for number, each in enumerate(interfaces)
        if each.dropped is not None
    ]
    return b"".join(parts)


def _ticks(interface: Interface, ts: int) -> int:
    return interface.ticks(ts - interface.offset_s * SECOND)


def _enhanced(interface: int, ticks: int, one: Packet) -> bytes:
    times = ticks >> 32, ticks & 0xFFFF_FFFF
    return _block(6, struct.pack("<IIIII", interface, *times, len(one.data), one.length) + one.data)


def _statistics(number: int, interface: Interface, dropped: int) -> bytes:
    """What dumpcap writes when it ends: received, and dropped by the capture."""
    received = len(interface.packets) + dropped
    ticks = _ticks(interface, interface.packets[-1].ts)
    options = [(4, struct.pack("<Q", received)), (5, struct.pack("<Q", dropped))]
    return _block(
        5, struct.pack("<III", number, ticks >> 32, ticks & 0xFFFF_FFFF) + _options(options)
    )


def _options(options: Sequence[tuple[int, bytes]]) -> bytes:
    parts = [
        struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
        for code, value in options
    ]
    return b"".join(parts) + struct.pack("<HH", 0, 0)


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def read_pcapng(path: Path) -> dict[str, list[Packet]]:
    """The packets of a little-endian pcapng, by the name of their interface."""
    content, offset = path.read_bytes(), 0
    names: list[str] = []
    units: list[int] = []
    found: dict[str, list[Packet]] = {}
    while offset < len(content):
        kind, size = struct.unpack_from("<II", content, offset)
        body = content[offset + 8 : offset + size - 4]
        offset += size
        if kind == 1:
            options = dict(_read_options(body[8:]))
            names.append(options[2].decode())
            units.append(10 ** (9 - options.get(9, b"\6")[0]))
            found[names[-1]] = []
        elif kind == 6:
            number, high, low, kept, length = struct.unpack_from("<IIIII", body)
            ts = (high << 32 | low) * units[number]
            found[names[number]].append(Packet(ts, body[20 : 20 + kept], length))
    return found


def _read_options(body: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(body):
        code, size = struct.unpack_from("<HH", body, offset)
        yield code, body[offset + 4 : offset + 4 + size]
        offset += 4 + size + -size % 4
