"""Reading of the lines of ``tailscope-dp``: JSON objects that name their ``event``.

The program has the same version as this package, so a line with other fields than its type in
`tailscope.store.records.messages` is an error.
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
"""Result of a forwarder of the data plane."""

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
STAMP = Program("stamp", StampProgress, StampResult)
WATCH = Program("watch", LoopProgress, WatchResult)

ForwarderProgram: TypeAlias = Program[LoopProgress, ForwarderResult]

FORWARDERS: dict[str, ForwarderProgram] = {
    "l2fwd": Program("l2fwd", LoopProgress, L2fwdResult),
    "l3fwd": Program("l3fwd", LoopProgress, L3fwdResult),
    "delay": Program("delay", LoopProgress, DelayResult),
    "work": Program("work", LoopProgress, WorkResult),
}
"""Forwarders of the data plane, by name."""


def generator_counts(result: GeneratorResult) -> GeneratorCounts:
    """Return the part of a generator's result that ``run.json`` contains."""
    return convert(result, GeneratorCounts, from_attributes=True)


def forwarder_counts(result: ForwarderResult) -> ForwarderCounts:
    """Return the part of a forwarder's result that ``run.json`` contains."""
    counts: ForwarderCounts = convert(result, ForwarderCounts, from_attributes=True)
    return counts


def missed_frames(tap: TapCounts | SocketCounts) -> int:
    """Count the frames that are missing in a capture."""
    lost = tap.ring_full if isinstance(tap, TapCounts) else tap.dropped
    return lost + tap.unstamped


def what_is_wrong(error: ValidationError | RecursionError) -> str:
    """Return the wrong field of a message and what is wrong with it, as in ``gen.sent: ...``."""
    problem, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    problem = problem[:1].lower() + problem[1:]
    return f"{field}: {problem}" if field else problem
