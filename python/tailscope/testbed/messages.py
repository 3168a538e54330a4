"""The lines that ``tailscope-dp`` writes, as types: JSON objects that name their ``event``.

It is of the same version as this package, so a line that says more, or less, or something else than
the types here is an error.
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
    """A thread that will poll, and its CPU; None where it may run on several."""

    lcore: Count
    cpu: Count | None


class ReadyPort(Section, frozen=True, kw_only=True):
    """A port that was found."""

    port: Count
    name: str
    driver: str
    mac: str
    link_up: bool


class ReadyEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The ports are there: the program forwards, or sends."""

    program: str
    version: str
    dpdk: str
    pid: Count
    clock: CounterClock
    lcores: list[ReadyLcore]
    ports: list[ReadyPort]


class ErrorEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """Why it cannot run, and what to do about it."""

    message: str
    hint: str | None


class ProgressEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="progress"):
    """How far it is, once a second.

    While it writes, of the ``recorded`` values ``written`` are written; both are 0 before that.
    """

    elapsed_s: float
    state: Literal["warm-up", "measuring", "draining", "forwarding", "recording", "writing"]
    rx_packets: Count
    stalls: Count
    recorded: Count = 0
    written: Count = 0


class GeneratorProgress(ProgressEvent, frozen=True, kw_only=True):
    """How far a generator is; latencies are rough, and None until the first packet is back.

    Each of ``latency_ns_buckets`` is the least latency of a bucket that is at most 3 % wide, and
    how many packets are in it.
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
    """How far a forwarder is, or loops without packets."""

    tx_packets: Count
    tx_dropped: Count
    stall_ns_max: Count


class ResultEvent(ProgramCounts, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """What came out, at the end."""

    clock: CounterClock
    partial: list[str]
    """Why it is not all that was asked for."""
    record: list[str]
    """The files that it has written."""
    monitor_tid: Count
    """The number of the thread that watched its links and told how far it was; 0 without one."""


class GeneratorResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of a generator."""

    program: Literal["gen"]
    gen: GeneratedTraffic

    @property
    def counts(self) -> GeneratorCounts:
        """What ``run.json`` keeps of it."""
        return convert(self, GeneratorCounts, from_attributes=True)


class StampResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of the recorder of two taps."""

    program: Literal["stamp"]
    stamp: StampedTaps


class ForwarderResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of a device of the data plane."""

    stages: PassedPackets | None = None
    """What it has written down of the way of packets, if that was wanted."""

    @property
    def counts(self) -> ForwarderCounts:
        """What ``run.json`` keeps of it."""
        found: ForwarderCounts = convert(self, ForwarderCounts, from_attributes=True)
        return found


class L2fwdResult(ForwarderResult, frozen=True, kw_only=True):
    """What came out of the forwarder between ports."""

    program: Literal["l2fwd"]
    l2fwd: ForwardedPairs


class L3fwdResult(ForwarderResult, frozen=True, kw_only=True):
    """What came out of the router."""

    program: Literal["l3fwd"]
    l3fwd: RouteCount


class DelayResult(ForwarderResult, frozen=True, kw_only=True):
    """What came out of the device with a known law."""

    program: Literal["delay"]
    delay: DelayTruth


class WorkResult(ForwarderResult, frozen=True, kw_only=True):
    """What came out of the device with a known capacity."""

    program: Literal["work"]
    work: WorkTruth


class WatchResult(ResultEvent, frozen=True, kw_only=True):
    """What came out of loops without packets."""

    program: Literal["watch"]
    watch: WatchTruth


P_co = TypeVar("P_co", bound=ProgressEvent, covariant=True)
R_co = TypeVar("R_co", bound=ResultEvent, covariant=True)


@dataclass(frozen=True)
class Program(Generic[P_co, R_co]):
    """A program of ``tailscope-dp``, and what it says."""

    name: str
    progress: type[P_co]
    """What it says once a second."""
    result: type[R_co]
    """What it says at its end."""

    def read(self, role: str, line: str) -> ReadyEvent | ErrorEvent | P_co | R_co | None:
        """Read a line; None where it is none of ours."""
        if not line.lstrip().startswith("{"):
            return None
        try:
            return self._decoder.decode(line)
        except (ValidationError, RecursionError) as error:
            raise DataplaneError(
                f"{role}: tailscope-dp {self.name} said: {what_is_wrong(error)}: {line[:_SHOWN]}"
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
"""Devices of the data plane, by name."""


def what_is_wrong(error: ValidationError | RecursionError) -> str:
    """Say which field of a message is not what it should be, and what it is: ``gen.sent: ...``."""
    said, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    said = said[:1].lower() + said[1:]
    return f"{field}: {said}" if field else said
