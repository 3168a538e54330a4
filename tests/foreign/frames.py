"""Frames built with `struct` alone, with every checksum right."""

from __future__ import annotations

import struct
from functools import partial
from ipaddress import ip_address

UDP, TCP, ICMP = 17, 6, 1
IPV4, IPV6, VLAN, SERVICE_VLAN = 0x0800, 0x86DD, 0x8100, 0x88A8

CLIENT, SERVER = "10.1.0.2", "10.2.0.2"
PUBLIC = "192.0.2.1"
"""Whom a NAT lets the client appear as."""
CLIENT6, SERVER6 = "fd01::2", "fd02::2"
FROM_CLIENT = bytes.fromhex("02aa00000001 02aa00000002")
"""Destination and source of a frame on the side of the client."""
TO_SERVER = bytes.fromhex("02bb00000001 02bb00000002")
"""The same on the side of the server, behind a router."""


def counted(number: int, size: int = 18, fill: int = 0x5A) -> bytes:
    """A payload that begins with a number."""
    return struct.pack(">I", number) + bytes([fill]) * (size - 4)


def checksum(*parts: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data = b"".join(parts)
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(
    body: bytes, kind: int = IPV4, *, macs: bytes = FROM_CLIENT, padded: bool = True
) -> bytes:
    """An Ethernet frame without check sequence; as short ones are seen on a wire, padded."""
    frame = macs + struct.pack(">H", kind) + body
    return frame.ljust(60, b"\0") if padded else frame


def tag(number: int, kind: int, body: bytes) -> bytes:
    """What follows the type of a VLAN tag."""
    return struct.pack(">HH", number, kind) + body


def ipv4(
    protocol: int,
    body: bytes,
    *,
    src: str = CLIENT,
    dst: str = SERVER,
    ttl: int = 64,
    ident: int = 0,
    options: bytes = b"",
    tos: int = 0,
    fragment: int = 0x4000,
) -> bytes:
    """An IPv4 packet, that may not be fragmented unless `fragment` says something else."""
    size = 20 + len(options)
    first = struct.pack(
        ">BBHHHBB", 0x40 | size // 4, tos, size + len(body), ident, fragment, ttl, protocol
    )
    addresses = ip_address(src).packed + ip_address(dst).packed + options
    header_sum = struct.pack(">H", checksum(first, addresses))
    return first + header_sum + addresses + body


def ipv6(
    protocol: int, body: bytes, *, src: str = CLIENT6, dst: str = SERVER6, hops: int = 64
) -> bytes:
    """An IPv6 packet without extension headers."""
    addresses = ip_address(src).packed + ip_address(dst).packed
    return struct.pack(">IHBB", 0x6000_0000, len(body), protocol, hops) + addresses + body


def _pseudo(src: str, dst: str, protocol: int, size: int) -> bytes:
    addresses = ip_address(src).packed + ip_address(dst).packed
    return addresses + struct.pack(">IBBH", size, 0, 0, protocol)


def udp(
    payload: bytes, *, src: str = CLIENT, dst: str = SERVER, sport: int = 40_000, dport: int = 5001
) -> bytes:
    """A UDP datagram between two addresses."""
    size = 8 + len(payload)
    ports = struct.pack(">HHH", sport, dport, size)
    found = checksum(_pseudo(src, dst, UDP, size), ports, payload) or 0xFFFF
    return ports + struct.pack(">H", found) + payload


def tcp(
    payload: bytes,
    sequence: int,
    *,
    src: str = CLIENT,
    dst: str = SERVER,
    sport: int = 40_000,
    dport: int = 5001,
    options: bytes = b"",
    flags: int = 0x18,
    acknowledged: int = 1,
) -> bytes:
    """A TCP segment between two addresses."""
    size = 20 + len(options)
    first = struct.pack(
        ">HHIIBBH", sport, dport, sequence, acknowledged, size // 4 << 4, flags, 64_240
    )
    rest = bytes(2) + options + payload
    found = checksum(_pseudo(src, dst, TCP, size + len(payload)), first, bytes(2), rest)
    return first + struct.pack(">H", found) + rest


def tcp_timestamps(value: int) -> bytes:
    """The option of timestamps with its padding, as Linux writes it."""
    return struct.pack(">BBBBII", 1, 1, 8, 10, value, 7)


def icmp_echo(kind: int, number: int, payload: bytes) -> bytes:
    """An echo request (8) or reply (0)."""
    rest = struct.pack(">HH", 77, number & 0xFFFF) + payload
    found = checksum(bytes([kind, 0, 0, 0]), rest)
    return struct.pack(">BBH", kind, 0, found) + rest


def udp_frame(
    number: int,
    *,
    size: int = 18,
    src: str = CLIENT,
    dst: str = SERVER,
    sport: int = 40_000,
    dport: int = 5001,
    ttl: int = 64,
    macs: bytes = FROM_CLIENT,
    padded: bool = True,
    options: bytes = b"",
    tos: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """An Ethernet frame of a numbered UDP datagram."""
    payload = counted(number, size) if payload is None else payload
    datagram = udp(payload, src=src, dst=dst, sport=sport, dport=dport)
    body = ipv4(UDP, datagram, src=src, dst=dst, ttl=ttl, options=options, tos=tos)
    return ethernet(body, macs=macs, padded=padded)


routed_frame = partial(udp_frame, ttl=63, macs=TO_SERVER)
"""The frame that a router makes of the numbered one."""


def udp6_frame(number: int, *, size: int = 18, hops: int = 64, macs: bytes = FROM_CLIENT) -> bytes:
    """The same over IPv6; the number is little-endian: its first bytes tell packets apart."""
    payload = struct.pack("<I", number) + bytes([0x5A]) * (size - 4)
    datagram = udp(payload, src=CLIENT6, dst=SERVER6)
    return ethernet(ipv6(UDP, datagram, hops=hops), IPV6, macs=macs)


def tcp_frame(number: int, *, size: int = 100, options: bytes = b"", ttl: int = 64) -> bytes:
    """An Ethernet frame of the numbered segment of a TCP stream."""
    segment = tcp(counted(number, size), 1000 + number * size, options=options)
    return ethernet(ipv4(TCP, segment, ttl=ttl, ident=number & 0xFFFF))


def echo_request(number: int, ttl: int = 64) -> bytes:
    body = icmp_echo(8, number, bytes(range(48)))
    return ethernet(ipv4(ICMP, body, ttl=ttl), macs=FROM_CLIENT if ttl == 64 else TO_SERVER)


def without_ethernet(frame: bytes) -> bytes:
    """The IP packet in an unpadded frame."""
    return frame[14:]


def cooked(frame: bytes) -> bytes:
    """A frame as a cooked capture of Linux keeps it (LINKTYPE_LINUX_SLL)."""
    return struct.pack(">HHH", 0, 1, 6) + frame[6:12] + bytes(2) + frame[12:]


def cooked2(frame: bytes) -> bytes:
    """The same in its second version (LINKTYPE_LINUX_SLL2)."""
    return frame[12:14] + struct.pack(">HIHBB", 0, 3, 1, 0, 6) + frame[6:12] + bytes(2) + frame[14:]


def loopback(frame: bytes) -> bytes:
    """The same as of BSD's loopback (LINKTYPE_NULL), on a little-endian machine."""
    return struct.pack("<I", 2) + frame[14:]
