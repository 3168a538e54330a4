"""Loads of stress-ng, which run wherever a device can."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from tailscope.duts.dut import ANY_WIRE, Dut, Running
from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.duts.dut import DutContext
    from tailscope.testbed.places import Process

KINDS = {"cpu": "--cpu", "cache": "--cache", "memory": "--vm", "io": "--hdd"}
"""Kinds of loads, each with the option that starts its workers."""

_END_S = 10.0
_MEMORY = ("--vm-bytes", "128m", "--vm-keep")
_DISK = ("--hdd-bytes", "64m")


class Stress(Dut):
    """Workers that keep CPUs, caches, memory or disks busy; they have no ports."""

    name = "stress-ng"
    about = "loads of CPUs, caches, memory and disks"
    programs: ClassVar[Mapping[str, str]] = {"stress-ng": "stress-ng"}

    def __init__(self, workers: Mapping[str, int]) -> None:
        super().__init__({}, ANY_WIRE[0])
        self._workers = workers

    @property
    def uses_dpdk(self) -> bool:
        """Return False: there is no port to poll."""
        return False

    @contextmanager
    def open(self, context: DutContext) -> Iterator[RunningStress]:
        """Run the workers within a block."""
        options = [word for kind, n in self._workers.items() for word in (KINDS[kind], str(n))]
        cpus = ",".join(map(str, sorted(set(context.cpus))))
        command = [self.name, *options, *_MEMORY, *_DISK, "--taskset", cpus, "--quiet"]
        command += ["--temp-path", str(context.place.folder)]
        with context.place.start(self.name, command, cpus=context.cpus, merged=True) as process:
            yield RunningStress(process, " ".join(command))
            process.signal(signal.SIGTERM)
            process.wait_end(_END_S)


class RunningStress(Running):
    """Workers at work."""

    version = ""

    def __init__(self, process: Process, command: str) -> None:
        self._process, self.configuration = process, command

    @property
    def is_running(self) -> bool:
        """Return True if they still run."""
        return self._process.is_running

    def failure(self) -> TestbedError:
        """Make the error that says how they ended."""
        how = f"{self._process.how_it_ended()}; {self._process.last_words()}"
        return TestbedError(f"{Stress.name}: {how}", code="program-ended")

    def stop(self) -> None:
        """Leave them to the end of the block: they count nothing."""
