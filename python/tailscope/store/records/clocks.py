"""How clocks of a laboratory were brought to that of the captures: a part of ``run.json``."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailscope.store.records.base import Count, Section, Signed

MappedBy: TypeAlias = Literal["packets", "answers"]
TimesBy: TypeAlias = Literal["tsc", "unix"]


class ClockMapping(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What one method says of a machine's clock."""

    method: MappedBy
    """`packets`: packets that both the machine and the timestamper saw; `answers`: answers of both
    machines to questions, before the traffic and after it."""
    bounds: Count
    """Number of packets, or of answers."""
    offset_ns: Signed | None = None
    """What to add to the machine's time to get that of the captures, when the first of them came;
    null if nothing can be said."""
    drift_ppb: float | None = None
    """By how much that grows, in ns per second."""
    drift_error_ppb: float | None = None
    """How far the drift may be off; null if it changed meanwhile."""
    error_ns: Count | None = None
    """How far the offset may be off at any time from the first of them to the last."""
    pieces: Count | None = None
    """Number of stretches of time with a drift of their own."""
    missing_because: str | None = None
    """Why nothing can be said, such as what contradicts each other."""


class ClockReport(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What a program that keeps a machine's clock says of it. Nothing is based on it."""

    program: str
    """`chronyc` or `pmc`."""
    offset_ns: Signed | None = None
    """How far off it takes the clock to be."""
    error_ns: Count | None = None
    """How far that may be off by its own account; null if it does not say."""
    said: str
    """Its words, without the names of other machines."""


class MachineClock(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The clock of a machine."""

    times_by: TimesBy
    """What its times count: `tsc`, ticks of the time-stamp counter, or `unix`, Unix time."""
    method: MappedBy | None = None
    """The method that was used: the one with the smaller error. Null if none says anything, and for
    the timestamper, whose clock that of the captures is."""
    error_ns: Count | None = None
    """How far times may be off that were brought to the clock of the captures; null if none
    were."""
    mappings: tuple[ClockMapping, ...] = ()
    """What each method says."""
    contradiction: str | None = None
    """How methods exclude each other, if they do."""
    reports: tuple[ClockReport, ...] = ()
    """What programs on the machine say of its clock."""

    def problem(self, machine: str) -> str | None:
        """Say why times could not be brought to the clock of the captures; None if they were."""
        if self.method is not None:
            return None
        reasons = [
            f"{each.method}: {each.missing_because}"
            for each in self.mappings
            if each.missing_because is not None
        ]
        return (
            f"the clock of {machine} could not be brought to that of the captures:"
            f" {self.contradiction or '; '.join(reasons)}"
        )
