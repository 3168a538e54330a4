"""Traffic through the devices of a run: started, followed to its end, stopped by Ctrl-C."""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import DataplaneError, TestbedError
from tailscope.experiment.instance import StagesOutcome
from tailscope.host.cpus import parse_cpus
from tailscope.noise.recorder import NoiseRecorder
from tailscope.testbed.co_runners import co_runners
from tailscope.testbed.power import PowerRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope.experiment.instance import EndedInstance, Instance, Progress
    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.stage_recorder import StageRecorder

__all__ = ["Traffic"]

_MARGIN_S = 30.0
_START_S = 0.1
"""How often to look whether a device is there, until there are packets."""


class Traffic:
    """What goes through the devices, until it has ended.

    Parameters
    ----------
    plan : RunPlan
    instances : sequence of Instance
        All that were put up.
    folder : Folder
        Of the run.
    cores : Cores
    """

    def __init__(
        self, plan: RunPlan, instances: Sequence[Instance], folder: Folder, cores: Cores
    ) -> None:
        self._plan, self._instances, self._folder = plan, instances, folder
        self._co_runner_cpus = (
            cores.housekeeping if plan.co_runner_cpus is None else parse_cpus(plan.co_runner_cpus)
        )

    def run(self, progress: Progress | None, ended: Callable[[bool], None]) -> list[EndedInstance]:
        """Start devices, co-runners and generators, and follow all to their end.

        Parameters
        ----------
        progress : callable or None
            Receives what the first generator says once a second.
        ended : callable
            Called when the last packet is there, before anything is stopped; with whether Ctrl-C
            ended the traffic.

        Returns
        -------
        list of EndedInstance
            Those that got traffic, each direction for itself.
        """
        plan = self._plan
        with ExitStack() as stack:
            power = stack.enter_context(
                PowerRecorder(self._folder.path, plan.power, phase_s=plan.power_phase_ns / 1e9)
            )
            power.rest("idle")
            for instance in self._instances:
                instance.start_dut(stack)
            busy = stack.enter_context(
                co_runners(self._folder, plan.co_runners, self._co_runner_cpus)
            )
            power.rest("running")
            loaded = [each for each in self._instances if each.cpus.generator is not None]
            stages, why_not = self._stages(stack)
            recorder = stack.enter_context(self._recorder())
            for instance in loaded:
                instance.start_generator(stack)
            self._follow(loaded, progress)
            ended(any(each.interrupted for each in loaded))
            gone, noise, drawn = busy.failure(), recorder.finish(), power.finish()
            passed = None if stages is None else stages.recorded()
            way = StagesOutcome(passed, why_not)
            found = [each.finish(gone, noise, drawn, way) for each in self._instances]
        return [way for each in found if each is not None for way in each.by_direction()]

    def _stages(self, stack: ExitStack) -> tuple[StageRecorder | None, str | None]:
        """Record stages in the kernel where that is wanted; else, why there are none, if at all."""
        if self._plan.stages == "off":
            return None, None
        try:
            self._plan.check_stages()
            if self._plan.make_dut().notes_stages:
                return None, None
            [instance] = self._instances
            return stack.enter_context(instance.stage_recorder()), None
        except TestbedError as error:
            if self._plan.stages == "on":
                raise
            return None, str(error)

    def _recorder(self) -> NoiseRecorder:
        plan = self._plan
        cpus = [instance.cpus for instance in self._instances]
        generators = [each.generator for each in cpus if each.generator is not None]
        return NoiseRecorder(
            self._folder,
            [*generators, *(cpu for each in cpus for cpu in each.dut)],
            what=plan.noise,
            counter_interval_s=plan.counter_interval_ns / 1e9 or None,
            devices={
                mark: cpus
                for instance in self._instances
                for mark, cpus in instance.device_cpus.items()
            },
        )

    def _follow(self, loaded: Sequence[Instance], progress: Progress | None) -> None:
        """Listen until all generators have ended. Ctrl-C ends the traffic, a second one all.

        While packets are on their way it sleeps until somebody has something to say: its CPU may be
        one that is measured.
        """
        lasts_s = (self._plan.warm_up_ns + self._plan.duration_ns) / 1e9 + _MARGIN_S
        deadline_s = time.monotonic() + lasts_s
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        for instance in loaded:
            instance.ring(bell)
        left = list(loaded)
        while left:
            try:
                left = [
                    each for each in left if each.listen(progress if each is loaded[0] else None)
                ]
                if left:
                    pause_s = deadline_s - time.monotonic()
                    if not all(each.sends for each in left):
                        pause_s = min(pause_s, _START_S)
                    with suppress(queue.Empty):
                        bell.get(timeout=max(0.0, pause_s))
            except KeyboardInterrupt:
                if loaded[0].interrupted:
                    raise
                for instance in loaded:
                    instance.interrupt()
                deadline_s = time.monotonic() + _MARGIN_S
            if left and time.monotonic() > deadline_s:
                raise DataplaneError(
                    f"generator: no result {_MARGIN_S:g} s after it should have ended"
                )
