"""Simulated clocks and links of cards, behind the interfaces of the real ones."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.extra.laboratory.stamps.phc import ClockReading
from tailscope.extra.laboratory.stamps.stamping import ALL_FRAMES, Offer

if TYPE_CHECKING:
    from collections.abc import Callable

START_NS = 1_800_000_000 * 10**9


@dataclass
class System:
    """The clock of the machine, whose time passes when it is read."""

    now_ns: int = START_NS
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def pass_by(self, ns: int) -> int:
        self.now_ns += ns
        return self.now_ns


@dataclass
class FakeClock:
    """A clock of a card that leads the machine's by a law of time.

    A reading takes a while, and the card answers at a random moment within it.
    """

    name: str
    system: System
    ahead_ns: Callable[[int], int]
    width_ns: int = 1000
    broken: bool = False

    def at(self, system_ns: int) -> int:
        """Return the card's time at a moment."""
        return system_ns + self.ahead_ns(system_ns - START_NS)

    def read(self) -> ClockReading:
        if self.broken:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        before = self.system.pass_by(self.system.chance.randint(100, 5000))
        width = self.width_ns + self.system.chance.randint(0, self.width_ns)
        asked = before + self.system.chance.randint(0, width)
        self.system.pass_by(width)
        return ClockReading(before + width // 2, self.at(asked), width)


@dataclass
class FakeLinks:
    """Links with their offers, settings, and misbehaviour, by name."""

    offers: dict[str, Offer]
    clocks: dict[int, FakeClock] = field(default_factory=dict)
    settings: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    refuse: set[str] = field(default_factory=set)
    pretend: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    """Links whose drivers do not report their settings."""
    configured: list[tuple[str, tuple[int, int, int]]] = field(default_factory=list)

    def offer(self, link: str) -> Offer:
        return self.offers[link]

    def configuration(self, link: str) -> tuple[int, int, int]:
        if link in self.mute:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return self.settings.get(link, (0, 0, 0))

    def configure(self, link: str, configuration: tuple[int, int, int]) -> tuple[int, int, int]:
        if link in self.refuse:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.configured.append((link, configuration))
        if link in self.pretend and configuration[2] == ALL_FRAMES:
            return configuration[0], configuration[1], 12
        self.settings[link] = configuration
        return configuration

    def clock(self, number: int) -> FakeClock:
        return self.clocks[number]


def card(clock: int | None = 0) -> Offer:
    """Return the offer of a card that can timestamp all frames."""
    return Offer(stamps=True, stamps_all=True, clock=clock)


PTP_ONLY = Offer(stamps=True, stamps_all=False, clock=0)
NOTHING = Offer(stamps=False, stamps_all=False, clock=None)
