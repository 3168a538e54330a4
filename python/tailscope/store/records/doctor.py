"""What ``tailscope doctor --json`` prints of a machine."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.floor import FloorQuantile
from tailscope.store.records.host import HostRecord

DOCTOR_FORMAT: Final = 1
State: TypeAlias = Literal["tried", "found", "missing"]


class Finding(Section, frozen=True, kw_only=True):
    """Something that a measurement can use."""

    name: str
    """Its name, as options have it."""
    about: str
    """What it is."""
    state: State
    """`tried`: it was used for a moment; `found`: all that it needs is there and starts; or
    `missing`."""
    detail: str | None
    """Version, or what is missing; null where there is nothing to say."""
    remedy: str | None
    """The line that adds what is missing; null where nothing is, or where no line does."""


class CardStamps(Section, frozen=True, kw_only=True):
    """The hardware timestamps that a network card offers."""

    name: str
    """Name of the link."""
    stamps: Literal["all", "some", "none"]
    """Received frames that the card can timestamp."""
    clock: int | None
    """Number of the card's clock, as in `/dev/ptpN`; null without one."""


class BusyProgram(Section, frozen=True, kw_only=True):
    """A program that ran meanwhile."""

    name: str
    """Name of the program."""
    share: float
    """Time that it ran, as a share of one CPU."""


class MachineLoad(Section, frozen=True, kw_only=True):
    """The load before anything was tried."""

    cpus: dict[str, float]
    """Share of each CPU that was busy."""
    programs: tuple[BusyProgram, ...]
    """Programs on the CPUs that were busy, the largest first."""


class ShortFloor(Section, frozen=True, kw_only=True):
    """The floor of shared memory, measured for a second or two and not kept."""

    rate_pps: Count
    """Packets per second."""
    duration_ns: Count
    """Duration of the measurement."""
    quantiles: tuple[FloorQuantile, ...]
    """Quantiles of the latency with nothing in between."""
    believed_up_to: float | None
    """Quantile up to which the instrument can be believed; null where it cannot."""


class DoctorRecord(Record, frozen=True, kw_only=True):
    """What can be measured on a machine, and how far."""

    format: Literal[1] = DOCTOR_FORMAT
    """Version of this record."""
    answer: str
    """The same in a sentence."""
    examined_unix_ns: Count
    """Time of the examination, in nanoseconds since 1970."""
    host: HostRecord
    """The machine."""
    load: MachineLoad
    """Who is busy on it."""
    floor: ShortFloor | None
    """How far it can be believed; null where the floor could not be measured."""
    no_floor: str | None
    """Reason why it could not."""
    wires: tuple[Finding, ...]
    """Wires between generator and device."""
    devices: tuple[Finding, ...]
    """Devices under test."""
    platforms: tuple[Finding, ...]
    """Platforms that a device runs on."""
    recordings: tuple[Finding, ...]
    """What is recorded beside packets."""
    host_parts: tuple[Finding, ...]
    """What else of the machine a measurement uses."""
    extras: tuple[Finding, ...]
    """Extras of the Python package."""
    cards: tuple[CardStamps, ...]
    """Network cards."""
