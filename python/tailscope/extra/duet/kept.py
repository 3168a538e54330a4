"""A set-up that stays put up from block to block: its wire, its platform and their links.

The device is started anew for each block, and the generator behind it: where the memory of a
process happens to lie can be worth percents for as long as it lives, so that luck has to be in the
differences. What a run finds out beside its packets, such as its neighbours and the settings of the
host, no pair asks for.
"""

from __future__ import annotations

import queue
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict

from tailscope.duts.dut import DutContext
from tailscope.engine.analysis import Clock, Recording, analyze_recording
from tailscope.exceptions import DataplaneError
from tailscope.experiment.run.instance import PLATFORM_PART
from tailscope.extra.duet.paired import Block
from tailscope.testbed.co_runners import co_runners
from tailscope.testbed.cores import confined
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import GENERATOR
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.waiting import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from tailscope.duts.dut import Dut
    from tailscope.experiment.plan import RunPlan
    from tailscope.platforms.platform import OpenPlatform
    from tailscope.store.records.messages import GeneratorProgress, GeneratorResult
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import Side

    Generator = Dataplane[GeneratorProgress, GeneratorResult]


def can_be_kept(plan: RunPlan) -> bool:
    """Return whether a set-up is one device that needs nothing but its wire and its platform."""
    return plan.instances == 1 and bool(plan.device.make_dut().cpus) and not plan.tune


@dataclass(frozen=True)
class KeptSetUp:
    """A set-up whose wire and platform are there."""

    plan: RunPlan
    cores: Cores
    folder: RunFolder
    side: Side
    """The generator's ports."""
    dut: Dut
    platform: OpenPlatform
    numbers: Iterator[int] = field(default_factory=count)

    def block(self) -> Block:
        """Start the device and the generator, and return the latencies of a block."""
        record = self.folder.make(f"block-{next(self.numbers)}")
        _remove_sockets(self.folder.path)
        with ExitStack() as stack:
            stack.enter_context(confined(self.cores.housekeeping))
            stack.enter_context(self.dut.open(self._context()))
            cpus = self.cores.housekeeping
            stack.enter_context(co_runners(self.folder, self.plan.co_runners, cpus))
            self.platform.hand_over()
            result = _end_of(stack.enter_context(self._generator(record)))
        return _block_of(self.plan, result, record)

    def _context(self) -> DutContext:
        [cpus] = self.plan.device.instance_cpus(self.cores)
        return DutContext(
            self.platform.place,
            self.platform.side,
            self.platform.cpus,
            self.platform.housekeeping,
            self.plan.device.stall_ns,
            pinned=not cpus.dut_anywhere,
        )

    def _generator(self, record: Path) -> Generator:
        [cpus] = self.plan.device.instance_cpus(self.cores)
        assert cpus.generator is not None, "there is traffic"
        return Dataplane(
            "generator",
            GENERATOR,
            self.side.eal,
            [*self.plan.generator_options(), "--keep-ports", f"--record={record}"],
            place=Here(self.folder.path, self.side.command, mark=self.folder.name),
            lcores=[cpus.generator],
            housekeeping=self.cores.housekeeping,
        )


@contextmanager
def kept(plan: RunPlan, cores: Cores) -> Iterator[KeptSetUp]:
    """Put up the wire and the platform of a set-up within a block."""
    plan.check()
    device, dut = plan.device, plan.device.make_dut()
    [cpus] = device.instance_cpus(cores)
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(device.make_wire().open(folder, dut.ports))
        platform = device.make_platform().open(
            folder.part(PLATFORM_PART),
            ends.dut,
            dut,
            cpus=cpus.dut,
            housekeeping=cpus.dut_anywhere or cores.housekeeping,
            pinned=not cpus.dut_anywhere,
        )
        opened = stack.enter_context(platform)
        yield KeptSetUp(plan, cores, folder, ends.generator, dut, opened)


def _remove_sockets(folder: Path) -> None:
    """Remove what a device that was killed listened on: nobody asks it to end in order."""
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()


def _end_of(generator: Generator) -> GeneratorResult:
    """Wait for the result of a generator as long as it works."""
    while generator.result is None:
        try:
            if generator.next_event(LOOK_S) is None:
                raise generator.failure()
        except queue.Empty:
            generator.check_progress()
    if generator.result.partial or not generator.result.gen.sent:
        raise DataplaneError(
            f"generator: a partial block: {'; '.join(generator.result.partial) or 'nothing sent'}",
            code="partial-result",
        )
    return generator.result


def _block_of(plan: RunPlan, result: GeneratorResult, record: Path) -> Block:
    recording = Recording.load(record, Clock(**asdict(result.clock)))
    block = block_of(plan, recording)
    for path in record.iterdir():
        path.unlink()
    record.rmdir()
    return block


def block_of(plan: RunPlan, recording: Recording) -> Block:
    """Return the latencies of a recording, with and without the instrument's stalls."""
    taken: list[Sequence[NDArray[np.int64]]] = []

    def sink(*columns: ArrayLike) -> None:
        latency_ns = np.asarray(columns[2], np.int64)
        taken.append((latency_ns, latency_ns - np.asarray(columns[5], np.int64)))

    analysis = analyze_recording(
        recording, trim=plan.trim_ns, window=plan.window_ns, worst=0, series=False, sink=sink
    )
    sent = int(analysis.summary["sent"] or 0)
    columns = (np.concatenate([each[at] for each in taken] or [_NONE]) for at in (0, 1))
    latency_ns, least_ns = map(np.sort, columns)
    return Block(latency_ns, least_ns, sent, plan.window_ns)


_NONE = np.zeros(0, np.int64)
