"""Offsets of a laboratory's clocks from that of the captures: a part of ``run.json``."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailscope.store.records.base import Count, Section, Signed

MappedBy: TypeAlias = Literal["packets", "answers"]
TimesBy: TypeAlias = Literal["tsc", "unix"]


class ClockMapping(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The offset of a machine's clock by one method."""

    method: MappedBy
    """`packets`: packets that both the machine and the timestamper saw; `answers`: answers of both
    machines to questions, before the traffic and after it."""
    bounds: Count
    """Number of packets, or of answers."""
    offset_ns: Signed | None = None
    """Offset to add to the machine's time to get that of the captures, when the first of them came;
    null if nothing can be said."""
    drift_ppb: float | None = None
    """Drift of the offset, in ns per second."""
    drift_error_ppb: float | None = None
    """Uncertainty of the drift; null if it changed meanwhile."""
    error_ns: Count | None = None
    """Uncertainty of the offset at any time from the first of them to the last."""
    pieces: Count | None = None
    """Number of stretches of time with a drift of their own."""
    missing_because: str | None = None
    """Reason why there is no offset, such as contradictory readings."""


class ClockReport(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a machine's clock by the program that keeps it; nothing is based on it."""

    program: str
    """`chronyc` or `pmc`."""
    offset_ns: Signed | None = None
    """Its estimate of the clock's offset."""
    error_ns: Count | None = None
    """Its own bound on the error of that estimate; null if it gives none."""
    said: str
    """Its words, without the names of other machines."""


class MachineClock(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The clock of a machine."""

    times_by: TimesBy
    """Unit of its times: `tsc`, ticks of the time-stamp counter, or `unix`, Unix time."""
    method: MappedBy | None = None
    """The method that was used: the one with the smaller error. Null if none says anything, and for
    the timestamper, whose clock that of the captures is."""
    error_ns: Count | None = None
    """Uncertainty of times that were brought to the clock of the captures; null if none
    were."""
    mappings: tuple[ClockMapping, ...] = ()
    """Offset by each method."""
    contradiction: str | None = None
    """Contradictions between methods."""
    reports: tuple[ClockReport, ...] = ()
    """States of the clock according to programs on the machine."""

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
