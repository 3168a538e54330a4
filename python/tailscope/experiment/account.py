"""What ``run.json`` keeps of a measurement: where packets were lost, and what all sides say."""

from __future__ import annotations

from dataclasses import asdict as asdict_of
from typing import TYPE_CHECKING

from msgspec import convert
from msgspec.structs import asdict

from tailscope.experiment.blame import (
    full_rings,
    held_back_by_generator,
    losses_of,
    none_came_text,
    unsent_texts,
)
from tailscope.noise.events import OWN
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
    from tailscope.experiment.blame import HeldBack, Losses
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
    losses = _losses(plan, ended, int(analysis.summary["lost"] or 0))
    generator = ended.result.gen
    held_back = _held_back(ended, sides[0])
    platform = ended.platform
    return MeasurementRecord(
        clock=ClockRecord(source="tsc", **asdict(ended.result.clock)),
        floor=floor.load(plan.instrument),
        partial=_partial(ended, int(analysis.summary["sent"] or 0), losses),
        warnings=(
            *cores.warnings,
            *(() if platform is None else platform.warnings),
            *ended.noise.warnings(),
            *energy.warnings(),
            *unsent_texts(generator.unsent, held_back),
            *_loss_warnings(losses),
        ),
        instrument=Instrument(
            unsent=generator.unsent,
            unsent_generator=sum(held_back),
            lost_in_dut=losses.in_dut,
            lost_in_instrument=losses.in_instrument,
            lost_where_unknown=losses.where_unknown,
            dropped_by_dut=losses.dropped_by_dut,
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
    tasks = ("task ", OWN) if ended.dut.in_softirqs else ()
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


def _loss_warnings(losses: Losses) -> Sequence[str]:
    if not losses.in_instrument:
        return ()
    return (f"{losses.in_instrument:,} packets were lost in the instrument, not in the DuT",)


def _held_back(ended: EndedInstance, generator: SideNoise) -> HeldBack:
    """Packets that were not sent because of the generator."""
    import numpy as np

    from tailscope.analysis import Clock, load_ticks
    from tailscope.noise.intervals import union

    folder = ended.folders["generator"]
    unsent_tsc = np.asarray(load_ticks(folder, "unsent_tsc"), np.int64)
    start, lasted = generator.stalls_ns()
    return held_back_by_generator(
        Clock(**asdict(ended.result.clock)).all_at_ns(unsent_tsc),
        load_ticks(folder, "unsent_refused") > 0,
        *union(start, start + lasted),
    )


def _losses(plan: RunPlan, ended: EndedInstance, lost: int) -> Losses:
    """Where packets were lost, by all counters."""
    generator = ended.result.gen
    uncounted = generator.warm_up_sent - generator.warm_up_received
    in_instrument = generator.unrecorded + full_rings(ended.counts, plan.wire)
    in_instrument += sum(port.rx_missed + port.rx_nombuf for port in ended.result.ports)
    return losses_of(lost, max(0, in_instrument - uncounted), ended.counts, plan.wire, uncounted)


def _partial(ended: EndedInstance, sent: int, losses: Losses) -> tuple[str, ...]:
    """Why the result is not all that was planned."""
    generator = ended.result.gen
    if not sent or generator.matched or generator.corrupt or generator.ambiguous:
        return tuple(ended.partial)
    none_came = none_came_text(
        sent,
        losses,
        ended.counts,
        has_device=ended.running is not None,
        foreign=generator.foreign,
    )
    return (*ended.partial, none_came)


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
