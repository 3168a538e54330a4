"""Trailers with a time behind frames, and headers in them, as their makers describe them."""

from __future__ import annotations

import struct
import zlib
from functools import partial

from foreign.frames import checksum

S = 1_000_000_000


def fcs(frame: bytes) -> bytes:
    """The frame check sequence of a frame."""
    return struct.pack("<I", zlib.crc32(frame))


def metamako(
    frame: bytes, at_ns: int, *, extensions: bytes = b"", device: int = 7, port: int = 3
) -> bytes:
    """A frame with the trailer of MetaWatch."""
    flags = 1 | (2 if extensions else 0)
    times = struct.pack(">II", *divmod(at_ns, S))
    return frame + fcs(frame) + extensions + times + struct.pack(">BHB", flags, device, port)


def extension(tag: int, data: bytes, *, is_last: bool) -> bytes:
    """An extension of it: words of 4 bytes, of which the last has 3 bytes of data and its tag."""
    words, rest = divmod(len(data), 4)
    assert rest == 3, "the last byte of the data stands before the tag"
    head = int.from_bytes(data[-3:], "big") << 8 | words << 6 | is_last << 5 | tag
    return data[:-3] + struct.pack(">I", head)


def long_extension(tag: int, data: bytes, *, is_last: bool) -> bytes:
    """An extension whose tag does not fit in 5 bits: its last word has tag and length alone."""
    words = len(data) // 4 - 1
    return data + struct.pack(">I", tag << 16 | words << 6 | is_last << 5 | 0x1F)


def exablaze(frame: bytes, at_ns: int, *, device: int = 7, port: int = 3) -> bytes:
    """A frame with the trailer of an ExaLINK Fusion."""
    seconds, rest_ns = divmod(at_ns, S)
    # Rounded up, so that what it stands for is not below the nanosecond.
    fraction = -(-(rest_ns << 40) // S)
    head = struct.pack(">BBI", device, port, seconds)
    return frame + fcs(frame) + head + fraction.to_bytes(5, "big") + b"\0"


def vss(frame: bytes, at_ns: int, *, port: bytes = b"", source: int = 3) -> bytes:
    """A frame with the trailer of VSS Monitoring, which drops the frame's own check sequence."""
    seconds, rest_ns = divmod(at_ns, S)
    return frame + struct.pack(">II", seconds, source << 30 | rest_ns) + port


def fields(
    frame: bytes, at_ns: int, *, signature: int, source: int = 6, others: bytes = b""
) -> bytes:
    """A frame with fields behind it, of which one is a time, a signature, and a checksum."""
    content = others + struct.pack(">BBII", source, 8, *divmod(at_ns, S))
    content += struct.pack(">BH", len(content), signature)
    return frame + content + struct.pack(">H", checksum(content))


IXIA, GIGAMON = 0xAF12, 0x22E5
ixia = partial(fields, signature=IXIA)
"""A frame with the trailer of Ixia."""
gigamon_fields = partial(fields, signature=GIGAMON, source=4)
"""A frame with the trailer of Gigamon that is alike."""


def gigamon(frame: bytes, at_ns: int, *, port: int = 3) -> bytes:
    """A frame with the shorter trailer of Gigamon, behind its check sequence."""
    return frame + fcs(frame) + struct.pack(">HII", port, *divmod(at_ns, S))


def gigamon_header(frame: bytes, at_ns: int, *, source: int = 5) -> bytes:
    """A frame with fields between its addresses and its type: a port, and a time."""
    content = b"\x08\x04\x1c\x01\x04\x05" + struct.pack(">BBII", source, 8, *divmod(at_ns, S))
    return frame[:12] + struct.pack(">HB", GIGAMON, len(content) + 1) + content + frame[12:]


def arista(frame: bytes, at_ns: int, *, version: int = 0x10) -> bytes:
    """A frame with the header of Arista between its addresses and its type."""
    seconds, rest_ns = divmod(at_ns, S)
    time = (
        struct.pack(">HI", seconds & 0xFFFF, rest_ns)
        if version & 0x20
        else struct.pack(">II", seconds, rest_ns)
    )
    return frame[:12] + struct.pack(">HHH", 0xD28B, 1, version) + time + frame[12:]


def with_fcs(frame: bytes) -> bytes:
    """A frame with the frame check sequence that follows its trailer."""
    return frame + fcs(frame)
