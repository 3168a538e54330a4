"""A sampler of neighbours' CPU time, which reads ``/proc`` without privilege.

Neighbours are programs that tailscope neither started nor was told of. Threads of the kernel are
none: they belong to the platform.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from tailscope.testbed.folder import owner_of
from tailscope.testbed.places import MARK
from tailscope.testbed.steady import SteadyClock
from tailscope.testbed.tasks import (
    TICK_NS,
    comm_of,
    environment_of,
    parent_of,
    processes,
    threads_of,
    times_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

NEIGHBOUR_THREAD = "tailscope-neigh"
"""Name of the sampling thread; the kernel keeps 15 bytes of it."""

_DELAY_S, _PROGRAMS_S = 0.25, 1.0
"""Shortest intervals between readings of run delays, and between scans of all programs."""
_MOST_SHARE = 1 / 400
"""Largest share of a CPU for each of these."""
_HARDLY = 0.01
"""Share of a CPU up to which a device's programs do something beside its packets."""
_STAT = Path("/proc/stat")


class RunDelay(NamedTuple):
    """The time that a device's threads have waited for a CPU."""

    unix_ns: int
    """Time at which the reading began."""
    waited_ns: int
    """Waiting time since sampling began; a wait counts when it ends."""
    reading_ns: int = 0
    """Duration of the reading."""


@dataclass(frozen=True)
class RecordedNeighbours:
    """The samples of a measurement."""

    delays: Mapping[str, list[RunDelay]]
    """Run delays of each device, by the mark of its programs."""
    busy_ns: Mapping[int, int]
    """For each CPU, the most that it was busy."""
    own_ns: Mapping[tuple[str, int], int]
    """The least that the measurement's programs of each mark ran on each CPU."""
    programs_ns: Mapping[tuple[str, int], int]
    """Running time of each neighbour on each CPU, by its name."""
    platform: frozenset[int]
    """Threads that are no neighbours: the kernel's, and those that the measurement started."""
    watched_ns: int
    sampling_ns: int
    """Duration of the sampling, and the CPU time that it took."""

    def programs_on(self, cpus: Iterable[int]) -> Counter[str]:
        """Return the running time of neighbours on some CPUs, by their names."""
        running_ns: Counter[str] = Counter()
        for (name, cpu), ns in self.programs_ns.items():
            if cpu in cpus:
                running_ns[name] += ns
        return running_ns

    def most_ns(self, cpus: Iterable[int]) -> int:
        """Return the longest time that other programs may have run on some CPUs."""
        own_ns = Counter[int]()
        for (_, cpu), ns in self.own_ns.items():
            own_ns[cpu] += ns
        return sum(max(0, self.busy_ns.get(cpu, 0) - own_ns[cpu]) for cpu in set(cpus))

    def elsewhere_ns(self, mark: str, cpus: Collection[int]) -> dict[int, int]:
        """Return for how long a device's programs ran on each CPU that is not one of its own.

        Nothing if they ran for longer on their own, or hardly at all.
        """
        ran_ns = {cpu: ns for (of, cpu), ns in self.own_ns.items() if of == mark and ns}
        elsewhere_ns = {cpu: ns for cpu, ns in sorted(ran_ns.items()) if cpu not in cpus}
        total_ns = sum(elsewhere_ns.values())
        is_most = 2 * total_ns > sum(ran_ns.values())
        return elsewhere_ns if is_most and total_ns > _HARDLY * self.watched_ns else {}


class ProgramTimes:
    """The running time of programs on each CPU since the first scan."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._before_ns: dict[int, int] = {}
        self._own: dict[int, str | None] = {os.getpid(): name, 0: None}
        self._kernel: set[int] = set()
        self._has_looked = False
        self.programs_ns: Counter[tuple[str, int]] = Counter()
        self.own_ns: Counter[tuple[str, int]] = Counter()
        self.platform: set[int] = set()

    def look(self) -> None:
        """Read the times of all threads."""
        now_ns: dict[int, int] = {}
        for pid in processes():
            if pid not in self._kernel:
                self._look_at(pid, now_ns)
        self._before_ns, self._has_looked = now_ns, True

    @property
    def own_processes(self) -> dict[int, str]:
        """Return the measurement's processes with their marks."""
        return {pid: mark for pid, mark in self._own.items() if mark is not None}

    def _look_at(self, pid: int, now_ns: dict[int, int]) -> None:
        name = ""
        for tid in threads_of(pid):
            times = times_of(pid, tid)
            if times is None:
                continue
            if times.is_kernel:
                self._kernel.add(pid)
                self.platform.add(tid)
                return
            mark = self._mark_of(pid)
            is_own = mark is not None
            is_started = is_own and pid != os.getpid()
            if is_started:
                self.platform.add(tid)
            now_ns[tid] = times.run_ns
            # A thread that was not there before has run since then.
            before_ns = self._before_ns.get(tid, 0 if self._has_looked else times.run_ns)
            if not (ran_ns := times.run_ns - before_ns):
                continue
            if mark is not None and is_started:
                self.own_ns[mark, times.cpu] += ran_ns - TICK_NS
            elif not is_own:
                name = name or comm_of(pid)
                self.programs_ns[name, times.cpu] += ran_ns

    def _mark_of(self, pid: int) -> str | None:
        """Return the mark of a process of the measurement; None for other processes."""
        if pid in self._own:
            return self._own[pid]
        mark = environment_of(pid).get(MARK, "") if self._name else ""
        if mark and owner_of(mark) == self._name:
            self._own[pid] = mark
            return mark
        parent = parent_of(pid)
        inherited = self._mark_of(parent)
        # A child of this process may get a mark of its own when it begins its program.
        if parent != os.getpid():
            self._own[pid] = inherited
        return inherited


class NeighbourSampler:
    """A sampler that runs in a thread of its own within a block."""

    def __init__(
        self,
        name: str,
        devices: Mapping[str, frozenset[int]],
        *,
        clock: SteadyClock | None = None,
    ) -> None:
        self._devices = {mark: _DeviceDelay(cpus, []) for mark, cpus in devices.items() if mark}
        self._programs = ProgramTimes(name)
        self._clock = clock or SteadyClock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, name=NEIGHBOUR_THREAD, daemon=True)
        self._idle_ns: dict[int, int] = {}
        self._began_ns = self._sampling_ns = 0

    def __enter__(self) -> Self:
        if self._devices:
            self._began_ns = self._clock.now_ns()
            self._idle_ns = idle_ns()
            self._look()
            self._read_delays()
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        for device in self._devices.values():
            device.close()

    def finish(self) -> RecordedNeighbours | None:
        """Stop, and return the samples; None without a device."""
        if not self._devices:
            return None
        self._end.set()
        self._thread.join()
        self._look()
        self._read_delays()
        watched_ns = self._clock.now_ns() - self._began_ns
        idle = {cpu: ns - self._idle_ns.get(cpu, 0) - TICK_NS for cpu, ns in idle_ns().items()}
        return RecordedNeighbours(
            {mark: device.delays for mark, device in self._devices.items() if device.was_followed},
            {cpu: watched_ns - max(0, ns) for cpu, ns in idle.items()},
            self._programs.own_ns,
            self._programs.programs_ns,
            frozenset(self._programs.platform),
            watched_ns,
            self._sampling_ns,
        )

    def _sample(self) -> None:
        """Sample at intervals that keep the cost below a share of a CPU.

        On the device's CPU it would be a neighbour itself; on the generator's its time is a stall
        that the generator sees.
        """
        of_devices = frozenset[int]().union(*(device.cpus for device in self._devices.values()))
        if others := os.sched_getaffinity(0) - of_devices:
            os.sched_setaffinity(0, others)
        delay_s, programs_s, looked_s = _DELAY_S, _PROGRAMS_S, time.monotonic()
        while not self._end.wait(delay_s):
            began_ns = time.thread_time_ns()
            self._read_delays()
            read_ns = time.thread_time_ns()
            delay_s = max(_DELAY_S, (read_ns - began_ns) / 1e9 / _MOST_SHARE)
            if time.monotonic() - looked_s >= programs_s:
                self._look()
                looked_s = time.monotonic()
                programs_s = max(_PROGRAMS_S, (time.thread_time_ns() - read_ns) / 1e9 / _MOST_SHARE)
            self._sampling_ns += time.thread_time_ns() - began_ns

    def _look(self) -> None:
        self._programs.look()
        own = self._programs.own_processes
        for mark, device in self._devices.items():
            device.follow(pid for pid, of in own.items() if of == mark)

    def _read_delays(self) -> None:
        for device in self._devices.values():
            device.read(self._clock)


@dataclass
class _DeviceDelay:
    """The time that one device's threads wait for its CPUs."""

    cpus: frozenset[int]
    delays: list[RunDelay]
    _files: dict[int, int] = field(default_factory=dict)
    _before_ns: dict[int, int] = field(default_factory=dict)

    @property
    def was_followed(self) -> bool:
        """Return True if the kernel reported the wait of any thread."""
        return bool(self._before_ns)

    def follow(self, pids: Iterable[int]) -> None:
        """Open the kernel's files of threads that may run on the device's CPUs."""
        for tid in (tid for pid in pids for tid in threads_of(pid)):
            with suppress(OSError):
                if tid not in self._files and os.sched_getaffinity(tid) & self.cpus:
                    file = os.open(f"/proc/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                    self._files[tid] = file

    def read(self, clock: SteadyClock) -> None:
        """Add the waits since the last reading."""
        began_ns = clock.now_ns()
        waited_ns = self.delays[-1].waited_ns if self.delays else 0
        for tid, file in [*self._files.items()]:
            try:
                total_ns = int(os.pread(file, 128, 0).split()[1])
            except (OSError, IndexError):
                os.close(self._files.pop(tid))
                continue
            waited_ns += total_ns - self._before_ns.get(tid, total_ns)
            self._before_ns[tid] = total_ns
        self.delays.append(RunDelay(began_ns, waited_ns, clock.now_ns() - began_ns))

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])


def busy_ns(stat: Path = _STAT) -> dict[int, int]:
    """Return the time that each CPU has run tasks since boot, in ticks.

    Interrupts and what a hypervisor took are not among it.
    """
    return _times_ns(stat, slice(0, 3))


def idle_ns(stat: Path = _STAT) -> dict[int, int]:
    """Return the time that each CPU has been idle, or has waited for disks, since boot."""
    return _times_ns(stat, slice(3, 5))


def _times_ns(stat: Path, which: slice) -> dict[int, int]:
    times_ns = {}
    with suppress(OSError):
        for line in stat.read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal():
                times_ns[int(name[3:])] = sum(map(int, fields[which])) * TICK_NS
    return times_ns
