"""Traffic through the devices of a run: started, followed to its end, stopped by Ctrl-C."""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import TailscopeError, TestbedError, said
from tailscope.experiment.run.instance import StagesOutcome
from tailscope.noise.recorder import NoiseRecorder
from tailscope.signals import uninterrupted
from tailscope.testbed.power import PowerRecorder
from tailscope.testbed.steady import SteadyClock
from tailscope.testbed.waiting import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tailscope.experiment.co_runners import CoRunning
    from tailscope.experiment.plan import Measurement
    from tailscope.experiment.run.instance import EndedInstance, Instance, Progress
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.stage_recorder import StageRecorder

_START_S = 0.1
"""Interval for looking whether a device is there, in seconds, until there are packets."""


class EndedTraffic(NamedTuple):
    """The outcome of traffic that has ended."""

    ways: list[EndedInstance | None]
    """Each direction of each instance that got traffic; None where nothing was recorded."""
    problem: BaseException | None
    """The reason why there is no time, or no point, in analysing what was recorded at once."""


class LiveTraffic:
    """The traffic through the devices, until it has ended."""

    def __init__(
        self,
        measurement: Measurement,
        co_runners: AbstractContextManager[CoRunning | None],
        instances: Sequence[Instance],
        folder: Folder,
        *,
        ways: int,
    ) -> None:
        """Packets of each instance travel in so many `ways`."""
        self._measurement, self._instances, self._folder = measurement, instances, folder
        self._co_runners, self._ways = co_runners, ways

    def run(self, progress: Progress | None, ended: Callable[[bool], None]) -> EndedTraffic:
        """Start devices, co-runners and generators, and follow all to their end."""
        ways: list[EndedInstance | None] = []
        problem: BaseException | None = None
        try:
            with ExitStack() as stack:
                problem = self._carry_out(stack, progress, ended, ways)
        except (TailscopeError, OSError, KeyboardInterrupt) as error:
            problem = problem or error
        if problem is not None and not any(ways):
            raise problem
        return EndedTraffic(ways, problem)

    def _carry_out(
        self,
        stack: ExitStack,
        progress: Progress | None,
        ended: Callable[[bool], None],
        ways: list[EndedInstance | None],
    ) -> BaseException | None:
        """Do what `run` does without taking anything down; add what was recorded to `ways`."""
        asked = self._measurement
        # One clock for everything: somebody may set the machine's meanwhile.
        clock = SteadyClock()
        phase_s = asked.power_phase_ns / 1e9
        power = stack.enter_context(
            PowerRecorder(self._folder.path, asked.power, phase_s=phase_s, clock=clock)
        )
        power.rest("idle")
        for instance in self._instances:
            instance.start_dut(stack)
        busy = stack.enter_context(self._co_runners)
        power.rest("running")
        loaded = [each for each in self._instances if each.cpus.generator is not None]
        stages, why_not = self._stages(stack)
        recorder = stack.enter_context(self._recorder(clock))
        for instance in loaded:
            instance.start_generator(stack, clock)
        problem = self._follow(loaded, progress, ended)
        try:
            with uninterrupted():
                gone = None if busy is None else busy.failure()
                noise, drawn = recorder.finish(), power.finish()
                way = self._stages_outcome(stages, why_not)
                beside = () if busy is None else busy.finish()
        except KeyboardInterrupt as interrupt:
            problem = problem or interrupt
        for each in self._instances:
            try:
                found = each.finish(gone, noise, drawn, way, beside)
            except (TailscopeError, KeyboardInterrupt) as error:
                problem = problem or error
                ways += [None] * self._ways
                continue
            ways += [] if found is None else found.by_direction()
            if each.hurried:
                problem = problem or KeyboardInterrupt()
        return problem

    def _stages_outcome(self, stages: StageRecorder | None, why_not: str | None) -> StagesOutcome:
        if stages is None:
            return StagesOutcome(None, why_not)
        try:
            return StagesOutcome(stages.recorded())
        except TestbedError as error:
            return StagesOutcome(None, said(error))

    def _stages(self, stack: ExitStack) -> tuple[StageRecorder | None, str | None]:
        """Record stages in the kernel where that is wanted; else, why there are none, if at all."""
        if self._measurement.stages == "off":
            return None, None
        device = self._instances[0].device
        try:
            device.check_stages()
            if device.make_dut().notes_stages:
                return None, None
            [instance] = self._instances
            return stack.enter_context(instance.stage_recorder()), None
        except TestbedError as error:
            if self._measurement.stages == "on":
                raise
            return None, str(error)

    def _recorder(self, clock: SteadyClock) -> NoiseRecorder:
        asked = self._measurement
        cpus = [instance.cpus for instance in self._instances]
        generators = [each.generator for each in cpus if each.generator is not None]
        return NoiseRecorder(
            self._folder,
            [*generators, *(cpu for each in cpus for cpu in each.dut)],
            what=asked.noise,
            counter_interval_s=asked.counter_interval_ns / 1e9 or None,
            devices={
                mark: cpus
                for instance in self._instances
                for mark, cpus in instance.device_cpus.items()
            },
            clock=clock,
        )

    def _follow(
        self,
        loaded: Sequence[Instance],
        progress: Progress | None,
        ended: Callable[[bool], None],
    ) -> BaseException | None:
        """Listen until all generators have ended; why what they recorded is only to be kept.

        Ctrl-C ends the traffic. A second one leaves out what follows, and waits until what was
        recorded is written; a third one gives it up.

        While packets are on their way it sleeps until somebody has something to say: its CPU may be
        one that is measured. From when the traffic should have ended on, it looks now and then
        whether all work.
        """
        asked = self._measurement
        look_s = time.monotonic() + (asked.warm_up_ns + asked.duration_ns) / 1e9
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        for instance in loaded:
            instance.ring(bell)
        left, problem, has_ended = list(loaded), None, False
        while left:
            try:
                left = [
                    each for each in left if each.listen(progress if each is loaded[0] else None)
                ]
                if not has_ended and all(each.writes for each in left):
                    has_ended = True
                    ended(any(each.interrupted for each in loaded))
                if left and time.monotonic() >= look_s:
                    look_s = time.monotonic() + LOOK_S
                    for each in left:
                        each.check_progress()
                if left:
                    pause_s = look_s - time.monotonic()
                    if not all(each.sends for each in left):
                        pause_s = min(pause_s, _START_S)
                    with suppress(queue.Empty):
                        bell.get(timeout=max(0.0, pause_s))
            except KeyboardInterrupt as interrupt:
                was_asked = has_ended or loaded[0].interrupted
                if problem is not None or (was_asked and not all(each.sends for each in loaded)):
                    raise
                if was_asked:
                    problem = interrupt
                    continue
                for instance in loaded:
                    instance.interrupt()
                look_s = time.monotonic()
        return problem
