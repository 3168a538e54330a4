"""What the machines of a laboratory say to each other, as types: JSON objects, one a line.

`tailscope run` says what to ``do``; an agent says which ``event`` there is. Both are of the same
version: that is the first thing an agent says. What does not fit these types is an error, whoever
says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode

from tailscope.exceptions import HostError
from tailscope.extra.laboratory.recorded import MachineRecording
from tailscope.host.functions import FunctionDriver
from tailscope.store.records.base import Count, Section, Signed
from tailscope.store.records.clocks import ClockReport
from tailscope.store.records.dataplane import DutCounts
from tailscope.store.records.host import HostRecord
from tailscope.store.records.messages import GeneratorProgress, GeneratorResult
from tailscope.store.records.plan import MeasurementPlan
from tailscope.store.records.run import (
    CapturedFiles,
    ClockSource,
    PlatformRecord,
    PortClocks,
    SideCounts,
    Written,
)
from tailscope.testbed.messages import what_is_wrong

Role: TypeAlias = Literal["loadgen", "dut", "timestamper"]
Method: TypeAlias = Literal["auto", "socket", "tcpdump", "stamp"]


class PlayOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="play"):
    """Play a role; the first order that an agent gets."""

    role: Role
    plan: MeasurementPlan
    """As in ``run.json``."""
    cards: list[str]
    """Network cards: PCI addresses, or links of the kernel."""
    cpus: str | None
    """The CPUs to poll on, as a list."""
    method: Method | None
    """How a timestamper records."""
    vfs: FunctionDriver | None = None
    """What drives a virtual function of each card, in place of which it is used."""


class SendOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="send"):
    """To a load generator: send for a while."""

    duration_ns: Count


class RecordOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="record"):
    """Record from now on what is to be known of this machine."""


class AskOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="ask"):
    """Say at once what the time is. Agents answer whatever else they are about."""

    number: Count


class EndOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="end"):
    """To a load generator: end the traffic before its time. It is heard at once."""


class StopOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="stop"):
    """Stop, and say what was counted or recorded."""


class HelloEvent(Struct, frozen=True, kw_only=True, tag_field="event", tag="hello"):
    """The agent is there. Of another version it may say more, and is to be told so."""

    version: str


class AgentError(Section, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """Why the agent cannot go on; `other_kernel` if its machine has to boot another one first."""

    message: str
    hint: str | None
    other_kernel: bool


class AnswerEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="answer"):
    """The time at an agent."""

    number: Count
    """Of the question."""
    heard_ns: Count
    said_ns: Count
    """When the question was heard and the answer said, in Unix time that nobody sets."""


class DutReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The device forwards; `boot_id` is the kernel's, and tells whether two roles have one."""

    host: HostRecord
    boot_id: str
    knobs: dict[str, str | None]
    tuning: list[Written]
    reports: list[ClockReport]
    version: str
    configuration: str | Sequence[str | Sequence[str]]
    platform: PlatformRecord
    warnings: list[str]
    cpus: list[Count]


class LoadgenReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The load generator waits for orders to record and to send."""

    host: HostRecord
    boot_id: str
    knobs: dict[str, str | None]
    reports: list[ClockReport]
    warnings: list[str]
    cpus: list[Count]


class TimestamperReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The timestamper waits for the order to record; it polls on `cpus`, if it does."""

    host: HostRecord
    boot_id: str
    knobs: dict[str, str | None]
    reports: list[ClockReport]
    warnings: list[str]
    cpus: list[Count]


class RecordingEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="recording"):
    """It is recorded from now on what was asked for."""


class SentEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="sent"):
    """All was sent; `priority` tells whether the generator went before other programs."""

    result: GeneratorResult
    priority: bool


class RecordedEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """What the load generator's machine has recorded; its files are there as captures are."""

    recorded: MachineRecording


class CountsEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The device was stopped; the files are there as captures are."""

    counts: DutCounts | None
    """None where it could not say."""
    died: str | None
    """How it had ended before that."""
    recorded: MachineRecording


class CapturesEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The captures are there, until the agent hears anything."""

    method: Literal["socket", "tcpdump", "stamp"]
    """What recorded."""
    clock: ClockSource
    timestamp_type: str
    """As in ``run.json``."""
    dropped: SideCounts
    files: CapturedFiles
    clock_set_by_ns: Signed
    """By how much the machine's Unix time was set meanwhile."""
    port_clocks: PortClocks | None
    """None where both ports have the same clock, or none."""
    warnings: list[str]
    """What came up since it was ready."""


Order: TypeAlias = PlayOrder | AskOrder | SendOrder | RecordOrder | EndOrder | StopOrder
AnyAgent: TypeAlias = HelloEvent | AgentError | AnswerEvent | RecordingEvent
DutMessage: TypeAlias = AnyAgent | DutReady | CountsEvent
LoadgenMessage: TypeAlias = AnyAgent | LoadgenReady | GeneratorProgress | SentEvent | RecordedEvent
TimestamperMessage: TypeAlias = AnyAgent | TimestamperReady | CapturesEvent
AgentMessage: TypeAlias = DutMessage | LoadgenMessage | TimestamperMessage

_DECODERS: dict[Role, Decoder[AgentMessage]] = {
    "dut": Decoder(DutMessage),
    "loadgen": Decoder(LoadgenMessage),
    "timestamper": Decoder(TimestamperMessage),
}
_ORDERS: Decoder[Order] = Decoder(Order)
_SHOWN = 200


def read_message(role: Role, line: str) -> AgentMessage | None:
    """Read what an agent says; None where it is no message, such as a greeting of its machine."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        return _DECODERS[role].decode(line)
    except (ValidationError, RecursionError) as error:
        raise HostError(f"it said: {what_is_wrong(error)}: {line[:_SHOWN]}") from None
    except DecodeError:
        return None


def read_order(line: str) -> Order:
    """Read what an agent is told."""
    try:
        return _ORDERS.decode(line)
    except (ValidationError, RecursionError) as error:
        raise HostError(f"agent: it was told: {what_is_wrong(error)}: {line[:_SHOWN]}") from None
    except DecodeError as error:
        raise HostError(f"agent: it was told no JSON object: {error}: {line[:_SHOWN]}") from None


def as_line(said: AgentMessage | Order) -> str:
    """A message as it is sent."""
    return encode(said).decode() + "\n"
