"""What the machines of a laboratory report, made into what a run keeps."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import asdict

from tailscope.experiment.run.account import configuration_of, stalls_of
from tailscope.experiment.run.energy import RunEnergy
from tailscope.extra.laboratory.across import (
    Captured,
    Machine,
    MappedClock,
    map_clock,
    noise_on_captures,
    read_noise,
)
from tailscope.extra.laboratory.sightings import Sightings, probe_times
from tailscope.host.cpus import cpu_list
from tailscope.models.two_clocks import Bounds
from tailscope.store.parquet import TableFile
from tailscope.store.provenance import MeasurementRecord, measurement_info
from tailscope.store.records.clocks import MachineClock
from tailscope.store.records.messages import ProgramCounts
from tailscope.store.records.recorded import RecordedRun
from tailscope.store.records.run import (
    ClockRecord,
    DutRecord,
    Instrument,
    MachineInfo,
    NoiseRecord,
    OwnWork,
    StallsOfSides,
    TimestamperRecord,
)
from tailscope.store.tables import INTERRUPTS, PAIRS, READINGS, SIGHTINGS
from tailscope.testbed.messages import generator_counts
from tailscope.testbed.power import Meter, PowerReading, RecordedPower
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.laboratory.agents import Answers
    from tailscope.extra.laboratory.protocol import (
        CapturesEvent,
        CountsEvent,
        DutReady,
        LoadgenReady,
        SentEvent,
        TimestamperReady,
    )
    from tailscope.extra.laboratory.recorded import MachineRecording
    from tailscope.store.directory import RunWriter
    from tailscope.store.run import NewColumns
    from tailscope.store.tables import Table

    Integers = NDArray[np.int64]
    Columns = dict[str, NDArray[Any]]

_UNIX_CLOCKS = ("kernel-software",)
"""Clocks of captures that are the Unix time of the timestamper, by which it answers."""
_NOT_KNOWN = "; what was recorded on it is kept by its own clock, and explains no packet"
"""Said where a clock could not be brought to that of the captures."""


class Reported(NamedTuple):
    """What the machines said, and the files that they made."""

    dut: DutReady
    timestamper: TimestamperReady
    loadgen: LoadgenReady
    """What they said of themselves before anything was sent."""
    sent: SentEvent
    seen: CapturesEvent
    device: CountsEvent
    load: MachineRecording
    """Of the load generator's machine."""
    answers: dict[str, Answers]
    """By role."""
    pre: Path
    post: Path
    """The captures."""
    files: dict[str, dict[str, Path]]
    """By role, and by what is in them."""

    def ready(self) -> dict[str, DutReady | TimestamperReady | LoadgenReady]:
        """What each role said of itself before anything was sent."""
        return {"dut": self.dut, "timestamper": self.timestamper, "loadgen": self.loadgen}


class ReportedTables(NamedTuple):
    """Tables of a run directory; without power there is none of that."""

    noise: NewColumns
    interrupts: NewColumns
    power: NewColumns | None


def reported_run(plan: RunPlan, found: Reported) -> tuple[RecordedRun, ReportedTables]:
    """Make of what machines reported what a run keeps before its packets are matched."""
    noise = {role: read_noise(files["noise"]) for role, files in found.files.items()}
    clocks = _clocks(found, noise)
    energy = RunEnergy(
        _power(found, clocks["dut"]),
        _processing_ns(found, clocks["loadgen"]),
        found.sent.result.gen.sent,
    )
    info = measurement_info(plan.record(), _record(plan, found, clocks, energy))
    run = RecordedRun(
        info=info, lost_in_instrument=found.seen.dropped.post, warm_up_lost=0, came=0, foreign=0
    )
    interrupts = _read(found.files["dut"]["interrupts"], INTERRUPTS)
    interrupts["unix_ns"] = clocks["dut"].moved_unix(interrupts["unix_ns"])
    rows = noise_on_captures([(noise[role], clocks[role]) for role in noise])
    return run, ReportedTables(rows, interrupts, energy.columns())


def write_reported(writer: RunWriter, tables: ReportedTables) -> None:
    """Write down what machines recorded beside the packets."""
    writer.add_noise(tables.noise)
    writer.add_interrupts(tables.interrupts)
    if tables.power is not None:
        writer.add_power(tables.power)


def _clocks(found: Reported, noise: Mapping[str, pa.Table]) -> dict[str, MappedClock]:
    """Bring the clocks of both other machines to that of the captures."""
    recordings = {"dut": found.device.recorded, "loadgen": found.load}
    reports = {"dut": found.dut.reports, "loadgen": found.loadgen.reports}
    seen = {
        role: Sightings(*_columns(files["sightings"], SIGHTINGS))
        for role, files in found.files.items()
    }
    wanted = np.concatenate([each.seq for each in seen.values()])
    captured = Captured(*(probe_times(path, wanted) for path in (found.pre, found.post)))
    told = None
    if found.seen.clock in _UNIX_CLOCKS and not found.seen.clock_set_by_ns:
        told = found.answers["timestamper"]
    clocks = {}
    for role, recorded in recordings.items():
        pairs = _columns(found.files[role]["pairs"], PAIRS)
        machine = Machine(
            role=role,
            times_by=recorded.times_by,
            sightings=seen[role],
            pairs=Bounds.of_pairs(*pairs) if len(pairs[0]) else None,
            answers=found.answers[role],
            was_set_by_ns=recorded.clock_set_by_ns,
            reports=tuple(reports[role]),
        )
        clocks[role] = map_clock(machine, captured, told, _span_ns(noise[role], seen[role]))
    return clocks


def _span_ns(noise: pa.Table, seen: Sightings) -> tuple[int, int]:
    """The times that a machine has something of."""
    start, lasted = (noise[name].to_numpy() for name in ("start_ns", "duration_ns"))
    times = np.concatenate([start, start + lasted, seen.first_ns, seen.last_ns])
    return (int(times.min()), int(times.max())) if len(times) else (0, 1)


def _record(
    plan: RunPlan, found: Reported, clocks: Mapping[str, MappedClock], energy: RunEnergy
) -> MeasurementRecord:
    """What ``run.json`` keeps of all machines, but for lost packets."""
    sent, seen, device = found.sent, found.seen, found.device
    partial = list(sent.result.partial)
    if device.died is not None or device.counts is None:
        partial.append(device.died or "dut: it did not report its counters")
    own_work = OwnWork(instrument=(), dut=tuple(device.recorded.own_work))
    loops = device.counts.lcores if isinstance(device.counts, ProgramCounts) else ()
    return MeasurementRecord(
        clock=ClockRecord(source=seen.clock, timestamp_type=seen.timestamp_type),
        floor=None,
        partial=tuple(partial),
        warnings=(*_warnings(found, clocks), *energy.warnings()),
        instrument=Instrument(
            unsent=sent.result.gen.unsent,
            lost_in_dut=0,
            lost_in_instrument=0,
            lost_where_unknown=0,
            dropped_by_dut=None,
            stalls=StallsOfSides(
                generator=stalls_of(sent.result.lcores), dut=stalls_of(loops) if loops else None
            ),
            cpus={
                "generator": ",".join(map(str, found.loadgen.cpus)),
                "DuT": ",".join(map(str, found.dut.cpus)),
            },
            raised_priority=sent.priority,
            generator=generator_counts(sent.result),
            timestamper=TimestamperRecord(
                method=seen.method,
                dropped=seen.dropped,
                files=seen.files,
                port_clocks=seen.port_clocks,
            ),
        ),
        noise=NoiseRecord(**asdict(device.recorded.noise), own_work=own_work),
        power=energy.record(),
        knobs=found.dut.knobs,
        tuning=tuple(found.dut.tuning),
        dut=DutRecord(
            name=plan.dut,
            instance=None,
            version=found.dut.version,
            configuration=configuration_of(found.dut.configuration),
            result=device.counts,
        ),
        platform=found.dut.platform,
        hosts={role: ready.host for role, ready in found.ready().items()},
        machines={
            "dut": MachineInfo(clock=clocks["dut"].record, knobs=found.dut.knobs),
            "timestamper": MachineInfo(
                clock=MachineClock(times_by="unix", reports=tuple(found.timestamper.reports)),
                knobs=found.timestamper.knobs,
            ),
            "loadgen": MachineInfo(
                clock=clocks["loadgen"].record, knobs=found.loadgen.knobs, noise=found.load.noise
            ),
        },
    )


def _warnings(found: Reported, clocks: Mapping[str, MappedClock]) -> list[str]:
    said = {
        "dut": [*found.dut.warnings, *found.device.recorded.warnings],
        "timestamper": [*found.timestamper.warnings, *found.seen.warnings],
        "loadgen": [*found.loadgen.warnings, *found.load.warnings],
    }
    warnings = [f"{role}: {text}" for role, texts in said.items() for text in texts]
    for (one, first), (other, second) in combinations(found.ready().items(), 2):
        shared = set(first.cpus) & set(second.cpus)
        if shared and first.boot_id == second.boot_id:
            warnings.append(
                f"{one} and {other} are one machine, and both poll on CPU {cpu_list(shared)}: they"
                " wait for each other, and the figures mean little; `cpus` below each of them"
                " keeps them apart"
            )
    if unsent := found.sent.result.gen.unsent:
        late = "could not be sent within 10 ms of their time"
        warnings.append(f"loadgen: {counted(unsent, 'packet')} {late}: the rate was not reached")
    names = {"dut": "the device", "loadgen": "the load generator"}
    problems = [clocks[role].record.problem(name) for role, name in names.items()]
    return warnings + [problem + _NOT_KNOWN for problem in problems if problem is not None]


def _power(found: Reported, clock: MappedClock) -> RecordedPower:
    """What was read of power, by the clock of the captures."""
    said = found.device.recorded.power
    if said is None or said.source is None:
        return RecordedPower(None, None if said is None else said.why_not, [], [], {}, [])
    read = _read(found.files["dut"]["readings"], READINGS)
    times, took = (read[name].astype(np.int64) for name in ("unix_ns", "took_ns"))
    readings = [
        PowerReading(when, lasted, tuple(map(Decimal, values.split())))
        for when, lasted, values in zip(
            clock.moved_unix(times).tolist(), took.tolist(), read["values"], strict=True
        )
    ]
    ends = np.array([(each.start_ns, each.end_ns) for each in said.phases.values()], np.int64)
    moved = clock.moved_unix(ends.reshape(-1)).reshape(-1, 2).tolist()
    meter = said.source
    return RecordedPower(
        Meter(meter.name, meter.includes, tuple(meter.domains), tuple(meter.range_uj)),
        None,
        readings,
        [said.first_failure or ""] * said.failures,
        {name: (start, end) for name, (start, end) in zip(said.phases, moved, strict=True)},
        [],
    )


def _processing_ns(found: Reported, clock: MappedClock) -> tuple[int, int] | None:
    """From the first packet of which both ends are known to the last one."""
    _, sent, _ = _columns(found.files["loadgen"]["sightings"], SIGHTINGS)
    if not len(sent):
        return None
    first, last = clock.moved(np.array([sent.min(), sent.max()], np.int64)).tolist()
    return first, last


def _columns(path: Path, table: Table) -> tuple[Integers, Integers, Integers]:
    read = _read(path, table)
    first, second, third = (read[name].astype(np.int64) for name in table.names)
    return first, second, third


def _read(path: Path, table: Table) -> Columns:
    with TableFile(path.open("rb"), f"{path.parent.name}: {path.name}", table) as file:
        return file.read(table.names)
