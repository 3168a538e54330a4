"""What an agent has recorded of its machine: a part of `tailscope.extra.laboratory.protocol`."""

from __future__ import annotations

from tailscope.store.records.base import Count, Section, Signed
from tailscope.store.records.clocks import TimesBy
from tailscope.store.records.run import KernelNoise, PowerPhase, TimestampedFile


class SourceOfPower(Section, frozen=True, kw_only=True):
    """Where power was read, as `tailscope.testbed.power.PowerSource` has it."""

    name: str
    includes: str
    domains: list[str]
    range_uj: list[Count]


class PowerReadings(Section, frozen=True, kw_only=True):
    """What was read of power, but for the readings: these are a file."""

    source: SourceOfPower | None
    """None where there is none,"""
    why_not: str | None
    """and why."""
    failures: Count
    """Readings that failed,"""
    first_failure: str | None
    """and why the first of them did."""
    phases: dict[str, PowerPhase]
    """When the machine was left alone, by its Unix time."""


class MachineRecording(Section, frozen=True, kw_only=True):
    """What an agent has recorded of its machine while packets were on their way."""

    times_by: TimesBy
    """The clock of what happened on its CPUs, and of packets that it saw."""
    noise: KernelNoise
    warnings: list[str]
    """What a reader of results must know of it."""
    own_work: list[str]
    """How causes begin that are the machine's part in forwarding."""
    power: PowerReadings | None
    clock_set_by_ns: Signed
    """By how much its Unix time was set meanwhile."""
    files: dict[str, TimestampedFile]
    """``noise``, ``interrupts``, ``sightings``, ``pairs``; of a device, ``readings`` of power."""
