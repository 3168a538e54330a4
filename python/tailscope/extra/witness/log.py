"""What is common to logs of all programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.extra.witness.samples import Sample


class Log(NamedTuple):
    """The samples of a log."""

    kind: str
    clocks: Mapping[str, Sequence[Sample]]
    """Samples of each clock that the log speaks of, in order of time."""
    resolution_ns: int
    """Value of the last digit of its times, and what is not known of their zero."""
    zero_ns: int | None = 0
    """Unix time of the log's zero; None if the log does not say it."""


class LogReader(ABC):
    """Reads the lines of one kind of log, and passes over all others."""

    @abstractmethod
    def take(self, line: str) -> None:
        """Take the next line."""

    @abstractmethod
    def log(self) -> Log | None:
        """Return what was read; None if no line was of this kind."""
