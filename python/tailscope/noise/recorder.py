"""Recording all that may keep CPUs from their work, while something is measured on them."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tailscope.exceptions import TestbedError
from tailscope.noise.counters import SAMPLING_WARNING, CounterSampler, increments, read_steal_ns
from tailscope.noise.tracer import Tracer
from tailscope.testbed.places import MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.noise.counters import Sample
    from tailscope.noise.tracer import Recorded
    from tailscope.testbed.folder import Folder

__all__ = ["NOISE", "NoiseRecorder", "RecordedNoise", "marked_threads"]

NOISE = ("auto", "events", "stalls")
"""What is recorded: kernel events where that is possible, kernel events, or only stalls."""


@dataclass(frozen=True)
class RecordedNoise:
    """What was recorded beside the loops' own stalls.

    Attributes
    ----------
    events : Recorded or None
        None where they were not recorded,
    why_not : str or None
        and why.
    samples : list of Sample
        Counters of interrupts, the first and the last at least.
    steal_ns : dict of int to int
        What a hypervisor took from each CPU, as far as the kernel knows.
    cpus : tuple of int
        The CPUs that were watched.
    threads : tuple of int
        Those of the programs that were started, but for co-runners.
    """

    events: Recorded | None
    why_not: str | None
    samples: list[Sample]
    steal_ns: dict[int, int]
    cpus: tuple[int, ...]
    threads: tuple[int, ...]

    def record(self) -> dict[str, Any]:
        """What ``run.json`` keeps of it."""
        events = self.events
        return {
            "events": None
            if events is None
            else {
                "clock": events.clock,
                "clock_error_ns": events.clock_error_ns,
                "lost": {str(cpu): lost for cpu, lost in events.lost.items()},
                "missing": events.missing,
            },
            "events_missing_because": self.why_not,
            "interrupts": {
                name: {str(cpu): count for cpu, count in counts.items()}
                for name, counts in increments(self.samples, self.cpus).items()
            },
            "counter_samples": len(self.samples),
            "steal_ns": {str(cpu): ns for cpu, ns in self.steal_ns.items() if cpu in self.cpus},
        }

    def warnings(self) -> list[str]:
        """What a reader of results must know."""
        found = []
        lost = 0 if self.events is None else sum(self.events.lost.values())
        if lost:
            found.append(
                f"{lost:,} kernel events were lost: the tracer's buffers were full, and some stalls"
                " have the wrong name or none"
            )
        if len(self.samples) > len(("before", "after")):
            found.append(SAMPLING_WARNING)
        return found


class NoiseRecorder:
    """Records within a block.

    Parameters
    ----------
    folder : Folder
        Of the measurement.
    cpus : sequence of int
        The CPUs to watch.
    what : str
        One of `NOISE`.
    counter_interval_s : float or None
        How often to read the counters of interrupts in between.

    Raises
    ------
    TestbedError
        If kernel events are wanted, and cannot be recorded.
    """

    def __init__(
        self,
        folder: Folder,
        cpus: Sequence[int],
        *,
        what: str = NOISE[0],
        counter_interval_s: float | None = None,
    ) -> None:
        self._folder, self._cpus, self._what = folder, tuple(sorted(set(cpus))), what
        self._stack = ExitStack()
        self._counters = CounterSampler(counter_interval_s)
        self._tracer: Tracer | None = None
        self._why_not: str | None = None
        self._steal_ns: dict[int, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._what != "stalls":
                self._tracer = self._trace(stack)
            else:
                self._why_not = "not asked for"
            self._steal_ns = read_steal_ns()
            stack.enter_context(self._counters)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _trace(self, stack: ExitStack) -> Tracer | None:
        try:
            return stack.enter_context(Tracer(self._folder.part("trace"), self._cpus))
        except TestbedError as error:
            if self._what == "events":
                raise
            self._why_not = str(error)
            return None

    def finish(self) -> RecordedNoise:
        """Stop, and say what was recorded; the folder keeps it."""
        events = None if self._tracer is None else self._tracer.finish()
        threads = tuple(marked_threads(self._folder.name))
        self._stack.close()
        after = read_steal_ns()
        steal = {cpu: ns - self._steal_ns.get(cpu, ns) for cpu, ns in after.items()}
        return RecordedNoise(
            events, self._why_not, self._counters.samples, steal, self._cpus, threads
        )


def marked_threads(name: str) -> list[int]:
    """The threads of all programs that a measurement has started, and of theirs; no co-runners.

    Parameters
    ----------
    name : str
        Of the measurement's folder.
    """
    parents = {pid: _parent(pid) for pid in _processes()}
    found: set[int] = {pid for pid in parents if _mark(pid) == name}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(
        int(task)
        for pid in found
        if not _comm(pid).startswith("stress-ng")
        for task in _names(Path(f"/proc/{pid}/task"))
    )


def _processes() -> list[int]:
    return [int(name) for name in _names(Path("/proc")) if name.isdecimal()]


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


def _mark(pid: int) -> str:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == MARK.encode():
                return os.fsdecode(value)
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(
            Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        )
    return 0


def _comm(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""
