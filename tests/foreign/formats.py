"""Kinds of files, and several interfaces in one of them."""

from __future__ import annotations

import bz2
import lzma
from typing import TYPE_CHECKING

import pyarrow

from .case import Made, case, in_files
from .files import Interface, pcap, pcapng
from .frames import routed_frame, udp_frame
from .stream import ROUTED, UNCHANGED, middle, stream
from .tools import mergecap, tcprewrite
from .truth import exactly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def lz4(content: bytes) -> bytes:
    """A frame of LZ4."""
    packed: bytes = pyarrow.compress(content, codec="lz4", asbytes=True)
    return packed


def compressed(name: str, pack: Callable[[bytes], bytes]) -> None:
    """Enter files that are compressed."""

    @case(f"{name} files")
    def make(folder: Path) -> Made:
        traffic = stream(500)
        contents = (pcap(traffic.before(udp_frame)), pcap(traffic.behind(routed_frame)))
        paths = tuple(folder / f"tap-{side}.pcap.{name}" for side in ("in", "out"))
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(pack(content))
        return Made(paths, traffic.truth(ROUTED))


compressed("xz", lzma.compress)
compressed("lz4", lz4)
compressed("bz2", bz2.compress)


@case("big-endian pcap of microseconds")
def big_endian(folder: Path) -> Made:
    traffic = stream(501)
    seen = (traffic.before(udp_frame), traffic.behind(routed_frame))
    taps = in_files(folder, *(pcap(each, order=">", unit_ns=1000) for each in seen))
    bounds = middle(traffic.latency_ns[~traffic.lost], 1000)
    truth = traffic.truth(ROUTED, latency_ns_p50=bounds, resolution_ns=exactly(1000))
    return Made(taps, truth)


def binary(ts: int) -> int:
    """Nanoseconds as multiples of 2⁻³⁰ s."""
    return (ts << 30) // 1_000_000_000


@case("pcapng of 2⁻³⁰ s with an offset of seconds")
def binary_resolution(folder: Path) -> Made:
    traffic = stream(502)
    behind = traffic.behind(routed_frame)
    tap = Interface(behind, resolution=0x80 | 30, ticks=binary, offset_s=1_600_000_000)
    taps = in_files(folder, traffic.before(udp_frame), pcapng(tap))
    bounds = middle(traffic.latency_ns[~traffic.lost], 2)
    return Made(taps, traffic.truth(ROUTED, latency_ns_p50=bounds))


def both_in_one(name: str, *, given: Callable[[Path], tuple[str | Path, ...]]) -> None:
    """Enter one pcapng with both taps."""

    @case(name)
    def make(folder: Path) -> Made:
        traffic = stream(503)
        taps = (
            Interface(traffic.before(udp_frame), "tap-in", dropped=0),
            Interface(traffic.behind(routed_frame), "tap-out", dropped=0),
        )
        path = folder / "both.pcapng"
        path.write_bytes(pcapng(*taps))
        return Made(given(path), traffic.truth(ROUTED))


def by_name(path: Path) -> tuple[str | Path, ...]:
    return "--pre", f"{path}:tap-in", "--post", f"{path}:tap-out"


both_in_one("one pcapng with both taps", given=lambda path: (path,))
both_in_one("one pcapng with both taps, by name", given=by_name)


@case("one pcapng by mergecap", programs=("mergecap",))
def merged(folder: Path) -> Made:
    """Its interfaces have no names."""
    traffic = stream(504)
    taps = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame))
    return Made((mergecap(folder / "both.pcapng", *taps),), traffic.truth(ROUTED))


@case("VLAN tag by tcprewrite", programs=("tcprewrite",))
def vlan_by_tcprewrite(folder: Path) -> Made:
    """It writes microseconds."""
    traffic = stream(505)
    seen = (traffic.before(udp_frame), traffic.behind(udp_frame))
    taps = in_files(folder, *(pcap(each, unit_ns=1000) for each in seen))
    options = "--enet-vlan=add", "--enet-vlan-tag=40", "--enet-vlan-cfi=0", "--enet-vlan-pri=0"
    keys = UNCHANGED | {"l3", "payload", "inner"}
    bounds = middle(traffic.latency_ns[~traffic.lost], 1000)
    return Made(
        (taps[0], tcprewrite(taps[1], *options)), traffic.truth(keys, latency_ns_p50=bounds)
    )
