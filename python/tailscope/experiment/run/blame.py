"""Whose fault it is that packets were not sent, or never came back: by evidence, or nobody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.noise.intervals import covered
from tailscope.store.records.dataplane import (
    IpsecCounts,
    KernelCounts,
    NftablesCounts,
    OvsCounts,
    SnortCounts,
    SuricataCounts,
    TestpmdCounts,
    WireguardCounts,
)
from tailscope.store.records.messages import ProgramCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tailscope.store.records.dataplane import DutCounts, LinkCounts

    Integers = NDArray[np.int64]

GIVE_UP_NS = 10_000_000
"""A packet that could not leave so long after its time is not sent."""

_SHARED_MEMORY = ("memif", "vhost")
"""Wires whose rings the generator empties: one that is full was full because of it."""
_CAPTURE_DROPS = ("kernel_drops", "imissed", "no_mbufs")
"""Suricata's names for packets that its capture method had no room for."""


class HeldBack(NamedTuple):
    """Packets that the generator itself could not send in time."""

    stalled: int
    """Packets held back because the generator stalled."""
    slow: int
    """Packets held back although it did not stall and the wire refused none."""


class Losses(NamedTuple):
    """The places where packets were lost that never came back."""

    in_dut: int
    """Packets lost in the device, by its own counters."""
    in_instrument: int
    """Packets lost in the instrument, by its own counters."""
    where_unknown: int
    """Lost packets that no counter shows."""
    dropped_by_dut: int | None
    """Packets of `in_dut` that the device says it dropped on purpose; None if it does not say."""


def losses_of(
    lost: int, in_instrument: int, counts: DutCounts | None, wire: str, uncounted: int = 0
) -> Losses:
    """Tell where packets were lost, by what was counted."""
    in_instrument = min(lost, in_instrument)
    dropped = dropped_on_purpose(counts)
    by_dut = (dropped or 0) + _drops(counts, wire)
    in_dut = min(lost - in_instrument, max(0, by_dut - uncounted))
    return Losses(
        in_dut,
        in_instrument,
        lost - in_instrument - in_dut,
        None if dropped is None else min(in_dut, max(0, dropped - uncounted)),
    )


def dropped_on_purpose(counts: DutCounts | None) -> int | None:
    """Packets that the device dropped by a rule, or without a route; None if it does not say."""
    if isinstance(counts, SnortCounts):
        return counts.dropped + counts.dropped_by_flow
    if isinstance(counts, SuricataCounts | NftablesCounts | OvsCounts):
        return counts.dropped
    if isinstance(counts, ProgramCounts):
        return sum(sum(lcore.dropped.values()) for lcore in counts.lcores)
    return None


def _drops(counts: DutCounts | None, wire: str) -> int:
    """Packets that the device had no room for, by its own counters."""
    if isinstance(counts, ProgramCounts):
        drops = sum(port.rx_missed + port.rx_nombuf for port in counts.ports)
        return drops + (0 if wire in _SHARED_MEMORY else _full_rings(counts))
    if isinstance(counts, TestpmdCounts):
        drops = sum(port.rx_dropped + port.rx_nombuf + port.rx_errors for port in counts.ports)
        return drops + (0 if wire in _SHARED_MEMORY else _full_rings(counts))
    if isinstance(counts, OvsCounts):
        ports = counts.ports.values()
        drops = sum(port.rx_dropped + port.rx_errors + port.tx_errors for port in ports)
        return counts.lost + drops + (0 if wire in _SHARED_MEMORY else _full_rings(counts))
    if isinstance(counts, KernelCounts | NftablesCounts):
        return _link_drops(counts.links)
    if isinstance(counts, SnortCounts):
        return counts.overflows + _link_drops(counts.links)
    if isinstance(counts, WireguardCounts):
        return _link_drops(counts.links) + counts.near.rx_overflows + counts.far.rx_overflows
    if isinstance(counts, IpsecCounts):
        refused = (end.rx.replayed + end.rx.failed for end in (counts.near, counts.far))
        return _link_drops(counts.links) + sum(refused)
    return _capture_drops(counts.capture) if isinstance(counts, SuricataCounts) else 0


def _link_drops(links: Mapping[str, LinkCounts]) -> int:
    return sum(
        link.rx_dropped + link.tx_dropped + link.rx_errors + link.tx_errors
        for link in links.values()
    )


def full_rings(counts: DutCounts | None, wire: str) -> int:
    """Packets that the device could not hand on because the generator did not take them."""
    if isinstance(counts, ProgramCounts | TestpmdCounts | OvsCounts) and wire in _SHARED_MEMORY:
        return _full_rings(counts)
    return 0


def _full_rings(counts: ProgramCounts | TestpmdCounts | OvsCounts) -> int:
    if isinstance(counts, OvsCounts):
        return sum(port.tx_dropped for port in counts.ports.values())
    if isinstance(counts, TestpmdCounts):
        return sum(port.tx_dropped for port in counts.ports)
    return sum(lcore.tx_dropped for lcore in counts.lcores)


def _capture_drops(counted: Mapping[str, object]) -> int:
    drops = 0
    for name, value in counted.items():
        if isinstance(value, dict):
            drops += _capture_drops(value)
        elif name in _CAPTURE_DROPS and isinstance(value, int):
            drops += value
    return drops


def none_came_text(
    sent: int, losses: Losses, counts: DutCounts | None, *, has_device: bool, foreign: int
) -> str:
    """Say that no packet came back, and what the device's counters show of that."""
    handed_on = 0
    if isinstance(counts, ProgramCounts):
        handed_on = sum(lcore.tx_packets for lcore in counts.lcores)
    elif isinstance(counts, TestpmdCounts):
        handed_on = sum(port.tx_packets for port in counts.ports)
    elif isinstance(counts, OvsCounts):
        handed_on = sum(port.tx_packets for port in counts.ports.values())
    if not has_device or losses.in_instrument:
        text = f"none of {sent:,} packets came back"
    elif handed_on:
        text = f"none of {sent:,} packets came back, although the device counts {handed_on:,} sent"
    else:
        text = f"the device handed on none of {sent:,} packets"
    if losses.dropped_by_dut:
        text += f"; it says that it dropped {losses.dropped_by_dut:,} of them on purpose"
    return text + (f"; {foreign:,} packets came that are none of them" if foreign else "")


def held_back_by_generator(
    unsent_ns: Integers,
    refused: NDArray[np.bool_],
    stall_start_ns: Integers,
    stall_end_ns: Integers,
) -> HeldBack:
    """Count packets that the generator itself could not send in time.

    It is the generator's fault if it stalled for more than half of the time that a packet had, or
    if the wire has refused nothing in that time. Otherwise the wire, or the device behind it, did
    not take them.
    """
    until_ns = unsent_ns + GIVE_UP_NS
    stalled = 2 * covered(unsent_ns, until_ns, stall_start_ns, stall_end_ns) > GIVE_UP_NS
    return HeldBack(int(np.count_nonzero(stalled)), int(np.count_nonzero(~stalled & ~refused)))


def unsent_texts(unsent: int, held_back: HeldBack) -> Sequence[str]:
    """Say why packets were not sent."""
    late = "could not be sent within 10 ms of their time"
    stalled, slow = held_back
    refused = unsent - stalled - slow
    said = (
        (stalled, "the generator stalled, which says nothing of the device"),
        (slow, "the generator is too slow for this rate; the wire has refused none meanwhile"),
        (refused, "the wire, or the device behind it, took fewer than were due"),
    )
    return [f"{count:,} packets {late}: {why}" for count, why in said if count]
