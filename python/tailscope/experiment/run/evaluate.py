"""The results of an ended instance: analysed, explained by its noise, and written down."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tailscope.engine.analysis import Clock, Recording, analyze, analyze_recording
from tailscope.engine.memory import give_back_freed
from tailscope.exceptions import (
    AnalysisError,
    CaptureError,
    DataplaneError,
    SwappedError,
    TailscopeError,
    said,
)
from tailscope.experiment.run.account import (
    measurement_record,
    own_work,
    recorded_run,
    with_losses,
)
from tailscope.experiment.run.instance import PLATFORM_PART
from tailscope.experiment.run.keeping import kept, replace_changed
from tailscope.experiment.run.measured import Measured, own_figures
from tailscope.signals import uninterrupted
from tailscope.store.records.plan import MeasurementPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.engine.analysis import Analysis, Distribution, Sink, Worst
    from tailscope.experiment.packets import Traffic
    from tailscope.experiment.run.energy import RunEnergy
    from tailscope.experiment.run.instance import EndedInstance
    from tailscope.host.apply import KnobOutcome
    from tailscope.noise.attribution import Blocked
    from tailscope.noise.neighbours import Held
    from tailscope.noise.stages import Stages
    from tailscope.noise.table import SideNoise
    from tailscope.store.directory import Lack, RunWriter
    from tailscope.store.provenance import MeasurementRecord
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.records.recorded import RecordedRun
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import ExplainedColumns
    from tailscope.testbed.cores import Cores

    Integers = NDArray[np.int64]
    Describe = Callable[[MeasurementRecord], RunInfo]
    Find = Callable[[MeasurementPlan, Sink | None], Analysis]


_SWAPPED = (
    "`hosts.timestamper.cards` seem swapped: the first has to see what goes to the device, the"
    " second what comes from it"
)
_CABLES = (
    "see that `cards` of each of the hosts are the two ends that packets pass, in their order, and"
    " that the device forwards between them"
)
"""Advice for a laboratory whose captures say nothing, in place of options."""


class Analysed(NamedTuple):
    """The result of a recording."""

    analysis: Analysis
    info: RunInfo
    """The content of ``run.json``."""
    lacks: list[Lack]
    """Results that could not be made of it, and why."""


def evaluate(
    describe: Describe,
    traffic: Traffic,
    cores: Cores,
    tuning: Sequence[KnobOutcome],
    ended: EndedInstance,
    packets: int,
    writer: RunWriter | None,
    *,
    later: bool = False,
) -> Measured:
    """Analyse what was recorded, and write it down; `describe` says what it was asked for."""
    from msgspec.structs import asdict

    from tailscope.experiment.run.energy import RunEnergy, sending_ns
    from tailscope.noise.attribution import blocked_by, own_work_ns

    if ended.interrupted and not ended.sent:
        raise KeyboardInterrupt
    if not ended.sent:
        unsent = f"{ended.result.gen.unsent:,} could not leave within 10 ms of their time"
        raise DataplaneError(
            "; ".join([f"no packet was sent: {unsent}", *ended.partial]), code="nothing-sent"
        )
    _check_recorded(ended)
    folder = ended.folders["generator"]
    with uninterrupted():
        clock = Clock(**asdict(ended.result.clock))
        recording = Recording.load(folder, clock, cut_off=ended.cut_off)
        try:
            sides = _sides(ended, clock)
        except (TailscopeError, OSError) as error:
            ended = _without_events(ended, error)
            sides = _sides(ended, clock)
        instrument, dut = sides
        own = own_work(ended)
        energy = RunEnergy(ended.power, sending_ns(recording), packets)
        recording = with_own_work(recording, *own_work_ns(dut.timelines, own))
        held = _neighbours(ended, dut)
        record = measurement_record(
            traffic, cores, tuning, ended, sides, energy, None if held is None else held.record
        )
        run = recorded_run(ended, describe(record))
    blocked = blocked_by(dut.timelines, instrument.timelines, own_work=own)

    def write(place: RunWriter) -> None:
        _write_recorded(place, ended, sides, energy, clock, held)
        replace_changed(recording, folder)

    keeping: AbstractContextManager[None] = nullcontext()
    if writer is not None:
        keeping = kept(writer, run, write)
    with keeping:
        if later:
            raise KeyboardInterrupt
        give_back_freed()
        found = analysed(run, of_recording(recording, run), blocked, writer)
    out = None if writer is None else writer.path
    dut_folder = ended.folders.get("dut")
    return Measured(
        found.analysis,
        found.info,
        recording,
        dut_folder,
        ended.interrupted,
        out,
        tuple(found.lacks),
    )


def of_recording(recording: Recording, run: RecordedRun) -> Find:
    """Have what a generator recorded analysed: what `analysed` takes."""

    def find(plan: MeasurementPlan, sink: Sink | None) -> Analysis:
        return analyze_recording(
            recording,
            cut_off=run.cut_off,
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=sink,
        )

    return find


def of_captures(pre: Path, post: Path) -> Find:
    """Have the captures of a timestamper analysed: what `analysed` takes."""

    def find(plan: MeasurementPlan, sink: Sink | None) -> Analysis:
        try:
            return analyze(
                pre,
                post,
                match_on="probe",
                clocks="same",
                whole=True,
                trim=plan.trim_ns,
                window=plan.window_ns,
                worst=plan.worst,
                series=False,
                sink=sink,
            )
        except CaptureError:
            raise
        except SwappedError as error:
            raise SwappedError(str(error), code=error.code, hint=_SWAPPED) from None
        except AnalysisError as error:
            raise AnalysisError(str(error), code=error.code, hint=_CABLES) from None

    return find


def analysed(
    run: RecordedRun, find: Find, blocked: Blocked | None, writer: RunWriter | None
) -> Analysed:
    """Analyse what was recorded, and write down what comes of it."""
    plan = run.info.plan
    assert isinstance(plan, MeasurementPlan), "it was measured"
    analysis = find(plan, None if writer is None else writer.sink)
    info = with_losses(run, analysis)
    lacks: list[Lack] = []
    if writer is not None:
        from tailscope.experiment.run.usable import with_unusable
        from tailscope.noise.stages import read_recorded_stages

        if blocked is not None:
            stages = read_recorded_stages(writer.path, info)
            writer.explain_by(partial(_explain, blocked, stages, analysis.distribution()))
        writer.close_packets()
        info = with_unusable(info, writer.path, analysis)
        lacks = writer.finish(
            analysis,
            info=info,
            bucket_ns=plan.bucket_ns,
            figures=own_figures(info),
        )
    return Analysed(analysis, info, lacks)


def _explain(
    blocked: Blocked, stages: Stages | None, known: Distribution, latency: Path, worst: Worst
) -> tuple[Explanation, ExplainedColumns]:
    from tailscope.noise.explanation import explain_tail_and_worst
    from tailscope.store.packets import Packets

    with Packets(latency.open("rb"), str(latency)) as packets:
        tail, explained = explain_tail_and_worst(packets, known, blocked, worst, stages)
    return tail, explained.columns()


def _check_recorded(ended: EndedInstance) -> None:
    written = set(ended.result.record)
    missing = [name for name in Recording._fields[1:] if f"{name}.npy" not in written]
    if missing:
        raise DataplaneError(
            f"generator: could not write its recording: {'; '.join(ended.partial)}",
            code="recording-incomplete",
            hint="make room there, or set XDG_RUNTIME_DIR or TMPDIR to a folder that has some",
        )


def with_own_work(recording: Recording, start_ns: Integers, end_ns: Integers) -> Recording:
    """Taint samples by what tailscope did on the CPUs of the device, as by generator stalls."""
    import numpy as np

    from tailscope.noise.intervals import union

    stall = np.asarray(recording.stall_start_tsc, np.int64)
    lasted = np.asarray(recording.stall_duration_tsc, np.int64)
    # Rounded down, the end is a tick too early.
    own = recording.clock.all_at_tsc(start_ns), recording.clock.all_at_tsc(end_ns) + 1
    start, end = union(np.concatenate([stall, own[0]]), np.concatenate([stall + lasted, own[1]]))
    return recording._replace(
        stall_start_tsc=start.astype(np.uint64),
        stall_duration_tsc=(end - start).astype(np.uint64),
    )


def _without_events(ended: EndedInstance, error: Exception) -> EndedInstance:
    """Return the instance without kernel events that cannot be read: a measurement does without."""
    noise = replace(ended.noise, events=None, why_not=said(error))
    return replace(ended, noise=noise, partial=[*ended.partial, f"no causes: {said(error)}"])


def _sides(ended: EndedInstance, clock: Clock) -> list[SideNoise]:
    from tailscope.noise.events import Symbols, read_events
    from tailscope.noise.table import side_noise

    assert ended.cpus.generator is not None
    recorded = ended.noise.events
    sending = [lcore.tid for lcore in ended.result.lcores]
    # The loops by the numbers that they know, where those are of this machine's kernel.
    loops = [lcore.tid for lcore in ended.dut_lcores] if "dut" in ended.folders else []
    working = ended.noise.threads_of(ended.dut_mark, loops, ended.cpus.dut)
    own = ended.noise.own_threads(PLATFORM_PART, working if loops else ())
    own |= dict.fromkeys((ended.result.monitor_tid, ended.result.recorder_tid), "generator")
    own |= dict.fromkeys(ended.power.processes, "reader of power")
    sides, symbols = [], Symbols()
    for source, role, cpus, threads in (
        ("instrument", "generator", (ended.cpus.generator,), sending),
        ("dut", "dut", tuple(dict.fromkeys(ended.cpus.dut)), working),
    ):
        # What moves between CPUs cannot be told from what kept it from them.
        moves = role == "dut" and bool(ended.cpus.dut_anywhere)
        known = None if moves else recorded
        # Handed over at once: the events of one side are gone before the next ones are read.
        sides.append(
            side_noise(
                source,
                cpus,
                clock,
                ended.folders.get(role),
                None if known is None else read_events(known, clock, cpus, threads, own, symbols),
                sends_over_links=role == "generator" and bool(ended.side.links),
            )
        )
    give_back_freed()
    return sides


def _neighbours(ended: EndedInstance, dut: SideNoise) -> Held | None:
    """Return the times when other programs held the device's CPUs; None without a device."""
    from tailscope.noise.neighbours import held_by_neighbours, unknown_neighbours

    noise, cpus = ended.noise, ended.cpus.dut_anywhere or ended.cpus.dut
    if noise.neighbours is None or ended.platform is None:
        return None
    if ended.dut.in_softirqs:
        return unknown_neighbours(
            "packets pass the device in threads of the kernel, whose waits are not measured"
            if ended.in_threads
            else "packets pass the device in softirqs of the kernel, which go before programs"
        )
    events = noise.events
    is_told = (
        events is not None
        and not ended.cpus.dut_anywhere
        and not events.ended_because
        and not any(events.lost.get(cpu) for cpu in cpus)
    )
    loops = ended.dut_lcores if "dut" in ended.folders else []
    is_logged = bool(loops) and not any(loop.stalls_unrecorded for loop in loops)
    start_ns, lasted_ns = dut.stalls_ns()
    return held_by_neighbours(
        noise.neighbours,
        ended.dut_mark,
        cpus,
        timelines=dut.timelines if is_told else None,
        stalls=(start_ns, start_ns + lasted_ns) if is_logged else None,
    )


def _write_recorded(
    writer: RunWriter,
    ended: EndedInstance,
    sides: Sequence[SideNoise],
    energy: RunEnergy,
    clock: Clock,
    held: Held | None,
) -> None:
    """Write down what was recorded beside the packets, and the captures."""
    from tailscope.noise.counters import columns as counter_columns
    from tailscope.noise.table import columns

    writer.add_noise(columns(sides))
    writer.add_interrupts(counter_columns(ended.noise.samples))
    if (power := energy.columns()) is not None:
        writer.add_power(power)
    if held is not None:
        writer.add_neighbours(held.intervals.columns())
    if (passed := ended.stages.recorded) is not None:
        from tailscope.noise.passed import columns as stage_columns

        writer.add_stages(stage_columns(passed, clock, back=ended.direction == "back"))
    if "captures" in ended.folders:
        writer.add_captures(ended.folders["captures"])
