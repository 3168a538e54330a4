"""Where a device is with packets: what a program records of the kernel, and loops of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tailscope.exceptions import TestbedError
from tailscope.store.records.messages import StagesResult
from tailscope.store.records.stages import StagesRecord
from tailscope.testbed.recording import RecordingProgram
from tailscope.testbed.rights import Capability, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.store.records.messages import PassedPackets
    from tailscope.testbed.places import Place

STAGES_PART = "stages"
"""The part of a measurement's folder by whose name the recorder is known."""
_TYPES = Path("/sys/kernel/btf/vmlinux")


@dataclass(frozen=True)
class KernelStages:
    """What was recorded of a device of the kernel."""

    folder: Path
    """Where the events are."""
    links: tuple[int, int]
    """The numbers of the device's two links."""
    every: int
    """Of so many packets, one was looked at."""
    result: StagesResult

    @property
    def record(self) -> StagesRecord:
        """What ``run.json`` keeps of it."""
        return StagesRecord(
            way="kernel",
            every=self.every,
            events=self.result.events,
            lost=self.result.lost,
            # A clock's time is rounded down to the ns on either side.
            clock_error_ns=self.result.clock_error_ns + 1,
        )


@dataclass(frozen=True)
class LoopStages:
    """What polling loops have noted themselves."""

    folder: Path
    """Where their columns are."""
    every: int
    """Of so many packets, one was looked at."""
    passed: PassedPackets

    @property
    def record(self) -> StagesRecord:
        """What ``run.json`` keeps of it."""
        return StagesRecord(
            way="loop",
            every=self.every,
            events=self.passed.packets,
            lost=self.passed.lost,
            clock_error_ns=1,
        )


RecordedStages: TypeAlias = KernelStages | LoopStages


class StageRecorder(RecordingProgram[StagesResult]):
    """Records the packets of one device; a context at whose end it is gone."""

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
        # As in `net:[4026531840]`.
        namespace = there.run(["readlink", "/proc/self/ns/net"]).strip().strip("net:[]")
        options = [f"--namespace={namespace}", f"--every={every}", f"--record={here.folder}"]
        super().__init__("stages", "stages", options, StagesResult, place=here, cpus=cpus)

    def recorded(self) -> KernelStages:
        """End it, and return what it has recorded."""
        return KernelStages(self._folder, self._links, self._every, self.finish())


def _number(there: Place, link: str) -> int:
    return int(there.run(["cat", f"/sys/class/net/{link}/ifindex"]))


def check_stages() -> None:
    """See whether this machine can record stages."""
    what, without = "--stages", "leave stages out: --stages off"
    require(what, Capability.BPF, Capability.PERFMON, otherwise=without, of_machine=True)
    if not _TYPES.exists():
        raise TestbedError(
            f"{what}: no {_TYPES}: this kernel does not say what its structures are",
            hint=f"boot a kernel with CONFIG_DEBUG_INFO_BTF, or {without}",
        )
