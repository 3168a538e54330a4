"""Reading how much power the machine draws, while something is measured on it.

A source counts energy (RAPL), or says watts (IPMI, a command of the user's). Who reads it costs
time and power himself: readings are taken on the CPUs that do not poll, and each says how long it
took.
"""

from __future__ import annotations

import re
import shlex
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, NamedTuple, Self

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.machine import Machine
from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program, which
from tailscope.testbed.steady import SteadyClock

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.testbed.places import Place

POWER = ("auto", "none", "rapl", "ipmi", "command:CMD ARGS")
"""Where power is read: RAPL if it may be read, nowhere, or a source by its name."""

POWER_THREAD = "tailscope-power"
"""The thread of this process that reads it."""

_COMMAND = "command:"
_ZONES = "/sys/class/powercap/intel-rapl:*"
_DCMI = ("ipmitool", "dcmi", "power", "reading")
_INSTANTANEOUS = re.compile(r"Instantaneous power reading:\s+(?P<watts>\d+)\s+Watts")
_TIMEOUT_S = 5.0
_SHOWN = 80


@dataclass(frozen=True)
class Meter:
    """What is to be known of a source of power."""

    name: str
    includes: str
    domains: tuple[str, ...]
    range_uj: tuple[int, ...] = ()
    """As those of `PowerSource`."""


class PowerSource(ABC):
    """Where power is read."""

    name: str
    """As ``--power`` has it."""
    domains: tuple[str, ...]
    """What each value of a reading is of; they do not overlap."""
    includes: str
    """What all of them cover."""
    interval_s: float
    """How often to read it."""
    range_uj: tuple[int, ...] = ()
    """Of a source that counts energy: the value after which each counter begins again at 0. Empty
    for one that says watts."""

    @property
    def meter(self) -> Meter:
        """What is to be known of it."""
        return Meter(self.name, self.includes, self.domains, self.range_uj)

    @abstractmethod
    def check(self) -> None:
        """See whether it can be read on this machine."""

    @abstractmethod
    def read(self, place: Place) -> tuple[Decimal, ...]:
        """Read it: watts, or energy in µJ, of each domain."""


class Rapl(PowerSource):
    """The processor's own counters of energy: of its packages, and of memory where it has them."""

    name = "rapl"
    interval_s = 0.2

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine or Machine()
        named = {zone: self._text(zone, "name") for zone in self._machine.glob(_ZONES)}
        # Cores are within their package; psys, the platform, is not on every machine.
        zones = {
            zone: name
            for zone, name in named.items()
            if name.startswith("package") or name == "dram"
        }
        self._zones = tuple(zones)
        self.domains = tuple(_qualified(zone, named) for zone in zones)
        self.includes = ", ".join(self.domains)
        self.range_uj = tuple(int(self._text(zone, "max_energy_range_uj") or 0) for zone in zones)

    def check(self) -> None:
        """See whether there are counters, and they may be read."""
        if not self._zones:
            raise TestbedError(
                f"power: no RAPL: no package among {_ZONES}",
                hint="virtual machines have none; elsewhere `modprobe intel_rapl_msr` may help",
            )
        self._read()

    def read(self, place: Place) -> tuple[Decimal, ...]:  # noqa: ARG002
        """Read all counters."""
        return self._read()

    def _read(self) -> tuple[Decimal, ...]:
        return tuple(map(self._count, self._zones, self.range_uj))

    def _count(self, zone: str, most: int) -> Decimal:
        path = f"{zone}/energy_uj"
        text = self._machine.read(path)
        if text is None:
            raise TestbedError(
                f"power: {path}: permission denied",
                hint="run as root: since 2020 the kernel lets nobody else read these counters",
            )
        count = text.strip()
        if not (count.isdecimal() and int(count) <= most):
            raise TestbedError(
                f"power: {path}: got {count[:_SHOWN]!r}, expected a count of 0 to {most} µJ"
            )
        return Decimal(count)

    def _text(self, zone: str, file: str) -> str:
        return (self._machine.read(f"{zone}/{file}") or "").strip()


class Ipmi(PowerSource):
    """What the server's management controller says of the whole server (DCMI)."""

    name = "ipmi"
    domains = ("server",)
    includes = "the whole server"
    interval_s = 1.0

    def check(self) -> None:
        """See whether there is a program that asks it; it is asked when readings begin."""
        find_program("power", _DCMI[0], _DCMI[0])

    def read(self, place: Place) -> tuple[Decimal, ...]:
        """Ask it."""
        said = place.run(_DCMI, timeout_s=_TIMEOUT_S)
        found = _INSTANTANEOUS.search(said)
        if found is None:
            raise TestbedError(
                f"power: {' '.join(_DCMI)}: got {said.strip()[:_SHOWN]!r},"
                " expected a line 'Instantaneous power reading: N Watts'"
            )
        return (Decimal(found["watts"]),)


class Command(PowerSource):
    """A command of the user's that prints watts, as one number."""

    domains = ("meter",)
    includes = "what the command measures"
    interval_s = 0.2

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.name = _COMMAND + shlex.join(words)

    def check(self) -> None:
        """See whether there is such a program."""
        if which(self._words[0]) is None:
            raise TestbedError(f"power: no program {self._words[0]}")

    def read(self, place: Place) -> tuple[Decimal, ...]:
        """Run it."""
        said = place.run(self._words, timeout_s=_TIMEOUT_S).strip()
        try:
            watts = Decimal(said)
        except InvalidOperation:
            watts = Decimal("nan")
        if not (watts.is_finite() and watts >= 0):
            raise TestbedError(
                f"power: {shlex.join(self._words)}: got {said[:_SHOWN]!r},"
                " expected watts as one number, such as 45.2"
            )
        return (watts,)


def source_named(text: str) -> PowerSource | None:
    """Return the source that ``--power`` names; None for ``none``, or ``auto`` without one."""
    if text.startswith(_COMMAND):
        try:
            words = shlex.split(text.removeprefix(_COMMAND))
        except ValueError as error:
            raise UsageError(f"--power: got {text!r}: {error}") from None
        if words:
            return Command(words)
    elif text == "ipmi":
        return Ipmi()
    elif text in ("auto", "rapl"):
        return Rapl()
    elif text == "none":
        return None
    raise UsageError(f"--power: got {text!r}, expected one of {', '.join(POWER)}")


def check_power(text: str) -> None:
    """See whether power can be read as ``--power`` wants it; ``auto`` takes what there is."""
    source = source_named(text)
    if source is not None and text != "auto":
        source.check()


class PowerReading(NamedTuple):
    """One reading of a source."""

    unix_ns: int
    """The middle of it."""
    took_ns: int
    values: tuple[Decimal, ...]
    """As `PowerSource.read` says."""


@dataclass(frozen=True)
class RecordedPower:
    """What was read."""

    source: Meter | None
    """None where there is none,"""
    why_not: str | None
    """and why."""
    readings: list[PowerReading]
    failures: list[str]
    """What readings failed for."""
    phases: dict[str, tuple[int, int]]
    """When the machine was left alone, in Unix time, in ns."""
    processes: list[int]
    """The programs that read it."""


class PowerRecorder:
    """Reads power within a block, where it can be read.

    Its thread stays on the CPUs of the thread that enters the block.
    """

    def __init__(self, folder: Path, what: str, *, phase_s: float) -> None:
        self._place = Here(folder)
        self._what, self._phase_s = what, phase_s
        self._source = source_named(what)
        self._why_not = None if self._source is not None else "not requested"
        self._readings: list[PowerReading] = []
        self._failures: list[str] = []
        self._phases: dict[str, tuple[int, int]] = {}
        self._reading = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        # A clock that is set while readings are taken must not turn them around.
        self._clock = SteadyClock()

    def __enter__(self) -> Self:
        if self._source is not None:
            self._begin(self._source)
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self, source: PowerSource) -> None:
        try:
            source.check()
            self._readings.append(self._read(source))
        except TestbedError as error:
            if self._what != "auto":
                raise
            self._source, self._why_not = None, str(error)
            return
        self._thread = threading.Thread(
            target=self._sample, args=[source], name=POWER_THREAD, daemon=True
        )
        self._thread.start()

    def rest(self, phase: str) -> None:
        """Leave the machine alone for a while, between two readings; not if nothing is read."""
        if self._source is None:
            return
        start_ns = self._take(self._source)
        self._end.wait(self._phase_s)
        self._phases[phase] = (start_ns, self._take(self._source))

    def finish(self) -> RecordedPower:
        """Stop, and say what was read."""
        if self._source is not None:
            self._take(self._source)
        self.__exit__()
        return RecordedPower(
            None if self._source is None else self._source.meter,
            self._why_not,
            self._readings,
            self._failures,
            self._phases,
            self._place.ran,
        )

    def _sample(self, source: PowerSource) -> None:
        while not self._end.wait(source.interval_s):
            self._take(source)

    def _take(self, source: PowerSource) -> int:
        """Take a reading, if it can be had; when it was."""
        with self._reading:
            try:
                reading = self._read(source)
            except (TestbedError, OSError) as error:
                self._failures.append(str(error))
                return self._clock.now_ns()
            self._readings.append(reading)
            return reading.unix_ns

    def _read(self, source: PowerSource) -> PowerReading:
        start_ns = self._clock.now_ns()
        values = source.read(self._place)
        took_ns = self._clock.now_ns() - start_ns
        return PowerReading(start_ns + took_ns // 2, took_ns, values)


def _qualified(zone: str, named: dict[str, str]) -> str:
    """The name of a zone, behind that of the one that it is within."""
    above = named.get(zone.rpartition(":")[0])
    return f"{above}/{named[zone]}" if above else named[zone]
