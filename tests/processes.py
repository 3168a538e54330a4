"""Processes of the data plane over memif, without what `tailscope run` does around them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tailscope.testbed.cores import Cores, pick_cores, read_topology
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import GENERATOR
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.wires import Memif, WireEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.messages import (
        GeneratorProgress,
        GeneratorResult,
        ProgressEvent,
        ResultEvent,
    )
    from tailscope.testbed.messages import Program

P = TypeVar("P", bound="ProgressEvent")
R = TypeVar("R", bound="ResultEvent")


@dataclass
class Pair:
    """A generator and a device, each with a CPU of its own where there are two."""

    ends: WireEnds
    folder: RunFolder
    cores: Cores

    def generator(
        self, options: Sequence[str], eal: Sequence[str] | None = None
    ) -> Dataplane[GeneratorProgress, GeneratorResult]:
        """A generator; `eal` in place of the wire's options."""
        return self._process("generator", GENERATOR, eal or self.ends.generator.eal, options)

    def dut(
        self, program: Program[P, R], options: Sequence[str], eal: Sequence[str] | None = None
    ) -> Dataplane[P, R]:
        """A device; `eal` in place of the wire's options."""
        return self._process("dut", program, eal or self.ends.dut.eal, options)

    def _process(
        self, role: str, program: Program[P, R], eal: Sequence[str], options: Sequence[str]
    ) -> Dataplane[P, R]:
        return Dataplane(
            role,
            program,
            eal,
            options,
            place=Here(self.folder.path),
            lcores=[self.cores.pollers[role == "dut"]],
            housekeeping=self.cores.housekeeping,
        )


@contextmanager
def over_memif() -> Iterator[Pair]:
    """A wire in a private folder."""
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(Memif({}).open(folder))
        yield Pair(ends, folder, pick_cores(read_topology(), ("generator", "dut")))
