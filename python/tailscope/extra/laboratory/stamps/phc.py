"""Clocks of network cards, read against the system's clock and compared with each other."""

from __future__ import annotations

import fcntl
import struct
import threading
from array import array
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERVAL_S = 0.1
_SAMPLES = 10
"""Samples of a reading, of which the fastest counts."""
_MOST_SAMPLES = 25
_CLOCK_TIME = struct.Struct("@qII")
_PRECISE, _PRECISE_BYTES = 0xC0403D08, 64
_EXTENDED, _EXTENDED_BYTES = 0xC4C03D09, 16 + 3 * _MOST_SAMPLES * _CLOCK_TIME.size
_BASIC, _BASIC_BYTES = 0x43403D05, 16 + (2 * _MOST_SAMPLES + 1) * _CLOCK_TIME.size
_FASTEST_PPM = 1000
"""Largest drift between two working clocks, in ppm: beyond it, one of them was set."""


class ClockReading(NamedTuple):
    """A reading of a card's clock between two readings of the system's clock."""

    system_ns: int
    """Middle of the two readings of the system's clock."""
    clock_ns: int
    """Time of the card's clock."""
    width_ns: int
    """Time between the two readings; 0 if the card reads both clocks at once."""


class CardClock(Protocol):
    """A clock that timestamps frames."""

    @property
    def name(self) -> str:
        """Return the usual name, such as ``ptp0``."""

    def read(self) -> ClockReading:
        """Read the clock."""


class KernelClock:
    """A clock of a card, read by its device file."""

    def __init__(self, number: int) -> None:
        self.name = f"ptp{number}"

    def read(self) -> ClockReading:
        """Read the clock as precisely as its driver can."""
        with open(f"/dev/{self.name}", "rb", buffering=0) as device:  # noqa: PTH123 - no file
            with suppress(OSError):
                return _precise(device.fileno())
            with suppress(OSError):
                return _extended(device.fileno())
            return _basic(device.fileno())


def _precise(device: int) -> ClockReading:
    words = bytearray(_PRECISE_BYTES)
    fcntl.ioctl(device, _PRECISE, words)
    clock_ns, system_ns, _ = _times(words, 0, 3)
    return ClockReading(system_ns, clock_ns, 0)


def _extended(device: int) -> ClockReading:
    words = bytearray(_EXTENDED_BYTES)
    struct.pack_into("@I", words, 0, _SAMPLES)
    fcntl.ioctl(device, _EXTENDED, words)
    times = iter(_times(words, 16, 3 * _SAMPLES))
    return _narrowest(list(zip(times, times, times, strict=True)))


def _basic(device: int) -> ClockReading:
    words = bytearray(_BASIC_BYTES)
    struct.pack_into("@I", words, 0, _SAMPLES)
    fcntl.ioctl(device, _BASIC, words)
    times = _times(words, 16, 2 * _SAMPLES + 1)
    around = pairwise(times[::2])
    return _narrowest([(a, clock, b) for (a, b), clock in zip(around, times[1::2], strict=True)])


def _times(words: bytearray, at: int, number: int) -> list[int]:
    fields = _CLOCK_TIME.iter_unpack(words[at : at + number * _CLOCK_TIME.size])
    return [seconds * 10**9 + ns for seconds, ns, _ in fields]


def _narrowest(samples: list[tuple[int, int, int]]) -> ClockReading:
    before, clock_ns, after = min(samples, key=lambda sample: sample[2] - sample[0])
    return ClockReading((before + after) // 2, clock_ns, after - before)


class Comparison:
    """Simultaneous readings of two clocks."""

    def __init__(self) -> None:
        self.first_ns, self.second_ns, self.error_ns = array("q"), array("q"), array("q")
        self.failed = 0

    def add(self, readings: tuple[int, int, int] | None) -> None:
        """Add a result of `compare`."""
        if readings is None:
            self.failed += 1
            return
        for column, value in zip(
            (self.first_ns, self.second_ns, self.error_ns), readings, strict=True
        ):
            column.append(value)


def compare(first: CardClock, second: CardClock) -> tuple[int, int, int] | None:
    """Read two clocks at the same moment of the system's clock; None if one was set."""
    before, middle, after = first.read(), second.read(), first.read()
    system_ns, clock_ns = after.system_ns - before.system_ns, after.clock_ns - before.clock_ns
    width_ns = max(before.width_ns, after.width_ns)
    if not before.system_ns < middle.system_ns < after.system_ns:
        return None
    if abs(clock_ns - system_ns) > width_ns + system_ns * _FASTEST_PPM // 10**6 + 1:
        return None
    passed_ns = middle.system_ns - before.system_ns
    first_ns = before.clock_ns + clock_ns * passed_ns // system_ns
    return first_ns, middle.clock_ns, (width_ns + middle.width_ns + 1) // 2 + 1


@contextmanager
def comparing(
    first: CardClock, second: CardClock, *, interval_s: float = _INTERVAL_S
) -> Iterator[Comparison]:
    """Compare two clocks throughout a block, including its beginning and its end."""
    comparison = Comparison()
    _add(comparison, first, second)
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(interval_s):
            try:
                comparison.add(compare(first, second))
            except OSError:
                comparison.failed += 1

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield comparison
    finally:
        ended.set()
        thread.join()
    _add(comparison, first, second)


def _add(comparison: Comparison, first: CardClock, second: CardClock) -> None:
    try:
        comparison.add(compare(first, second))
    except OSError as error:
        names = f"{first.name} and {second.name}"
        text = f"the clocks {names} cannot be read: {error.strerror}"
        raise TestbedError(text, code="clock-unreadable") from None
