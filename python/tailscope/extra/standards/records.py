"""``standard.json``: what the tests of a standard found, clause by clause."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tailscope.store.records.base import Count, Record, Section, Signed
from tailscope.store.records.host import HostRecord
from tailscope.store.records.plan import MeasurementPlan

STANDARD_FORMAT: Final = 1

Limit: TypeAlias = Literal["loss", "back-pressure", "not-offered", "max-rate"]
"""Reasons that end a search."""


class Spread(Section, frozen=True, kw_only=True):
    """Durations that repetitions found, summarised as RFC 8219, section 11 has it."""

    median_ns: float
    """Median of the repetitions (RFC 2330, section 11.3)."""
    p1_ns: Signed
    """Their 1st percentile."""
    p99_ns: Signed
    """Their 99th percentile."""


class RateLimits(Section, frozen=True, kw_only=True):
    """The highest rate that holds, between what was tried."""

    rate_pps: Count | None
    """The highest rate tried at which the goal holds; null if it holds at none."""
    fails_at_pps: Count | None
    """The lowest rate tried above it at which it does not hold, or which could not be offered; null
    if there is none."""
    limited_by: Limit
    """What ends it there: `loss`; `back-pressure`, where the device took no more, though the wire
    carries as much without it; `not-offered`, where the generator could not send so much;
    `max-rate`, where nothing faster was tried."""
    is_lower_bound: bool
    """True if the device may carry more: `rate_pps` is the instrument's limit, not the device's."""
    loss_ratio: float
    """The loss that the goal permits."""


class LatencyFound(Section, frozen=True, kw_only=True):
    """Latency of one tagged frame in each of several streams: RFC 2544, section 26.2."""

    rate_pps: Count
    """Rate of the streams: the throughput."""
    stream_s: float
    """Duration of a stream; the tagged frame is the first one in its second half."""
    repetitions: Count
    """Number of streams."""
    latency_ns_mean: float
    """Mean over the streams: the reported value."""
    latency_ns_min: Count
    """Least of them."""
    latency_ns_max: Count
    """Largest of them."""
    tainted: Count
    """Tagged frames during whose flight the instrument stalled."""


class DelaysFound(Section, frozen=True, kw_only=True):
    """Latency and delay variation of streams: RFC 8219, sections 7.2 and 7.3."""

    rate_pps: Count
    """Rate of the streams: the throughput."""
    stream_s: float
    """Duration of a stream."""
    repetitions: Count
    """Number of streams."""
    frames_min: Count
    """Fewest frames that a stream's figures are of."""
    tainted_ratio: float
    """Share of frames during whose flight the instrument stalled."""
    typical_latency: Spread | None = None
    """TL: the median of each stream (section 7.2); null where it was not asked for."""
    worst_case_latency: Spread | None = None
    """WCL: the 99.9th percentile of each stream (section 7.2)."""
    pdv: Spread | None = None
    """PDV: the 99.9th percentile less the minimum of each stream (section 7.3.1)."""
    ipdv_min: Spread | None = None
    """Dmin: the least difference of delay between frames sent one after the other (section
    7.3.2)."""
    ipdv_median: Spread | None = None
    """Dmed: their median."""
    ipdv_max: Spread | None = None
    """Dmax: the largest one."""


class LossFound(Section, frozen=True, kw_only=True):
    """Loss at one rate: RFC 2544, section 26.3."""

    rate_pps: Count
    """Packets per second that were to be sent."""
    max_rate_ratio: float
    """The same, relative to the highest rate."""
    frames_sent: Count
    """Frames that left the generator."""
    frames_received: Count
    """Frames that came back unchanged, each counted once."""
    loss_percent: float | None
    """(sent - received) × 100 / sent; null where the rate could not be offered."""


class BurstTried(Section, frozen=True, kw_only=True):
    """One search for the longest burst without loss."""

    frames: Count
    """The longest burst that came back whole; 0 if none did."""
    is_lower_bound: bool
    """True if no longer burst was tried, or could be offered."""


class BackToBackFound(Section, frozen=True, kw_only=True):
    """The longest bursts without loss: RFC 2544, section 26.4, and RFC 9004."""

    rate_pps: Count
    """Rate within a burst: the highest rate."""
    longest_frames: Count
    """Frames of the longest burst that was tried."""
    repetitions: Count
    """Number of searches."""
    frames_mean: float
    """Mean of the longest bursts: the reported value."""
    is_lower_bound: bool
    """True if a search ended at the longest burst, or at one that could not be offered."""
    implied_buffer_s: float
    """`frames_mean` at `rate_pps` (RFC 9004, section 6.4)."""
    corrected_buffer_s: float | None
    """The same less what the device forwards meanwhile, at its throughput; null where that is not
    known."""
    bursts: tuple[BurstTried, ...]
    """Each search."""


class RecoveryFound(Section, frozen=True, kw_only=True):
    """Duration of losses behind an overload: RFC 2544, section 26.5."""

    overload_pps: Count
    """Rate of the overload: 110 % of the throughput, or the highest rate if that is less."""
    reduced_pps: Count
    """Rate behind it: half of the overload."""
    overload_s: float
    """Duration of the overload."""
    repetitions: Count
    """Number of trials."""
    has_lost: bool
    """True if the overload made the device lose frames in a trial."""
    recovery_s_mean: float
    """From the lower rate to the last lost frame, mean of the trials: the reported value. A trial
    without loss counts as 0."""
    recovery_s_max: float
    """The longest of them."""


class SoakFound(Section, frozen=True, kw_only=True):
    """A long trial at the throughput."""

    rate_pps: Count
    """Packets per second."""
    duration_s: float
    """Duration of the trial."""
    frames_sent: Count
    """Frames that left the generator."""
    frames_received: Count
    """Frames that came back unchanged, each counted once."""
    offered: bool
    """True if all frames left, and the instrument lost none."""
    latency_ns_p50: Count | None
    """Median latency; null if no frame came back."""
    latency_ns_p999: Count | None
    """99.9th percentile."""


class GoalFound(Section, frozen=True, kw_only=True):
    """A Search Goal of RFC 9971 (MLRsearch), and its Goal Result."""

    goal: str
    """Its name."""
    goal_final_trial_duration_s: float
    """Goal Final Trial Duration."""
    goal_duration_sum_s: float
    """Goal Duration Sum."""
    goal_loss_ratio: float
    """Goal Loss Ratio."""
    goal_exceed_ratio: float
    """Goal Exceed Ratio."""
    goal_width: float
    """Goal Width."""
    goal_initial_trial_duration_s: float
    """Goal Initial Trial Duration."""
    relevant_lower_bound_pps: Count | None
    """Relevant Lower Bound; of an irregular result the highest rate that holds, or null."""
    relevant_upper_bound_pps: Count | None
    """Relevant Upper Bound; null if there is none."""
    conditional_throughput_pps: float | None
    """Conditional Throughput; null without a lower bound."""
    is_regular: bool
    """Whether both bounds exist, no further apart than the Goal Width, and the upper one is the
    device's."""
    limited_by: Limit | None
    """As of a throughput; null where the search ended early."""


class FrameSizeResult(Section, frozen=True, kw_only=True):
    """All that was found with frames of one size, or one mix of sizes."""

    frame_bytes: Count | None
    """Bytes of a frame, check sequence included; null for a mix."""
    frame_mix: str | None
    """The mix, as SIZE:WEIGHT,...; null for one size."""
    max_rate_pps: Count
    """The highest rate that was offered."""
    max_rate_from: Literal["option", "wire"]
    """Where it is from: `--max-rate`, or what the wire carries without the device."""
    throughput: RateLimits | None = None
    """The throughput; null where it was not measured."""
    capacity: RateLimits | None = None
    """The capacity at a permitted loss."""
    latency: LatencyFound | None = None
    """Of RFC 2544."""
    delays: DelaysFound | None = None
    """Of RFC 8219."""
    loss: tuple[LossFound, ...] = ()
    """Loss by rate, from the highest rate down."""
    back_to_back: BackToBackFound | None = None
    """Bursts."""
    recovery: RecoveryFound | None = None
    """Recovery from an overload."""
    soak: SoakFound | None = None
    """A long trial."""
    goals: tuple[GoalFound, ...] = ()
    """Of MLRsearch."""
    remarks: tuple[str, ...] = ()
    """Measurements that were left out, and why: sentences."""


class ClauseRecord(Section, frozen=True, kw_only=True):
    """The relation of the tests to a clause."""

    document: str
    """The document: `RFC 2544`."""
    section: str
    """The section in it."""
    title: str
    """Subject of the section."""
    conforms: bool
    """True if the tests conform to the clause."""
    says: str
    """What was done, and what the clause asks for where that differs."""


class StandardTrial(Section, frozen=True, kw_only=True):
    """One trial."""

    test: str
    """Test that the trial was made for."""
    frame: str
    """Bytes of a frame, or the mix."""
    rate_pps: Count
    """Packets per second that were to be sent."""
    duration_s: float
    """Duration without warm-up."""
    frames_sent: Count
    """Frames that left the generator."""
    frames_unsent: Count
    """Frames that could not leave within 10 ms of their time."""
    frames_unsent_by_generator: Count
    """Of those, the ones that the generator was kept from sending; the others the wire, or the
    device behind it, did not take."""
    frames_received: Count
    """Frames that came back unchanged, each counted once."""
    frames_lost_in_instrument: Count
    """Frames that the generator's own ports lost."""
    frames_tainted: Count
    """Frames during whose flight the instrument stalled."""
    not_offered: str | None
    """Why the trial says nothing of the device; null if it does."""


class StandardRecord(Record, frozen=True, kw_only=True):
    """The results of `tailscope search standard`."""

    format: Literal[1] = STANDARD_FORMAT
    """Version of the format."""
    tailscope_version: str
    """The version of tailscope that wrote it."""
    host: HostRecord
    """The machine."""
    standard: str
    """`2544`, `8219`, `tst009` or `mlrsearch`."""
    tests: tuple[str, ...]
    """The tests that were asked for."""
    plan: MeasurementPlan
    """The plan of a trial; each has its own rate, size and duration."""
    trial_s: float
    """Duration of a trial."""
    warm_up_s: float
    """Traffic before each trial, at its rate."""
    drain_s: float
    """Time that a trial waits for its last frames."""
    width: float
    """Largest distance of the rate that holds and the one that does not, relative to the second."""
    started_unix_ns: Count
    """When the first trial began."""
    ended_unix_ns: Count
    """When the last one had ended."""
    sizes: tuple[FrameSizeResult, ...]
    """Results by frame size."""
    clauses: tuple[ClauseRecord, ...]
    """Relation of the tests to the clauses."""
    cannot_claim: tuple[str, ...]
    """Claims that these figures do not support: sentences."""
    trials: tuple[StandardTrial, ...]
    """Every trial, in order."""
    warnings: tuple[str, ...]
    """Warnings to the reader: sentences."""
    partial: tuple[str, ...]
    """Why the result is partial: sentences."""
