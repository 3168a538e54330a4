"""Kernel events with readable names, on the clock of the packets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tailscope._engine as _engine
from tailscope.engine.analysis import engine_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tailscope._engine import CpuTrace
    from tailscope.engine.analysis import Clock
    from tailscope.noise.tracer import RecordedTrace

    Integers = NDArray[np.int64]
    Ticks = NDArray[np.uint64]

OWN = "tailscope's "
"""Prefix of causes that are tailscope's own tasks; the task's purpose follows."""
TASK = "task "
"""Prefix of causes that are tasks of others; the task's name follows."""
WORKER = f"{TASK}kworker"
"""Prefix of the kernel's threads that run the functions of workqueues."""
HOLDING = "while softirqs of packets waited"
"""Detail of the parts of tasks that they wait for."""
_KIND_TASK = "task"
SOFTIRQ_NET = "softirq NET_"
"""Prefix of the softirqs of packets."""
_POLLER = f"{TASK}napi/"
"""Prefix of the kernel's threads that take packets of a link."""
PAGE_FAULT = "page fault"
NMI = "NMI"
_SHOOTDOWN = "TLB shootdown"
_CALL = "function call"
_FLUSH = "flush_tlb"
VECTORS = {
    "call_function": _CALL,
    "call_function_single": _CALL,
    "irq_work": "irq work",
    "thermal_apic": "thermal",
    "threshold_apic": "threshold",
    "deferred_error_apic": "deferred error",
    "error_apic": "APIC error",
    "spurious_apic": "spurious",
    "x86_platform_ipi": "platform IPI",
}
"""Readable names of the processor's own interrupts that the kernel's events name otherwise."""
_IRQS = {"arch_timer": "local timer", "IPI": "inter-processor interrupt"}
"""The same for kernels of ARM, where they are interrupts as those of devices are."""

# `softirq_to_name` of the kernel.
_SOFTIRQS = (
    *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK"),
    *("IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"),
)
_NO_FUNCTION = 0
_FUNCTIONS = (b"t", b"T", b"w", b"W")


def work_of_device(*, has_links: bool, in_softirqs: bool, in_threads: bool) -> tuple[str, ...]:
    """Return how the names of causes begin that are a device's work.

    Tasks delay no softirqs of packets, but threads of the kernel that take packets.
    """
    of_links = (SOFTIRQ_NET,) if has_links else ()
    if in_threads:
        return (*of_links, _POLLER)
    return (*of_links, TASK, OWN) if in_softirqs else of_links


@dataclass(frozen=True)
class Events:
    """The events of one CPU."""

    cpu: int
    causes: list[str]
    details: list[str]
    """Lists of names and details that events share."""
    cause: Integers
    detail: Integers
    """Name and detail of each event, as indices into these lists."""
    start_ns: Integers
    sent_ns: Integers
    """Time since which the interrupt was pending if another CPU sent it and that is known;
    otherwise its start."""
    piece_start_ns: Integers
    piece_end_ns: Integers
    """Uninterrupted pieces of events, in order and disjoint."""
    piece_event: Integers
    lost: int
    """Number of kernel events lost because buffers were full."""
    untold_switches: int
    """Number of task switches that the kernel did not report; some kernels omit a few in a
    thousand."""
    from_ns: int
    to_ns: int
    """Beginning and end of the recording."""
    gap_start_ns: Integers
    gap_end_ns: Integers
    """Intervals in which events are unknown: events were lost, or a switch was not reported."""

    def named(self, name: str) -> Integers:
        """Return the events of a name, in order of time."""
        if name not in self.causes:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.cause == self.causes.index(name))


def read_events(
    recorded: RecordedTrace,
    clock: Clock,
    cpus: Sequence[int],
    measured: Sequence[int],
    own: Mapping[int, str] | None = None,
    symbols: Symbols | None = None,
) -> list[Events]:
    """Read the recorded events of some CPUs; `symbols` are shared with those of others."""
    is_tsc = recorded.clock == "x86-tsc"
    ticks_per_s = clock.tsc_hz if is_tsc else 1_000_000_000

    def at_ns(times: Ticks) -> Integers:
        if is_tsc:
            return clock.all_at_ns(times)
        offset: Integers = np.asarray(times, np.int64) + recorded.mono_unix_ns
        return offset

    with engine_errors():
        traces = _engine.read_trace(
            recorded.formats,
            [(cpu, str(recorded.events[cpu])) for cpu in cpus],
            [(cpu, str(path)) for cpu, path in recorded.senders.items()],
            page_bytes=recorded.page_bytes,
            measured=list(measured),
            ticks_per_s=ticks_per_s,
        )
    symbols = symbols or Symbols()
    return [_named(trace, recorded, at_ns, symbols, own or {}) for trace in traces]


def _named(
    trace: CpuTrace,
    recorded: RecordedTrace,
    at_ns: Callable[[Ticks], Integers],
    symbols: Symbols,
    own: Mapping[int, str],
) -> Events:
    """Name the events of a CPU; events that are alike share a name."""
    causes: dict[str, int] = {}
    details: dict[str, int] = {}
    cause, detail = [], []
    for what, is_flush, function, work, *sender in trace["kinds"]:
        called, worked = symbols.name(function), symbols.name(work)
        flush = is_flush or called.startswith(_FLUSH)
        name = name_of(what, recorded.comms, flush=flush, work=worked)
        if what[0].endswith(_KIND_TASK) and what[1] in own:
            name = OWN + own[what[1]]
        note = _note(what, called, worked, sender, recorded.comms)
        cause.append(causes.setdefault(name, len(causes)))
        detail.append(details.setdefault(note, len(details)))
    cpu = int(trace["cpu"])
    return Events(
        cpu,
        list(causes),
        list(details),
        np.array(cause, np.int64)[trace["kind"]],
        np.array(detail, np.int64)[trace["kind"]],
        at_ns(trace["start"]),
        at_ns(trace["sent"]),
        at_ns(trace["segment_start"]),
        at_ns(trace["segment_end"]),
        trace["segment_span"].astype(np.int64),
        max(recorded.lost.get(cpu, 0), int(trace["lost"])),
        int(trace["untold_switches"]),
        recorded.started_unix_ns,
        recorded.ended_unix_ns,
        at_ns(trace["gap_start"]),
        at_ns(trace["gap_end"]),
    )


def name_of(
    kind: tuple[str, int, str], comms: Mapping[int, str], *, flush: bool, work: str = ""
) -> str:
    """Return the readable name of a span; of a task that runs a workqueue's function, that one."""
    what, number, text = kind
    if what == "vector":
        name = VECTORS.get(text, text.replace("_", " "))
        return _SHOOTDOWN if flush and name == _CALL else name
    if what == "irq":
        return _IRQS.get(text, f"irq {number} {text}")
    if what == "softirq":
        return f"softirq {_SOFTIRQS[number] if number < len(_SOFTIRQS) else number}"
    if what.endswith(_KIND_TASK):
        return f"{WORKER}: {work}" if work else f"{TASK}{text or comms.get(number, number)}"
    return NMI if what == "nmi" else PAGE_FAULT


def _note(
    kind: tuple[str, int, str],
    function: str,
    work: str,
    sender: Sequence[int],
    comms: Mapping[int, str],
) -> str:
    """Return the details: a task's number, the function called, and the CPU that requested it.

    Of a worker that is told by what it runs, also its name.
    """
    what, number, _ = kind
    parts = [f"pid {number}"] if what.endswith(_KIND_TASK) else []
    parts += [name_of(kind, comms, flush=False).removeprefix(TASK)] if work else []
    parts += [HOLDING] if what == f"holding {_KIND_TASK}" else []
    parts += [function] if function else []
    pid, cpu = sender
    if cpu >= 0:
        parts.append(f"from {comms.get(pid, 'task')}/{pid} on CPU {cpu}")
    return " ".join(parts)


class Symbols:
    """The kernel's functions by address, if the kernel shows them."""

    def __init__(self) -> None:
        self._lines: bytes | None = None
        self._names: dict[int, str] = {_NO_FUNCTION: ""}

    def name(self, address: int) -> str:
        """Return the function at an address; empty if it is unknown."""
        if address not in self._names:
            self._names[address] = min(self._at(address), default="")
        return self._names[address]

    def _at(self, address: int) -> Iterator[str]:
        """Return all functions at an address; only few of many are ever looked up."""
        if self._lines is None:
            self._lines = b"\n"
            with suppress(OSError):
                self._lines += Path("/proc/kallsyms").read_bytes()
        start = b"\n%016x " % address
        line_start = self._lines.find(start)
        while line_start >= 0:
            end = self._lines.find(b"\n", line_start + 1)
            _, kind, name, *_module = self._lines[line_start:end].split()
            if kind in _FUNCTIONS:
                yield name.decode(errors="replace")
            line_start = self._lines.find(start, end)
