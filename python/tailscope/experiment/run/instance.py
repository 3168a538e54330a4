"""One device with its wire and its generator: put up, started, listened to, stopped."""

from __future__ import annotations

import dataclasses
import queue
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import asdict, replace

from tailscope.duts.dut import DutContext
from tailscope.exceptions import DataplaneError, TailscopeError, said
from tailscope.experiment.run.cut_off import recorded_packets, result_of
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from tailscope.duts.dut import Dut, Running
    from tailscope.experiment.device import Device, InstanceCpus
    from tailscope.noise.recorder import RecordedNoise
    from tailscope.platforms.platform import OpenPlatform
    from tailscope.store.records.dataplane import DutCounts
    from tailscope.store.records.messages import (
        DirectionCounts,
        GeneratedTraffic,
        GeneratorProgress,
        GeneratorResult,
        LcoreCounts,
        ReadyEvent,
    )
    from tailscope.store.records.run import CoRunnerRecord
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.power import RecordedPower
    from tailscope.testbed.stage_recorder import RecordedStages, StageRecorder
    from tailscope.testbed.steady import SteadyClock
    from tailscope.testbed.wires import Side, WireEnds

    Progress = Callable[[GeneratorProgress], None]

_BACK = "back/"
"""Folder in which a generator keeps its recordings of packets that travel back."""
_OF_DIRECTIONS = ("generator", "captures")
"""Folders in which it does."""

PLATFORM_PART = "platform"
"""The part of the folder by whose name processes of the device are known."""


class StagesOutcome(NamedTuple):
    """The recording of the way of packets through a device."""

    recorded: RecordedStages | None = None
    why_not: str | None = None
    """The reason why nothing was recorded, though it was wanted where possible."""


@dataclass(frozen=True)
class EndedInstance:
    """Everything known of an instance with traffic once all of it has ended."""

    number: int | None
    """Its number, where there are several instances."""
    device: Device
    """The device that was asked for."""
    cpus: InstanceCpus
    folders: Mapping[str, Path]
    """Folders in which each wrote down what it saw: ``generator``, ``captures``, and ``dut`` where
    its stalls are on the clock of the packets."""
    side: Side
    """The generator's ports."""
    result: GeneratorResult
    raised_priority: bool
    """True if the generator went before other processes."""
    interrupted: bool
    """True if somebody ended it before its time."""
    partial: list[str]
    """Reasons why it is not all that was planned."""
    dut: Dut
    dut_mark: str
    """The mark that processes of the device are known by."""
    running: Running | None
    """The device; None where there is none, or no platform for it."""
    counts: DutCounts | None
    """The device's own counts, if it says."""
    platform: OpenPlatform | None
    noise: RecordedNoise
    power: RecordedPower
    stages: StagesOutcome
    beside: tuple[CoRunnerRecord, ...] = ()
    """The co-runners."""
    direction: Literal["forth", "back"] | None = None
    """Its direction, where traffic goes in both."""
    others_lost: int = 0
    """Packets of the other one that never came back."""
    cut_off: bool = False
    """True if its generator, or what that recorded, ended before its time."""

    @property
    def in_threads(self) -> bool:
        """Return True if threads of the kernel took the device's packets."""
        return self.running is not None and self.running.in_threads

    def by_direction(self) -> list[EndedInstance]:
        """Each direction with a book of its own; itself where there is one."""
        from tailscope.store.records.messages import GeneratedTraffic

        there, back = replace(self.result.gen, back=None), self.result.gen.back
        if back is None:
            return [self]
        return [
            self._part("forth", there, "", never_came(back)),
            self._part("back", GeneratedTraffic(**asdict(back)), _BACK, never_came(there)),
        ]

    def _part(
        self, direction: Literal["forth", "back"], own: GeneratedTraffic, part: str, lost: int
    ) -> EndedInstance:
        """One direction; its recordings are in `part` of the folders."""
        result = self.result
        record = [
            name.removeprefix(part)
            for name in result.record
            if name.startswith(_BACK) == bool(part)
        ]
        folders = {
            role: (path / part).resolve() if role in _OF_DIRECTIONS else path
            for role, path in self.folders.items()
        }
        return dataclasses.replace(
            self,
            folders=folders,
            result=replace(result, gen=own, record=record),
            direction=direction,
            others_lost=lost,
        )

    @property
    def sent(self) -> int:
        """Return the number of packets that its generator has sent, without the warm-up."""
        return self.result.gen.sent

    @property
    def left(self) -> int:
        """Return the number of packets that left, those that were not recorded included."""
        return self.sent + self.result.gen.unrecorded_sent

    @property
    def dut_lcores(self) -> Sequence[LcoreCounts]:
        """The counts of the device's polling loops, where it is one of ours."""
        from tailscope.store.records.messages import ProgramCounts

        return self.counts.lcores if isinstance(self.counts, ProgramCounts) else ()


def never_came(generated: DirectionCounts) -> int:
    """Count the packets that left and never came back, those that no figure has included."""
    return generated.sent - generated.matched + lost_unrecorded(generated)


def lost_unrecorded(generated: DirectionCounts) -> int:
    """Count the packets that no figure has, and that never came back, but that counters have.

    They are those of the warm-up, and those that left while the recorder was behind.
    """
    warm_up = generated.warm_up_sent - generated.warm_up_received
    return warm_up + max(0, generated.unrecorded_sent - generated.unrecorded_received)


class Instance:
    """One device with its wire and its generator."""

    ends: WireEnds
    """The ends of its wire, once that is put up; a loop has none."""

    def __init__(
        self,
        device: Device,
        cores: Cores,
        folder: Folder,
        cpus: InstanceCpus,
        number: int | None,
        *,
        sends: Sequence[str],
        captures: bool,
        stages_every: int | None,
        record: Path | None = None,
        begun: Callable[[Instance, ReadyEvent], None] | None = None,
    ) -> None:
        """Options `sends` say what its generator sends; it records into the folder `record`.

        `begun` is called when it has its ports, and begins to record.

        Of `stages_every` packets one is looked at in the device; none where that is None.
        """
        self.device, self.cpus = device.numbered(number), cpus
        self.interrupted = self.writes = self.hurried = False
        self._cores, self._number = cores, number
        self._sends, self._stages_every = sends, stages_every
        self._folder = folder if number is None else folder.part(str(number))
        self._folders = {"generator": record or self._folder.make("generator")}
        self._begun = begun
        if captures:
            self._folders["captures"] = self._folder.make("captures")
        self._dut, self._dut_mark = device.make_dut(), ""
        self._side: Side
        self._platform: OpenPlatform | None = None
        self._running: Running | None = None
        self._generator: Dataplane[GeneratorProgress, GeneratorResult] | None = None

    def put_up(self, stack: ExitStack) -> None:
        """Put up the wire, and the platform of the device."""
        wire = self.device.make_wire()
        if not self._dut.cpus:
            self._side = stack.enter_context(wire.open_loop(self._folder))
            return
        self.ends = stack.enter_context(wire.open(self._folder, self._dut.ports))
        self._side = self.ends.generator
        folder = self._folder.part(PLATFORM_PART)
        self._dut_mark = folder.name
        self._platform = stack.enter_context(
            self.device.make_platform().open(
                folder,
                self.ends.dut,
                self._dut,
                cpus=self.cpus.dut,
                housekeeping=self.cpus.dut_anywhere or self._cores.housekeeping,
                pinned=not self.cpus.dut_anywhere,
            )
        )

    def start_dut(self, stack: ExitStack) -> None:
        """Start the device; it is ready then."""
        if self._platform is None:
            return
        if self._platform.shares_clock:
            self._folders["dut"] = self._folder.make("dut")
        context = DutContext(
            self._platform.place,
            self._platform.side,
            self._platform.cpus,
            self._platform.housekeeping,
            self.device.stall_ns,
            self._folders.get("dut"),
            stages_every=self._notes_every,
            pinned=not self.cpus.dut_anywhere,
            generator=self._side if self._dut.wire == "veth" else None,
        )
        self._running = stack.enter_context(self._dut.open(context))

    def start_generator(self, stack: ExitStack, clock: SteadyClock) -> None:
        """Start the generator, with a clock; it sends as soon as there is a link."""
        from tailscope.testbed.messages import GENERATOR

        assert self.cpus.generator is not None
        if self._platform is not None:
            self._platform.hand_over()
        # A program of others may crash when its link goes: the device is stopped first.
        options = [
            *self._sends,
            "--keep-ports",
            f"--record={self.record}",
            f"--unix-ahead-ns={clock.ahead_ns}",
        ]
        if "captures" in self._folders:
            options.append(f"--captures={self._folders['captures']}")
        self._generator = stack.enter_context(
            Dataplane(
                "generator",
                GENERATOR,
                self._side.eal,
                options,
                place=Here(self._folder.path, self._side.command, mark=self._folder.name),
                lcores=[self.cpus.generator],
                housekeeping=self._cores.housekeeping,
            )
        )

    @property
    def device_cpus(self) -> dict[str, frozenset[int]]:
        """The CPUs of its device, by what processes of that are known by; none without one."""
        cpus = frozenset(self.cpus.dut_anywhere or self.cpus.dut)
        return {self._dut_mark: cpus} if self._dut_mark else {}

    @property
    def record(self) -> Path:
        """The folder that its generator records into."""
        return self._folders["generator"]

    @property
    def is_urgent(self) -> bool:
        """True if its generator goes before other processes."""
        assert self._generator is not None
        return self._generator.process.urgent

    @property
    def sends(self) -> bool:
        """True if the generator has its ports: packets may be on their way."""
        return self._generator is not None and self._generator.ready is not None

    def stage_recorder(self) -> StageRecorder:
        """Return the recorder of the way of packets through the kernel; the device is there."""
        from tailscope.testbed.stage_recorder import STAGES_PART, StageRecorder

        assert self._platform is not None, "it has a device"
        assert self._stages_every is not None, "stages are asked for"
        folder = self._folder.part(STAGES_PART)
        return StageRecorder(
            here=Here(folder.path, mark=folder.name),
            there=self._platform.place,
            links=self._platform.side.links,
            every=self._stages_every,
            cpus=self._cores.housekeeping,
        )

    def ring(self, bell: queue.SimpleQueue[None]) -> None:
        """Have a bell rung whenever the generator has said something."""
        assert self._generator is not None
        self._generator.process.bell = bell

    def listen(self, progress: Progress | None) -> bool:
        """Take what the generator has said by now; whether it goes on."""
        from tailscope.store.records.messages import GeneratorProgress, ReadyEvent

        assert self._generator is not None
        while True:
            try:
                event = self._generator.next_event(0)
            except queue.Empty:
                break
            if event is None or self._generator.result is not None:
                self.writes = self._generator.result is not None
                return False
            if isinstance(event, ReadyEvent) and self._begun is not None:
                self._begun(self, event)
            if isinstance(event, GeneratorProgress):
                self.writes = event.state == "writing"
                if progress is not None:
                    progress(event)
        if self._running is not None and not self._running.is_running:
            if not self.sends:
                raise self._running.failure()
            # What is sent to nobody tells nothing; `end` says why it was so short.
            self._generator.stop()
        return True

    def check_progress(self) -> None:
        """Look whether the generator works, and end it if not: what it recorded is there."""
        assert self._generator is not None
        try:
            self._generator.check_progress()
        except DataplaneError:
            # `finish` says why it was given up.
            self._generator.process.kill()

    def interrupt(self) -> None:
        """End the traffic before its time."""
        assert self._generator is not None
        self.interrupted = True
        self._generator.process.signal(signal.SIGINT)

    def finish(
        self,
        reason: str | None,
        noise: RecordedNoise,
        power: RecordedPower,
        stages: StagesOutcome,
        beside: tuple[CoRunnerRecord, ...],
    ) -> EndedInstance | None:
        """Stop the device, and collect what all say; None where it had no traffic."""
        partial = [reason] if reason else []
        counts = None
        try:
            counts = self._stop_dut(partial)
            if self._generator is not None:
                self._generator.stop()
                self._generator.finish()
        except KeyboardInterrupt:
            self.hurried = True
            partial.append("nobody waited for the device to say what it counted")
        if self._generator is None:
            return None
        result = self._generator.result
        if result is None:
            if self._generator.ready is None or not recorded_packets(self.record):
                # A generator that has only just started is ended by Ctrl-C, without a result.
                if self.interrupted:
                    raise KeyboardInterrupt
                raise self._generator.failure()
            partial.append(str(self._generator.failure()))
            result = result_of(self._generator.ready, self.record)
        return EndedInstance(
            number=self._number,
            device=self.device,
            cpus=self.cpus,
            folders=self._folders,
            side=self._side,
            result=result,
            raised_priority=self.is_urgent,
            interrupted=self.interrupted,
            partial=[*partial, *result.partial],
            dut=self._dut,
            dut_mark=self._dut_mark,
            running=self._running,
            counts=counts,
            platform=self._platform,
            noise=noise,
            power=power,
            stages=self._noted() or stages,
            beside=beside,
            cut_off=self._generator.result is None
            or recorded_packets(self.record) < result.gen.sent,
        )

    def _noted(self) -> StagesOutcome | None:
        """Return the device's notes on the way of packets; None where nobody asked for them."""
        from tailscope.testbed.stage_recorder import LoopStages

        if self._running is None or not self._notes_every:
            return None
        if self._running.passed is None:
            return StagesOutcome(why_not="the device ended before it could say")
        return StagesOutcome(
            LoopStages(self._folders["dut"], self._notes_every, self._running.passed)
        )

    @property
    def _notes_every(self) -> int | None:
        """The number of packets of which the device notes the way of one; None if it does not."""
        return self._stages_every if self._dut.notes_stages else None

    def _stop_dut(self, partial: list[str]) -> DutCounts | None:
        """Stop the device and return what it counted; what is missing of it joins `partial`."""
        if self._running is None:
            return None
        died = not self._running.is_running
        try:
            counts = self._running.stop()
        except (TailscopeError, OSError) as error:
            partial.append(f"the device: {said(error)}")
            return None
        if died or counts is None:
            partial.append(str(self._running.failure()))
        else:
            partial += self._running.partial
        return counts
