"""``explanation.json``: what the tail of a measurement is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailscope.store.records.base import Count, Section, Signed
from tailscope.store.records.kept import KeptRecord
from tailscope.store.records.stages import Way

Share = Annotated[float, Meta(ge=0, le=1)]
Rate = Annotated[float, Meta(ge=0)]

REST_OF_BATCH = "the rest of its batch"
"""The cause of the wait of a packet that leaves together with later ones."""
WAY = "the way there and back"
"""What a packet that finds the device idle takes beyond the time that keeps it busy."""


class ExplainedCause(Section, frozen=True, kw_only=True):
    """A cause that packets waited for."""

    part: Literal["dut", "queue", "instrument", "unexplained"]
    """The part of the latency."""
    cause: str
    """Cause of the wait."""
    packets: Count
    """Packets that waited for it."""
    total_ns: Count
    """Total waiting time."""
    share: Share
    """Share of that total in the excess."""
    largest_ns: Count
    """The longest that one of them waited."""


class Alignment(Section, frozen=True, kw_only=True):
    """The mapping of a recording's clock to that of the captures."""

    basis: Literal["unix", "given", "recorded", "unknown"]
    """`unix`: both have Unix time, and the clocks are assumed to agree; `given`: by `--offset`;
    `recorded`: the recording itself says what its clock is in Unix time; `unknown`: nothing ties
    the two clocks."""
    offset_ns: Signed | None
    """Offset added to the recording's times; `null` if unknown."""
    error_ns: Count | None
    """Uncertainty of that offset, as stated by `--offset-error`; `null` if unknown."""


class ExplainingTrace(Section, frozen=True, kw_only=True):
    """A trace of kernel events whose clock is that of the captures."""

    name: str
    """Name of the recording."""
    file: str
    """Name of the file or folder."""
    reader: Literal["trace-cmd", "perf", "babeltrace2"]
    """The program that read it."""
    alignment: Alignment
    """Mapping of its clock to that of the captures."""
    cpus: tuple[Count, ...]
    """CPUs of the device."""
    own_work: tuple[str, ...]
    """Causes that count as the device's own work."""
    events: Count
    """Events that were used."""
    unused_events: dict[str, Count]
    """Events that say nothing about when a CPU was taken, by name."""
    lost_events: Count
    """Events that the tracer lost, as far as it says so."""
    uncovered_packets: Count
    """Packets of the tail that the trace does not cover in full."""


class PolledFile(Section, frozen=True, kw_only=True):
    """A series of interrupt counters, and its polling windows: from one reading to the next."""

    name: str
    """Name of the recording."""
    file: str
    """Name of the file."""
    alignment: Alignment
    """Mapping of its clock to that of the captures."""
    period_ns: Count
    """The median polling window: within it, no time is known."""
    windows: Count
    """Windows that lie within the captures. If offsets were searched: as many as the captures are
    long."""
    slow_windows: Count
    """Those that may hold a slow packet, given the error of the alignment."""
    episodes: Count
    """Stretches of adjacent slow windows."""
    outside_packets: Count
    """Slow packets in no such window: they count for nothing."""
    incomplete_counters: Count
    """Counters that are not in every reading: they are left out."""
    arrangements: Count
    """Arrangements of the episodes that the test compared with the one observed."""
    not_tested_because: str | None
    """Reason why nothing can be concluded from this file; `null` if its counters were tested."""


class AssociatedCounter(Section, frozen=True, kw_only=True):
    """A counter, in windows with slow packets and in the others."""

    source: str
    """The file's `name`."""
    counter: str
    """Name of the interrupt."""
    cpu: Count
    """The CPU that it counts on."""
    slow_count: Count
    """Increments in windows with slow packets."""
    rest_count: Count
    """Increments in all other windows."""
    slow_rate_hz: Rate
    """Increments a second in windows with slow packets."""
    rest_rate_hz: Rate
    """Increments a second in all other windows."""
    ratio: Rate | None
    """The first rate over the second. `null` if the second is 0."""
    ratio_ci_low: Rate | None
    """Lower end of its 95 % interval. `null` if offsets were searched."""
    ratio_ci_high: Rate | None
    """Upper end. `null` if there is none, or offsets were searched."""
    slow_windows_moved: Count
    """Windows with slow packets in which it moved."""
    rest_windows_moved: Count
    """Other windows in which it moved."""
    p_value: Share
    """Share of arrangements of the slow windows in which its rate is at least as high."""
    p_adjusted: Share
    """The same after Benjamini and Hochberg, for all counters that were tested."""
    is_associated: bool
    """True if `p_adjusted` is at most the level."""
    best_offset_ns: Signed | None = None
    """If the offset is not known to half a polling window, all possible ones were searched: that at
    which the association is strongest. The test accounts for the search."""


class RegularCounter(Section, frozen=True, kw_only=True):
    """A counter that moves as often in every window: polling cannot tell windows apart by it."""

    source: str
    """The file's `name`."""
    counter: str
    """Name of the interrupt."""
    cpu: Count
    """The CPU that it counts on."""
    rate_hz: Rate
    """Increments a second."""


class Associated(Section, frozen=True, kw_only=True):
    """The polled counters that move when packets are slow: an association, never a cause."""

    evidence: Literal["associated"] = "associated"
    """Counters that are polled cannot say more."""
    quantile: Share
    """Packets beyond this quantile are slow."""
    threshold_ns: Count
    """The latency at that quantile."""
    packets: Count
    """Number of slow packets."""
    level: Share
    """Chance to name a counter if none has to do with slow packets."""
    test: str
    """The test, and its correction for the number of counters."""
    tested: Count
    """Number of counters tested."""
    files: tuple[PolledFile, ...]
    """The files."""
    counters: tuple[AssociatedCounter, ...]
    """Counters that were tested, smallest p value first."""
    sums: tuple[AssociatedCounter, ...] = ()
    """Sums of the counters of each CPU of the device, if it was named: they were tested first, and
    single counters of the CPUs only that were associated."""
    regular: tuple[RegularCounter, ...]
    """Counters that cannot be tested, because they are as fast in every window."""


class StageCause(Section, frozen=True, kw_only=True):
    """A cause that kept a CPU from its work while packets were in a stage."""

    part: Literal["dut", "instrument"]
    """Owner of the CPU: the device or the instrument."""
    cause: str
    """The cause."""
    total_ns: Count
    """Total time during which it met packets of the tail in this stage."""


class ExplainedStage(Section, frozen=True, kw_only=True):
    """A stage of the way through the device."""

    stage: str
    """Of the kernel `wire in`, `driver`, `stack`, `qdisc`, `wire out`; of a loop `wire in`,
    `rx burst`, `work`, `tx burst`, `wire out`."""
    ns_p50: Count | None
    """The median time that packets spent in it; null if no packet has all stages."""
    ns_p99: Count | None
    """The 99th percentile of that time."""
    share_p50: Share | None
    """The median of its share of a packet's latency."""
    tail_share: Share | None
    """Its share of the total latency of the packets of the tail; null without any."""
    interrupted_by: tuple[StageCause, ...]
    """Five longest causes that kept CPUs from their work meanwhile, for packets of the tail."""


class DropReason(Section, frozen=True, kw_only=True):
    """A reason for which the device dropped packets."""

    reason: str
    """The kernel's own name, such as `QDISC_DROP`. Of a loop, `TX_RING_FULL`, or `NOT_HANDED_ON`
    for what its program dropped, which has counts by reason, or still held at the end."""
    packets: Count
    """Packets that it dropped for that reason, and that never came back; of a loop, among those
    that were looked at."""


class ExplainedStages(Section, frozen=True, kw_only=True):
    """The way of packets through the device."""

    way: Way = "kernel"
    """As in `run.json`."""
    packets: Count
    """Packets with all stages."""
    left_out: Count
    """Packets that were looked at and came back, but were not seen at every point, or at times
    that contradict each other by more than the clocks' error."""
    tail_packets: Count
    """Packets of the tail among those with all stages."""
    tail_left_out: Count = 0
    """Packets of the tail among those that are left out."""
    stages: tuple[ExplainedStage, ...]
    """The stages, in their order."""
    drops: tuple[DropReason, ...]
    """Reasons to drop packets, the most frequent one first."""


class Explanation(KeptRecord, frozen=True, kw_only=True):
    """The causes of delay of the packets beyond a quantile."""

    quantile: Share
    """Packets beyond this quantile are explained."""
    none_above: Share | None = None
    """The higher quantile that was asked for, if no packet lies above it. `null` otherwise."""
    threshold_ns: Count
    """The latency at that quantile."""
    service_ns: Count
    """The latency of a packet that finds the device idle: the median. In files without `each_ns`,
    that of all packets."""
    packets: Count
    """Number of packets explained."""
    latency_ns: Count
    """Their total latency."""
    excess_ns: Count
    """Their total latency, less the service time of each."""
    parts_ns: dict[str, Count]
    """The parts of `latency_ns`: `service`, `dut`, `queue`, `instrument`, `unexplained`."""
    causes: tuple[ExplainedCause, ...]
    """The causes, largest first."""
    stalled_ns: Count = 0
    """Part of `excess_ns` during which the instrument stalled, whatever else there was: what the
    device met meanwhile is its cause, though packets may have left it before."""
    clock_error_ns: Count | None = None
    """Uncertainty of times on the device's machine against the clock of the captures: the error
    of its own clock, and that of the clock of kernel events; null if all are one. Causes count as
    far as they hold whatever the difference is."""
    each_ns: Count | None = None
    """Median service time of the device per packet of a queue."""
    in_order: bool | None = None
    """True if packets leave in the order in which they came. If not, queues are not known: packets
    waited for what happened while they were there."""
    seen_idle: bool = True
    """True if enough packets found the device idle; else `service_ns` is that of a packet of a
    queue."""
    service_tainted: bool = False
    """True if the instrument's stalls touched some of the packets that `service_ns` is of."""
    evidence: Literal["caused"] | None = "caused"
    """`caused`: events with times on the packets' clock are known, and `causes` are what they say.
    `null`: no such events are known, and `causes` is empty."""
    traces: tuple[ExplainingTrace, ...] = ()
    """Traces of captures that the causes come from. A measurement records its own."""
    stages: ExplainedStages | None = None
    """The way of packets through the device, if it was recorded."""
    associated: Associated | None = None
    """The result of interrupt counters beside captures."""
