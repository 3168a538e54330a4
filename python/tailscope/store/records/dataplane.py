"""What programs of the data plane and devices under test count: parts of ``run.json``.

The same parts stand in the lines by which ``tailscope-dp`` and the agents of a laboratory say them
(`tailscope.testbed.messages`). Nothing here knows how they are said.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailscope.store.records.base import Count, Section


class CounterClock(Section, frozen=True, kw_only=True):
    """A clock of ticks: a reading, its rate, and the time of that reading."""

    tsc: Count
    tsc_hz: Count
    unix_ns: Count


class LcoreCounts(Section, frozen=True, kw_only=True):
    """What one polling loop counted."""

    lcore: Count
    """As DPDK numbers it."""
    cpu: Count | None
    """None where it may run on several."""
    tid: Count
    """The thread's number, where it runs."""
    iterations: Count
    """Turns of the loop."""
    rx_packets: Count
    tx_packets: Count
    tx_dropped: Count
    """Packets for which the driver had no room."""
    dropped: dict[str, Count]
    """Packets dropped on purpose, by reason."""
    stalls: Count
    stall_ns_total: Count
    stall_ns_max: Count
    stalls_unrecorded: Count


class PassedPackets(Section, frozen=True, kw_only=True):
    """How many packets a forwarder has noted the way of, and for how many it had no room."""

    packets: Count
    lost: Count


class PortCounts(Section, frozen=True, kw_only=True):
    """What one port counted; `xstats` are its driver's own counters."""

    port: Count
    name: str
    driver: str
    rx_packets: Count
    tx_packets: Count
    rx_missed: Count
    rx_errors: Count
    rx_nombuf: Count
    tx_errors: Count
    link_down_count: Count
    xstats: dict[str, int]


class ProgramCounts(Section, frozen=True, kw_only=True, tag_field="program"):
    """What every program of the data plane says at its end."""

    complete: bool
    """Whether it did all that it was asked for."""
    hugepages: bool
    """Whether its memory is in huge pages."""
    started_tsc: Count
    duration_ns: Count
    """When its ports were there, and for how long it ran from then on."""
    lcores: list[LcoreCounts]
    ports: list[PortCounts]


class DirectionCounts(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the packets of a generator in one direction."""

    sent: Count
    matched: Count
    """Packets of the measurement that left, and those of them that came back."""
    unsent: Count
    """Packets that could not leave within 10 ms of their time."""
    duplicated: Count
    corrupt: Count
    foreign: Count
    ambiguous: Count
    """Packets that arrived again, damaged, from elsewhere, or could be one of several."""
    unrecorded: Count
    """Packets that arrived when there was no more room to record them."""
    warm_up_sent: Count
    warm_up_received: Count
    """Those of the warm-up."""
    rate_pps: Count | None = None
    """Of a pattern."""
    replayed: Count | None = None
    ambiguous_sent: Count | None = None
    """Frames of a capture that was sent again, and those of them that are alike."""
    sent_bytes: Count | None = None
    """Of all frames that left, check sequences included. Older versions do not say."""


class GeneratedTraffic(DirectionCounts, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the packets of a generator."""

    back: DirectionCounts | None = None
    """Those that travelled the other way, where some did."""


class TapCounts(Section, frozen=True, kw_only=True):
    """What was recorded of one tap."""

    file: str
    """The capture."""
    received: Count
    written: Count
    """Frames that came, and that the capture has."""
    ring_full: Count
    unstamped: Count
    """Frames left out because the writer was behind, or the port gave them no time."""

    @property
    def missed(self) -> int:
        """Frames that came and were not written."""
        return self.ring_full + self.unstamped


class StampedTaps(Section, frozen=True, kw_only=True):
    """What was recorded of the taps on both sides of a device; `timestamps` says by which clock."""

    timestamps: Literal["nic-hardware", "tsc"]
    pre: TapCounts
    post: TapCounts


class SocketCounts(Section, frozen=True, kw_only=True):
    """What was recorded of one link of the kernel."""

    file: str
    """The capture."""
    received: Count
    written: Count
    """Frames that came, and that the capture has."""
    dropped: Count
    unstamped: Count
    """Frames left out because the ring was full, or the card gave them no time."""
    foreign: Count
    """Frames left out because no generator of tailscope has sent them."""

    @property
    def missed(self) -> int:
        """Frames that the capture should have, and has not."""
        return self.dropped + self.unstamped


class SocketLinks(Section, frozen=True, kw_only=True):
    """What was recorded of links on both sides of a device; `timestamps` says who took times."""

    timestamps: Literal["kernel-hardware", "kernel-software"]
    pre: SocketCounts
    post: SocketCounts


class ForwardedPairs(Section, frozen=True, kw_only=True):
    """By which port packets of each port leave."""

    pairs: list[tuple[Count, Count]]


class RouteCount(Section, frozen=True, kw_only=True):
    """How many routes there are."""

    routes: Count


class DelayTruth(Section, frozen=True, kw_only=True):
    """How often the device did what on purpose, and how many packets it held at most."""

    injected: Count
    disturbed: Count
    held_most: Count | None


class WorkTruth(Section, frozen=True, kw_only=True):
    """How many batches the device has worked on, and how many packets the largest had."""

    batches: Count
    batch_most: Count


class WatchTruth(Section, frozen=True, kw_only=True):
    """How often loops without packets were disturbed on purpose."""

    disturbed: Count


class GeneratorCounts(ProgramCounts, frozen=True, kw_only=True, tag="gen"):
    """What a generator counted."""

    gen: GeneratedTraffic


class L2fwdCounts(ProgramCounts, frozen=True, kw_only=True, tag="l2fwd"):
    """What the forwarder between ports counted."""

    l2fwd: ForwardedPairs


class L3fwdCounts(ProgramCounts, frozen=True, kw_only=True, tag="l3fwd"):
    """What the router counted."""

    l3fwd: RouteCount


class DelayCounts(ProgramCounts, frozen=True, kw_only=True, tag="delay"):
    """What the device with a known law counted."""

    delay: DelayTruth


class WorkCounts(ProgramCounts, frozen=True, kw_only=True, tag="work"):
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
