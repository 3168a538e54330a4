"""Counters of the data plane's programs and of devices under test, as ``run.json`` has them.

Of a program of ``tailscope-dp`` it is part of its result (`tailscope.store.records.messages`).
"""

from __future__ import annotations

from typing import TypeAlias

from tailscope.store.records.base import Count, Section
from tailscope.store.records.messages import (
    DelayTruth,
    ForwardedPairs,
    GeneratedTraffic,
    ProgramCounts,
    RouteCount,
    WorkTruth,
)


class GeneratorCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="gen"):
    """Counters of a generator."""

    gen: GeneratedTraffic


class L2fwdCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="l2fwd"):
    """Counters of the forwarder between ports."""

    l2fwd: ForwardedPairs


class L3fwdCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="l3fwd"):
    """Counters of the router."""

    l3fwd: RouteCount


class DelayCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="delay"):
    """Counters of the device with a known law."""

    delay: DelayTruth


class WorkCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="work"):
    """Counters of the device with a known capacity."""

    work: WorkTruth


class LinkCounts(Section, frozen=True, kw_only=True):
    """Counters of the kernel at one link."""

    rx_packets: Count
    tx_packets: Count
    rx_errors: Count
    tx_errors: Count
    rx_dropped: Count
    tx_dropped: Count


class KernelCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="kernel"):
    """Counters of the links of a device of the kernel."""

    links: dict[str, LinkCounts]


class RuleCounts(Section, frozen=True, kw_only=True):
    """Counters of a rule of nftables."""

    chain: str
    """Family, table and chain."""
    handle: Count
    """Its number there, as ``nft --handle list ruleset`` shows it."""
    comment: str | None
    verdict: str | None
    """Comment and final statement of the rule."""
    packets: Count
    bytes: Count
    """Those that met it, the warm-up included; of a translation, the first of each connection."""


class NftablesCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="nftables"):
    """Counters of links and rules of nftables."""

    links: dict[str, LinkCounts]
    rules_loaded: Count
    """Rules that there were."""
    rules: list[RuleCounts]
    """Those with a counter that packets met."""
    dropped: Count | None
    """Packets that rules dropped or rejected; None if a rule drops without counting, or a policy.
    """


class WireguardEndCounts(Section, frozen=True, kw_only=True):
    """Counters of one end of a tunnel of WireGuard."""

    rx_bytes: Count
    tx_bytes: Count
    """Bytes of encrypted packets, including handshakes and other messages between the ends."""
    rx_overflows: Count
    """Encrypted packets for which the end's socket had no room; none ever, of the kernel's own."""
    last_handshake_unix_s: Count
    """Time of the last handshake."""


class WireguardCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="wireguard"):
    """Counters of links and both ends of a tunnel of WireGuard."""

    links: dict[str, LinkCounts]
    """Its ports, those between its gateways, and those of the tunnel."""
    near: WireguardEndCounts
    far: WireguardEndCounts
    """Ends of the tunnel at the first port and at the second."""


class EspCounts(Section, frozen=True, kw_only=True):
    """Counters of one direction at one end of a tunnel of IPsec."""

    packets: Count
    bytes: Count
    """Those that were encrypted, or decrypted."""
    replayed: Count
    failed: Count
    """Packets that were refused: for their number, or because they were not whole."""


class IpsecEndCounts(Section, frozen=True, kw_only=True):
    """Counters of one end of a tunnel of IPsec."""

    rx: EspCounts
    tx: EspCounts


class IpsecCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="ipsec"):
    """Counters of links and both ends of a tunnel of IPsec."""

    links: dict[str, LinkCounts]
    """Its ports, and those between its gateways."""
    near: IpsecEndCounts
    far: IpsecEndCounts
    """Ends of the tunnel at the first port and at the second."""


class SuricataCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="suricata"):
    """Counters of Suricata."""

    dropped: Count
    accepted: Count
    alerts: Count
    """Verdicts on packets, and alerts."""
    capture: dict[str, object]
    """Counters of the capture method, as Suricata names them."""
    drop_reasons: dict[str, Count]
    """Those that are not 0."""
    rules_loaded: Count | None = None
    rules_failed: Count | None = None
    """Rules that it has, and that it could not read; None in runs of before."""


class SnortCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="snort"):
    """Counters of Snort."""

    received: Count
    overflows: Count
    """Packets that its packet module received, and those for which there was no room."""
    accepted: Count
    dropped: Count
    dropped_by_flow: Count
    """Verdicts on packets."""
    links: dict[str, LinkCounts]
    """Its links of the kernel; none with DPDK."""


class TestpmdPortCounts(Section, frozen=True, kw_only=True):
    """Counters of testpmd at one port; `tx_dropped` are packets for which a driver had no room."""

    port: Count
    rx_packets: Count
    tx_packets: Count
    rx_errors: Count
    rx_dropped: Count
    rx_nombuf: Count
    tx_dropped: Count


class TestpmdCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="testpmd"):
    """Counters of testpmd, by port."""

    ports: list[TestpmdPortCounts]


class OvsThreadCounts(Section, frozen=True, kw_only=True):
    """Counters of a forwarding thread of Open vSwitch."""

    received: Count
    """Packets."""
    exact_match_hits: Count
    signature_match_hits: Count
    simple_match_hits: Count
    megaflow_hits: Count
    """Packets whose flow each of its caches had."""
    misses: Count
    lost: Count
    """Packets whose flow was asked for, and those for which that failed."""
    idle_cycles: Count
    processing_cycles: Count
    """Processor cycles without packets and with packets; 0 for a thread that sleeps."""


class OvsCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="ovs"):
    """Counters of Open vSwitch."""

    ports: dict[str, LinkCounts]
    threads: dict[str, OvsThreadCounts]
    """Those that forwarded."""
    flows: Count
    """Flows that it was told."""
    dropped: Count
    """Packets that flows with the action ``drop`` dropped."""
    lost: Count
    """Packets that its datapath lost because nobody said in time what to do with them."""


class NoCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="none"):
    """Counters of a device that reports none."""


ForwarderCounts: TypeAlias = L2fwdCounts | L3fwdCounts | DelayCounts | WorkCounts
DutCounts: TypeAlias = (
    ForwarderCounts
    | KernelCounts
    | NftablesCounts
    | WireguardCounts
    | IpsecCounts
    | OvsCounts
    | SuricataCounts
    | SnortCounts
    | TestpmdCounts
    | NoCounts
)
