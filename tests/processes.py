"""Processes of the data plane over memif, without what `tailscope run` does around them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.testbed.cores import Cores, pick_cores, read_topology
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.wires import Memif, WireEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass
class Pair:
    """A generator and a device, each with a CPU of its own where there are two."""

    ends: WireEnds
    folder: RunFolder
    cores: Cores

    def generator(self, options: Sequence[str], eal: Sequence[str] | None = None) -> Dataplane:
        """A generator; `eal` in place of the wire's options."""
        return self._process("generator", "gen", eal or self.ends.generator.eal, options)

    def dut(
        self, program: str, options: Sequence[str], eal: Sequence[str] | None = None
    ) -> Dataplane:
        """A device; `eal` in place of the wire's options."""
        return self._process("dut", program, eal or self.ends.dut.eal, options)

    def _process(
        self, role: str, program: str, eal: Sequence[str], options: Sequence[str]
    ) -> Dataplane:
        cpu = self.cores.pollers[role == "dut"]
        cpus = {"lcores": [cpu], "housekeeping": self.cores.housekeeping}
        return Dataplane(role, program, eal, options, place=Here(self.folder.path), **cpus)


@contextmanager
def over_memif() -> Iterator[Pair]:
    """A wire in a private folder."""
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(Memif({}).open(folder))
        yield Pair(ends, folder, pick_cores(read_topology(), 2))
