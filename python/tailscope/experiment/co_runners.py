"""Co-runners: loads beside the device, which a folder of the wing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from tailscope.registry import service

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tailscope.plan.fields import PlanFields
    from tailscope.store.records.run import CoRunnerRecord
    from tailscope.testbed.folder import Folder


class CoRunning(Protocol):
    """Co-runners at work."""

    def failure(self) -> str | None:
        """Return how one ended; None if all still run."""

    def finish(self) -> tuple[CoRunnerRecord, ...]:
        """End the functions among them, and return what all did."""


class CoRunners(Protocol):
    """The co-runners that a plan asks for."""

    programs: ClassVar[Mapping[str, str]]
    """Programs that loads need, and the packages that contain them."""

    def check(self) -> None:
        """Check that this machine has everything that they need."""

    def open(self, folder: Folder, cpus: tuple[int, ...]) -> AbstractContextManager[CoRunning]:
        """Run them on these CPUs within a block."""


def co_runners_of(plan: PlanFields) -> CoRunners:
    """Return the co-runners that a plan asks for."""
    found: CoRunners = service("co-runners", "--co-runner")(plan)
    return found
