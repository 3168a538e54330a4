"""What an agent has recorded of its machine: a part of `tailscope.extra.laboratory.protocol`."""

from __future__ import annotations

from tailscope.store.records.base import Count, Section, Signed
from tailscope.store.records.clocks import TimesBy
from tailscope.store.records.run import KernelNoise, PowerPhase, TimestampedFile

__all__ = ["MachineRecording", "PowerReadings", "SourceOfPower"]


class SourceOfPower(Section, frozen=True, kw_only=True):
    """Where power was read, as `tailscope.testbed.power.PowerSource` has it."""

    name: str
    includes: str
    domains: list[str]
    range_uj: list[Count]


class PowerReadings(Section, frozen=True, kw_only=True):
    """What was read of power, but for the readings: these are a file.

    Attributes
    ----------
    source : SourceOfPower or None
        None where there is none,
    why_not : str or None
        and why.
    failures : int
        Readings that failed,
    first_failure : str or None
        and why the first of them did.
    phases : dict of str to PowerPhase
        When the machine was left alone, by its Unix time.
    """

    source: SourceOfPower | None
    why_not: str | None
    failures: Count
    first_failure: str | None
    phases: dict[str, PowerPhase]


class MachineRecording(Section, frozen=True, kw_only=True):
    """What an agent has recorded of its machine while packets were on their way.

    Attributes
    ----------
    times_by : str
        The clock of what happened on its CPUs, and of packets that it saw.
    noise : KernelNoise
    warnings : list of str
        What a reader of results must know of it.
    own_work : list of str
        How causes begin that are the machine's part in forwarding.
    power : PowerReadings or None
    clock_set_by_ns : int
        By how much its Unix time was set meanwhile.
    files : dict of str to TimestampedFile
        ``noise``, ``interrupts``, ``sightings``, ``pairs``; of a device, ``readings`` of power.
    """

    times_by: TimesBy
    noise: KernelNoise
    warnings: list[str]
    own_work: list[str]
    power: PowerReadings | None
    clock_set_by_ns: Signed
    files: dict[str, TimestampedFile]
