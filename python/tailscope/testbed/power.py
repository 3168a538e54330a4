"""Power of the machine during a measurement.

A source counts energy (RAPL), or reports watts (IPMI, a command of the user's). Reading it costs
time and power: readings are taken on CPUs that do not poll, and each records its duration.
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
from tailscope.host import remedies
from tailscope.host.machine import Machine
from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program, which
from tailscope.testbed.steady import SteadyClock
from tailscope.units import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.testbed.places import Place

POWER = ("auto", "none", "rapl", "ipmi", "command:CMD ARGS")
"""Values of ``--power``: RAPL if it can be read, no source, or a source by its name."""

POWER_THREAD = "tailscope-power"
"""Name of the thread that reads the power."""

_COMMAND = "command:"
_ZONES = "/sys/class/powercap/intel-rapl:*"
_DCMI = ("ipmitool", "dcmi", "power", "reading")
_INSTANTANEOUS = re.compile(r"Instantaneous power reading:\s+(?P<watts>\d+)\s+Watts")
_TIMEOUT_S = 5.0
_SHOWN = 80


@dataclass(frozen=True)
class Meter:
    """The description of a power source."""

    name: str
    """Name, as in `PowerSource`."""
    includes: str
    """Coverage, as in `PowerSource`."""
    domains: tuple[str, ...]
    """Domains, as in `PowerSource`."""
    range_uj: tuple[int, ...] = ()
    """Range of the counters in µJ, as in `PowerSource`."""


class PowerSource(ABC):
    """A source of power readings."""

    name: str
    """Name, as in ``--power``."""
    domains: tuple[str, ...]
    """Domain of each value of a reading; domains do not overlap."""
    includes: str
    """Coverage of all domains together."""
    interval_s: float
    """Interval of the readings, in seconds."""
    range_uj: tuple[int, ...] = ()
    """Value in µJ after which each energy counter restarts at 0; empty for a source of watts."""

    @property
    def meter(self) -> Meter:
        """Return the description of the source."""
        return Meter(self.name, self.includes, self.domains, self.range_uj)

    @abstractmethod
    def check(self) -> None:
        """Check that the source can be read on this machine."""

    @abstractmethod
    def read(self, place: Place) -> tuple[Decimal, ...]:
        """Read watts, or energy in µJ, of each domain."""


class Rapl(PowerSource):
    """Energy counters of the processor for its packages, and for memory if it has them."""

    name = "rapl"
    interval_s = 0.2

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine or Machine()
        named = {zone: self._text(zone, "name") for zone in self._machine.glob(_ZONES)}
        # Cores are part of their package; psys, the platform, is not on every machine.
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
        """Check that there are counters which this user may read."""
        if not self._zones:
            raise TestbedError(
                f"power: no RAPL: no package among {_ZONES}",
                code="no-rapl",
                remedy=remedies.RAPL,
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
                code="rapl-denied",
                remedy=remedies.RAPL_RIGHTS,
            )
        count = text.strip()
        if not (count.isdecimal() and int(count) <= most):
            raise TestbedError(
                f"power: {path}: got {count[:_SHOWN]!r}, expected a count of 0 to {most} µJ",
                code="power-reading",
            )
        return Decimal(count)

    def _text(self, zone: str, file: str) -> str:
        return (self._machine.read(f"{zone}/{file}") or "").strip()


class Ipmi(PowerSource):
    """The power of the whole server, from its management controller (DCMI)."""

    name = "ipmi"
    domains = ("server",)
    includes = "the whole server"
    interval_s = 1.0

    def check(self) -> None:
        """Check that ipmitool exists; the controller itself is asked when readings begin."""
        find_program("power", _DCMI[0], _DCMI[0])

    def read(self, place: Place) -> tuple[Decimal, ...]:
        """Ask the management controller."""
        output = place.run(_DCMI, timeout_s=_TIMEOUT_S)
        reading = _INSTANTANEOUS.search(output)
        if reading is None:
            raise TestbedError(
                f"power: {' '.join(_DCMI)}: got {output.strip()[:_SHOWN]!r},"
                " expected a line 'Instantaneous power reading: N Watts'",
                code="power-reading",
            )
        return (Decimal(reading["watts"]),)


class Command(PowerSource):
    """A command of the user's that prints watts as one number."""

    domains = ("meter",)
    includes = "what the command measures"
    interval_s = 0.2

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.name = _COMMAND + shlex.join(words)

    def check(self) -> None:
        """Check that the program exists."""
        if which(self._words[0]) is None:
            raise TestbedError(f"power: no program {self._words[0]}", code="no-program")

    def read(self, place: Place) -> tuple[Decimal, ...]:
        """Run the command."""
        output = place.run(self._words, timeout_s=_TIMEOUT_S).strip()
        try:
            watts = Decimal(output)
        except InvalidOperation:
            watts = Decimal("nan")
        if not (watts.is_finite() and watts >= 0):
            raise TestbedError(
                f"power: {shlex.join(self._words)}: got {output[:_SHOWN]!r},"
                " expected watts as one number, such as 45.2",
                code="power-reading",
            )
        return (watts,)


def source_named(text: str) -> PowerSource | None:
    """Return the source that ``--power`` names; None for ``none``."""
    if text.startswith(_COMMAND):
        try:
            words = shlex.split(text.removeprefix(_COMMAND))
        except ValueError as error:
            raise UsageError(f"--power: got {text!r}: {error}", code="power-source") from None
        if words:
            return Command(words)
    elif text == "ipmi":
        return Ipmi()
    elif text in ("auto", "rapl"):
        return Rapl()
    elif text == "none":
        return None
    raise UsageError(
        f"--power: got {text!r}, expected one of {', '.join(POWER)}",
        code="power-source",
        hint=did_you_mean(text, POWER),
    )


def check_power(text: str) -> None:
    """Check that the source of ``--power`` can be read; ``auto`` does not require one."""
    source = source_named(text)
    if source is not None and text != "auto":
        source.check()


class PowerReading(NamedTuple):
    """A reading of a source."""

    unix_ns: int
    """Time of the middle of the reading, in Unix time, in nanoseconds."""
    took_ns: int
    """Duration of the reading, in nanoseconds."""
    values: tuple[Decimal, ...]
    """Values of all domains, as `PowerSource.read` returns them."""


@dataclass(frozen=True)
class RecordedPower:
    """The power readings of a measurement."""

    source: Meter | None
    """Source of the readings; None if there is none."""
    why_not: str | None
    """Reason why there is no source."""
    readings: list[PowerReading]
    failures: list[str]
    """Messages of failed readings."""
    phases: dict[str, tuple[int, int]]
    """Start and end of each phase without work, in Unix time, in nanoseconds."""
    processes: list[int]
    """Process numbers of the programs that took readings."""


class PowerRecorder:
    """A recorder of power within a block, if there is a source.

    Its thread stays on the CPUs of the thread that enters the block.
    """

    def __init__(
        self, folder: Path, what: str, *, phase_s: float, clock: SteadyClock | None = None
    ) -> None:
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
        # Setting the machine's clock during a measurement must not reorder the readings.
        self._clock = clock or SteadyClock()

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
        """Leave the machine idle for a phase between two readings, if there is a source."""
        if self._source is None:
            return
        start_ns = self._take(self._source)
        self._end.wait(self._phase_s)
        self._phases[phase] = (start_ns, self._take(self._source))

    def finish(self) -> RecordedPower:
        """Stop, and return the readings."""
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
        """Take a reading if possible, and return its time."""
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
    """Return the name of a zone, after that of its parent zone if it has one."""
    parent = named.get(zone.rpartition(":")[0])
    return f"{parent}/{named[zone]}" if parent else named[zone]
