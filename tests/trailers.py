"""Trailers with a time behind frames, written as their makers describe them."""

from __future__ import annotations

import struct
import zlib

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


def ixia(frame: bytes, at_ns: int, *, source: int = 6, fields: bytes = b"") -> bytes:
    """A frame with the trailer of Ixia: fields, of which one is a time, and a checksum."""
    fields += struct.pack(">BBII", source, 8, *divmod(at_ns, S))
    content = fields + struct.pack(">BH", len(fields), 0xAF12)
    return frame + content + struct.pack(">H", checksum(content))


def with_fcs(frame: bytes) -> bytes:
    """A frame with the frame check sequence that follows its trailer."""
    return frame + fcs(frame)
