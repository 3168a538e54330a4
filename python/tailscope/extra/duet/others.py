"""When programs that are no part of a block held its CPUs: the device's and the generator's.

The kernel says which task a CPU runs, and since when. Threads of the kernel are part of the
platform, and co-runners were asked for; anything else is another program, tailscope's own Python
included.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.noise.events import read_events
from tailscope.noise.intervals import union
from tailscope.testbed.folder import owner_of
from tailscope.testbed.places import MARK
from tailscope.testbed.tasks import (
    comm_of,
    command_of,
    environment_of,
    mounted_by,
    parent_of,
    times_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Clock
    from tailscope.noise.tracer import SwitchTracer

    Integers = NDArray[np.int64]

_GONE = "programs that ended"


class OthersHeld(NamedTuple):
    """When other programs held a block's CPUs, or may have."""

    start_ns: Integers
    end_ns: Integers
    """Ends of the intervals in Unix time, in order and disjoint."""
    programs_ns: Counter[str]
    """For how long each program did."""
    watched_ns: int
    """For how long they were watched; 0 if they were not."""

    @classmethod
    def unknown(cls) -> OthersHeld:
        """Return no intervals, as nobody watched."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), Counter(), 0)


@dataclass
class Others:
    """Recognises other programs beside what belongs to a folder."""

    tracer: SwitchTracer
    name: str
    """Name of the folder, by which the block's own programs and namespaces are known."""
    cpus: Sequence[int]
    has_children: bool
    """Whether the device may start programs: then one that is gone may have been its own."""
    _own: dict[int, bool] = field(default_factory=dict)
    _belonging: dict[int, bool] = field(default_factory=dict)
    """Whether a process belongs to the folder; what compiles has the same ancestors each time."""

    def start(self) -> None:
        """Begin to record."""
        self.tracer.start()

    def held(self, clock: Clock) -> OthersHeld:
        """Stop recording, and return when others held the CPUs since it began."""
        recorded = self.tracer.stop()
        starts, ends, programs = [], [], Counter[str]()
        for events in read_events(recorded, clock, self.cpus, []):
            tids = [int(detail.removeprefix("pid ")) for detail in events.details]
            task = events.detail[events.piece_event]
            start_ns, end_ns = events.piece_start_ns, events.piece_end_ns
            for at, tid in enumerate(tids):
                if self.is_own(tid):
                    continue
                start, end = start_ns[task == at], end_ns[task == at]
                if events.detail[-1] == at:
                    # It had the CPU when the recording ended.
                    start = np.append(start, events.start_ns[-1])
                    end = np.append(end, events.to_ns)
                programs[comm_of(tid) or _GONE] += int((end - start).sum())
                starts.append(start)
                ends.append(end)
            starts.append(events.gap_start_ns)
            ends.append(events.gap_end_ns)
        watched_ns = recorded.ended_unix_ns - recorded.started_unix_ns
        start, end = union(np.concatenate(starts), np.concatenate(ends))
        return OthersHeld(start, end, programs, watched_ns)

    def is_own(self, tid: int) -> bool:
        """Return whether a thread is the kernel's or the block's, or may have been."""
        if tid not in self._own:
            times = times_of(tid, tid)
            if times is None:
                self._own[tid] = self.has_children
            else:
                self._own[tid] = times.is_kernel or self._belongs(tid)
        return self._own[tid]

    def _belongs(self, pid: int) -> bool:
        """Return whether a process, or one that it descends from, belongs to the folder.

        It has the mark of the folder, was told of it, has it mounted, or is in a namespace of it.
        """
        if pid <= 1:
            return False
        if pid not in self._belonging:
            if mark := environment_of(pid).get(MARK):
                self._belonging[pid] = owner_of(mark) == self.name
            else:
                # A daemon hands on no environment to what it starts for the device.
                self._belonging[pid] = (
                    self.name in command_of(pid)
                    or self._is_in_a_namespace(pid)
                    or any(self.name in Path(path).parts for path in mounted_by(pid))
                    or self._belongs(parent_of(pid))
                )
        return self._belonging[pid]

    def _is_in_a_namespace(self, pid: int) -> bool:
        """Return whether a process is in a network namespace that was made for the folder."""
        from pyroute2.netns import NETNS_RUN_DIR

        network = Path(f"/proc/{pid}/ns/net")
        with suppress(OSError):
            names = Path(NETNS_RUN_DIR).iterdir()
            return any(network.samefile(name) for name in names if owner_of(name.name) == self.name)
        return False
