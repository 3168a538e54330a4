"""The packets of a run, known before anything starts: flows, sizes, and what a device takes."""

from __future__ import annotations

import math
import re
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from tailscope.exceptions import UsageError
from tailscope.plan.field import fields_of
from tailscope.plan.fields import CAPTURED, FRAMES, PlanFields
from tailscope.units import duration_text, mean_frame_bytes, mix_parts, typed_duration, typed_size

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_FLOWS = 65_535
_ETHERNET_BYTES, _TAG_BYTES, _CHECK_BYTES = 14, 4, 4
_NETWORK_BYTES = {4: 20, 6: 40}
_TRANSPORT_BYTES = {"udp": 8, "tcp": 20, "icmp": 8}
_PROBE_BYTES = 18
_LEAST_BYTES, _MOST_BYTES = 64, 1518
_MAC = re.compile(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}")
_OF_PROBES = ("burst", "size_bytes", "flows", *FRAMES, "direction")
"""Fields that say nothing of a capture that is sent again."""


class Traffic(Struct, frozen=True, kw_only=True):
    """The part of a plan that says what is sent; `PlanFields` declares its fields."""

    rate_pps: int
    pattern: str
    burst: int
    burst_gap_ns: int
    size_bytes: int | None
    size_mix: str | None
    flows: int
    queues: int
    protocol: str
    vlan: int | None
    encap: str | None
    src_mac: str | None
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_port: str
    dst_port: str
    replay: str | None
    direction: str
    seed: int

    @property
    def ways(self) -> tuple[Literal["forth", "back"], ...]:
        """Directions of packets: from the generator's first port to its second, and back."""
        return ("forth", "back") if self.direction == "both" else ("forth",)

    def sent_in(self, duration_ns: int) -> Sent:
        """Return what leaves one port within a duration; a capture is read for that."""
        if self.replay is not None:
            file = Path(self.replay)
            packets = replayed(file).packets
            return Sent(packets, file.stat().st_size / max(1, packets))
        return Sent(self.rate_pps * duration_ns // 1_000_000_000, mean_size_bytes(self))

    def generator_options(self) -> list[str]:
        """Arguments of ``tailscope-dp gen`` that say what is sent."""
        if self.replay is not None:
            # It is started in a folder of its own.
            replay = f"--replay={Path(self.replay).absolute()}"
            return [replay, *([] if self.pattern == CAPTURED else [f"--rate={self.rate_pps}"])]
        optional = {"vlan": self.vlan, "encap": self.encap, "src-mac": self.src_mac}
        return [
            f"--rate={self.rate_pps}",
            f"--pattern={self.pattern}",
            f"--burst={self.burst}",
            f"--burst-gap={self.burst_gap_ns}ns",
            f"--size={self.size_mix or self.size_bytes}",
            f"--flows={self.flows}",
            f"--queues={self.queues}",
            f"--protocol={self.protocol}",
            f"--dst-mac={self.dst_mac}",
            f"--src-ip={self.src_ip}",
            f"--dst-ip={self.dst_ip}",
            f"--src-port={self.src_port}",
            f"--dst-port={self.dst_port}",
            f"--direction={self.direction}",
            *(f"--{name}={value}" for name, value in optional.items() if value is not None),
            f"--seed={self.seed}",
        ]


class Sent(NamedTuple):
    """Packets, and the mean size of their frames."""

    packets: int
    frame_bytes: float


class Volume(NamedTuple):
    """The number and size of packets that a run records."""

    packets: int
    """Packets in all directions of all instances."""
    captured: int
    """Packets of which there are captures."""
    staged: int
    """Packets that are looked at in the device."""
    frame_bytes: float
    """The mean size of their frames."""


class Replayed(NamedTuple):
    """A capture that is sent again: how many packets, and from the first to the last of them."""

    packets: int
    lasts_ns: int


def flow_count(src_ip: str, dst_ip: str, src_port: str, dst_port: str) -> int:
    """Count the flows that lists of addresses and ports make, each taken in turn."""
    counts = [
        _counted(src_ip, "--src-ip", _address),
        _counted(dst_ip, "--dst-ip", _address),
        _counted(src_port, "--src-port", _port),
        _counted(dst_port, "--dst-port", _port),
    ]
    found = math.lcm(*counts)
    if found > _MOST_FLOWS:
        raise UsageError(
            f"--flows: expected at most {_MOST_FLOWS}, but addresses and ports make {found}",
            code="too-many-flows",
        )
    return found


def mean_size_bytes(traffic: Traffic) -> float:
    """The mean size of frames, check sequence included."""
    return mean_frame_bytes(traffic.size_mix or traffic.size_bytes or 0)


def check_packets(traffic: Traffic, wire: str, warm_up_ns: int) -> None:
    """Check that packets can be as a plan wants them."""
    if traffic.replay is not None:
        _check_replayed_fields(traffic, warm_up_ns)
        return
    if traffic.pattern == CAPTURED:
        raise UsageError(
            f"--pattern: got {CAPTURED}, expected cbr or poisson without --replay",
            code="requires-replay",
        )
    if traffic.burst == 1 and traffic.burst_gap_ns:
        raise UsageError(
            f"--burst-gap: got {typed_duration(traffic.burst_gap_ns)}, expected bursts: --burst",
            code="requires-burst",
        )
    lasts_ns = (traffic.burst - 1) * traffic.burst_gap_ns
    period_ns = traffic.burst * 1_000_000_000 // traffic.rate_pps
    if lasts_ns and lasts_ns >= period_ns:
        raise UsageError(
            f"--burst-gap: a burst of {traffic.burst} lasts {duration_text(lasts_ns)}, expected"
            f" less than the {duration_text(period_ns)} between two",
            code="burst-gap",
        )
    _check_macs(traffic)
    made = flow_count(traffic.src_ip, traffic.dst_ip, traffic.src_port, traffic.dst_port)
    if made > 1 and traffic.flows != made:
        raise UsageError(
            f"--flows: got {traffic.flows}, expected {made}, which addresses and ports make",
            code="flow-count",
        )
    if traffic.queues > traffic.flows:
        raise UsageError(
            f"--queues: got {traffic.queues}, expected at most one a flow: {traffic.flows}",
            code="queue-count",
        )
    if traffic.queues > 1 and wire != "memif":
        raise UsageError(
            f"--queues: got {traffic.queues}, expected 1 with --wire {wire}: only those of a"
            " memif are joined one to one",
            code="queues-wire",
        )
    _check_sizes(traffic)


def _check_replayed_fields(traffic: Traffic, warm_up_ns: int) -> None:
    for name, declared in fields_of(PlanFields).items():
        if name in _OF_PROBES and (value := getattr(traffic, name)) != declared.default:
            if value is None and declared.otherwise is not None:
                value = typed_size(getattr(traffic, declared.otherwise))
            given = f"{declared.option}: got {declared.kind.write(value)}"
            raise UsageError(
                f"{given}, but --replay sends frames as they are", code="option-beside-replay"
            )
    if traffic.pattern == "poisson":
        raise UsageError(
            f"--pattern: got poisson, expected cbr or {CAPTURED} with --replay",
            code="replay-pattern",
        )
    if warm_up_ns:
        given = typed_duration(warm_up_ns)
        raise UsageError(
            f"--warm-up: got {given}, expected 0s with --replay: frames are sent once",
            code="replay-warm-up",
        )


def _check_macs(traffic: Traffic) -> None:
    for option, mac in (("--src-mac", traffic.src_mac), ("--dst-mac", traffic.dst_mac)):
        if mac is not None and not _MAC.fullmatch(mac):
            raise UsageError(
                f"{option}: got {mac!r}, expected one such as 02:00:00:00:00:01", code="mac-address"
            )


def _check_sizes(traffic: Traffic) -> None:
    addresses = re.split(r"\.\.|,", f"{traffic.src_ip},{traffic.dst_ip}")
    versions = {ip_address(address).version for address in addresses}
    if len(versions) > 1:
        raise UsageError(
            f"--dst-ip: got {traffic.dst_ip}, expected addresses of the family of {traffic.src_ip}",
            code="address-family",
        )
    tag_bytes = 0 if traffic.vlan is None else _TAG_BYTES
    headers_bytes = _ETHERNET_BYTES + tag_bytes + _NETWORK_BYTES[versions.pop()]
    headers_bytes += _TRANSPORT_BYTES[traffic.protocol] + _tunnel_bytes(traffic)
    least = max(_LEAST_BYTES, headers_bytes + _PROBE_BYTES + _CHECK_BYTES)
    mix = traffic.size_mix
    sizes = [traffic.size_bytes or 0] if mix is None else [size for size, _ in mix_parts(mix)]
    for size in sizes:
        if not least <= size <= _MOST_BYTES:
            of = "" if mix is None else f" of {mix}"
            raise UsageError(
                f"--size: got {size}{of}, expected {least} to {_MOST_BYTES} bytes: headers and"
                " the probe must fit",
                code="frame-size",
            )


def _tunnel_bytes(traffic: Traffic) -> int:
    """Return the length of a tunnel's headers; 0 without a tunnel."""
    if traffic.encap is None:
        return 0
    import tailscope._engine as _engine

    first = [re.split(r"\.\.|,", listed)[0] for listed in (traffic.src_ip, traffic.dst_ip)]
    try:
        found = _engine.tunnel_bytes(traffic.encap, *first)
    except _engine.ArgumentError as error:
        raise UsageError(f"--encap: {error}", code=error.code) from None
    if found is None:
        raise UsageError(
            f"--encap: got {traffic.encap}, expected src and dst of one family, also with"
            f" --src-ip and --dst-ip, {first[0]} and {first[1]}",
            code="address-family",
        )
    return found


def _counted(listed: str, option: str, read: Callable[[str], tuple[int, int]]) -> int:
    """Count the values of a list of values and ranges."""
    found = 0
    for part in listed.split(","):
        first, dots, last = part.partition("..")
        try:
            (kind, low), (last_kind, high) = read(first), read(last if dots else first)
        except ValueError:
            kind, last_kind, low, high = 0, 1, 0, 0
        if kind != last_kind or high < low:
            raise UsageError(
                f"{option}: got {part!r}, expected a value, or a range FIRST..LAST",
                code="value-range",
            )
        found += high - low + 1
    return found


def _address(text: str) -> tuple[int, int]:
    """Read an address: its family, and its number among those."""
    address = ip_address(text)
    return address.version, int(address)


def _port(text: str) -> tuple[int, int]:
    if not text.isdecimal() or int(text) > 65_535:
        raise ValueError(text)
    return 0, int(text)


def replayed(path: Path) -> Replayed:
    """Count the packets of a capture, and how long they take."""
    from tailscope.engine.analysis import read_keys

    packets, first_ns, last_ns = 0, None, 0
    for keys in read_keys(path, "frame"):
        first_ns = int(keys.ts_ns[0]) if first_ns is None else first_ns
        packets, last_ns = packets + len(keys.ts_ns), max(last_ns, int(keys.ts_ns.max()))
    return Replayed(packets, last_ns - (first_ns or 0))


def check_replay(traffic: Traffic, duration_ns: int) -> None:
    """Check that a capture can be sent again within the duration of a run."""
    assert traffic.replay is not None, "there is a capture"
    found = replayed(Path(traffic.replay))
    lasts_ns = found.lasts_ns
    if traffic.pattern != CAPTURED:
        lasts_ns = found.packets * 1_000_000_000 // traffic.rate_pps
    if lasts_ns >= duration_ns:
        needed_s = math.ceil((lasts_ns + 1) / 1_000_000_000)
        raise UsageError(
            f"--replay: {traffic.replay} takes {duration_text(lasts_ns)}, longer than --duration"
            f" {typed_duration(duration_ns)}",
            code="replay-too-long",
            hint=f"--duration {needed_s}s",
        )
