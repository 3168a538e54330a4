"""What ``run.json`` keeps of what programs of the data plane and devices under test counted.

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
    """What a generator counted."""

    gen: GeneratedTraffic


class L2fwdCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="l2fwd"):
    """What the forwarder between ports counted."""

    l2fwd: ForwardedPairs


class L3fwdCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="l3fwd"):
    """What the router counted."""

    l3fwd: RouteCount


class DelayCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="delay"):
    """What the device with a known law counted."""

    delay: DelayTruth


class WorkCounts(ProgramCounts, frozen=True, kw_only=True, tag_field="program", tag="work"):
    """What the device with a known capacity counted."""

    work: WorkTruth


class LinkCounts(Section, frozen=True, kw_only=True):
    """What the kernel counted at one link."""

    rx_packets: Count
    tx_packets: Count
    rx_errors: Count
    tx_errors: Count
    rx_dropped: Count
    tx_dropped: Count


class KernelCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="kernel"):
    """What the links of a device of the kernel counted."""

    links: dict[str, LinkCounts]


class RuleCounts(Section, frozen=True, kw_only=True):
    """What a rule of nftables counted."""

    chain: str
    """Family, table and chain."""
    handle: Count
    """Its number there, as ``nft --handle list ruleset`` shows it."""
    comment: str | None
    verdict: str | None
    """What its author says of it, and the last thing it does."""
    packets: Count
    bytes: Count
    """Those that met it, the warm-up included; of a translation, the first of each connection."""


class NftablesCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="nftables"):
    """What links and rules of nftables counted."""

    links: dict[str, LinkCounts]
    rules_loaded: Count
    """Rules that there were."""
    rules: list[RuleCounts]
    """Those with a counter that packets met."""
    dropped: Count | None
    """Packets that rules dropped or rejected; None if a rule drops without counting, or a policy.
    """


class WireguardEndCounts(Section, frozen=True, kw_only=True):
    """What one end of a tunnel of WireGuard counted."""

    rx_bytes: Count
    tx_bytes: Count
    """Of encrypted packets, handshakes and all else that ends say to each other included."""
    rx_overflows: Count
    """Encrypted packets for which the end's socket had no room; none ever, of the kernel's own."""
    last_handshake_unix_s: Count
    """When both ends have last agreed on how to encrypt."""


class WireguardCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="wireguard"):
    """What links and both ends of a tunnel of WireGuard counted."""

    links: dict[str, LinkCounts]
    """Its ports, those between its gateways, and those of the tunnel."""
    near: WireguardEndCounts
    far: WireguardEndCounts
    """At the first port, and at the second."""


class EspCounts(Section, frozen=True, kw_only=True):
    """What one end of a tunnel of IPsec counted of one direction."""

    packets: Count
    bytes: Count
    """Those that were encrypted, or decrypted."""
    replayed: Count
    failed: Count
    """Packets that were refused: for their number, or because they were not whole."""


class IpsecEndCounts(Section, frozen=True, kw_only=True):
    """What one end of a tunnel of IPsec counted."""

    rx: EspCounts
    tx: EspCounts


class IpsecCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="ipsec"):
    """What links and both ends of a tunnel of IPsec counted."""

    links: dict[str, LinkCounts]
    """Its ports, and those between its gateways."""
    near: IpsecEndCounts
    far: IpsecEndCounts
    """At the first port, and at the second."""


class SuricataCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="suricata"):
    """What Suricata counted."""

    dropped: Count
    accepted: Count
    alerts: Count
    """Verdicts on packets, and alerts."""
    capture: dict[str, object]
    """What its capture method counted, as Suricata has it."""
    drop_reasons: dict[str, Count]
    """Those that are not 0."""
    rules_loaded: Count | None = None
    rules_failed: Count | None = None
    """Rules that it has, and that it could not read; None in runs of before."""


class SnortCounts(
    Section, frozen=True, kw_only=True, omit_defaults=True, tag_field="program", tag="snort"
):
    """Verdicts of Snort's packet module; None where it printed none."""

    dropped: Count | None = None
    dropped_by_flow: Count | None = None
    accepted: Count | None = None


class TestpmdPortCounts(Section, frozen=True, kw_only=True):
    """What testpmd counted at one port; `tx_dropped` are packets for which a driver had no room."""

    port: Count
    rx_packets: Count
    tx_packets: Count
    rx_errors: Count
    rx_dropped: Count
    rx_nombuf: Count
    tx_dropped: Count


class TestpmdCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="testpmd"):
    """What testpmd counted, port by port."""

    ports: list[TestpmdPortCounts]


class OvsThreadCounts(Section, frozen=True, kw_only=True):
    """What a thread of Open vSwitch counted that forwards."""

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
    """Of the processor, without packets and with them; 0 of a thread that sleeps."""


class OvsCounts(Section, frozen=True, kw_only=True, tag_field="program", tag="ovs"):
    """What Open vSwitch counted."""

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
    """What a device counted that says nothing."""


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
