"""A recorder of everything that may keep CPUs from their work during a measurement."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from tailscope.exceptions import TestbedError, said
from tailscope.noise.counters import (
    COUNTER_THREAD,
    SAMPLING_WARNING,
    CounterSampler,
    increments,
    read_steal_ns,
)
from tailscope.noise.neighbour_sampler import NEIGHBOUR_THREAD, NeighbourSampler
from tailscope.noise.tracer import TRACER_THREAD, Tracer
from tailscope.plan.fields import NOISE
from tailscope.store.records.run import KernelEvents, KernelNoise
from tailscope.testbed.folder import owner_of
from tailscope.testbed.places import MARK
from tailscope.testbed.power import POWER_THREAD
from tailscope.testbed.stage_recorder import STAGES_PART
from tailscope.testbed.steady import SteadyClock
from tailscope.testbed.tasks import (
    comm_of,
    environment_of,
    parent_of,
    processes,
    status_of,
    threads_of,
)
from tailscope.testbed.tracefs import tracefs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.noise.counters import CounterSample
    from tailscope.noise.neighbour_sampler import RecordedNeighbours
    from tailscope.noise.table import SideNoise
    from tailscope.noise.tracer import RecordedTrace
    from tailscope.testbed.folder import Folder

_PURPOSES = {
    TRACER_THREAD: "tracer",
    COUNTER_THREAD: "reader of interrupt counters",
    NEIGHBOUR_THREAD: "reader of run delays",
    POWER_THREAD: "reader of power",
}
CO_RUNNERS_PART = "beside"
"""The part of the folder by whose name processes of co-runners are known."""
_DISTURBER = "disturb"
"""Thread by which a device of tailscope's competes with its own loop."""


class Thread(NamedTuple):
    """A thread that a measurement started."""

    tid: int
    """Its number on this machine."""
    inner: int
    """Its number in its own namespace, such as a container's."""
    mark: str
    """Mark of the place where it was started."""
    pid: int
    """Number of its process on this machine."""
    comm: str
    """Name that the kernel gives it."""
    cpus: frozenset[int] = frozenset()
    """CPUs that it may run on; none if that is not known."""


@dataclass(frozen=True)
class RecordedNoise:
    """The recording, apart from the loops' own stalls."""

    events: RecordedTrace | None
    """Kernel events; None if they were not recorded."""
    why_not: str | None
    """Reason why they were not recorded; None if they were."""
    samples: list[CounterSample]
    """Samples of interrupt counters, at least the first and the last."""
    steal_ns: dict[int, int]
    """Time that a hypervisor took from each CPU, as far as the kernel knows."""
    cpus: tuple[int, ...]
    """CPUs that were watched."""
    threads: list[Thread]
    """Threads of the programs that were started, except co-runners."""
    supervisor: dict[int, str]
    """Threads of this process, with their purpose."""
    clock_set_by_ns: int = 0
    """Adjustment of the machine's clock during the recording."""
    neighbours: RecordedNeighbours | None = None
    """Time that other programs took of the devices' CPUs; None if it was not sampled."""

    def own_threads(self, devices: str, working: Sequence[int]) -> dict[int, str]:
        """Return tailscope's own threads, with their purpose."""
        programs = {thread.pid for thread in self.threads if thread.tid in working}
        purposes = dict(self.supervisor)
        for thread in self.threads:
            if thread.mark.endswith(STAGES_PART):
                purposes[thread.tid] = "recorder of stages"
            elif not thread.mark.endswith(devices):
                purposes[thread.tid] = "generator"
            elif thread.comm != _DISTURBER and thread.pid in programs and thread.tid not in working:
                purposes[thread.tid] = "device monitor"
        return purposes

    def threads_of(
        self, mark: str, inner: Sequence[int] = (), cpus: Sequence[int] = ()
    ) -> list[int]:
        """Return the threads of programs with a mark that work, by their numbers on this machine.

        They are known by name, or else confined to these CPUs: a thread that may run elsewhere is
        no worker, and what it takes of them is noise. If none is, all threads work.
        """
        own = [thread for thread in self.threads if thread.mark == mark]
        named = [thread for thread in own if thread.inner in inner]
        confined = [thread for thread in own if thread.cpus and thread.cpus <= {*cpus}]
        return [thread.tid for thread in named or confined or own]

    def record(self, sides: Sequence[SideNoise]) -> KernelNoise:
        """Return the record for ``run.json``, with what was read on all sides."""
        events = self.events
        untold = {cpu: count for side in sides for cpu, count in side.untold_switches.items()}
        kernel = None
        if events is not None:
            kernel = KernelEvents(
                clock=events.clock,
                clock_error_ns=events.clock_error_ns,
                lost={str(cpu): lost for cpu, lost in events.lost.items()},
                senders_lost=events.senders_lost,
                untold_switches={str(cpu): count for cpu, count in untold.items()},
                missing=tuple(events.missing),
            )
        return KernelNoise(
            events=kernel,
            events_missing_because=self.why_not,
            interrupts={
                name: {str(cpu): count for cpu, count in counts.items()}
                for name, counts in increments(self.samples, self.cpus).items()
            },
            counter_samples=len(self.samples),
            steal_ns={str(cpu): ns for cpu, ns in self.steal_ns.items() if cpu in self.cpus},
        )

    def warnings(self) -> list[str]:
        """List warnings for the reader of results."""
        warnings = []
        lost = 0 if self.events is None else sum(self.events.lost.values())
        if self.events is not None and self.events.ended_because:
            warnings.append(
                f"kernel events were recorded only in part: {self.events.ended_because}"
            )
        if lost:
            warnings.append(
                f"{lost:,} kernel events were lost: the tracer's buffers were full, and some stalls"
                " have the wrong name or none"
            )
        if self.clock_set_by_ns:
            way = "forward" if self.clock_set_by_ns > 0 else "back"
            warnings.append(
                f"the clock of this machine was set {way} by"
                f" {abs(self.clock_set_by_ns) / 1e9:.3f} s during the measurement:"
                " what was recorded goes on by the clock as it was before; latencies are not"
                " affected"
            )
        if len(self.samples) > len(("before", "after")):
            warnings.append(SAMPLING_WARNING)
        return warnings


class NoiseRecorder:
    """A recorder within a block."""

    def __init__(
        self,
        folder: Folder,
        cpus: Sequence[int],
        *,
        what: str = NOISE[0],
        counter_interval_s: float | None = None,
        trace_clock: str | None = None,
        devices: Mapping[str, frozenset[int]] | None = None,
        clock: SteadyClock | None = None,
    ) -> None:
        self._clock = clock or SteadyClock()
        self._neighbours = NeighbourSampler(folder.name, devices or {}, clock=self._clock)
        self._trace_clock = trace_clock
        self._folder, self._cpus, self._what = folder, tuple(sorted(set(cpus))), what
        self._stack = ExitStack()
        self._counters = CounterSampler(counter_interval_s, clock=self._clock)
        self._tracer: Tracer | None = None
        self._why_not: str | None = None
        self._steal_ns: dict[int, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._what != "stalls":
                self._tracer = self._trace(stack)
            else:
                self._why_not = "not requested"
            self._steal_ns = read_steal_ns()
            stack.enter_context(self._counters)
            stack.enter_context(self._neighbours)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _trace(self, stack: ExitStack) -> Tracer | None:
        try:
            return stack.enter_context(
                Tracer(
                    self._folder.part("trace"),
                    self._cpus,
                    clock=self._trace_clock,
                    steady=self._clock,
                )
            )
        except TestbedError as error:
            if self._what == "events":
                raise
            self._why_not = str(error)
            return None

    def finish(self) -> RecordedNoise:
        """Stop, and return the recording, whose files stay in the folder."""
        supervisor, events = own_threads(), None
        neighbours = self._neighbours.finish()
        if self._tracer is not None:
            try:
                events = self._tracer.finish()
            except (TestbedError, OSError) as error:
                self._why_not = said(error)
        threads = marked_threads(self._folder.name)
        self._stack.close()
        after = read_steal_ns()
        steal = {cpu: ns - self._steal_ns.get(cpu, ns) for cpu, ns in after.items()}
        return RecordedNoise(
            events,
            self._why_not,
            self._counters.samples,
            steal,
            self._cpus,
            threads,
            supervisor,
            self._clock.set_by_ns(),
            neighbours,
        )


def check_noise(what: str) -> None:
    """Check that this machine can make the requested recording."""
    if what == "events":
        with tracefs():
            pass


def own_threads() -> dict[int, str]:
    """Return the threads of this process, with their purpose."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    return {tid: _PURPOSES.get(named.get(tid, ""), "supervisor") for tid in threads_of(os.getpid())}


def marked_threads(name: str) -> list[Thread]:
    """Return the threads of a measurement's programs and of their children, without co-runners."""
    parents = {pid: parent_of(pid) for pid in processes()}
    marks_of_processes = {pid: environment_of(pid).get(MARK, "") for pid in parents}
    beside = f"{name}-{CO_RUNNERS_PART}"
    marks = {
        pid: mark
        for pid, mark in marks_of_processes.items()
        if owner_of(mark) == name and not mark.startswith(beside)
    }
    # A program may hide its environment, as a container does: its parent's mark applies.
    while more := _started(parents, marks):
        marks |= more
    return [
        Thread(tid, _inner(tid), mark, pid, comm_of(tid), _cpus_of(tid))
        for pid, mark in marks.items()
        for tid in threads_of(pid)
    ]


def _cpus_of(tid: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(tid))
    except OSError:
        return frozenset()


def _started(parents: Mapping[int, int], marks: Mapping[int, str]) -> dict[int, str]:
    """Return the unmarked processes that a marked one started."""
    return {
        pid: marks[parent]
        for pid, parent in parents.items()
        if parent in marks and pid not in marks
    }


def _inner(tid: int) -> int:
    """Return a thread's number in its innermost namespace."""
    numbers = status_of(tid).get("NSpid", "").split()
    return int(numbers[-1]) if numbers else tid
