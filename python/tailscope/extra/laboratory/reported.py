"""Reports of the machines of a laboratory, converted to the records of a run."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import asdict

from tailscope.engine.columns import values
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
from tailscope.extra.laboratory.models.two_clocks import Bounds
from tailscope.extra.laboratory.sightings import Sightings, probe_times
from tailscope.host.cpus import cpu_list
from tailscope.store.machine import this_host
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

    from numpy.typing import NDArray

    from tailscope.engine.columns import Column
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
"""Clocks of captures that are the timestamper's Unix time, in which it answers queries."""
_NOT_KNOWN = "; what was recorded on it is kept by its own clock, and explains no packet"
"""End of the warning about a clock without a mapping to that of the captures."""


class Reported(NamedTuple):
    """Messages and files of the machines of a laboratory."""

    dut: DutReady
    """Description of the device's machine before the traffic."""
    timestamper: TimestamperReady
    """Description of the timestamper's machine before the traffic."""
    loadgen: LoadgenReady
    """Description of the load generator's machine before the traffic."""
    sent: SentEvent
    seen: CapturesEvent
    device: CountsEvent
    load: MachineRecording
    """Recording of the load generator's machine."""
    answers: dict[str, Answers]
    """Answers to time queries, by role."""
    pre: Path
    """Capture before the device."""
    post: Path
    """Capture behind the device."""
    files: dict[str, dict[str, Path]]
    """Files of the recordings, by role and kind."""

    def ready(self) -> dict[str, DutReady | TimestamperReady | LoadgenReady]:
        """Return the descriptions of all machines before the traffic, by role."""
        return {"dut": self.dut, "timestamper": self.timestamper, "loadgen": self.loadgen}


class ReportedTables(NamedTuple):
    """Tables for a run directory; that of power may be missing."""

    noise: NewColumns
    interrupts: NewColumns
    power: NewColumns | None


def reported_run(plan: RunPlan, reported: Reported) -> tuple[RecordedRun, ReportedTables]:
    """Make the run and its tables from the machines' reports, before packets are matched."""
    noise = {role: read_noise(files["noise"]) for role, files in reported.files.items()}
    clocks = _clocks(reported, noise)
    energy = RunEnergy(
        _power(reported, clocks["dut"]),
        _processing_ns(reported, clocks["loadgen"]),
        reported.sent.result.gen.sent,
    )
    info = measurement_info(plan.record(), this_host(), _record(plan, reported, clocks, energy))
    run = RecordedRun(
        info=info, lost_in_instrument=reported.seen.dropped.post, warm_up_lost=0, came=0, foreign=0
    )
    interrupts = _read(reported.files["dut"]["interrupts"], INTERRUPTS)
    interrupts["unix_ns"] = clocks["dut"].moved_unix(interrupts["unix_ns"])
    rows = noise_on_captures([(noise[role], clocks[role]) for role in noise])
    return run, ReportedTables(rows, interrupts, energy.columns())


def write_reported(writer: RunWriter, tables: ReportedTables) -> None:
    """Write the machines' tables beside the packets."""
    writer.add_noise(tables.noise)
    writer.add_interrupts(tables.interrupts)
    if tables.power is not None:
        writer.add_power(tables.power)


def _clocks(
    reported: Reported, noise: Mapping[str, Mapping[str, Column]]
) -> dict[str, MappedClock]:
    """Map the clocks of the device's and the load generator's machines to the captures'."""
    recordings = {"dut": reported.device.recorded, "loadgen": reported.load}
    reports = {"dut": reported.dut.reports, "loadgen": reported.loadgen.reports}
    seen = {
        role: Sightings(*_columns(files["sightings"], SIGHTINGS))
        for role, files in reported.files.items()
    }
    wanted = np.concatenate([sightings.seq for sightings in seen.values()])
    captured = Captured(*(probe_times(path, wanted) for path in (reported.pre, reported.post)))
    timestamper = None
    if reported.seen.clock in _UNIX_CLOCKS and not reported.seen.clock_set_by_ns:
        timestamper = reported.answers["timestamper"]
    clocks = {}
    for role, recorded in recordings.items():
        pairs = _columns(reported.files[role]["pairs"], PAIRS)
        machine = Machine(
            role=role,
            times_by=recorded.times_by,
            sightings=seen[role],
            pairs=Bounds.of_pairs(*pairs) if len(pairs[0]) else None,
            answers=reported.answers[role],
            was_set_by_ns=recorded.clock_set_by_ns,
            reports=tuple(reports[role]),
        )
        span_ns = _span_ns(noise[role], seen[role])
        clocks[role] = map_clock(machine, captured, timestamper, span_ns)
    return clocks


def _span_ns(noise: Mapping[str, Column], seen: Sightings) -> tuple[int, int]:
    """Return the first and the last time of a machine's recordings."""
    start, lasted = (values(noise[name]) for name in ("start_ns", "duration_ns"))
    times = np.concatenate([start, start + lasted, seen.first_ns, seen.last_ns])
    return (int(times.min()), int(times.max())) if len(times) else (0, 1)


def _record(
    plan: RunPlan, reported: Reported, clocks: Mapping[str, MappedClock], energy: RunEnergy
) -> MeasurementRecord:
    """Make the record of all machines, without lost packets."""
    sent, seen, device = reported.sent, reported.seen, reported.device
    partial = list(sent.result.partial)
    if device.died is not None or device.counts is None:
        partial.append(device.died or "dut: it did not report its counters")
    own_work = OwnWork(instrument=(), dut=tuple(device.recorded.own_work))
    loops = device.counts.lcores if isinstance(device.counts, ProgramCounts) else ()
    return MeasurementRecord(
        clock=ClockRecord(source=seen.clock, timestamp_type=seen.timestamp_type),
        floor=None,
        partial=tuple(partial),
        warnings=(*_warnings(reported, clocks), *energy.warnings()),
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
                "generator": ",".join(map(str, reported.loadgen.cpus)),
                "DuT": ",".join(map(str, reported.dut.cpus)),
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
        knobs=reported.dut.knobs,
        tuning=tuple(reported.dut.tuning),
        dut=DutRecord(
            name=plan.dut,
            instance=None,
            version=reported.dut.version,
            configuration=configuration_of(reported.dut.configuration),
            result=device.counts,
        ),
        platform=reported.dut.platform,
        hosts={role: ready.host for role, ready in reported.ready().items()},
        machines={
            "dut": MachineInfo(clock=clocks["dut"].record, knobs=reported.dut.knobs),
            "timestamper": MachineInfo(
                clock=MachineClock(times_by="unix", reports=tuple(reported.timestamper.reports)),
                knobs=reported.timestamper.knobs,
            ),
            "loadgen": MachineInfo(
                clock=clocks["loadgen"].record,
                knobs=reported.loadgen.knobs,
                noise=reported.load.noise,
            ),
        },
    )


def _warnings(reported: Reported, clocks: Mapping[str, MappedClock]) -> list[str]:
    by_role = {
        "dut": [*reported.dut.warnings, *reported.device.recorded.warnings],
        "timestamper": [*reported.timestamper.warnings, *reported.seen.warnings],
        "loadgen": [*reported.loadgen.warnings, *reported.load.warnings],
    }
    warnings = [f"{role}: {text}" for role, texts in by_role.items() for text in texts]
    for (first_role, first), (second_role, second) in combinations(reported.ready().items(), 2):
        shared = set(first.cpus) & set(second.cpus)
        if shared and first.boot_id == second.boot_id:
            warnings.append(
                f"{first_role} and {second_role} are one machine, and both poll on CPU"
                f" {cpu_list(shared)}: they wait for each other, and the figures mean little;"
                " `cpus` below each of them keeps them apart"
            )
    if unsent := reported.sent.result.gen.unsent:
        late = "could not be sent within 10 ms of their time"
        warnings.append(f"loadgen: {counted(unsent, 'packet')} {late}: the rate was not reached")
    names = {"dut": "the device", "loadgen": "the load generator"}
    problems = [clocks[role].record.problem(name) for role, name in names.items()]
    return warnings + [problem + _NOT_KNOWN for problem in problems if problem is not None]


def _power(reported: Reported, clock: MappedClock) -> RecordedPower:
    """Return the power readings on the clock of the captures."""
    power = reported.device.recorded.power
    if power is None or power.source is None:
        return RecordedPower(None, None if power is None else power.why_not, [], [], {}, [])
    read = _read(reported.files["dut"]["readings"], READINGS)
    times, took = (read[name].astype(np.int64) for name in ("unix_ns", "took_ns"))
    readings = [
        PowerReading(when, lasted, tuple(map(Decimal, values.split())))
        for when, lasted, values in zip(
            clock.moved_unix(times).tolist(), took.tolist(), read["values"], strict=True
        )
    ]
    ends = np.array([(phase.start_ns, phase.end_ns) for phase in power.phases.values()], np.int64)
    moved = clock.moved_unix(ends.reshape(-1)).reshape(-1, 2).tolist()
    meter = power.source
    return RecordedPower(
        Meter(meter.name, meter.includes, tuple(meter.domains), tuple(meter.range_uj)),
        None,
        readings,
        [power.first_failure or ""] * power.failures,
        {name: (start, end) for name, (start, end) in zip(power.phases, moved, strict=True)},
        [],
    )


def _processing_ns(reported: Reported, clock: MappedClock) -> tuple[int, int] | None:
    """Return the times of the first and the last packet that were sent and received."""
    _, sent, _ = _columns(reported.files["loadgen"]["sightings"], SIGHTINGS)
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
