"""What packets a run sends, known before anything starts: flows, sizes, and what a device takes."""

from __future__ import annotations

import math
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import UsageError
from tailscope.plan.fields import CAPTURED, FRAMES
from tailscope.units import duration_text, mix_parts, typed_duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.plan.fields import PlanFields

_MOST_FLOWS = 65_535
_ETHERNET_BYTES, _TAG_BYTES, _CHECK_BYTES = 14, 4, 4
_NETWORK_BYTES = {4: 20, 6: 40}
_TRANSPORT_BYTES = {"udp": 8, "tcp": 20, "icmp": 8}
_PROBE_BYTES = 18
_LEAST_BYTES, _MOST_BYTES = 64, 1518
_MAC = re.compile(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}")
_OF_PROBES = ("burst", "size_bytes", "flows", *FRAMES, "direction")
"""Fields that say nothing of a capture that is sent again."""


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
            f"--flows: expected at most {_MOST_FLOWS}, but addresses and ports make {found}"
        )
    return found


def mean_size_bytes(plan: PlanFields) -> float:
    """The mean size of frames, check sequence included."""
    if plan.size_mix is None:
        return float(plan.size_bytes or 0)
    parts = mix_parts(plan.size_mix)
    return sum(size * weight for size, weight in parts) / sum(weight for _, weight in parts)


def check_packets(plan: PlanFields) -> None:
    """See that packets can be as a plan wants them."""
    if plan.replay is not None:
        _check_replayed_fields(plan)
        return
    if plan.pattern == CAPTURED:
        raise UsageError(f"--pattern: got {CAPTURED}, expected cbr or poisson without --replay")
    if plan.burst == 1 and plan.burst_gap_ns:
        raise UsageError(
            f"--burst-gap: got {typed_duration(plan.burst_gap_ns)}, expected bursts: --burst"
        )
    lasts_ns = (plan.burst - 1) * plan.burst_gap_ns
    period_ns = plan.burst * 1_000_000_000 // plan.rate_pps
    if lasts_ns and lasts_ns >= period_ns:
        raise UsageError(
            f"--burst-gap: a burst of {plan.burst} lasts {duration_text(lasts_ns)}, expected less"
            f" than the {duration_text(period_ns)} between two"
        )
    _check_macs(plan)
    made = flow_count(plan.src_ip, plan.dst_ip, plan.src_port, plan.dst_port)
    if made > 1 and plan.flows != made:
        raise UsageError(
            f"--flows: got {plan.flows}, expected {made}, which addresses and ports make"
        )
    if plan.queues > plan.flows:
        raise UsageError(f"--queues: got {plan.queues}, expected at most one a flow: {plan.flows}")
    if plan.queues > 1 and plan.wire != "memif":
        raise UsageError(
            f"--queues: got {plan.queues}, expected 1 with --wire {plan.wire}: only those of a"
            " memif are joined one to one"
        )
    _check_sizes(plan)


def _check_replayed_fields(plan: PlanFields) -> None:
    from tailscope.plan.field import fields_of

    for name, declared in fields_of(type(plan)).items():
        value = getattr(plan, name)
        if name in _OF_PROBES and value != declared.default:
            given = f"{declared.option}: got {declared.kind.write(value)}"
            raise UsageError(f"{given}, but --replay sends frames as they are")
    if plan.pattern == "poisson":
        raise UsageError(f"--pattern: got poisson, expected cbr or {CAPTURED} with --replay")
    if plan.warm_up_ns:
        given = typed_duration(plan.warm_up_ns)
        raise UsageError(f"--warm-up: got {given}, expected 0s with --replay: frames are sent once")


def _check_macs(plan: PlanFields) -> None:
    for option, mac in (("--src-mac", plan.src_mac), ("--dst-mac", plan.dst_mac)):
        if mac is not None and not _MAC.fullmatch(mac):
            raise UsageError(f"{option}: got {mac!r}, expected one such as 02:00:00:00:00:01")


def _check_sizes(plan: PlanFields) -> None:
    addresses = re.split(r"\.\.|,", f"{plan.src_ip},{plan.dst_ip}")
    versions = {ip_address(address).version for address in addresses}
    if len(versions) > 1:
        raise UsageError(
            f"--dst-ip: got {plan.dst_ip}, expected addresses of the family of {plan.src_ip}"
        )
    tag_bytes = 0 if plan.vlan is None else _TAG_BYTES
    headers_bytes = _ETHERNET_BYTES + tag_bytes + _NETWORK_BYTES[versions.pop()]
    headers_bytes += _TRANSPORT_BYTES[plan.protocol]
    least = max(_LEAST_BYTES, headers_bytes + _PROBE_BYTES + _CHECK_BYTES)
    mix = plan.size_mix
    sizes = [plan.size_bytes or 0] if mix is None else [size for size, _ in mix_parts(mix)]
    for size in sizes:
        if not least <= size <= _MOST_BYTES:
            of = "" if mix is None else f" of {mix}"
            raise UsageError(
                f"--size: got {size}{of}, expected {least} to {_MOST_BYTES} bytes: headers and"
                " the probe must fit"
            )


def _counted(listed: str, option: str, read: Callable[[str], tuple[int, int]]) -> int:
    """How many values a list has, of values and ranges."""
    found = 0
    for part in listed.split(","):
        first, dots, last = part.partition("..")
        try:
            (kind, low), (last_kind, high) = read(first), read(last if dots else first)
        except ValueError:
            kind, last_kind, low, high = 0, 1, 0, 0
        if kind != last_kind or high < low:
            raise UsageError(f"{option}: got {part!r}, expected a value, or a range FIRST..LAST")
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


def check_replay(plan: PlanFields) -> None:
    """See that a capture can be sent again within the time that a run has."""
    from pathlib import Path

    assert plan.replay is not None, "there is a capture"
    found = replayed(Path(plan.replay))
    lasts_ns = found.lasts_ns
    if plan.pattern != CAPTURED:
        lasts_ns = found.packets * 1_000_000_000 // plan.rate_pps
    if lasts_ns >= plan.duration_ns:
        needed_s = math.ceil((lasts_ns + 1) / 1_000_000_000)
        raise UsageError(
            f"--replay: {plan.replay} takes {duration_text(lasts_ns)}, longer than --duration"
            f" {typed_duration(plan.duration_ns)}",
            hint=f"--duration {needed_s}s",
        )
