"""The co-runners of a run: started beside the device, watched, and counted."""

from __future__ import annotations

import queue
import signal
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

from tailscope.duts.dut import DutContext
from tailscope.exceptions import DataplaneError, TailscopeError
from tailscope.experiment.fields import plan_of
from tailscope.experiment.run.account import platform_record
from tailscope.experiment.run.instance import PLATFORM_PART
from tailscope.extra.co_runners.stress import KINDS, Stress
from tailscope.noise.recorder import CO_RUNNERS_PART
from tailscope.platforms.catalogue import platform_named
from tailscope.store.records.run import CoRunnerRecord
from tailscope.testbed.messages import GENERATOR
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.removal import remove_tree
from tailscope.testbed.waiting import LOOK_S
from tailscope.testbed.wires import Side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.duts.dut import Dut, Running
    from tailscope.experiment.plan import RunPlan
    from tailscope.plan.fields import PlanFields
    from tailscope.platforms.platform import OpenPlatform, Platform
    from tailscope.store.records.messages import GeneratorProgress, GeneratorResult
    from tailscope.testbed.folder import Folder

    Generator = Dataplane[GeneratorProgress, GeneratorResult]

_LONGER_NS = 60_000_000_000
"""Time for which functions could be sent packets beyond the measurement, which ends them."""

_READY_S = 120.0
_STALL_NS = 1_000_000_000
"""Shorter stalls of functions beside the device are not told."""


class CoRunners:
    """The co-runners that a plan asks for."""

    programs = Stress.programs

    def __init__(self, plan: PlanFields) -> None:
        self._name = plan.co_runner_platform
        self._platform = platform_named(self._name, {}, None, None)
        workers = plan.co_runners
        self._loads = {kind: count for kind, count in workers.items() if kind in KINDS}
        self._functions = [
            plan_of(
                {
                    "dut": name,
                    "platform": self._name,
                    "rate": plan.rate_pps,
                    "size": plan.size_mix or plan.size_bytes,
                    "warm_up": "0s",
                    "duration": f"{plan.warm_up_ns + plan.duration_ns + _LONGER_NS}ns",
                }
            )
            for name, count in workers.items()
            if name not in KINDS
            for _ in range(count)
        ]

    def check(self) -> None:
        """Check that this machine has everything that they need."""
        if self._loads:
            Stress(self._loads).check()
            self._platform.check()
        for function in self._functions:
            function.check()

    @contextmanager
    def open(self, folder: Folder, cpus: tuple[int, ...]) -> Iterator[CoRunning]:
        """Run them on these CPUs within a block."""
        part = folder.part(CO_RUNNERS_PART)
        with ExitStack() as stack:
            # Who measures by turns runs them once more in the same folder.
            stack.callback(remove_tree, part.path)
            running = []
            for number, plan in enumerate(self._functions, 1):
                own = part.part(str(number))
                running.append(stack.enter_context(_function(plan, own, cpus)))
            # Guests boot later where loads are.
            if self._loads:
                running.append(stack.enter_context(self._stress(part.part("loads"), cpus)))
            yield CoRunning(running)

    @contextmanager
    def _stress(self, folder: Folder, cpus: tuple[int, ...]) -> Iterator[CoRunner]:
        dut = Stress(self._loads)
        with _started(self._platform, folder, dut, Side(), None, cpus, cpus) as (opened, running):
            yield CoRunner(dut.name, self._name, opened, running)


class CoRunning:
    """Co-runners at work."""

    def __init__(self, running: list[CoRunner]) -> None:
        self._running = running

    def failure(self) -> str | None:
        """Return how one ended; None if all still run."""
        return next(filter(None, (each.failure() for each in self._running)), None)

    def finish(self) -> tuple[CoRunnerRecord, ...]:
        """End the functions among them, and return what all did."""
        return tuple(each.finish() for each in self._running)


@dataclass
class CoRunner:
    """A co-runner at work."""

    name: str
    platform_name: str
    platform: OpenPlatform
    running: Running
    generator: Generator | None = None
    """The source of its packets; None for loads."""

    def failure(self) -> str | None:
        """Return how it ended; None if it still runs."""
        if not self.running.is_running:
            return f"co-runner {self.running.failure()}"
        if self.generator is None:
            return None
        try:
            while (event := self.generator.next_event(0)) is not None:
                if event is self.generator.result:
                    return f"co-runner {self.name}: its packets ended before those of the device"
        except queue.Empty:
            return None
        except DataplaneError as error:
            return f"co-runner {self.name}: {error}"
        return f"co-runner {self.name}: {self.generator.failure()}"

    def finish(self) -> CoRunnerRecord:
        """End the packets, and return what came of them."""
        about = platform_record(self.platform_name, self.platform.about)
        sent = received = None
        if self.generator is not None and (result := _ended(self.generator)) is not None:
            sent, received = result.gen.sent, result.gen.matched
        # A program of others may crash when its link goes: the function is stopped first. What it
        # does not say of itself is no part of the measurement.
        with suppress(TailscopeError, OSError):
            self.running.stop()
        if self.generator is not None:
            self.generator.stop()
        return CoRunnerRecord(name=self.name, platform=about, sent=sent, received=received)


@contextmanager
def _function(plan: RunPlan, folder: Folder, cpus: tuple[int, ...]) -> Iterator[CoRunner]:
    """Run a function with its own wire and generator within a block."""
    device, dut = plan.device, plan.device.make_dut()
    generator_cpu, *own = islice(cycle(cpus), 1 + dut.cpus)
    with ExitStack() as stack:
        ends = stack.enter_context(device.make_wire().open(folder, dut.ports))
        side = ends.generator
        opened, running = stack.enter_context(
            _started(device.make_platform(), folder, dut, ends.dut, side, tuple(own), cpus)
        )
        opened.hand_over()
        generator = stack.enter_context(
            Dataplane(
                "generator",
                GENERATOR,
                side.eal,
                [*plan.generator_options(), "--keep-ports"],
                place=Here(folder.path, side.command, mark=folder.name),
                lcores=[generator_cpu],
                housekeeping=cpus,
            )
        )
        generator.wait_ready(_READY_S)
        yield CoRunner(dut.name, device.platform, opened, running, generator)


@contextmanager
def _started(
    platform: Platform,
    folder: Folder,
    dut: Dut,
    side: Side,
    generator: Side | None,
    cpus: tuple[int, ...],
    housekeeping: tuple[int, ...],
) -> Iterator[tuple[OpenPlatform, Running]]:
    """Open a platform, and start what runs there within a block."""
    home = folder.part(PLATFORM_PART)
    with platform.open(home, side, dut, cpus=cpus, housekeeping=housekeeping) as opened:
        context = DutContext(
            opened.place,
            opened.side,
            opened.cpus,
            opened.housekeeping,
            _STALL_NS,
            generator=generator if dut.wire == "veth" else None,
        )
        with dut.open(context) as running:
            yield opened, running


def _ended(generator: Generator) -> GeneratorResult | None:
    """End what a generator sends, and return what it counted; None if it cannot tell."""
    generator.process.signal(signal.SIGINT)
    with suppress(DataplaneError):
        while generator.result is None:
            try:
                if generator.next_event(LOOK_S) is None:
                    break
            except queue.Empty:
                generator.check_progress()
    return generator.result
