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
from tailscope.store.records.base import Count, Section
from tailscope.store.records.dataplane import DutCounts
from tailscope.store.records.host import HostRecord
from tailscope.store.records.plan import MeasurementPlan
from tailscope.store.records.run import CapturedFiles, ClockSource, PlatformRecord, SideCounts
from tailscope.testbed.messages import GeneratorProgress, GeneratorResult, what_is_wrong

__all__ = [
    "AgentError",
    "AgentMessage",
    "CapturesEvent",
    "CountsEvent",
    "DutMessage",
    "DutReady",
    "HelloEvent",
    "LoadgenMessage",
    "LoadgenReady",
    "Method",
    "Order",
    "PlayOrder",
    "RecordOrder",
    "RecordingEvent",
    "Role",
    "SendOrder",
    "SentEvent",
    "StopOrder",
    "TimestamperMessage",
    "TimestamperReady",
    "as_line",
    "read_message",
    "read_order",
]

Role: TypeAlias = Literal["loadgen", "dut", "timestamper"]
Method: TypeAlias = Literal["auto", "tcpdump", "stamp"]


class PlayOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="play"):
    """Play a role; the first order that an agent gets.

    Attributes
    ----------
    role : str
    plan : MeasurementPlan
        As in ``run.json``.
    cards : list of str
        Network cards: PCI addresses, or links of the kernel.
    cpus : str or None
        The CPUs to poll on, as a list.
    method : str or None
        How a timestamper records.
    """

    role: Role
    plan: MeasurementPlan
    cards: list[str]
    cpus: str | None
    method: Method | None


class SendOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="send"):
    """To a load generator: send for a while."""

    duration_ns: Count


class RecordOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="record"):
    """To a timestamper: record from now on."""


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


class DutReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The device forwards."""

    host: HostRecord
    version: str
    configuration: str | Sequence[str | Sequence[str]]
    platform: PlatformRecord
    warnings: list[str]
    cpus: list[Count]


class LoadgenReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The load generator waits for the order to send."""

    host: HostRecord
    warnings: list[str]
    cpus: list[Count]


class TimestamperReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The timestamper waits for the order to record."""

    host: HostRecord
    warnings: list[str]


class RecordingEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="recording"):
    """Frames are recorded from now on."""


class SentEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="sent"):
    """All was sent; `priority` tells whether the generator went before other programs."""

    result: GeneratorResult
    priority: bool


class CountsEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The device was stopped.

    Attributes
    ----------
    counts : DutCounts or None
        None where it could not say.
    died : str or None
        How it had ended before that.
    """

    counts: DutCounts | None
    died: str | None


class CapturesEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The captures are there, until the agent hears anything.

    Attributes
    ----------
    method : str
        What recorded.
    clock, timestamp_type : str
        As in ``run.json``.
    dropped : SideCounts
    files : CapturedFiles
    """

    method: Literal["tcpdump", "stamp"]
    clock: ClockSource
    timestamp_type: str
    dropped: SideCounts
    files: CapturedFiles


Order: TypeAlias = PlayOrder | SendOrder | RecordOrder | StopOrder
DutMessage: TypeAlias = HelloEvent | AgentError | DutReady | CountsEvent
LoadgenMessage: TypeAlias = HelloEvent | AgentError | LoadgenReady | GeneratorProgress | SentEvent
TimestamperMessage: TypeAlias = (
    HelloEvent | AgentError | TimestamperReady | RecordingEvent | CapturesEvent
)
AgentMessage: TypeAlias = DutMessage | LoadgenMessage | TimestamperMessage

_DECODERS: dict[Role, Decoder[AgentMessage]] = {
    "dut": Decoder(DutMessage),
    "loadgen": Decoder(LoadgenMessage),
    "timestamper": Decoder(TimestamperMessage),
}
_ORDERS: Decoder[Order] = Decoder(Order)
_SHOWN = 200


def read_message(role: Role, line: str) -> AgentMessage | None:
    """Read what an agent says; None where it is no message, such as a greeting of its machine.

    Raises
    ------
    HostError
        If it is an object, but none that this role says.
    """
    if not line.lstrip().startswith("{"):
        return None
    try:
        return _DECODERS[role].decode(line)
    except (ValidationError, RecursionError) as error:
        raise HostError(f"it said: {what_is_wrong(error)}: {line[:_SHOWN]}") from None
    except DecodeError:
        return None


def read_order(line: str) -> Order:
    """Read what an agent is told.

    Raises
    ------
    HostError
        If it is no order.
    """
    try:
        return _ORDERS.decode(line)
    except (ValidationError, RecursionError) as error:
        raise HostError(f"agent: it was told: {what_is_wrong(error)}: {line[:_SHOWN]}") from None
    except DecodeError as error:
        raise HostError(f"agent: it was told no JSON object: {error}: {line[:_SHOWN]}") from None


def as_line(said: AgentMessage | Order) -> str:
    """A message as it is sent."""
    return encode(said).decode() + "\n"
