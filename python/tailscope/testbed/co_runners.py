"""Co-runners: other load on the machine during a measurement."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tailscope.testbed.folder import Folder
    from tailscope.testbed.places import Process

KINDS = {"cpu": "--cpu", "cache": "--cache", "memory": "--vm", "io": "--hdd"}
"""Kinds of co-runners, each with the option of stress-ng that starts its workers."""

_END_S = 10.0
_MEMORY = ("--vm-bytes", "128m", "--vm-keep")
_DISK = ("--hdd-bytes", "64m")


class CoRunners:
    """Running co-runners, if any."""

    def __init__(self, process: Process | None) -> None:
        self._process = process

    def failure(self) -> str | None:
        """Return how the co-runners ended; None if they still run."""
        if self._process is None or self._process.is_running:
            return None
        return f"co-runners: {self._process.how_it_ended()}; {self._process.last_words()}"


PROGRAMS = {"stress-ng": "stress-ng"}
"""Programs of co-runners, and the packages that contain them."""


def check_co_runners() -> None:
    """Check that the program for co-runners exists."""
    for program, package in PROGRAMS.items():
        find_program("co-runners", program, package)


@contextmanager
def co_runners(
    folder: Folder, workers: Mapping[str, int], cpus: Iterable[int]
) -> Iterator[CoRunners]:
    """Run co-runners within a block."""
    if not workers:
        yield CoRunners(None)
        return
    options = [word for kind, count in workers.items() for word in (KINDS[kind], str(count))]
    listed = ",".join(map(str, sorted(cpus)))
    command = ["stress-ng", *options, *_MEMORY, *_DISK, "--taskset", listed]
    command += ["--temp-path", str(folder.make("co_runners")), "--quiet"]
    here = Here(folder.path, mark=folder.name)
    with here.start("co_runners", command, cpus=cpus, merged=True) as process:
        yield CoRunners(process)
        process.signal(signal.SIGTERM)
        process.wait_end(_END_S)
