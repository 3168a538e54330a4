"""What ``tailscope-dp`` says, one JSON object a line; ``run.json`` keeps parts of it.

``make messages`` generates this file from the Rust structs in ``crates/messages``: edit those.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from tailscope.store.records.base import Section

Count: TypeAlias = Annotated[int, Meta(ge=0, le=9_223_372_036_854_775_807)]
"""A whole number that is not negative: a count, a duration in ns, or a time in ns since 1970."""

State: TypeAlias = Literal["warm-up", "measuring", "draining", "forwarding", "recording", "writing"]
"""What a program does."""

StampClock: TypeAlias = Literal["nic-hardware", "tsc"]
"""The clock by which taps are recorded."""

SocketClock: TypeAlias = Literal["kernel-hardware", "kernel-software"]
"""The clock by which links are recorded."""

StallCause: TypeAlias = Literal[
    "unknown", "stopped", "throttled", "preempted", "paged", "busy", "clock-step", "waited"
]
"""What kept a loop between two hosts from running."""

DepartedBy: TypeAlias = Literal["queue", "program"]
"""Who lets a query wait until its time."""


class ProgramCounts(Section, frozen=True, kw_only=True):
    """What every program with ports counts."""

    complete: bool
    """Whether it did all that it was asked for."""
    hugepages: bool
    """Whether its memory is in huge pages."""
    started_tsc: Count
    """When its ports were there, in ticks."""
    duration_ns: Count
    """How long it ran from then on."""
    lcores: list[LcoreCounts]
    """Its polling loops."""
    ports: list[PortCounts]
    """Its ports."""


class ReadyLcore(Section, frozen=True, kw_only=True):
    """A thread that will poll."""

    lcore: Count
    """The number that DPDK gives it."""
    cpu: Count | None
    """Its CPU; null if it may run on several."""


class LcoreCounts(ReadyLcore, frozen=True, kw_only=True):
    """What one polling loop counted."""

    tid: Count
    """The number of its thread."""
    iterations: Count
    """Turns of the loop."""
    rx_packets: Count
    """Packets received."""
    tx_packets: Count
    """Packets that a transmit ring took."""
    tx_dropped: Count
    """Packets for which the driver had no room."""
    dropped: dict[str, Count]
    """Packets dropped on purpose, by reason."""
    stalls: Count
    """Stalls: turns that took too long."""
    stall_ns_total: Count
    """Total duration of the stalls."""
    stall_ns_max: Count
    """Duration of the longest stall."""
    stalls_unrecorded: Count
    """Stalls for which there was no more room in the log."""


class PortCounts(Section, frozen=True, kw_only=True):
    """What one port counted."""

    port: Count
    """The number that DPDK gives it."""
    name: str
    """The device's name."""
    driver: str
    """The device's driver."""
    rx_packets: Count
    """Packets received."""
    tx_packets: Count
    """Packets sent."""
    rx_missed: Count
    """Packets for which the receive ring had no room."""
    rx_errors: Count
    """Packets received that were damaged."""
    rx_nombuf: Count
    """Packets for which there was no buffer."""
    tx_errors: Count
    """Packets that could not be sent."""
    link_down_count: Count
    """How often its link went down."""
    xstats: dict[str, Annotated[int, Meta(ge=0)]]
    """The driver's own counters."""


class CounterClock(Section, frozen=True, kw_only=True):
    """A clock of ticks: a reading, its rate, and the time of that reading."""

    tsc: Count
    """The reading, in ticks."""
    tsc_hz: Count
    """Ticks per second."""
    unix_ns: Count
    """The Unix time of the reading."""


class ReadyPort(Section, frozen=True, kw_only=True):
    """A port that was found."""

    port: Count
    """The number that DPDK gives it."""
    name: str
    """The device's name."""
    driver: str
    """The device's driver."""
    mac: str
    """The device's MAC address."""
    link_up: bool
    """Whether its link is up."""


class ReadyEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The ports are there: the program forwards, or sends."""

    program: str
    """The program's name."""
    version: str
    """The version of tailscope."""
    dpdk: str
    """The version of DPDK."""
    pid: Count
    """The process's number."""
    clock: CounterClock
    """The clock of all its ticks."""
    lcores: list[ReadyLcore]
    """The threads that will poll."""
    ports: list[ReadyPort]
    """The ports that were found."""


class RecordingReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """A program without DPDK records from now on."""

    program: str
    """The program's name."""
    version: str
    """The version of tailscope."""
    pid: Count
    """The process's number."""
    udp_port: Count | None
    """The port of UDP at which it listens; null if it does not."""


class ErrorEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """Why a program cannot run."""

    code: str
    """Name of what is wrong, in kebab case; stable, unlike the message."""
    message: str
    """What is wrong."""
    hint: str | None
    """What to do about it, if that is known."""


class ProgressEvent(
    Section, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="progress"
):
    """How far a program is, once a second."""

    elapsed_s: float
    """Time since the program began."""
    state: State
    """What it does."""
    rx_packets: Count
    """Packets received."""
    stalls: Count
    """Stalls of its loops."""
    recorded: Count = 0
    """Values that were recorded; 0 before they are written."""
    written: Count = 0
    """Values that are written."""


class GeneratorProgress(ProgressEvent, frozen=True, kw_only=True, omit_defaults=True):
    """How far a generator is; its latencies are rough."""

    tx_packets: Count
    """Packets that a transmit ring took."""
    stall_ns_total: Count
    """Total duration of the stalls."""
    stall_ns_max: Count
    """Duration of the longest stall."""
    sent: Count
    """Packets of the measurement that left."""
    received: Count
    """Packets of the measurement that came back."""
    unsent: Count
    """Packets that could not leave within 10 ms of their time."""
    latency_ns_p50: Count | None = None
    """The median."""
    latency_ns_p999: Count | None = None
    """The quantile 0.999."""
    latency_ns_max: Count | None = None
    """The longest."""
    latency_ns_sum: Count | None = None
    """The sum of all."""
    latency_ns_buckets: list[tuple[Count, Count]]
    """Buckets that are at most 3 % wide: the least latency of each, and its packets."""


class LoopProgress(ProgressEvent, frozen=True, kw_only=True):
    """How far a forwarder is, or loops without packets."""

    tx_packets: Count
    """Packets that a transmit ring took."""
    tx_dropped: Count
    """Packets for which the driver had no room."""
    stall_ns_max: Count
    """Duration of the longest stall."""


class StampProgress(ProgressEvent, frozen=True, kw_only=True):
    """How far the recorder of two taps is."""


class TapKey(Section, frozen=True, kw_only=True, tag_field="event", tag="matching"):
    """The key by which packets of two links are matched from now on."""

    match_on: str
    """The key's name."""


class TapSecond(Section, frozen=True, kw_only=True, tag_field="event", tag="second"):
    """What became of the packets that came in by one link in one second."""

    start_unix_ns: Count
    """The begin of the second, since 1970."""
    sent: Count
    """Packets that were to leave by the other link."""
    matched: Count
    """Packets that did within the window."""
    lost: Count
    """Packets that did not."""
    late: Count
    """Packets that were lost in seconds before, and left behind their window."""
    unresolved: Count
    """Packets of which nobody knows, because frames were missed when they should have left."""
    ambiguous: Count
    """Packets that may be one of several."""
    missed_pre: Count
    """Frames of the link by which packets come that were missed."""
    missed_post: Count
    """Frames of the link by which they leave that were missed."""
    latency_ns_quantiles: list[Count]
    """The quantiles of the latency that were asked for; none without a match."""
    latency_ns_max: Count | None
    """The longest."""
    beyond: list[Count]
    """Packets that took as long as each limit that was asked for, or longer, of those that matched.
    """
    latency_ns_sum: Count
    """The sum of all."""
    latency_ns_buckets: list[tuple[Count, Count]]
    """Buckets that are at most 3 % wide: the least latency of each, and its packets."""
    lost_flows: list[tuple[str, Count]]
    """The flows of most lost packets."""


class DirectionCounts(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the packets of a generator in one direction."""

    sent: Count
    """Packets of the measurement that left."""
    matched: Count
    """Packets of the measurement that came back."""
    unsent: Count
    """Packets that could not leave within 10 ms of their time."""
    duplicated: Count
    """Packets that arrived again."""
    corrupt: Count
    """Packets that arrived damaged."""
    foreign: Count
    """Packets that arrived from elsewhere."""
    ambiguous: Count
    """Packets that arrived and could be one of several."""
    unrecorded: Count
    """Arrivals, and packets that did not leave, which found no room to be recorded."""
    unrecorded_sent: Count = 0
    """Packets that left while the recorder was behind: nothing else is known of them, and no figure
    has them."""
    unrecorded_received: Count = 0
    """Arrivals of those."""
    warm_up_sent: Count
    """Packets of the warm-up that left."""
    warm_up_received: Count
    """Packets of the warm-up that came back."""
    rate_pps: Count | None = None
    """Packets per second of a pattern."""
    replayed: Count | None = None
    """Frames of a capture that was sent again."""
    ambiguous_sent: Count | None = None
    """Frames of that capture that are alike."""
    sent_bytes: Count | None = None
    """Bytes of all frames that left, with check sequences. Older versions do not say."""


class GeneratedTraffic(DirectionCounts, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the packets of a generator."""

    back: DirectionCounts | None = None
    """Packets that travelled the other way, if some did."""


class StampedTaps(Section, frozen=True, kw_only=True):
    """What was recorded of the taps on both sides of a device."""

    timestamps: StampClock
    """The clock of the captures."""
    pre: TapCounts
    """The tap before the device."""
    post: TapCounts
    """The tap behind it."""


class TapCounts(Section, frozen=True, kw_only=True):
    """What was recorded of one tap."""

    file: str
    """The capture."""
    received: Count
    """Frames that came."""
    written: Count
    """Frames that the capture has."""
    ring_full: Count
    """Frames left out because the writer was behind."""
    unstamped: Count
    """Frames left out because the port gave them no time."""


class ForwardedPairs(Section, frozen=True, kw_only=True):
    """By which port packets of each port leave."""

    pairs: list[tuple[Count, Count]]
    """A port, and the one by which its packets leave."""


class PassedPackets(Section, frozen=True, kw_only=True):
    """How many packets a forwarder has noted the way of."""

    packets: Count
    """Packets whose way was noted."""
    lost: Count
    """Packets for which there was no more room."""


class RouteCount(Section, frozen=True, kw_only=True):
    """How many routes there are."""

    routes: Count
    """Routes of both families; 0 if everything goes to the partner port."""


class DelayTruth(Section, frozen=True, kw_only=True):
    """What a device with a known law did on purpose."""

    injected: Count
    """How often it stalled."""
    disturbed: Count
    """How often its CPU was disturbed."""
    held_most: Count | None
    """How many packets it held at most."""


class WorkTruth(Section, frozen=True, kw_only=True):
    """What a device with a known capacity has worked on."""

    batches: Count
    """Batches."""
    batch_most: Count
    """Packets of the largest batch."""


class WatchTruth(Section, frozen=True, kw_only=True):
    """What was done on purpose to loops without packets."""

    disturbed: Count
    """How often their CPU was disturbed."""


class ResultEvent(ProgramCounts, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """What came out, at the end."""

    clock: CounterClock
    """The clock of all its ticks."""
    partial: list[str]
    """Why it is not all that was asked for."""
    record: list[str]
    """The files that it has written."""
    monitor_tid: Count
    """The number of the thread that watched its links and told how far it was; 0 without one."""
    recorder_tid: Count = 0
    """The number of the thread that wrote its recording meanwhile; 0 without one."""


class GeneratorResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of a generator."""

    program: Literal["gen"]
    gen: GeneratedTraffic
    """What became of its packets."""


class StampResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of the recorder of two taps."""

    program: Literal["stamp"]
    stamp: StampedTaps
    """What was recorded."""


class L2fwdResult(ResultEvent, frozen=True, kw_only=True, omit_defaults=True):
    """What came out of the forwarder between ports."""

    program: Literal["l2fwd"]
    l2fwd: ForwardedPairs
    """Where packets went."""
    stages: PassedPackets | None = None
    """What it has written down of the way of packets, if that was wanted."""


class L3fwdResult(ResultEvent, frozen=True, kw_only=True, omit_defaults=True):
    """What came out of the router."""

    program: Literal["l3fwd"]
    l3fwd: RouteCount
    """Where packets could go."""
    stages: PassedPackets | None = None
    """What it has written down of the way of packets, if that was wanted."""


class DelayResult(ResultEvent, frozen=True, kw_only=True, omit_defaults=True):
    """What came out of the device with a known law."""

    program: Literal["delay"]
    delay: DelayTruth
    """What it did on purpose."""
    stages: PassedPackets | None = None
    """What it has written down of the way of packets, if that was wanted."""


class WorkResult(ResultEvent, frozen=True, kw_only=True, omit_defaults=True):
    """What came out of the device with a known capacity."""

    program: Literal["work"]
    work: WorkTruth
    """What it has worked on."""
    stages: PassedPackets | None = None
    """What it has written down of the way of packets, if that was wanted."""


class WatchResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of loops without packets."""

    program: Literal["watch"]
    watch: WatchTruth
    """What was done to them on purpose."""


class FollowedFlow(Section, frozen=True, kw_only=True):
    """What became of the packets of a flow."""

    ways: list[FlowWay]
    """The ways that packets went."""
    drops: list[FlowDrop]
    """Reasons for which packets were dropped, the most frequent first."""
    merged: Count
    """Packets that became a part of another one when they arrived."""
    segmented: Count
    """Packets that the kernel divided before it sent them."""
    acknowledgements: Count
    """Packets of TCP without bytes whose end was not told, as TCP joins acknowledgements to others.
    """
    waiting: Count
    """Packets that still waited in the queue of a socket in the end."""
    late: Count
    """Packets that were not seen where their way begins."""
    unended: Count
    """Packets whose end was not seen."""


class FlowWay(Section, frozen=True, kw_only=True):
    """The packets that went one way through the kernel."""

    way: str
    """The way: `received` by a program, taken by the `kernel` itself, `forwarded`, or `sent`."""
    packets: Count
    """Packets whose begin and end were seen."""
    whole: Count
    """Packets of these that were seen at every point between, too."""
    latency_ns_quantiles: list[Count]
    """The p50, p90, p99 and p99.9 of the time from the first point to the last, of all packets."""
    latency_ns_max: Count
    """The longest."""
    latency_ns_total: Count
    """The sum over packets that were seen at every point: that of the stages."""
    stages: list[FlowStage]
    """The stages, in order."""
    tail_packets: Count
    """Packets in the tail: the slowest thousandth, but at least 10 and at most 4096."""
    tail_whole: Count
    """Packets of the tail that were seen at every point."""
    slowest: list[FlowPacket]
    """The slowest packets, slowest first."""


class FlowStage(Section, frozen=True, kw_only=True):
    """Times of packets in one stage of their way."""

    stage: str
    """The stage."""
    ns_quantiles: list[Count]
    """Its p50, p90, p99 and p99.9: lower edges of buckets that are at most 3 % wide."""
    ns_max: Count
    """The longest."""
    ns_total: Count
    """The sum over all packets that were seen at every point."""
    tail_ns_total: Count
    """The sum over those of the tail."""


class FlowPacket(Section, frozen=True, kw_only=True):
    """One of the slowest packets of a way."""

    begin_unix_ns: Count
    """When its way began, since 1970."""
    latency_ns: Count
    """How long it took."""
    stages_ns: list[Count]
    """How long it was in each stage of the way; nothing if it was not seen at every point."""


class FlowDrop(Section, frozen=True, kw_only=True):
    """Packets that the kernel dropped for one reason."""

    reason: str
    """The kernel's name of the reason."""
    stage: str
    """The stage in which that was; `link` is a driver that sends, `unknown` a packet not seen
    before."""
    packets: Count
    """How many there were."""


class FlowCost(Section, frozen=True, kw_only=True):
    """What it cost to follow packets."""

    calls: Count
    """Calls of the BPF programs, for whatever packet."""
    ns_total: Count
    """How long they took in all."""
    missed: Count
    """Calls that the kernel left out, as they would have interrupted themselves."""
    lost: Count
    """Events for which the kernel's buffer had no room."""
    duration_ns: Count
    """How long packets were followed."""
    lacking: list[str]
    """Tracepoints that this kernel lacks."""


class XdpProgram(Section, frozen=True, kw_only=True):
    """An XDP program that ran meanwhile."""

    id: Count
    """Its number on this machine."""
    name: str
    """Its name."""
    calls: Count
    """How often it ran, for whatever packet."""
    ns_total: Count
    """How long it ran in all."""


class SocketLinks(Section, frozen=True, kw_only=True):
    """What was recorded of links on both sides of a device."""

    timestamps: SocketClock
    """The clock of the captures."""
    pre: SocketCounts
    """The link before the device."""
    post: SocketCounts
    """The link behind it."""


class SocketCounts(Section, frozen=True, kw_only=True):
    """What was recorded of one link of the kernel."""

    file: str
    """The capture."""
    received: Count
    """Frames that came."""
    written: Count
    """Frames that the capture has."""
    dropped: Count
    """Frames left out because the kernel's ring was full."""
    unstamped: Count
    """Frames left out because the card gave them no time."""
    foreign: Count
    """Frames left out because no generator of tailscope has sent them."""


class TappedLinks(Section, frozen=True, kw_only=True):
    """What was heard of two links."""

    pre: TappedLink
    """The link by which packets come."""
    post: TappedLink
    """The link by which they leave."""
    flows: list[TappedFlow]
    """Figures of each flow, those of the most packets first."""
    joined: bool
    """Whether packets were known again behind the device: else there are no figures."""
    unwritten: Count
    """Captures around the worst packets that could not be written."""


class TappedLink(Section, frozen=True, kw_only=True):
    """What was heard of one link."""

    link: str
    """The link."""
    received: Count
    """Frames that came."""
    dropped: Count
    """Frames for which the kernel's ring had no room."""
    late: Count
    """Frames that the kernel handed over when their time was decided about already."""
    unstamped: Count
    """Frames of which the card took no time, where it is to take them."""
    downs: Count
    """How often the link went down."""


class TappedFlow(Section, frozen=True, kw_only=True):
    """What became of the packets of one flow."""

    flow: str
    """The flow's name."""
    sent: Count
    """Packets that were to leave by the other link."""
    matched: Count
    """Packets that did."""
    lost: Count
    """Packets that did not."""
    unseen: Count
    """Of those, packets of a flow that never appears behind the device: they may go elsewhere."""
    latency_ns_p50: Count | None
    """The median of the latency; null without a match, or with too many flows to keep it."""
    latency_ns_p99: Count | None
    """The quantile 0.99, likewise."""
    latency_ns_max: Count | None
    """The longest."""


class Reflected(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the queries that a reflector got."""

    port: Count
    """The port at which it listened."""
    received: Count
    """Packets that came."""
    answered: Count
    """Packets that it answered."""
    refused_source: Count
    """Packets from addresses that are not allowed."""
    refused_port: Count
    """Packets from ports of services."""
    refused_rate: Count
    """Packets beyond the rate that a source may send at."""
    refused_key: Count
    """Packets that are not sealed by its key."""
    malformed: Count
    """Packets that are no query, or too short to be answered."""
    unsent: Count
    """Answers that the system did not take."""
    dropped: Count
    """Packets for which its socket had no room."""
    sessions: Count
    """Sessions that began."""
    clock_steps: Count
    """How often its clock was set."""
    card: CardClock | None = None
    """The clock of the card that took the times of packets; absent if the kernel did."""
    stalls: list[CausedStalls]
    """What kept its loop from running."""


class CardClock(Section, frozen=True, kw_only=True):
    """The clock of a card that took the times of packets."""

    link: str
    """The card's link."""
    rate_ppb: Annotated[int, Meta()]
    """What it gains on the clock of its machine, in ns per second."""
    residual_ns: Count
    """The most that it was away from where it was expected, whenever it was read."""
    width_ns: Count
    """The most that a reading took."""
    readings: Count
    """How often it was read."""
    steps: Count
    """How often it was set meanwhile."""


class CausedStalls(Section, frozen=True, kw_only=True):
    """Stalls of a loop that have one cause."""

    cause: StallCause
    """The cause."""
    count: Count
    """How many there were."""
    stall_ns_total: Count
    """How long they took in all."""
    stall_ns_max: Count
    """How long the longest took."""


class SentQueries(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the queries to another host."""

    sent: Count
    """Queries that left."""
    unsent: Count
    """Queries that could not leave within 10 ms of their time, or that the system did not take."""
    unsent_refused: Count
    """Of those, queries that the system did not take."""
    received: Count
    """Answers that came."""
    foreign: Count
    """Packets that are no answer to a query of this session."""
    wrong_key: Count
    """Packets that are not sealed by the sender's key."""
    dropped: Count
    """Answers for which a socket of the sender had no room."""
    refusals: Count
    """Errors that somebody on the way, or the other end, reported."""
    stamped: Count
    """Queries of which the kernel, or the card, said when they left."""
    frame_bytes_min: Count | None = None
    """Bytes of the shortest frame that carries a query, check sequence included; absent in earlier
    runs."""
    frame_bytes_max: Count | None = None
    """Bytes of the longest one."""
    departed_by: DepartedBy
    """Who let queries wait until their time."""
    card: CardClock | None = None
    """The clock of the card that took the times of packets; absent if the kernel did."""
    ports: list[Count]
    """The source port of each flow."""
    clock: HostClock
    """The sender's clock."""
    reflector_clock: HostClock
    """The clock of the reflector."""
    reflector: ToldByReflector | None
    """What the reflector told of itself; null if it is none of tailscope."""
    run_delay_us: Count
    """How long the sender's loop waited for a CPU."""
    throttled_us: Count
    """How long its control group was throttled."""
    handling_ns: Count | None = None
    """How long the sender's kernel keeps a query that has left, as it says; absent if that is not
    known."""
    stalls: list[CausedStalls]
    """What kept the sender's loop from running."""
    record: list[str]
    """The files of the recording."""


class HostClock(Section, frozen=True, kw_only=True):
    """How far a clock may be off, as its machine says."""

    synchronised: bool
    """Whether it followed UTC by an external source all the time."""
    error_ns_max: Count
    """The most that it was off by."""
    steps: Count
    """How often it was set."""


class ToldByReflector(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What the reflector told in its answers."""

    same_clock: bool
    """True if it runs on the same kernel as the sender: both have one clock."""
    dropped: Count
    """Packets for which its socket had no room meanwhile, of any sender."""
    refused: Count
    """Packets of this sender that it refused, as they came too fast."""
    unsent: Count
    """Answers to this sender that the reflector's system did not take."""
    stalls: Count
    """Stalls of its loop."""
    stalls_untold: Count
    """Stalls of which no answer told more."""
    run_delay_us: Count
    """How long its loop waited for a CPU."""
    throttled_us: Count
    """How long its control group was throttled."""
    handling_ns: Count | None = None
    """How long its kernel keeps an answer that has left, as it says; absent if that is not known.
    """
    card_error_ns: Count | None = None
    """How far times of its card may be off its clock; absent if its kernel took them, or if it is
    older."""
    older: bool = False
    """True if it is of an older version, which does not tell how far times of its card may be off.
    """


class Recorded(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """What a program without DPDK has recorded, at its end."""


class StagesResult(Recorded, frozen=True, kw_only=True):
    """Where the kernel was with probes."""

    program: Literal["stages"]
    file: str
    """The file of the events."""
    events: Count
    """Events in it."""
    lost: Count
    """Events for which the kernel's buffer had no room."""
    clock_error_ns: Count
    """How far their times may be off the counter."""
    reasons: dict[int, str]
    """The kernel's names of the reasons in it."""


class FlowResult(Recorded, frozen=True, kw_only=True):
    """Where the kernel was with the packets of a flow."""

    program: Literal["flow"]
    flow: FollowedFlow
    """What became of them."""
    cost: FlowCost
    """What that cost."""
    xdp: list[XdpProgram]
    """The XDP programs of the machine that ran meanwhile."""


class SocketResult(Recorded, frozen=True, kw_only=True):
    """What came in on two links of the kernel."""

    program: Literal["socket"]
    complete: bool
    """Whether it did all that it was asked for."""
    partial: list[str]
    """Why it is not all that was asked for."""
    socket: SocketLinks
    """What was recorded."""


class TapResult(Recorded, frozen=True, kw_only=True):
    """What crossed two links of the kernel."""

    program: Literal["tap"]
    complete: bool
    """Whether it did all that it was asked for."""
    partial: list[str]
    """Why it is not all that was asked for."""
    tap: TappedLinks
    """What was heard."""


class ReflectResult(Recorded, frozen=True, kw_only=True):
    """What a reflector answered."""

    program: Literal["reflect"]
    complete: bool
    """Whether it did all that it was asked for."""
    partial: list[str]
    """Why it is not all that was asked for."""
    reflect: Reflected
    """What became of queries."""


class SenderResult(Recorded, frozen=True, kw_only=True):
    """What was asked of another host."""

    program: Literal["sender"]
    complete: bool
    """Whether it did all that it was asked for."""
    partial: list[str]
    """Why it is not all that was asked for."""
    sender: SentQueries
    """What became of queries."""
