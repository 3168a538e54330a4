"""What ``run.json`` keeps of a measurement: where packets were lost, and what all sides say."""

from __future__ import annotations

from dataclasses import asdict as asdict_of
from typing import TYPE_CHECKING

from msgspec import convert
from msgspec.structs import asdict

from tailscope.store import floor
from tailscope.store.provenance import MeasurementRecord
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
    from tailscope.store.records.dataplane import LcoreCounts
    from tailscope.testbed.cores import Cores

__all__ = [
    "configuration_of",
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
    generator = ended.result.gen
    platform = ended.platform
    return MeasurementRecord(
        clock=ClockRecord(source="tsc", **asdict(ended.result.clock)),
        floor=floor.load(plan.instrument),
        partial=tuple(ended.partial),
        warnings=(
            *cores.warnings,
            *(() if platform is None else platform.warnings),
            *ended.noise.warnings(),
            *energy.warnings(),
            *_loss_warnings(generator.unsent, in_instrument),
        ),
        instrument=Instrument(
            unsent=generator.unsent,
            lost_in_dut=lost - in_instrument,
            lost_in_instrument=in_instrument,
            dropped_by_dut=_dropped_by_dut(ended, lost - in_instrument),
            stalls=StallsOfSides(
                generator=stalls_of(ended.result.lcores),
                dut=stalls_of(ended.dut_lcores) if ended.dut_lcores else None,
            ),
            cpus=ended.cpus.named(),
            raised_priority=ended.raised_priority,
            generator=ended.result.counts,
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

    links = () if ended.platform is None else ended.platform.side.links
    tasks = ("task ",) if ended.dut.in_softirqs else ()
    return OwnWork(instrument=of_links(ended.side.links), dut=(*of_links(links), *tasks))


def platform_record(name: str, about: Mapping[str, object]) -> PlatformRecord:
    """What ``run.json`` keeps of a platform."""
    return convert({"name": name, **about}, PlatformRecord)


def stalls_of(lcores: Sequence[LcoreCounts]) -> Stalls:
    """The stalls of all loops of a process together."""
    return Stalls(
        count=sum(lcore.stalls for lcore in lcores),
        stall_ns_total=sum(lcore.stall_ns_total for lcore in lcores),
        stall_ns_max=max((lcore.stall_ns_max for lcore in lcores), default=0),
        unrecorded=sum(lcore.stalls_unrecorded for lcore in lcores),
    )


def _loss_warnings(unsent: int, in_instrument: int) -> list[str]:
    warnings = []
    if unsent:
        warnings.append(
            f"{unsent:,} packets could not be sent within 10 ms of their time:"
            " the wire, or the device behind it, cannot carry this rate"
        )
    if in_instrument:
        warnings.append(f"{in_instrument:,} packets were lost in the instrument, not in the DuT")
    return warnings


def _instrument_drops(ended: EndedInstance) -> int:
    """Packets that found the generator's ring full, or no room in it."""
    drops = ended.result.gen.unrecorded
    drops += sum(port.rx_missed + port.rx_nombuf for port in ended.result.ports)
    drops += sum(lcore.tx_dropped for lcore in ended.dut_lcores)
    return _after_warm_up(ended, drops)


def _dropped_by_dut(ended: EndedInstance, lost_in_dut: int) -> int | None:
    """Of lost packets, those that the device dropped on purpose; None if it does not say."""
    from tailscope.store.records.dataplane import SnortCounts, SuricataCounts

    dropped = None
    if isinstance(ended.counts, SuricataCounts | SnortCounts):
        dropped = ended.counts.dropped
    elif ended.dut_lcores:
        dropped = sum(sum(lcore.dropped.values()) for lcore in ended.dut_lcores)
    return None if dropped is None else min(lost_in_dut, _after_warm_up(ended, dropped))


def _after_warm_up(ended: EndedInstance, dropped: int) -> int:
    """Of packets that were dropped since the start, those that count."""
    generator = ended.result.gen
    return max(0, dropped - (generator.warm_up_sent - generator.warm_up_received))


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
        result=ended.counts,
    )


def configuration_of(found: str | Sequence[object]) -> str | tuple[object, ...]:
    """Commands or the text of a file that a device was set up with."""
    return found if isinstance(found, str) else tuple(found)
