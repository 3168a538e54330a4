"""Carrying out a plan: start all sides, follow them, analyse, keep what came out."""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from msgspec.structs import replace

from tailscope.exceptions import TailscopeError, TestbedError, said
from tailscope.experiment.run.evaluate import evaluate
from tailscope.experiment.run.instance import Instance
from tailscope.experiment.run.keeping import raise_kept
from tailscope.experiment.run.room import check_room
from tailscope.experiment.run.traffic import LiveTraffic
from tailscope.signals import Patience, patient
from tailscope.store.machine import this_host
from tailscope.store.provenance import measurement_info
from tailscope.testbed.cores import confined
from tailscope.testbed.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailscope.experiment.device import InstanceCpus
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.instance import Progress
    from tailscope.experiment.run.measured import Measured
    from tailscope.host.apply import KnobOutcome
    from tailscope.store.directory import Draw, RunWriter
    from tailscope.store.provenance import MeasurementRecord
    from tailscope.store.records.messages import ReadyEvent
    from tailscope.store.records.run import RunInfo
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import WireEnds


class ExecuteOptions(TypedDict, total=False):
    """Options of `execute` beside a plan and CPUs."""

    out: Path | None
    draw: Draw | None
    progress: Progress | None
    inspect: Callable[[Measured], None] | None
    around: Callable[[RunFolder, WireEnds], AbstractContextManager[None]] | None
    ending: Callable[[], None] | None
    checked: Callable[[], None] | None
    analysing: Callable[[], None] | None


def execute(
    plan: RunPlan,
    cores: Cores,
    *,
    out: Path | None = None,
    draw: Draw | None = None,
    progress: Progress | None = None,
    inspect: Callable[[Measured], None] | None = None,
    around: Callable[[RunFolder, WireEnds], AbstractContextManager[None]] | None = None,
    ending: Callable[[], None] | None = None,
    checked: Callable[[], None] | None = None,
    analysing: Callable[[], None] | None = None,
) -> list[Measured]:
    """Carry out a plan; `draw` draws the page of each run directory that `out` asks for.

    `checked` is called when the machine has all that the plan needs, before anything is put up;
    `analysing` when the traffic has ended and its packets are looked at.
    """
    plan.check()
    if checked is not None:
        checked()
    traffic, measurement = plan.traffic, plan.measurement
    with ExitStack() as stack:
        writers = []
        if out is not None:
            writers = stack.enter_context(_directories(out, plan.folders(out), draw))
        stack.enter_context(confined(cores.housekeeping))
        tuning = stack.enter_context(_tuned(cores) if plan.tune else nullcontext(()))
        folder = stack.enter_context(RunFolder())
        check_room(plan.volume(), folder.path.parent, out)
        describe = partial(measurement_info, plan.record(), this_host())
        instances = _instances(plan, cores, folder, writers, describe)
        for instance in instances:
            instance.put_up(stack)
        with ExitStack() as finishing:
            patience = Patience()

            def finish(cut_short: bool) -> None:
                nonlocal patience
                patience = finishing.enter_context(patient(ending or _say_nothing, asked=cut_short))

            with nullcontext() if around is None else around(folder, instances[0].ends):
                if not writers:
                    measurement = replace(measurement, noise="stalls", power="none", stages="off")
                ended = LiveTraffic(
                    measurement,
                    plan.co_runners_beside(folder, cores),
                    instances,
                    folder,
                    ways=len(traffic.ways),
                ).run(progress, finish)
            (analysing or _say_nothing)()
            found = []
            packets = sum(each.left for each in ended.ways if each is not None)
            failed = [] if ended.problem is None else [ended.problem]
            for each, writer in zip_longest(ended.ways, writers):
                if each is None:
                    continue
                try:
                    measured = evaluate(
                        describe,
                        traffic,
                        cores,
                        tuning,
                        each,
                        packets,
                        writer,
                        later=bool(failed),
                    )
                except (KeyboardInterrupt, TailscopeError, OSError, MemoryError) as error:
                    failed.append(error)
                    continue
                if inspect is not None:
                    inspect(measured)
                found.append(measured)
            if failed:
                raise _failure(failed)
    return [dataclasses.replace(each, interrupted=patience.asked) for each in found]


def _instances(
    plan: RunPlan,
    cores: Cores,
    folder: RunFolder,
    writers: Sequence[RunWriter],
    describe: Callable[[MeasurementRecord], RunInfo],
) -> list[Instance]:
    """Make the instances; each records into its run directories, where there are any."""
    device, ways, left = plan.device, plan.traffic.ways, list(writers)

    def instance(number: int, cpus: InstanceCpus) -> Instance:
        own: list[RunWriter] = []
        if cpus.generator is not None:
            own, left[:] = left[: len(ways)], left[len(ways) :]
        return Instance(
            device,
            cores,
            folder,
            cpus,
            number if device.instances > 1 else None,
            sends=plan.generator_options(),
            captures=plan.measurement.captures,
            stages_every=plan.stages_every if plan.records_stages else None,
            record=_record(own),
            begun=partial(_begun, own, ways, describe, cores),
        )

    return [instance(*each) for each in enumerate(device.instance_cpus(cores), 1)]


def _record(writers: Sequence[RunWriter]) -> Path | None:
    """Make the folder that a generator records into; that of packets back leads to their run."""
    if not writers:
        return None
    first, *others = (writer.record() for writer in writers)
    for other in others:
        (first / "back").symlink_to(os.path.relpath(other, first))
    return first


def _begun(
    writers: Sequence[RunWriter],
    ways: Sequence[Literal["forth", "back"]],
    describe: Callable[[MeasurementRecord], RunInfo],
    cores: Cores,
    instance: Instance,
    ready: ReadyEvent,
) -> None:
    """Write down what is known when packets begin to be recorded: whatever ends it, they count."""
    from tailscope.experiment.run.begun import begun_run

    for writer, way in zip(writers, ways, strict=False):
        direction = way if len(ways) > 1 else None
        writer.keep(begun_run(describe, cores, instance, ready, direction))


def execute_whole(plan: RunPlan, cores: Cores, **how: Unpack[ExecuteOptions]) -> Measured:
    """Carry out a plan of which a part is worth nothing; the arguments are `execute`'s."""
    assert plan.runs == 1, "several instances and directions have several results"
    [measured] = execute(plan, cores, **how)
    if measured.interrupted:
        raise KeyboardInterrupt
    if measured.info.partial:
        raise TestbedError(
            f"a partial result: {'; '.join(measured.info.partial)}", code="partial-result"
        )
    return measured


def _failure(errors: Sequence[BaseException]) -> BaseException:
    """Return the error that ended a measurement first, with where all recordings are kept."""
    first, *others = errors
    places = [str(each) for each in others if each.args]
    if not places:
        return first
    if isinstance(first, KeyboardInterrupt):
        return KeyboardInterrupt("; ".join([*map(str, first.args), *places]))
    text = "; ".join([said(first) if isinstance(first, Exception) else str(first), *places])
    if isinstance(first, TailscopeError):
        return first.retold(text, TestbedError)
    return TestbedError(text)


def _say_nothing() -> None:
    pass


@contextmanager
def _directories(
    out: Path, folders: Sequence[Path], draw: Draw | None
) -> Iterator[list[RunWriter]]:
    """Own run directories within a block; folders above several of them go if they stay empty."""
    from tailscope.store.directory import RunWriter

    with ExitStack() as stack:
        if len(folders) > 1:
            for above in dict.fromkeys([out, *(folder.parent for folder in folders)]):
                stack.callback(_remove_empty, above)
        writers = [stack.enter_context(RunWriter(folder, draw=draw)) for folder in folders]
        try:
            yield writers
        except BaseException as error:
            for writer in writers:
                if writer.holds_packets and str(writer.path) not in str(error):
                    raise_kept(writer.path, error)
            raise


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _tuned(cores: Cores) -> AbstractContextManager[Sequence[KnobOutcome]]:
    """Set the host's knobs for the CPUs that poll."""
    from tailscope.host.apply import tuned
    from tailscope.host.machine import Machine

    return tuned(Machine(), tuple(sorted(set(cores.pollers))), by="tailscope run --tune")
