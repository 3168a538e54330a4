"""Interface of platforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tailscope.testbed.programs import find_program
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tailscope.duts.dut import Dut
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.places import Place
    from tailscope.testbed.wires import Side


def _nothing() -> None:
    """Do nothing: the generator can start at once."""


@dataclass(frozen=True)
class OpenPlatform:
    """A platform that is ready for a device."""

    place: Place
    """Place in which the commands of the device run."""
    side: Side
    """Ports of the device, as they are named there."""
    cpus: tuple[int, ...]
    """CPUs of the device, as they are numbered there."""
    housekeeping: tuple[int, ...]
    """CPUs for everything else, as they are numbered there."""
    shares_clock: bool = True
    """True if this machine can record stalls there, on the clock of the packets."""
    about: Mapping[str, str | int] = field(default_factory=dict)
    """Description of the platform for ``run.json``."""
    warnings: tuple[str, ...] = ()
    """Warnings about the figures."""
    hand_over: Callable[[], object] = _nothing
    """Function that makes way for the generator, called when the device is ready."""


class Platform(ABC):
    """A kind of platform, with its options."""

    name: ClassVar[str]
    about: ClassVar[str]
    """Description of the platform in one line."""
    options: ClassVar[Mapping[str, str]] = {}
    """Description of each option."""
    wires: ClassVar[tuple[str, ...]]
    programs: ClassVar[Mapping[str, str]] = {}
    """Programs that the platform needs, and the packages that contain them."""

    def __init__(
        self, options: Mapping[str, str], kernel: str | None = None, boot: str | None = None
    ) -> None:
        for name in options:
            refuse_unknown(
                "--platform-option",
                name,
                self.options,
                "unknown-platform-option",
                of=f"the options of {self.name}",
            )
        self.given, self.kernel, self.boot = dict(options), kernel, boot

    @property
    def starts_in_s(self) -> float:
        """Return the approximate time until the platform is ready, in seconds."""
        return 0.0

    def check(self) -> None:
        """Check that this machine has everything that the platform needs."""
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
        """Set the platform up for a device within a block."""
