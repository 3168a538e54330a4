"""A recorder of kernel events: private instances of the tracer, whose pages are kept raw."""

from __future__ import annotations

import os
import re
import select
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Self

from tailscope.exceptions import TestbedError
from tailscope.host import remedies
from tailscope.host.cpus import cpu_mask
from tailscope.signals import uninterrupted
from tailscope.testbed.cores import read_topology
from tailscope.testbed.steady import SteadyClock, ahead_of_kernel_ns
from tailscope.testbed.tasks import comm_of, processes, threads_of
from tailscope.testbed.tracefs import osnoise, remove_instance, tracefs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tailscope.testbed.folder import Folder

EVENTS = (
    "irq_vectors/*_entry",
    "irq_vectors/*_exit",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "irq/softirq_raise",
    "sched/sched_switch",
    "tlb/tlb_flush",
    "exceptions/page_fault_user",
    "exceptions/page_fault_kernel",
    "csd/csd_function_entry",
    "timer/hrtimer_expire_entry",
    "timer/timer_expire_entry",
    "workqueue/workqueue_execute_start",
    "workqueue/workqueue_execute_end",
)
"""Events that are recorded on the watched CPUs, as ``GROUP/NAME`` of the kernel."""

TRACER_THREAD = "tailscope-trace"
"""Name of the thread that reads the recorded events."""

_NMI = "nmi/nmi_handler"
_WHOLE_NMI = "osnoise/nmi_noise"
_SENDING = ("ipi/ipi_send_cpu", "ipi/ipi_send_cpumask")
_TSC, _MONO = "x86-tsc", "mono"
_BUFFER_KB = 4096
_SENDERS_KB = 512
_SWITCHES_KB = 1024
_SWITCHES = ("sched/sched_switch",)
_FULL_PERCENT = 50
"""Fill level from which buffers are read: reading keeps a CPU from other work."""
_READ_AFTER_S = 30.0
"""Longest pause between reads: some kernels fail to report that a buffer fills."""
_PAUSE_S = 0.1
"""Shortest pause between reads: older kernels report every event as a filling buffer."""
_MISSING_WITHOUT = ("irq", "sched")
_MISSING_ON_X86 = (*_MISSING_WITHOUT, "irq_vectors")


@dataclass
class RecordedTrace:
    """A recorded trace that has not been read yet."""

    events: dict[int, Path]
    senders: dict[int, Path]
    """Raw pages by CPU: of the watched CPUs, and of all CPUs for interrupts that one sends to
    another."""
    formats: list[tuple[str, str]]
    """Group and text of each event's format."""
    page_bytes: int
    clock: str
    """Clock of the trace: ``x86-tsc``, the counter of the packets, or ``mono``."""
    mono_unix_ns: int = 0
    """Unix time minus the trace's time; used for ``mono``."""
    clock_error_ns: int = 0
    """Largest error of times against those of packets; 0 for ``x86-tsc``."""
    lost: dict[int, int] = field(default_factory=dict)
    """Number of lost events for each CPU."""
    senders_lost: int = 0
    """Number of lost events on all CPUs about interrupts that one CPU sends to another."""
    ended_because: str = ""
    """Reason why the recording ended early; empty if it did not."""
    missing: list[str] = field(default_factory=list)
    """Events that this kernel lacks, or whose tracer others use."""
    comms: dict[int, str] = field(default_factory=dict)
    """Names of tasks by number."""
    started_unix_ns: int = 0
    ended_unix_ns: int = 0

    def tie(self, steady: SteadyClock) -> None:
        """Tie the trace's clock to the clock of everything else that is recorded."""
        if self.clock == _TSC:
            return
        # Events carry the kernel's own clock, whatever namespace this process is in.
        self.mono_unix_ns = steady.ahead_ns + ahead_of_kernel_ns()
        self.clock_error_ns = steady.error_ns


class Tracer:
    """A recorder of kernel events on some CPUs, within a block."""

    def __init__(
        self,
        folder: Folder,
        cpus: Sequence[int],
        *,
        clock: str | None = None,
        steady: SteadyClock | None = None,
        buffer_kb: int = _BUFFER_KB,
    ) -> None:
        self._folder, self._cpus = folder, cpus
        self._wanted_clock, self._buffer_kb = clock, buffer_kb
        self._stack = ExitStack()
        self._instances: list[_Instance] = []
        self._end = threading.Event()
        self._wakeup: int | None = None
        self._thread: threading.Thread | None = None
        self._clock = steady or SteadyClock()
        self._recorded: RecordedTrace | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except OSError as error:
            self.__exit__()
            raise TestbedError(
                f"kernel events: {error}",
                code="tracefs",
                hint="the kernel may be locked down; run without them: --noise stalls",
            ) from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._join()
        self._stack.close()

    def _join(self) -> None:
        self._end.set()
        if self._thread is not None:
            assert self._wakeup is not None
            os.eventfd_write(self._wakeup, 1)
            self._thread.join()
            self._thread = None

    def _open(self) -> None:
        root = self._stack.enter_context(tracefs())
        clock = _clock_of(root, self._wanted_clock)
        every = sorted(read_topology().online)
        is_whole = self._stack.enter_context(osnoise(root, self._folder.name, self._cpus))
        watched = (*EVENTS, _WHOLE_NMI if is_whole else _NMI)
        events = self._instance(root, "events", self._cpus, clock, watched, self._buffer_kb)
        senders = self._instance(root, "senders", every, clock, _SENDING, _SENDERS_KB)
        groups = {event.partition("/")[0] for event in events.enabled}
        needed = _MISSING_ON_X86 if os.uname().machine == "x86_64" else _MISSING_WITHOUT
        if lacking := [name for name in needed if name not in groups]:
            raise TestbedError(
                f"kernel events: this kernel has none of {', '.join(lacking)}",
                code="trace-events",
                remedy=remedies.TRACING,
                hint="run without events: --noise stalls",
            )
        self._recorded = RecordedTrace(
            events.files,
            senders.files,
            [*events.formats(), *senders.formats()],
            events.page_bytes,
            clock,
            missing=[*events.missing, *senders.missing, *(() if is_whole else (_WHOLE_NMI,))],
            started_unix_ns=self._clock.now_ns(),
        )
        for instance in self._instances:
            instance.switch(on=True)
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC)
        self._stack.callback(os.close, self._wakeup)
        self._thread = threading.Thread(target=self._follow, name=TRACER_THREAD, daemon=True)
        self._thread.start()

    def _instance(
        self,
        root: Path,
        kind: str,
        cpus: Sequence[int],
        clock: str,
        events: Iterable[str],
        buffer_kb: int,
    ) -> _Instance:
        name = f"{self._folder.name}-{kind}"
        instance = _Instance(root, name, self._folder.make(kind), cpus)
        with uninterrupted():
            self._stack.enter_context(instance)
        instance.set_up(clock, buffer_kb, events)
        self._instances.append(instance)
        return instance

    def _follow(self) -> None:
        """Sleep until a buffer is half full, or it is the end."""
        waiting = select.poll()
        for reader in (
            self._wakeup,
            *(reader for instance in self._instances for reader in instance.readers),
        ):
            assert reader is not None
            waiting.register(reader, select.POLLIN)
        while not self._end.is_set():
            waiting.poll(_READ_AFTER_S * 1000)
            if not self._end.is_set():
                self._drain()
                self._end.wait(_PAUSE_S)

    def _drain(self) -> None:
        """Copy the buffers; on a write error stop recording and keep the reason."""
        try:
            for instance in self._instances:
                instance.drain()
        except OSError as error:
            assert self._recorded is not None
            self._recorded.ended_because = str(error)
            self._recorded.ended_unix_ns = self._clock.now_ns()
            self._end.set()
            for instance in self._instances:
                instance.switch(on=False)

    def finish(self) -> RecordedTrace:
        """Stop, and return the recording; its files last as long as the folder."""
        recorded = self._recorded
        assert recorded is not None and self._thread is not None, "it is a context"
        for instance in self._instances:
            instance.switch(on=False)
        self._join()
        if not recorded.ended_because:
            recorded.ended_unix_ns = self._clock.now_ns()
            self._drain()
        recorded.lost = self._instances[0].lost()
        recorded.senders_lost = sum(self._instances[1].lost().values())
        recorded.comms = self._instances[0].comms()
        recorded.tie(self._clock)
        return recorded


class SwitchTracer:
    """A recorder of what CPUs run, and of nothing else, for a while at a time within a block."""

    def __init__(self, folder: Folder, cpus: Sequence[int]) -> None:
        self._folder, self._cpus = folder, cpus
        self._stack = ExitStack()
        self._clock = SteadyClock()
        self._trace_clock, self._started_ns = _MONO, 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            root = stack.enter_context(tracefs())
            self._trace_clock = _clock_of(root)
            self._instance = _Instance(root, self._folder.name, self._folder.path, self._cpus)
            with uninterrupted():
                stack.enter_context(self._instance)
            self._instance.set_up(self._trace_clock, _SWITCHES_KB, _SWITCHES)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Begin anew."""
        self._instance.forget()
        self._clock = SteadyClock()
        self._started_ns = self._clock.now_ns()
        self._instance.switch(on=True)

    def stop(self) -> RecordedTrace:
        """Stop, and return what was recorded since the start."""
        instance = self._instance
        instance.switch(on=False)
        try:
            instance.drain()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._folder.path)) from None
        recorded = RecordedTrace(
            instance.files,
            {},
            instance.formats(),
            instance.page_bytes,
            self._trace_clock,
            lost=instance.lost(),
            started_unix_ns=self._started_ns,
            ended_unix_ns=self._clock.now_ns(),
        )
        recorded.tie(self._clock)
        return recorded


def _clock_of(root: Path, wanted: str | None = None) -> str:
    """Choose the clock of a trace: the counter of the packets where the kernel has it."""
    clocks = (root / "trace_clock").read_text().replace("[", "").replace("]", "").split()
    clock = wanted or (_TSC if _TSC in clocks else _MONO)
    if clock not in clocks:
        raise TestbedError(
            f"kernel events: no clock {clock!r}: the kernel has {', '.join(clocks)}",
            code="trace-clock",
        )
    return clock


class _Instance:
    """One instance of the tracer, which is removed at the end of the block."""

    def __init__(self, root: Path, name: str, folder: Path, cpus: Sequence[int]) -> None:
        self._root, self._name, self._cpus = root, name, cpus
        self._path = root / "instances" / name
        self.files = {cpu: folder / f"cpu{cpu}.pages" for cpu in cpus}
        self.enabled: list[str] = []
        self.missing: list[str] = []
        self.page_bytes = 4096
        self._stack = ExitStack()
        self._pipes: list[tuple[int, IO[bytes]]] = []

    def __enter__(self) -> Self:
        self._path.mkdir()
        return self

    def __exit__(self, *_error: object) -> None:
        with uninterrupted():
            try:
                self._stack.close()
            finally:
                # Files that are closed on a full disk fail.
                with suppress(OSError):
                    remove_instance(self._root, self._name)

    def set_up(self, clock: str, buffer_kb: int, events: Iterable[str]) -> None:
        self.switch(on=False)
        self._write("trace_clock", clock)
        self._write("tracing_cpumask", cpu_mask(self._cpus, ""))
        # Allocate kernel memory for the watched CPUs only.
        self._write("buffer_size_kb", "4")
        self._write("buffer_percent", str(_FULL_PERCENT))
        for cpu in self._cpus:
            self._write(f"per_cpu/cpu{cpu}/buffer_size_kb", str(buffer_kb))
        header = (self._path.parents[1] / "events/header_page").read_text()
        sizes = re.search(r"char data;\s*offset:(\d+);\s*size:(\d+);", header)
        if sizes is None:
            raise TestbedError(
                f"events/header_page: expected offset and size of data: {header!r}",
                code="trace-page",
            )
        self.page_bytes = int(sizes[1]) + int(sizes[2])
        for pattern in events:
            paths = sorted(self._path.glob(f"events/{pattern}"))
            if not paths:
                self.missing.append(pattern)
            for path in paths:
                (path / "enable").write_text("1")
                self.enabled.append(f"{path.parent.name}/{path.name}")
        for cpu, file in self.files.items():
            pipe = self._path / f"per_cpu/cpu{cpu}/trace_pipe_raw"
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            reader = os.open(pipe, flags)
            self._stack.callback(os.close, reader)
            self._pipes.append((reader, self._stack.enter_context(file.open("xb"))))

    @property
    def readers(self) -> list[int]:
        return [reader for reader, _ in self._pipes]

    def switch(self, *, on: bool) -> None:
        self._write("tracing_on", "1" if on else "0")

    def drain(self) -> None:
        """Write all available pages."""
        for reader, writer in self._pipes:
            with suppress(BlockingIOError):
                while page := os.read(reader, self.page_bytes):
                    writer.write(page.ljust(self.page_bytes, b"\0"))
            writer.flush()

    def forget(self) -> None:
        """Remove what was written."""
        for _, writer in self._pipes:
            writer.seek(0)
            writer.truncate()

    def formats(self) -> list[tuple[str, str]]:
        return [
            (event.partition("/")[0], (self._path / "events" / event / "format").read_text())
            for event in self.enabled
        ]

    def lost(self) -> dict[int, int]:
        return {cpu: self._lost(cpu) for cpu in self._cpus}

    def _lost(self, cpu: int) -> int:
        stats = (self._path / f"per_cpu/cpu{cpu}/stats").read_text()
        counts = dict(re.findall(r"^([\w ]+): (\d+)$", stats, re.MULTILINE))
        return sum(int(counts.get(name, 0)) for name in ("overrun", "commit overrun"))

    def comms(self) -> dict[int, str]:
        """Return the names of current tasks, and of the last ones that the tracer saw."""
        names = {tid: comm_of(tid) for pid in processes() for tid in threads_of(pid)}
        with suppress(OSError):
            saved = (self._root / "saved_cmdlines").read_text(errors="replace")
            for line in saved.splitlines():
                pid, _, comm = line.strip().partition(" ")
                names.setdefault(int(pid), comm)
        return names

    def _write(self, name: str, value: str) -> None:
        (self._path / name).write_text(value)
