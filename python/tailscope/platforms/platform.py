"""What every platform is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tailscope.exceptions import UsageError
from tailscope.testbed.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tailscope.duts.dut import Dut
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.places import Place
    from tailscope.testbed.wires import Side


def _nothing() -> None:
    """Nobody is in the way."""


@dataclass(frozen=True)
class OpenPlatform:
    """A platform that is there."""

    place: Place
    """Where commands of the device run."""
    side: Side
    """The device's ports, as they are known there."""
    cpus: tuple[int, ...]
    housekeeping: tuple[int, ...]
    """CPUs of the device and for all else, as they are numbered there."""
    shares_clock: bool = True
    """Whether stalls there are on the clock of the packets, and this machine can write them down.
    """
    about: Mapping[str, str | int] = field(default_factory=dict)
    """What ``run.json`` keeps of it."""
    warnings: tuple[str, ...] = ()
    """What the figures are not."""
    hand_over: Callable[[], object] = _nothing
    """Makes way for the generator; called when the device is ready."""


class Platform(ABC):
    """A kind of platform, with its options."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What it is, in a line."""
    options: ClassVar[Mapping[str, str]] = {}
    """As given."""
    wires: ClassVar[tuple[str, ...]]
    programs: ClassVar[Mapping[str, str]] = {}
    """Programs that it needs, and the packages that have them."""

    def __init__(
        self, options: Mapping[str, str], kernel: str | None = None, boot: str | None = None
    ) -> None:
        for name in options:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(
                    f"--platform-option: got {name!r}, expected one of the options of"
                    f" {self.name}: {known}"
                )
        self.given, self.kernel, self.boot = dict(options), kernel, boot

    @property
    def starts_in_s(self) -> float:
        """How long it takes to be there, roughly."""
        return 0.0

    def check(self) -> None:
        """See whether this machine has what the platform needs."""
        for program, package in self.programs.items():
            find_program(f"platform {self.name}", program, package)

    @abstractmethod
    def open(
        self,
        folder: Folder,
        side: Side,
        dut: Dut,
        *,
        cpus: tuple[int, ...],
        housekeeping: tuple[int, ...],
        pinned: bool = True,
    ) -> AbstractContextManager[OpenPlatform]:
        """Make a home for a device within a block."""
