"""Types of the lines that ``tailscope-dp`` writes: JSON objects that name their ``event``.

The program has the same version as this package, so a line with other fields than these types is an
error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeAlias, TypeVar

from msgspec import DecodeError, ValidationError, convert
from msgspec.json import Decoder

from tailscope.exceptions import DataplaneError
from tailscope.store.records.base import Count, Section
from tailscope.store.records.dataplane import (
    CounterClock,
    DelayTruth,
    ForwardedPairs,
    ForwarderCounts,
    GeneratedTraffic,
    GeneratorCounts,
    PassedPackets,
    ProgramCounts,
    RouteCount,
    StampedTaps,
    WatchTruth,
    WorkTruth,
)

_SHOWN = 200


class ReadyLcore(Section, frozen=True, kw_only=True):
    """A polling thread and its CPU; None if it may run on several."""

    lcore: Count
    cpu: Count | None


class ReadyPort(Section, frozen=True, kw_only=True):
    """A port of the program."""

    port: Count
    name: str
    driver: str
    mac: str
    link_up: bool


class ReadyEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The message that the ports are up and the program forwards, or sends."""

    program: str
    version: str
    dpdk: str
    pid: Count
    clock: CounterClock
    lcores: list[ReadyLcore]
    ports: list[ReadyPort]


class ErrorEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """The error that ended a program, and a hint for the user."""

    message: str
    hint: str | None


class ProgressEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="progress"):
    """The progress of a program, once a second.

    While it writes its recording, ``written`` of the ``recorded`` values are on disk; both are 0
    before that.
    """

    elapsed_s: float
    state: Literal["warm-up", "measuring", "draining", "forwarding", "recording", "writing"]
    rx_packets: Count
    stalls: Count
    recorded: Count = 0
    written: Count = 0


class GeneratorProgress(ProgressEvent, frozen=True, kw_only=True):
    """The progress of a generator; latencies are rough, and None until the first packet is back.

    Each of ``latency_ns_buckets`` is the lower bound of a bucket that is at most 3 % wide, and its
    number of packets.
    """

    tx_packets: Count
    stall_ns_total: Count
    stall_ns_max: Count
    sent: Count
    received: Count
    unsent: Count
    latency_ns_p50: Count | None = None
    latency_ns_p999: Count | None = None
    latency_ns_max: Count | None = None
    latency_ns_sum: Count | None = None
    latency_ns_buckets: list[tuple[Count, Count]]


class LoopProgress(ProgressEvent, frozen=True, kw_only=True):
    """The progress of a forwarder, or of loops without packets."""

    tx_packets: Count
    tx_dropped: Count
    stall_ns_max: Count


class ResultEvent(ProgramCounts, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The result of a program, at its end."""

    clock: CounterClock
    partial: list[str]
    """Reasons why the result is incomplete."""
    record: list[str]
    """Files that the program wrote."""
    monitor_tid: Count
    """Number of the thread that watched links and reported progress; 0 without one."""


class GeneratorResult(ResultEvent, frozen=True, kw_only=True):
    """The result of a generator."""

    program: Literal["gen"]
    gen: GeneratedTraffic

    @property
    def counts(self) -> GeneratorCounts:
        """Return the part that ``run.json`` contains."""
        return convert(self, GeneratorCounts, from_attributes=True)


class StampResult(ResultEvent, frozen=True, kw_only=True):
    """The result of the recorder of two taps."""

    program: Literal["stamp"]
    stamp: StampedTaps


class ForwarderResult(ResultEvent, frozen=True, kw_only=True):
    """The result of a forwarder of the data plane."""

    stages: PassedPackets | None = None
    """Recorded stages of packets, if they were requested."""

    @property
    def counts(self) -> ForwarderCounts:
        """Return the part that ``run.json`` contains."""
        counts: ForwarderCounts = convert(self, ForwarderCounts, from_attributes=True)
        return counts


class L2fwdResult(ForwarderResult, frozen=True, kw_only=True):
    """The result of l2fwd."""

    program: Literal["l2fwd"]
    l2fwd: ForwardedPairs


class L3fwdResult(ForwarderResult, frozen=True, kw_only=True):
    """The result of l3fwd."""

    program: Literal["l3fwd"]
    l3fwd: RouteCount


class DelayResult(ForwarderResult, frozen=True, kw_only=True):
    """The result of the device with a known latency law."""

    program: Literal["delay"]
    delay: DelayTruth


class WorkResult(ForwarderResult, frozen=True, kw_only=True):
    """The result of the device with a known capacity."""

    program: Literal["work"]
    work: WorkTruth


class WatchResult(ResultEvent, frozen=True, kw_only=True):
    """The result of loops without packets."""

    program: Literal["watch"]
    watch: WatchTruth


P_co = TypeVar("P_co", bound=ProgressEvent, covariant=True)
R_co = TypeVar("R_co", bound=ResultEvent, covariant=True)


@dataclass(frozen=True)
class Program(Generic[P_co, R_co]):
    """A program of ``tailscope-dp``, and the types of its messages."""

    name: str
    progress: type[P_co]
    """Type of its progress, once a second."""
    result: type[R_co]
    """Type of its result, at its end."""

    def read(self, role: str, line: str) -> ReadyEvent | ErrorEvent | P_co | R_co | None:
        """Read a line; None if it is no message."""
        if not line.lstrip().startswith("{"):
            return None
        try:
            return self._decoder.decode(line)
        except (ValidationError, RecursionError) as error:
            raise DataplaneError(
                f"{role}: tailscope-dp {self.name} said: {what_is_wrong(error)}: {line[:_SHOWN]}",
                code="dataplane-message",
            ) from None
        except DecodeError:
            return None

    @cached_property
    def _decoder(self) -> Decoder[ReadyEvent | ErrorEvent | P_co | R_co]:
        return Decoder(ReadyEvent | ErrorEvent | self.progress | self.result)


GENERATOR = Program("gen", GeneratorProgress, GeneratorResult)
STAMP = Program("stamp", ProgressEvent, StampResult)
WATCH = Program("watch", LoopProgress, WatchResult)

ForwarderProgram: TypeAlias = Program[LoopProgress, ForwarderResult]

FORWARDERS: dict[str, ForwarderProgram] = {
    "l2fwd": Program("l2fwd", LoopProgress, L2fwdResult),
    "l3fwd": Program("l3fwd", LoopProgress, L3fwdResult),
    "delay": Program("delay", LoopProgress, DelayResult),
    "work": Program("work", LoopProgress, WorkResult),
}
"""Forwarders of the data plane, by name."""


def what_is_wrong(error: ValidationError | RecursionError) -> str:
    """Return the wrong field of a message and what is wrong with it, as in ``gen.sent: ...``."""
    problem, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    problem = problem[:1].lower() + problem[1:]
    return f"{field}: {problem}" if field else problem
