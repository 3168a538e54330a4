"""One file of a whole host or a capture card, and files as people keep them."""

from __future__ import annotations

import gzip
import struct
from functools import partial
from typing import TYPE_CHECKING

import pyarrow

from .case import Made, case, in_files
from .files import ETHERNET, SLL2, Interface, Packet, erf, pcap, pcapng
from .frames import PUBLIC, cooked2, routed_frame, udp_frame
from .stream import REWRITTEN, ROUTED, middle, seed_of, stream
from .tools import run
from .truth import Refused, Truth, exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .stream import Stream

LOCAL, IN, OUT, OTHER = 1, 2, 3, 4
"""Devices of a host by their index."""

bare = partial(udp_frame, padded=False)
bare_routed = partial(routed_frame, padded=False)
bare_translated = partial(bare_routed, src=PUBLIC, sport=2_000)


def of_device(packets: Sequence[Packet], device: int, *, leaves: bool = False) -> list[Packet]:
    """Packets as `tcpdump -i any` has them, of one device of the host."""
    found = []
    for ts, data, _ in packets:
        head = cooked2(data)
        head = head[:4] + struct.pack(">IHB", device, 1, 4 if leaves else 0) + head[11:]
        found.append(Packet(ts, head, len(head)))
    return found


def elsewhere(traffic: Stream, first: int) -> list[Packet]:
    """Traffic of other hosts, at the same time."""
    frame = partial(bare, src="10.9.0.1", dst="10.9.0.2", sport=777, dport=53)
    times = traffic.sent_ns[::3].tolist()
    seen = [(ts + 1_111, frame(first + at, size=30)) for at, ts in enumerate(times)]
    return [Packet(ts, data, len(data)) for ts, data in seen]


def on_any(
    name: str,
    devices: Callable[[Stream], list[Packet]],
    truth: Callable[[Stream], Truth | Refused],
    words: Callable[[Path], tuple[str | Path, ...]] = lambda path: (path,),
    *,
    is_long: bool = True,
) -> None:
    """Enter one capture of all devices of a host."""

    @case(name, is_long=is_long)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        path = folder / "any.pcap"
        path.write_bytes(pcap(sorted(devices(traffic)), link=SLL2))
        return Made(words(path), truth(traffic))


def two(traffic: Stream, behind: Callable[[int], bytes] = bare_routed) -> list[Packet]:
    came = of_device(traffic.before(bare), IN)
    return came + of_device(traffic.behind(behind), OUT, leaves=True)


def four(traffic: Stream, behind: Callable[[int], bytes] = bare_routed) -> list[Packet]:
    others = of_device(elsewhere(traffic, 500_000), LOCAL)
    return two(traffic, behind) + others + of_device(elsewhere(traffic, 900_000), OTHER)


def through_three(traffic: Stream) -> list[Packet]:
    """A bridge, too, sees what goes from one port to the other."""
    return two(traffic) + of_device(traffic.before(bare), OTHER)


on_any("any, two devices", two, lambda traffic: traffic.truth(ROUTED))
on_any(
    "any, two devices, by their indexes",
    four,
    lambda traffic: traffic.truth(ROUTED),
    lambda path: ("--pre", f"{path}:if2", "--post", f"{path}:if3"),
)
on_any(
    "any, four devices, of which two carry the same",
    four,
    lambda traffic: traffic.truth(ROUTED),
    is_long=False,
)
on_any(
    "any, four devices, of which two are those of a NAT",
    partial(four, behind=bare_translated),
    lambda traffic: traffic.truth(REWRITTEN),
)
on_any(
    "any, three devices that carry the same",
    through_three,
    lambda _: Refused("same packets are in if2 and if4, if2 and if3"),
    is_long=False,
)
on_any(
    "any, three devices with traffic of their own",
    lambda each: (
        of_device(each.before(bare), IN)
        + of_device(elsewhere(each, 500_000), LOCAL)
        + of_device(elsewhere(each, 900_000), OTHER)
    ),
    lambda _: Refused("got 3: if"),
)


@case("one pcapng of four interfaces, of which two carry the same", is_long=True)
def four_interfaces(folder: Path) -> Made:
    traffic = stream(1001)
    path = folder / "all.pcapng"
    taps = (
        Interface(elsewhere(traffic, 500_000), "lo"),
        Interface(traffic.before(udp_frame), "eth0"),
        Interface(elsewhere(traffic, 900_000), "docker0"),
        Interface(traffic.behind(routed_frame), "eth1"),
    )
    path.write_bytes(pcapng(*taps))
    return Made((path,), traffic.truth(ROUTED))


@case("one pcapng, cooked and Ethernet interfaces, by name", is_long=True)
def mixed_links(folder: Path) -> Made:
    traffic = stream(1002)
    path = folder / "all.pcapng"
    cooked = [one._replace(data=cooked2(one.data)) for one in traffic.before(bare)]
    taps = (
        Interface([Packet(ts, data, len(data)) for ts, data, _ in cooked], "any", link=SLL2),
        Interface(traffic.behind(routed_frame), "eth1", link=ETHERNET),
    )
    path.write_bytes(pcapng(*taps))
    return Made(("--pre", f"{path}:any", "--post", f"{path}:eth1"), traffic.truth(ROUTED))


def on_card(name: str, write: Callable[[Path, Stream], tuple[str | Path, ...]]) -> None:
    """Enter captures of a card; its clock counts in 2⁻³² s."""

    @case(name, is_long=True)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        bounds = middle(traffic.latency_ns[~traffic.lost], 2)
        return Made(write(folder, traffic), traffic.truth(ROUTED, latency_ns_p50=bounds))


def file_each(folder: Path, traffic: Stream, *, extended: bool = False) -> tuple[Path, ...]:
    sides = traffic.before(udp_frame), traffic.behind(routed_frame)
    paths = folder / "in.erf", folder / "out.erf"
    for path, side in zip(paths, sides, strict=True):
        path.write_bytes(erf([(one, 0) for one in side], extended=extended))
    return paths


def both_ports(folder: Path, traffic: Stream) -> tuple[str | Path, ...]:
    seen = [(one, 0) for one in traffic.before(udp_frame)]
    seen += [(one, 1) for one in traffic.behind(routed_frame)]
    path = folder / "card.erf"
    path.write_bytes(erf(sorted(seen)))
    return (path,)


def card_before(folder: Path, traffic: Stream) -> tuple[Path, ...]:
    before, _ = file_each(folder, traffic)
    return before, in_files(folder, b"", traffic.behind(routed_frame))[1]


on_card("ERF, a file for each port", file_each)
on_card("ERF with extension headers", partial(file_each, extended=True))
on_card("ERF, both ports in one file", both_ports)
on_card("ERF before, pcap behind", card_before)


@case("snoop by editcap", programs=("editcap",), is_long=True)
def snoop(folder: Path) -> Made:
    """It has microseconds."""
    traffic = stream(1003)
    taps = in_files(folder, traffic.before(udp_frame), traffic.behind(routed_frame))
    made = tuple(path.with_suffix(".snoop") for path in taps)
    for path, result in zip(taps, made, strict=True):
        run("editcap", "-F", "snoop", path, result)
    bounds = middle(traffic.latency_ns[~traffic.lost], 1000)
    return Made(made, traffic.truth(ROUTED, latency_ns_p50=bounds))


@case("records of MoonSniff", is_long=True)
def moonsniff(folder: Path) -> Made:
    traffic = stream(1004)
    seen = (traffic.sent_ns + traffic.latency_ns).tolist()
    sides = (
        enumerate(traffic.sent_ns.tolist()),
        ((number, seen[number]) for number in traffic.arrived.tolist()),
    )
    paths = folder / "in.mscap", folder / "out.mscap"
    for path, side in zip(paths, sides, strict=True):
        path.write_bytes(b"".join(struct.pack("<QI", ts, number) for number, ts in side))
    return Made(paths, traffic.truth(frozenset({"frame", "payload", "bytes"})))


def kept_as(name: str, suffix: str, write: Callable[[Sequence[Packet]], bytes]) -> None:
    """Enter a router whose captures are files of another kind."""

    @case(name, is_long=True)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        sides = traffic.before(udp_frame), traffic.behind(routed_frame)
        paths = folder / f"in{suffix}", folder / f"out{suffix}"
        for path, side in zip(paths, sides, strict=True):
            path.write_bytes(write(side))
        return Made(paths, traffic.truth(ROUTED))


def zstd(content: bytes) -> bytes:
    packed: bytes = pyarrow.compress(content, codec="zstd", asbytes=True)
    return packed


def nanoseconds(packets: Sequence[Packet]) -> bytes:
    return pcapng(Interface(packets, "tap"))


kept_as("gzip files", ".pcap.gz", lambda side: gzip.compress(pcap(side), 1))
kept_as("zstd files", ".pcap.zst", lambda side: zstd(pcap(side)))
kept_as("zstd files of several frames", ".pcap.zst", lambda side: _frames(pcap(side)))
kept_as("nanosecond pcapng files", ".pcapng", nanoseconds)
kept_as("nanosecond pcapng files, gzip", ".pcapng.gz", lambda one: gzip.compress(nanoseconds(one)))
kept_as("big-endian nanosecond pcap files", ".pcap", partial(pcap, order=">"))
kept_as("files without an extension", "", pcap)


def _frames(content: bytes) -> bytes:
    """Several frames one behind the other, as parallel compression writes them."""
    size = len(content) // 3
    parts = content[:size], content[size : 2 * size], content[2 * size :]
    return b"".join(map(zstd, parts))


def in_rings(
    name: str, files: int, suffix: str, write: Callable[[Sequence[Packet]], bytes], overlap: int = 0
) -> None:
    """Enter rings of files that follow each other, or that overlap by so many packets."""

    @case(name, is_long=True)
    def make(folder: Path) -> Made:
        traffic = stream(seed_of(name))
        sides = {"in": traffic.before(udp_frame), "out": traffic.behind(routed_frame)}
        for side, packets in sides.items():
            for at, part in enumerate(_parts(packets, files, overlap)):
                (folder / f"{side}_{at:05d}{suffix}").write_bytes(write(part))
        words = "--pre", folder / f"in_*{suffix}", "--post", folder / f"out_*{suffix}"
        return Made(words, traffic.truth(ROUTED))


def _parts(packets: Sequence[Packet], files: int, overlap: int) -> list[list[Packet]]:
    """Packets in files; those near a border are in one file or the other."""
    size = -(-len(packets) // files)
    parts: list[list[Packet]] = [[] for _ in range(files)]
    for at, one in enumerate(packets):
        place = at // size
        is_late = overlap and at % 2 and at % size < overlap and place
        parts[place - 1 if is_late else place].append(one)
    return parts


in_rings("rings of 200 files", 200, ".pcap", pcap)
in_rings("rings of pcapng files", 12, ".pcapng", nanoseconds)
in_rings("rings of gzip files", 12, ".pcap.gz", lambda part: gzip.compress(pcap(part), 1))
in_rings("rings of files that overlap", 12, ".pcap", pcap, overlap=40)


@case("forty ports behind, a file for each", is_long=True)
def forty_ports(folder: Path) -> Made:
    traffic = stream(1005)
    before, _ = in_files(folder, traffic.before(udp_frame), b"")
    behind = traffic.behind(routed_frame)
    for port in range(40):
        (folder / f"port{port:02d}.pcap").write_bytes(pcap(behind[port::40]))
    truth = traffic.truth(ROUTED, warns="39 files overlap")
    return Made(("--pre", before, "--post", folder / "port*.pcap"), truth)


@case("a ring before, one file behind", is_long=True)
def ring_before(folder: Path) -> Made:
    traffic = stream(1006)
    for at, part in enumerate(_parts(traffic.before(udp_frame), 30, 0)):
        (folder / f"ring{at:03d}.pcap").write_bytes(pcap(part))
    _, behind = in_files(folder, b"", traffic.behind(routed_frame))
    return Made(("--pre", folder / "ring*.pcap", "--post", behind), traffic.truth(ROUTED))


@case("one of two packets in each of two files before", is_long=True)
def bonded(folder: Path) -> Made:
    """Two links that are bonded: a capture of each."""
    traffic = stream(1007)
    before = traffic.before(udp_frame)
    paths = folder / "link0.pcap", folder / "link1.pcap"
    for at, path in enumerate(paths):
        path.write_bytes(pcap(before[at::2]))
    _, behind = in_files(folder, b"", traffic.behind(routed_frame))
    truth = traffic.truth(ROUTED, packets=len(before), lost=exactly(int(traffic.lost.sum())))
    return Made(("--pre", *paths, "--post", behind), truth)
