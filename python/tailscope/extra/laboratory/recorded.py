"""The recording of an agent's machine, as a part of `tailscope.extra.laboratory.protocol`."""

from __future__ import annotations

from tailscope.store.records.base import Count, Section, Signed
from tailscope.store.records.clocks import TimesBy
from tailscope.store.records.run import KernelNoise, PowerPhase, TimestampedFile


class SourceOfPower(Section, frozen=True, kw_only=True):
    """A power source, as in `tailscope.testbed.power.PowerSource`."""

    name: str
    includes: str
    domains: list[str]
    range_uj: list[Count]


class PowerReadings(Section, frozen=True, kw_only=True):
    """The outcome of power readings, which themselves are in a file."""

    source: SourceOfPower | None
    """Source of the readings; None if there is none."""
    why_not: str | None
    """Reason why there is no source."""
    failures: Count
    """Number of failed readings."""
    first_failure: str | None
    """Message of the first failed reading."""
    phases: dict[str, PowerPhase]
    """Phases in which the machine was left idle, in its Unix time."""


class MachineRecording(Section, frozen=True, kw_only=True):
    """The recording of an agent's machine during a measurement."""

    times_by: TimesBy
    """Clock of events on its CPUs, and of packets that it saw."""
    noise: KernelNoise
    warnings: list[str]
    """Warnings for the reader of the results."""
    own_work: list[str]
    """Prefixes of causes that are the machine's part in forwarding."""
    power: PowerReadings | None
    clock_set_by_ns: Signed
    """Step by which the machine's Unix time was set meanwhile, in nanoseconds."""
    files: dict[str, TimestampedFile]
    """Files ``noise``, ``interrupts``, ``sightings``, ``pairs``; a device's power ``readings``."""
