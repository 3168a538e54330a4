"""Types of the messages between the machines of a laboratory: JSON objects, one per line.

`tailscope run` sends orders (``do``), and an agent sends events (``event``). Both must have the
same version, which is an agent's first message. A message of no such type is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode

from tailscope.exceptions import HostError
from tailscope.extra.laboratory.functions import FunctionDriver
from tailscope.extra.laboratory.recorded import MachineRecording
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
    """The order to play a role, which is the first one for an agent."""

    role: Role
    plan: MeasurementPlan
    """Plan of the run, as in ``run.json``."""
    cards: list[str]
    """Network cards: PCI addresses, or links of the kernel."""
    cpus: str | None
    """List of the CPUs to poll on."""
    method: Method | None
    """Recording method of a timestamper."""
    vfs: FunctionDriver | None = None
    """Driver of a virtual function of each card, which takes the card's place."""
    lent: bool = False
    """True if cards named by PCI address are handed to vfio-pci for the run."""


class SendOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="send"):
    """The order to a load generator to send for a while."""

    duration_ns: Count


class RecordOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="record"):
    """The order to record this machine from now on."""


class AskOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="ask"):
    """The order to report the time at once, which agents answer at any moment."""

    number: Count


class EndOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="end"):
    """The order to a load generator to end the traffic early, which acts at once."""


class StopOrder(Section, frozen=True, kw_only=True, tag_field="do", tag="stop"):
    """The order to stop, and to report counts or recordings."""


class HelloEvent(Struct, frozen=True, kw_only=True, tag_field="event", tag="hello"):
    """The agent's greeting; another version may add fields, and must be rejected by name."""

    version: str


class AgentError(Section, frozen=True, kw_only=True, tag_field="event", tag="error"):
    """The error that ended an agent; `other_kernel` if its machine has to boot another one."""

    message: str
    code: str
    hint: str | None
    other_kernel: bool


class AnswerEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="answer"):
    """The time on an agent's clock."""

    number: Count
    """Number of the query."""
    heard_ns: Count
    """Time of the query's arrival, in Unix time that does not jump."""
    said_ns: Count
    """Time of the answer's departure, in Unix time that does not jump."""


class DutReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The message that the device forwards; equal `boot_id` means the same machine."""

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
    """The message that the load generator waits for orders to record and to send."""

    host: HostRecord
    boot_id: str
    knobs: dict[str, str | None]
    reports: list[ClockReport]
    warnings: list[str]
    cpus: list[Count]


class TimestamperReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The message that the timestamper waits for the order to record, on `cpus` if it polls."""

    host: HostRecord
    boot_id: str
    knobs: dict[str, str | None]
    reports: list[ClockReport]
    warnings: list[str]
    cpus: list[Count]


class RecordingEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="recording"):
    """The message that recording has started."""


class SentEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="sent"):
    """The end of the traffic; `priority` is true if the generator had raised priority."""

    result: GeneratorResult
    priority: bool


class RecordedEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The recording of the load generator's machine, whose files wait to be fetched."""

    recorded: MachineRecording


class CountsEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The counts of the stopped device, whose files wait to be fetched."""

    counts: DutCounts | None
    """Counts of the device; None if it could not report them."""
    died: str | None
    """Message that says how the device ended before that, if it did."""
    recorded: MachineRecording


class CapturesEvent(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """The captures, which can be fetched until the agent gets another order."""

    method: Literal["socket", "tcpdump", "stamp"]
    """Recording method."""
    clock: ClockSource
    timestamp_type: str
    """Type of the timestamps, as in ``run.json``."""
    dropped: SideCounts
    files: CapturedFiles
    clock_set_by_ns: Signed
    """Step by which the machine's Unix time was set meanwhile, in nanoseconds."""
    port_clocks: PortClocks | None
    """Comparison of the ports' clocks; None if both ports have the same clock, or none."""
    warnings: list[str]
    """Warnings since the timestamper was ready."""


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
    """Read a line of an agent; None if it is no message, such as a greeting of its machine."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        return _DECODERS[role].decode(line)
    except (ValidationError, RecursionError) as error:
        text = f"it said: {what_is_wrong(error)}: {line[:_SHOWN]}"
        raise HostError(text, code="agent-message") from None
    except DecodeError:
        return None


def read_order(line: str) -> Order:
    """Read an order to an agent."""
    try:
        return _ORDERS.decode(line)
    except (ValidationError, RecursionError) as error:
        text = f"agent: it was told: {what_is_wrong(error)}: {line[:_SHOWN]}"
        raise HostError(text, code="agent-order") from None
    except DecodeError as error:
        text = f"agent: it was told no JSON object: {error}: {line[:_SHOWN]}"
        raise HostError(text, code="agent-order") from None


def as_line(message: AgentMessage | Order) -> str:
    """Encode a message as a line."""
    return encode(message).decode() + "\n"
