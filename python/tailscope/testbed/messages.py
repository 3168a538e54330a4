"""How the lines of ``tailscope-dp`` are read: JSON objects that name their ``event``.

It is of the same version as this package, so a line that says more, or less, or something else than
its types (`tailscope.store.records.messages`) is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

from msgspec import DecodeError, ValidationError, convert
from msgspec.json import Decoder

from tailscope.exceptions import DataplaneError
from tailscope.store.records.dataplane import ForwarderCounts, GeneratorCounts
from tailscope.store.records.messages import (
    DelayResult,
    ErrorEvent,
    GeneratorProgress,
    GeneratorResult,
    L2fwdResult,
    L3fwdResult,
    LoopProgress,
    ProgressEvent,
    ReadyEvent,
    ResultEvent,
    SocketCounts,
    StampProgress,
    StampResult,
    TapCounts,
    WatchResult,
    WorkResult,
)

_SHOWN = 200

ForwarderResult: TypeAlias = L2fwdResult | L3fwdResult | DelayResult | WorkResult
"""What comes out of a device of the data plane."""

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
STAMP = Program("stamp", StampProgress, StampResult)
WATCH = Program("watch", LoopProgress, WatchResult)

ForwarderProgram: TypeAlias = Program[LoopProgress, ForwarderResult]

FORWARDERS: dict[str, ForwarderProgram] = {
    "l2fwd": Program("l2fwd", LoopProgress, L2fwdResult),
    "l3fwd": Program("l3fwd", LoopProgress, L3fwdResult),
    "delay": Program("delay", LoopProgress, DelayResult),
    "work": Program("work", LoopProgress, WorkResult),
}
"""Devices of the data plane, by name."""


def generator_counts(result: GeneratorResult) -> GeneratorCounts:
    """Select what ``run.json`` keeps of a generator's result."""
    return convert(result, GeneratorCounts, from_attributes=True)


def forwarder_counts(result: ForwarderResult) -> ForwarderCounts:
    """Select what ``run.json`` keeps of a device's result."""
    counts: ForwarderCounts = convert(result, ForwarderCounts, from_attributes=True)
    return counts


def missed_frames(tap: TapCounts | SocketCounts) -> int:
    """Count the frames that a capture should have, and has not."""
    lost = tap.ring_full if isinstance(tap, TapCounts) else tap.dropped
    return lost + tap.unstamped


def what_is_wrong(error: ValidationError | RecursionError) -> str:
    """Say which field of a message is not what it should be, and what it is: ``gen.sent: ...``."""
    said, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    said = said[:1].lower() + said[1:]
    return f"{field}: {said}" if field else said
