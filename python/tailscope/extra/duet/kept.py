"""A set-up that stays put up from block to block: its wire, its platform and their links.

The device is started anew for each block, and so is the generator: where the memory of a process
happens to lie can be worth percents for as long as it lives, so that luck has to be in the
differences. Where the device is one of ours, the processes of both blocks of a pair are started at
once, and sleep until it is their turn. Most of a start is the wait until the rate of a counter is
known; so they are started a pair ahead, over a wire of their own, and stopped in that wait. What a
run finds out beside its packets, such as its neighbours and the settings of the host, no pair asks
for.
"""

from __future__ import annotations

import os
import queue
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec.structs import asdict

from tailscope.duts.command import Command
from tailscope.duts.dataplane import Forwarder
from tailscope.duts.dut import DutContext
from tailscope.engine.analysis import Clock, Recording, analyze_recording
from tailscope.exceptions import DataplaneError, EvidenceError, TestbedError
from tailscope.experiment.run.instance import PLATFORM_PART
from tailscope.experiment.run.room import RECORDED_BYTES
from tailscope.extra.duet.others import Others, OthersHeld
from tailscope.extra.duet.paired import Block, free_ns
from tailscope.noise.intervals import union
from tailscope.noise.tracer import SwitchTracer
from tailscope.platforms.bare import Bare
from tailscope.testbed.cores import confined
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import GENERATOR
from tailscope.testbed.places import Child, Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.tasks import is_asleep
from tailscope.testbed.waiting import LOOK_S, Countdown
from tailscope.testbed.wires import Pci

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from tailscope.duts.dut import Dut
    from tailscope.experiment.co_runners import CoRunning
    from tailscope.experiment.device import InstanceCpus
    from tailscope.experiment.plan import RunPlan
    from tailscope.platforms.platform import OpenPlatform
    from tailscope.store.records.messages import GeneratorProgress, GeneratorResult, LoopProgress
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.messages import ForwarderResult
    from tailscope.testbed.wires import Side

    Generator = Dataplane[GeneratorProgress, GeneratorResult]


def can_be_kept(plan: RunPlan) -> bool:
    """Return whether a set-up is one device that needs nothing but its wire and its platform."""
    return plan.instances == 1 and bool(plan.device.make_dut().cpus) and not plan.tune


class _Device(Protocol):
    """A device that runs."""

    @property
    def is_running(self) -> bool:
        """Return True if the device still runs."""

    def failure(self) -> TestbedError:
        """Make the error that says how the device ended."""


@dataclass(frozen=True)
class Held:
    """A device and its generator, each of which waits for its turn behind a pipe."""

    device: Dataplane[LoopProgress, ForwarderResult]
    generator: Generator
    record: Path
    pipes: tuple[int, int]
    stack: ExitStack

    def let_go(self) -> None:
        """Let the device touch packets, and then, once it polls, the generator."""
        of_device, of_generator = self.pipes
        assert self.device.ready is not None, "it waits for its turn"
        pid = self.device.ready.pid
        polls_ns = _ran_ns(pid) + _BEGUN_NS
        os.write(of_device, bytes(1))
        while _ran_ns(pid) < polls_ns:
            if not self.device.is_running:
                raise self.device.failure()
            time.sleep(_LOOK_S)
        os.write(of_generator, bytes(1))

    def go_on(self) -> None:
        """Let both open their ports."""
        self.signal(signal.SIGCONT)
        for pipe in self.pipes:
            os.write(pipe, bytes(1))

    def rest(self) -> None:
        """Stop both once they sleep; neither has opened a port."""
        for each in (self.device, self.generator):
            assert isinstance(each.process, Child), "it is on this machine"
            countdown, ran_ns = Countdown(_SLEEP_S), -1
            while each.is_running and not countdown.is_over():
                before_ns, ran_ns = ran_ns, _ran_ns(each.process.pid)
                if ran_ns == before_ns and is_asleep(each.process.pid):
                    break
                time.sleep(_NAP_S)
            each.process.signal(signal.SIGSTOP)
            if each.is_running:
                # To stop, it has to run once more.
                os.waitid(os.P_PID, each.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def signal(self, number: signal.Signals) -> None:
        """Send both a signal."""
        for each in (self.generator, self.device):
            each.process.signal(number)

    def end(self) -> None:
        """Kill both at once, as giving back memory takes its time, and wait for their end."""
        self.signal(signal.SIGKILL)
        self.stack.close()


@dataclass
class KeptSetUp:
    """A set-up whose wire and platform are there."""

    plan: RunPlan
    cores: Cores
    folder: RunFolder
    records: RunFolder
    """The folder for recordings, in memory if they fit: who writes to a disk waits for it."""
    side: Side
    """The generator's ports."""
    dut: Dut
    platform: OpenPlatform
    others: Others | None
    """What tells when other programs hold its CPUs; None where nothing can."""
    numbers: Iterator[int] = field(default_factory=count)
    held: Held | None = None
    """The next device and its generator, started ahead; None where they cannot wait."""
    done: Held | None = None
    """Those that had their turn. They are stopped: to end takes CPU time, which others need."""

    @property
    def can_wait(self) -> bool:
        """Return whether the next device and its generator can wait for their turn."""
        if not isinstance(self.dut, Forwarder) or self.plan.platform != Bare.name:
            return False
        # Both sides may have the same cards, which one program at a time can open, and hugepages
        # may be enough for one side. What disturbs a device begins with it: in the other's block.
        has_hugepages = "--in-memory" in self.side.eal
        return not (self.plan.wire == Pci.name or has_hugepages or "disturb" in self.dut.given)

    def prepare(self) -> None:
        """Start the next device and its generator, which wait for their turn, if they can."""
        if self.done is not None:
            self.done.signal(signal.SIGKILL)
        if not self.can_wait:
            return
        assert isinstance(self.dut, Forwarder), "it can wait"
        number = next(self.numbers)
        _remove_sockets(self.folder.path)
        with ExitStack() as stack:
            (dut_path, of_device), (path, of_generator) = (
                stack.enter_context(_pipe(self.folder.path / f"hold-{role}-{number}"))
                for role in ("dut", "generator")
            )
            device = stack.enter_context(self.dut.process(replace(self._context(), hold=dut_path)))
            record = self.records.make(f"block-{number}")
            generator = stack.enter_context(self._generator(record, f"--hold={path}"))
            pipes = of_device, of_generator
            self.held = Held(device, generator, record, pipes, stack.pop_all())

    def rest(self) -> None:
        """Wait until what has ended is gone, and stop what was started ahead."""
        if self.done is not None:
            self.done.end()
            self.done = None
        if self.held is not None:
            self.held.rest()

    def wait_ready(self) -> None:
        """Let what was started ahead go on until it waits for its turn."""
        if self.held is not None:
            self.held.go_on()
            self.held.device.wait_ready()
            self.held.generator.wait_ready()

    def close(self) -> None:
        """End what was started ahead, and what had its turn."""
        for each in filter(None, (self.held, self.done)):
            each.end()
        self.held = self.done = None

    def block(self) -> Callable[[], Block]:
        """Let the traffic of a block pass, and return what analyses it."""
        with confined(self.cores.housekeeping), ExitStack() as stack:
            if self.held is None:
                _remove_sockets(self.folder.path)
                device: _Device = stack.enter_context(self.dut.open(self._context()))
                co_runners = self._run_co_runners(stack)
                self.platform.hand_over()
                self._watch_others()
                record = self.records.make(f"block-{next(self.numbers)}")
                generator = stack.enter_context(self._generator(record))
            else:
                self.done, self.held = self.held, None
                device, generator, record = self.done.device, self.done.generator, self.done.record
                stack.callback(self.done.signal, signal.SIGSTOP)
                co_runners = self._run_co_runners(stack)
                self._watch_others()
                self.done.let_go()
            result = _end_of(generator, device, co_runners)
            clock = Clock(**asdict(result.clock))
            held = OthersHeld.unknown() if self.others is None else self.others.held(clock)
        return partial(_block_of, self.plan, Recording.load(record, clock), record, held)

    def _run_co_runners(self, stack: ExitStack) -> CoRunning | None:
        return stack.enter_context(self.plan.co_runners_beside(self.folder, self.cores))

    def _watch_others(self) -> None:
        if self.others is not None:
            self.others.start()

    def _context(self) -> DutContext:
        [cpus] = self.plan.device.instance_cpus(self.cores)
        return DutContext(
            self.platform.place,
            self.platform.side,
            self.platform.cpus,
            self.platform.housekeeping,
            self.plan.device.stall_ns,
            pinned=not cpus.dut_anywhere,
            generator=self.side if self.dut.wire == "veth" else None,
        )

    def _generator(self, record: Path, *own: str) -> Generator:
        [cpus] = self.plan.device.instance_cpus(self.cores)
        assert cpus.generator is not None, "there is traffic"
        return Dataplane(
            "generator",
            GENERATOR,
            self.side.eal,
            [*self.plan.generator_options(), "--keep-ports", f"--record={record}", *own],
            place=Here(self.folder.path, self.side.command, mark=self.folder.name),
            lcores=[cpus.generator],
            housekeeping=self.cores.housekeeping,
        )


@contextmanager
def kept(plan: RunPlan, cores: Cores) -> Iterator[KeptSetUp]:
    """Put up the wire and the platform of a set-up within a block."""
    plan.check()
    device, dut = plan.device, plan.device.make_dut()
    [cpus] = device.instance_cpus(cores)
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(device.make_wire().open(folder, dut.ports))
        platform = device.make_platform().open(
            folder.part(PLATFORM_PART),
            ends.dut,
            dut,
            cpus=cpus.dut,
            housekeeping=cpus.dut_anywhere or cores.housekeeping,
            pinned=not cpus.dut_anywhere,
        )
        opened = stack.enter_context(platform)
        recorded_bytes = RECORDED_BYTES * plan.volume().packets
        records = stack.enter_context(RunFolder(memory_bytes=_RECORDINGS * recorded_bytes))
        others = None if cpus.dut_anywhere else _others(stack, dut, folder, cpus)
        set_up = KeptSetUp(plan, cores, folder, records, ends.generator, dut, opened, others)
        stack.callback(set_up.close)
        yield set_up


@contextmanager
def _pipe(path: Path) -> Iterator[tuple[Path, int]]:
    """Make a named pipe, and keep it open within a block: who reads waits for a byte."""
    os.mkfifo(path, mode=0o600)
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield path, number
    finally:
        os.close(number)
        path.unlink()


def _ran_ns(pid: int) -> int:
    """Return for how long a process has run; 0 if it has ended."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0


def _remove_sockets(folder: Path) -> None:
    """Remove what a device that was killed listened on: nobody asks it to end in order."""
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()


def _end_of(generator: Generator, device: _Device, co_runners: CoRunning | None) -> GeneratorResult:
    """Wait for the result of a generator as long as it works, and all beside it runs."""
    while generator.result is None:
        try:
            if generator.next_event(LOOK_S) is None:
                raise (generator if device.is_running else device).failure()
        except queue.Empty:
            generator.check_progress()
            _check_co_runners(co_runners)
    if not device.is_running:
        raise device.failure()
    _check_co_runners(co_runners)
    if generator.result.partial or not generator.result.gen.sent:
        raise DataplaneError(
            f"generator: a partial block: {'; '.join(generator.result.partial) or 'nothing sent'}",
            code="partial-result",
        )
    return generator.result


def _check_co_runners(co_runners: CoRunning | None) -> None:
    ended = None if co_runners is None else co_runners.failure()
    if ended is not None:
        raise TestbedError(ended, code="co-runner-ended")


def _others(stack: ExitStack, dut: Dut, folder: RunFolder, cpus: InstanceCpus) -> Others | None:
    """Return what tells when other programs hold CPUs, within a block; None without the right."""
    assert cpus.generator is not None, "there is traffic"
    polled = sorted({cpus.generator, *cpus.dut})
    try:
        tracer = stack.enter_context(SwitchTracer(folder.part("switches"), polled))
    except (TestbedError, OSError):
        return None
    return Others(tracer, folder.name, polled, has_children=isinstance(dut, Command))


def _block_of(plan: RunPlan, recording: Recording, record: Path, held: OthersHeld) -> Block:
    block = block_of(plan, recording, held)
    for path in record.iterdir():
        path.unlink()
    record.rmdir()
    return block


def block_of(plan: RunPlan, recording: Recording, held: OthersHeld) -> Block:
    """Return the latencies of a recording, with and without the instrument's stalls."""
    taken: list[Sequence[NDArray[np.int64]]] = []

    def sink(*columns: ArrayLike) -> None:
        taken.append([np.asarray(columns[at], np.int64) for at in _COLUMNS])

    analysis = analyze_recording(
        recording, trim=plan.trim_ns, window=plan.window_ns, worst=0, series=False, sink=sink
    )
    sent = int(analysis.summary["sent"] or 0)
    if not sent:
        raise EvidenceError(
            "--block: got no packet behind --warm-up, expected 1 or more",
            code="empty-block",
            hint="a longer --block or a higher --rate leaves some",
        )
    seq, left_ns, latency_ns, meant_ns, whole_ns = (
        np.concatenate([each[at] for each in taken] or [_NONE]) for at in range(len(_COLUMNS))
    )
    stall_ns = _stalled_ns(recording, left_ns, left_ns + latency_ns)
    if not held.watched_ns:
        is_punctual = _stalled_ns(recording, meant_ns, left_ns) == 0
        if _empties(left_ns, latency_ns, is_punctual):
            stall_ns = whole_ns
    # What left later than the warm-up, and never came.
    is_lost = np.ones(len(recording.departure_tsc), bool)
    is_lost[seq] = False
    lost = sent - len(seq)
    which = np.flatnonzero(is_lost)[np.count_nonzero(is_lost) - lost :]
    lost_left_ns, lost_meant_ns = (
        recording.clock.all_at_ns(tsc[which])
        for tsc in (recording.departure_tsc, recording.intended_tsc)
    )
    free = free_ns(
        np.append(meant_ns, lost_meant_ns),
        np.append(left_ns, lost_left_ns),
        np.append(left_ns + latency_ns, np.zeros(lost, np.int64)),
        held.start_ns,
        held.end_ns,
    )
    missing = np.full(lost, plan.window_ns)
    return Block(
        np.append(latency_ns, missing),
        np.append(latency_ns - stall_ns, missing),
        free,
        lost,
        _stalled_share(recording),
        held,
    )


def _stalled_ns(
    recording: Recording, from_ns: NDArray[np.int64], to_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for how long the generator stalled within intervals of Unix time.

    What queued behind packets that a stall held back is not in it: a device that always holds some
    packets may have that queue for ever, as far as a recording tells. What met another program is
    left out with its queue where programs are known.
    """
    began = recording.stall_start_tsc
    start_ns, end_ns = union(
        *(recording.clock.all_at_ns(tsc) for tsc in (began, began + recording.stall_duration_tsc))
    )
    edges_ns = np.column_stack([start_ns, end_ns]).ravel()
    if not len(edges_ns):
        return np.zeros(len(from_ns), np.int64)
    lasted_ns = np.column_stack([end_ns - start_ns, np.zeros_like(start_ns)]).ravel()
    before_ns = np.append(0, np.cumsum(lasted_ns)[:-1])
    first, last = (
        np.interp(at_ns - edges_ns[0], edges_ns - edges_ns[0], before_ns)
        for at_ns in (from_ns, to_ns)
    )
    return np.asarray(last - first).astype(np.int64)


def _empties(
    left_ns: NDArray[np.int64], latency_ns: NDArray[np.int64], is_punctual: NDArray[np.bool_]
) -> bool:
    """Return whether a device gets empty now and then, by what leaves when it is meant to.

    Then a recording tells when the queue behind a stall has gone.
    """
    back_ns = np.maximum.accumulate(left_ns + latency_ns)
    found_empty = left_ns[1:] >= back_ns[:-1]
    return bool(np.count_nonzero(found_empty & is_punctual[1:]) >= _EMPTY * len(left_ns))


def _stalled_share(recording: Recording) -> float:
    """Return the share of the time from the first packet to the last that a generator stalled."""
    began, ended = recording.departure_tsc[0], recording.departure_tsc[-1]
    start = recording.stall_start_tsc
    end = np.clip(start + recording.stall_duration_tsc, began, ended)
    stalled = int((end - np.clip(start, began, ended)).sum())
    return stalled / max(1, int(ended - began))


_NONE = np.zeros(0, np.int64)
_COLUMNS = (0, 1, 2, 3, 5)
"""Of a series: number, departure, latency, intended departure, and all that stalls can explain."""
_EMPTY = 0.02
"""Share of the packets that find a device empty which gets empty now and then."""
_RECORDINGS = 4
"""Recordings that are there at once: of two sides, one that is made and one that is analysed."""
_CPU_CLOCK = 2
"""`CPUCLOCK_SCHED` of a process, in the numbers of clocks: what `clock_getcpuclockid` returns."""
_LOOK_S = 0.0005
_NAP_S = 0.002
"""Time that a process sleeps at least where it waits for long."""
_SLEEP_S = 1.0
"""Time after which a process is stopped wherever it is."""
_BEGUN_NS = 2_000_000
"""Run time that a device which was let go needs for nothing but polling."""
