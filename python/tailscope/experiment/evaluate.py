"""What an ended instance shows: analysed, explained by its noise, and written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.analysis import Clock, Recording, analyze_recording
from tailscope.exceptions import DataplaneError
from tailscope.experiment.account import measurement_record, own_work
from tailscope.experiment.instance import PLATFORM_PART
from tailscope.experiment.measured import Measured, own_figures
from tailscope.store.provenance import measurement_info

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.analysis import Worst
    from tailscope.experiment.instance import EndedInstance
    from tailscope.experiment.plan import RunPlan
    from tailscope.host.apply import KnobOutcome
    from tailscope.noise.table import SideNoise
    from tailscope.store.directory import RunWriter
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.run import NewColumns
    from tailscope.testbed.cores import Cores

    Integers = NDArray[np.int64]

__all__ = ["evaluate", "with_own_work"]


def evaluate(
    plan: RunPlan,
    cores: Cores,
    tuning: Sequence[KnobOutcome],
    ended: EndedInstance,
    packets: int,
    writer: RunWriter | None,
) -> Measured:
    """Analyse what was recorded, and write it down.

    Parameters
    ----------
    plan : RunPlan
    cores : Cores
    tuning : sequence of KnobOutcome
        What was set for the run.
    ended : EndedInstance
    packets : int
        Sent on all wires together.
    writer : RunWriter or None
        None where nothing is to be kept.

    Raises
    ------
    DataplaneError
        If the generator could not write everything down.
    KeyboardInterrupt
        If interrupted before there was anything.
    """
    from msgspec.structs import asdict

    from tailscope.experiment.energy import RunEnergy
    from tailscope.noise.attribution import own_work_ns

    if ended.interrupted and not ended.sent:
        raise KeyboardInterrupt
    _check_recorded(ended)
    clock = Clock(**asdict(ended.result.clock))
    recording = Recording.load(ended.folders["generator"], clock)
    sides = _sides(ended, clock)
    _, dut = sides
    analysis = analyze_recording(
        with_own_work(recording, *own_work_ns(dut.timelines, own_work(ended))),
        trim=plan.trim_ns,
        window=plan.window_ns,
        worst=plan.worst,
        series=False,
        sink=None if writer is None else writer.sink,
    )
    energy = RunEnergy(ended.power, recording, packets)
    record = measurement_record(plan, cores, tuning, ended, analysis, sides, energy)
    info = measurement_info(plan.record(), record)
    lacks: list[str] = []
    if writer is not None:
        from tailscope.report.page import page

        _write_noise(writer, ended, sides)
        if (columns := energy.columns()) is not None:
            writer.add_power(columns)
        if plan.captures:
            writer.add_captures(ended.folders["captures"])
        lacks = writer.finish(
            analysis,
            info=info,
            bucket_ns=plan.bucket_ns,
            figures=own_figures(info),
            report=lambda run: page([run]),
        )
    out = None if writer is None else writer.path
    dut_folder = ended.folders.get("dut")
    return Measured(analysis, info, recording, dut_folder, ended.interrupted, out, tuple(lacks))


def _check_recorded(ended: EndedInstance) -> None:
    written = set(ended.result.record)
    missing = [name for name in Recording._fields[1:] if f"{name}.npy" not in written]
    if missing:
        raise DataplaneError(
            f"generator: could not write its recording: {'; '.join(ended.partial)}",
            hint="make room there, or set XDG_RUNTIME_DIR or TMPDIR to a folder that has some",
        )


def with_own_work(recording: Recording, start_ns: Integers, end_ns: Integers) -> Recording:
    """Let what tailscope did on the CPUs of the device taint samples as stalls of the generator do.

    Parameters
    ----------
    recording : Recording
    start_ns, end_ns : ndarray of int64, shape (n,)
        In Unix time.
    """
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


def _sides(ended: EndedInstance, clock: Clock) -> list[SideNoise]:
    from tailscope.noise.events import read_events
    from tailscope.noise.table import side_noise

    assert ended.cpus.generator is not None
    recorded = ended.noise.events
    sending = [lcore.tid for lcore in ended.result.lcores]
    # The loops by the numbers that they know, where those are of this machine's kernel.
    loops = [lcore.tid for lcore in ended.dut_lcores] if "dut" in ended.folders else []
    working = ended.noise.threads_of(ended.dut_mark, loops)
    own = ended.noise.own_threads(PLATFORM_PART, working)
    own |= {ended.result.monitor_tid: "generator"}
    own |= dict.fromkeys(ended.power.processes, "reader of power")
    sides = []
    for source, role, cpus, threads in (
        ("instrument", "generator", (ended.cpus.generator,), sending),
        ("dut", "dut", tuple(dict.fromkeys(ended.cpus.dut)), working),
    ):
        events = None if recorded is None else read_events(recorded, clock, cpus, threads, own)
        sides.append(side_noise(source, cpus, clock, ended.folders.get(role), events))
    return sides


def _write_noise(writer: RunWriter, ended: EndedInstance, sides: Sequence[SideNoise]) -> None:
    """Write down what kept both sides from their work, and have packets explained by it."""
    from tailscope.noise.attribution import blocked_by
    from tailscope.noise.counters import columns as counter_columns
    from tailscope.noise.explanation import explain_tail_and_worst
    from tailscope.noise.table import columns
    from tailscope.store.packets import Packets

    instrument, dut = sides
    writer.add_noise(columns(sides))
    writer.add_interrupts(counter_columns(ended.noise.samples))
    blocked = blocked_by(dut.timelines, instrument.timelines, own_work=own_work(ended))

    def explain(latency: Path, worst: Worst) -> tuple[Explanation, NewColumns]:
        with Packets(latency.open("rb"), str(latency)) as packets:
            known = packets.latencies()
            tail, explained = explain_tail_and_worst(packets, known, blocked, worst)
        return tail, explained.columns()

    writer.explain_by(explain)
