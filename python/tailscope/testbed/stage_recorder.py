"""Recorded stages of packets, in the kernel and in polling loops."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tailscope.exceptions import TestbedError
from tailscope.host import remedies
from tailscope.store.records.messages import StagesResult
from tailscope.store.records.stages import StagesRecord
from tailscope.testbed.recording import RecordingProgram
from tailscope.testbed.rights import Capability, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.store.records.messages import PassedPackets
    from tailscope.testbed.places import Place

STAGES_PART = "stages"
"""Name of the part of a measurement's folder that belongs to the recorder."""
_TYPES = Path("/sys/kernel/btf/vmlinux")
_NEEDED = (Capability.BPF, Capability.PERFMON, Capability.NET_ADMIN, Capability.SYS_ADMIN)
"""Capabilities that attach programs to tracepoints, and to links of another namespace."""


@dataclass(frozen=True)
class KernelStages:
    """Recorded stages of a device of the kernel."""

    folder: Path
    """Folder of the events."""
    links: tuple[int, int]
    """Indices of the device's two links."""
    every: int
    """Sampling interval, in packets."""
    result: StagesResult

    @property
    def record(self) -> StagesRecord:
        """Return the record for ``run.json``."""
        return StagesRecord(
            way="kernel",
            every=self.every,
            events=self.result.events,
            lost=self.result.lost,
            # Either clock is rounded down to a nanosecond.
            clock_error_ns=self.result.clock_error_ns + 1,
        )


@dataclass(frozen=True)
class LoopStages:
    """Stages that polling loops recorded themselves."""

    folder: Path
    """Folder of the columns."""
    every: int
    """Sampling interval, in packets."""
    passed: PassedPackets

    @property
    def record(self) -> StagesRecord:
        """Return the record for ``run.json``."""
        return StagesRecord(
            way="loop",
            every=self.every,
            events=self.passed.packets,
            lost=self.passed.lost,
            clock_error_ns=1,
        )


RecordedStages: TypeAlias = KernelStages | LoopStages


class StageRecorder(RecordingProgram[StagesResult]):
    """A recorder of the packets of one device, killed at the end of its context."""

    def __init__(
        self,
        *,
        here: Place,
        there: Place,
        links: Sequence[str],
        every: int,
        cpus: Iterable[int],
    ) -> None:
        self._folder, self._every = here.folder, every
        first, second = links
        self._links = _number(there, first), _number(there, second)
        # The link reads `net:[4026531840]`.
        namespace = there.run(["readlink", "/proc/self/ns/net"]).strip().strip("net:[]")
        numbers = ",".join(map(str, self._links))
        options = [f"--namespace={namespace}", f"--links={numbers}", f"--every={every}"]
        options.append(f"--record={here.folder}")
        super().__init__("stages", "stages", options, StagesResult, place=here, cpus=cpus)

    def recorded(self) -> KernelStages:
        """Stop the recorder, and return the stages."""
        return KernelStages(self._folder, self._links, self._every, self.finish())


def _number(there: Place, link: str) -> int:
    return int(there.run(["cat", f"/sys/class/net/{link}/ifindex"]))


def check_stages(
    what: str = "--stages",
    needed: Sequence[Capability] = _NEEDED,
    otherwise: str = "leave stages out: --stages off",
) -> None:
    """Check that this machine can record stages."""
    require(what, *needed, otherwise=otherwise, of_machine=True)
    if not _TYPES.exists():
        raise TestbedError(
            f"{what}: no {_TYPES}: this kernel does not describe its structures",
            code="no-kernel-types",
            remedy=remedies.KERNEL_TYPES,
            hint=otherwise,
        )
