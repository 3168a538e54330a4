"""The platform ``bare``: the machine itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailscope.host.kernel import check_kernel
from tailscope.platforms.platform import OpenPlatform, Platform
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.duts.dut import Dut
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.wires import Side


class Bare(Platform):
    """A process on this machine."""

    name = "bare"
    about = "a process on this machine"
    wires = ("memif", "veth", "pci")

    def check(self) -> None:
        """Check that the running kernel is the requested one."""
        check_kernel(self.kernel, self.boot)

    @contextmanager
    def open(
        self,
        folder: Folder,
        side: Side,
        dut: Dut,  # noqa: ARG002
        *,
        cpus: tuple[int, ...],
        housekeeping: tuple[int, ...],
        pinned: bool = True,  # noqa: ARG002
    ) -> Iterator[OpenPlatform]:
        """Return this machine as the platform of the device."""
        yield OpenPlatform(
            Here(folder.path, side.command, mark=folder.name), side, cpus, housekeeping
        )
