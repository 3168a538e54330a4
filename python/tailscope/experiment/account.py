"""What ``run.json`` keeps of a measurement: where packets were lost, and what all sides say."""

from __future__ import annotations

from dataclasses import asdict as asdict_of
from typing import TYPE_CHECKING, Any

from msgspec import convert
from msgspec.structs import asdict

from tailscope.store import floor
from tailscope.store.provenance import MeasurementRecord
from tailscope.store.records import older
from tailscope.store.records.dataplane import DutCounts, GeneratorCounts
from tailscope.store.records.run import (
    ClockRecord,
    DutRecord,
    Instrument,
    NoiseRecord,
    OwnWork,
    PlatformRecord,
    Stalls,
    StallsOfSides,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.analysis import Analysis
    from tailscope.experiment.energy import RunEnergy
    from tailscope.experiment.instance import EndedInstance
    from tailscope.experiment.plan import RunPlan
    from tailscope.host.apply import KnobOutcome
    from tailscope.noise.table import SideNoise
    from tailscope.testbed.cores import Cores

__all__ = [
    "configuration_of",
    "dut_counts",
    "generator_counts",
    "measurement_record",
    "own_work",
    "platform_record",
    "stalls_of",
]


def measurement_record(
    plan: RunPlan,
    cores: Cores,
    tuning: Sequence[KnobOutcome],
    ended: EndedInstance,
    analysis: Analysis,
    sides: Sequence[SideNoise],
    energy: RunEnergy,
) -> MeasurementRecord:
    """Collect what ``run.json`` keeps of all sides of an instance.

    Parameters
    ----------
    plan : RunPlan
    cores : Cores
    tuning : sequence of KnobOutcome
        What was set for the run.
    ended : EndedInstance
    analysis : Analysis
    sides : sequence of SideNoise
    energy : RunEnergy
    """
    lost = int(analysis.summary["lost"] or 0)
    in_instrument = min(lost, _instrument_drops(ended))
    generator = ended.result["gen"]
    generator_stalls = stalls_of(ended.result["lcores"])
    dut_stalls = stalls_of(ended.dut_lcores) if ended.dut_lcores else None
    platform = ended.platform
    return MeasurementRecord(
        clock=convert({"source": "tsc", **ended.result["clock"]}, ClockRecord),
        floor=floor.load(plan.instrument),
        partial=tuple(ended.partial),
        warnings=(
            *cores.warnings,
            *(() if platform is None else platform.warnings),
            *ended.noise.warnings(),
            *energy.warnings(),
            *_loss_warnings(generator["unsent"], in_instrument),
        ),
        instrument=Instrument(
            unsent=generator["unsent"],
            lost_in_dut=lost - in_instrument,
            lost_in_instrument=in_instrument,
            dropped_by_dut=_dropped_by_dut(ended, lost - in_instrument),
            stalls=StallsOfSides(generator=generator_stalls, dut=dut_stalls),
            cpus=ended.cpus.named(),
            raised_priority=ended.raised_priority,
            generator=generator_counts(ended.result),
        ),
        noise=NoiseRecord(**asdict(ended.noise.record(sides)), own_work=own_work(ended)),
        power=energy.record(),
        knobs=_knobs(cores),
        tuning=tuple(convert(asdict_of(outcome), Written) for outcome in tuning),
        dut=_dut_record(ended),
        platform=None if platform is None else platform_record(plan.platform, platform.about),
    )


def own_work(ended: EndedInstance) -> OwnWork:
    """How causes begin that are a side's work: with links, softirqs that packets travel in."""

    def of_links(links: Sequence[str]) -> tuple[str, ...]:
        return ("softirq NET_",) if links else ()

    home = () if ended.platform is None else ended.platform.side.links
    tasks = ("task ",) if ended.dut.in_softirqs else ()
    return OwnWork(instrument=of_links(ended.side.links), dut=(*of_links(home), *tasks))


def platform_record(name: str, about: Mapping[str, object]) -> PlatformRecord:
    """What ``run.json`` keeps of a platform."""
    return convert({"name": name, **about}, PlatformRecord)


def stalls_of(lcores: Sequence[Mapping[str, Any]]) -> Stalls:
    """The stalls of all loops of a process together."""
    return Stalls(
        count=sum(lcore["stalls"] for lcore in lcores),
        total_ns=sum(lcore["stall_total_ns"] for lcore in lcores),
        longest_ns=max((lcore["stall_longest_ns"] for lcore in lcores), default=0),
        unrecorded=sum(lcore["stalls_unrecorded"] for lcore in lcores),
    )


def generator_counts(result: Mapping[str, Any]) -> GeneratorCounts:
    """What ``run.json`` keeps of a generator's result."""
    return convert(_without_events(result), GeneratorCounts)


def dut_counts(dut: str, counts: Mapping[str, Any]) -> DutCounts:
    """What ``run.json`` keeps of what a device has counted."""
    found: DutCounts = convert(older.counted(dut, _without_events(counts)), DutCounts)
    return found


def _without_events(result: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {"event", "record", "clock", "partial", "priority"}
    return {name: value for name, value in result.items() if name not in left_out}


def _loss_warnings(unsent: int, in_instrument: int) -> list[str]:
    warnings = []
    if unsent:
        warnings.append(
            f"{unsent:,} packets could not be sent within 10 ms of their time:"
            " the wire, or the device behind it, does not carry this rate"
        )
    if in_instrument:
        warnings.append(f"{in_instrument:,} packets were lost in the instrument, not in the DuT")
    return warnings


def _instrument_drops(ended: EndedInstance) -> int:
    """Packets that found the generator's ring full, or no room in it."""
    drops = int(ended.result["gen"]["unrecorded"])
    drops += sum(int(port["rx_missed"] + port["rx_nombuf"]) for port in ended.result["ports"])
    drops += sum(int(lcore["tx_dropped"]) for lcore in ended.dut_lcores)
    return _after_warm_up(ended, drops)


def _dropped_by_dut(ended: EndedInstance, lost_in_dut: int) -> int | None:
    """Of lost packets, those that the device dropped on purpose; None if it does not say."""
    if ended.counts is None:
        return None
    dropped = ended.counts.get("dropped")
    if ended.dut_lcores:
        dropped = sum(sum(lcore["dropped"].values()) for lcore in ended.dut_lcores)
    return None if dropped is None else min(lost_in_dut, _after_warm_up(ended, dropped))


def _after_warm_up(ended: EndedInstance, dropped: int) -> int:
    """Of packets that were dropped since the start, those that count."""
    generator = ended.result["gen"]
    return max(0, dropped - int(generator["warm_up_sent"] - generator["warm_up_received"]))


def _knobs(cores: Cores) -> dict[str, str | None]:
    """How the host is set for the CPUs that poll, by knob."""
    from tailscope.host.audit import audit
    from tailscope.host.machine import Machine

    found = audit(Machine(), tuple(sorted(set(cores.pollers))))
    return {finding.name: finding.as_is for finding in found.findings}


def _dut_record(ended: EndedInstance) -> DutRecord | None:
    if ended.running is None:
        return None
    return DutRecord(
        name=ended.dut.name,
        instance=ended.number,
        version=ended.running.version,
        configuration=configuration_of(ended.running.configuration),
        result=None if ended.counts is None else dut_counts(ended.dut.name, ended.counts),
    )


def configuration_of(found: str | Sequence[object]) -> str | tuple[object, ...]:
    """Commands or the text of a file that a device was set up with."""
    return found if isinstance(found, str) else tuple(found)
