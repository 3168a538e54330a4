"""The record of a measurement in ``run.json``: where packets were lost, and what all sides say."""

from __future__ import annotations

from dataclasses import asdict as asdict_of
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import convert, structs
from msgspec.structs import asdict

from tailscope.duts.command import Command
from tailscope.experiment.run.blame import (
    HeldBack,
    full_rings,
    held_back_by_generator,
    losses_of,
    none_came_text,
    unsent_texts,
)
from tailscope.experiment.run.clocks import counter_pairs
from tailscope.experiment.run.instance import lost_unrecorded
from tailscope.experiment.run.sent import sent_traffic
from tailscope.noise.events import SOFTIRQ_NET, work_of_device
from tailscope.store import floor
from tailscope.store.provenance import MeasurementRecord
from tailscope.store.records.plan import MeasurementPlan
from tailscope.store.records.recorded import RecordedRun
from tailscope.store.records.run import (
    ClockRecord,
    DutRecord,
    Instrument,
    NeighboursRecord,
    NoiseRecord,
    OwnWork,
    PlatformRecord,
    Stalls,
    StallsOfSides,
    Written,
)
from tailscope.testbed.messages import generator_counts
from tailscope.testbed.steady import largest_step_ns
from tailscope.words.neighbours import elsewhere_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.engine.analysis import Analysis
    from tailscope.experiment.packets import Traffic
    from tailscope.experiment.run.blame import Losses
    from tailscope.experiment.run.energy import RunEnergy
    from tailscope.experiment.run.instance import EndedInstance
    from tailscope.host.apply import KnobOutcome
    from tailscope.noise.recorder import RecordedNoise
    from tailscope.noise.table import SideNoise
    from tailscope.store.records.messages import GeneratedTraffic, LcoreCounts
    from tailscope.store.records.run import RunInfo
    from tailscope.testbed.cores import Cores


_UNPINNED = (
    "the DuT is not pinned to CPUs (dut=any): of what kept it from its work, only its own stalls"
    " are known"
)


def measurement_record(
    traffic: Traffic,
    cores: Cores,
    tuning: Sequence[KnobOutcome],
    ended: EndedInstance,
    sides: Sequence[SideNoise],
    energy: RunEnergy,
    neighbours: NeighboursRecord | None,
) -> MeasurementRecord:
    """Collect what ``run.json`` keeps of all sides of an instance, but for lost packets."""
    generator = ended.result.gen
    held_back = _held_back(ended, sides[0])
    device, platform = ended.device, ended.platform
    elsewhere_ns = _elsewhere_ns(ended)
    return MeasurementRecord(
        clock=ClockRecord(source="tsc", **asdict(ended.result.clock)),
        floor=floor.load(device.instrument),
        partial=tuple(ended.partial),
        warnings=(
            *cores.warnings,
            *(() if platform is None else platform.warnings),
            *([_UNPINNED] if ended.cpus.dut_anywhere else []),
            *filter(None, [elsewhere_text(elsewhere_ns, ended.cpus.named().get("DuT", ""))]),
            *_noise_of(ended).warnings(),
            *energy.warnings(),
            *_stage_warnings(ended),
            *unsent_texts(generator.unsent, held_back),
            *_replay_warnings(generator),
            *_unrecorded_warnings(generator),
        ),
        instrument=Instrument(
            unsent=generator.unsent,
            unsent_generator=sum(held_back),
            lost_in_dut=0,
            lost_in_instrument=0,
            lost_where_unknown=0,
            dropped_by_dut=None,
            stalls=StallsOfSides(
                generator=stalls_of(ended.result.lcores),
                dut=stalls_of(ended.dut_lcores) if ended.dut_lcores else None,
            ),
            cpus=ended.cpus.named(),
            raised_priority=ended.raised_priority,
            generator=generator_counts(ended.result),
            direction=ended.direction,
            traffic=sent_traffic(
                traffic, generator, ended.folders["generator"], ended.result.clock.tsc_hz
            ),
        ),
        noise=NoiseRecord(
            **asdict(ended.noise.record(sides)),
            own_work=own_work(ended),
            neighbours=neighbours,
            stages=None if (way := ended.stages.recorded) is None else way.record,
            stages_missing_because=ended.stages.why_not,
            elsewhere_ns=elsewhere_ns,
        ),
        power=energy.record(),
        knobs=_knobs(cores),
        tuning=tuple(convert(asdict_of(outcome), Written) for outcome in tuning),
        dut=_dut_record(ended),
        platform=None if platform is None else platform_record(device.platform, platform.about),
        co_runners=ended.beside or None,
    )


def _elsewhere_ns(ended: EndedInstance) -> dict[str, int] | None:
    """Return for how long a program of others ran beside its own CPUs, if that is most of it."""
    sampled, places_itself = ended.noise.neighbours, isinstance(ended.dut, Command)
    if sampled is None or not places_itself or ended.cpus.dut_anywhere or _is_guest(ended):
        return None
    ran_ns = sampled.elsewhere_ns(ended.dut_mark, ended.cpus.dut)
    return {str(cpu): ns for cpu, ns in ran_ns.items()} or None


def _is_guest(ended: EndedInstance) -> bool:
    """Return True if the device has a kernel of its own, which places its threads."""
    return ended.platform is not None and not ended.platform.shares_clock


def _stage_warnings(ended: EndedInstance) -> Sequence[str]:
    if ended.stages.recorded is None or not (lost := ended.stages.recorded.record.lost):
        return ()
    return (
        f"{lost:,} events of packets in the device were lost, because there was no room: as many"
        " packets or fewer have no stages",
    )


def _noise_of(ended: EndedInstance) -> RecordedNoise:
    """Return the noise, and by how much the clock was set, even if it was set back again."""
    if ended.noise.clock_set_by_ns or "pair_width_tsc.npy" not in ended.result.record:
        return ended.noise
    pairs = counter_pairs(ended.folders["generator"], ended.result.clock)
    return replace(ended.noise, clock_set_by_ns=largest_step_ns(*pairs))


def recorded_run(ended: EndedInstance, info: RunInfo) -> RecordedRun:
    """Collect all that is known of a measurement before its packets are matched."""
    generator = ended.result.gen
    warm_up_lost = lost_unrecorded(generator)
    lost = generator.unrecorded + full_rings(ended.counts, ended.device.wire)
    lost += sum(port.rx_missed + port.rx_nombuf for port in ended.result.ports)
    return RecordedRun(
        info=info,
        lost_in_instrument=max(0, lost - warm_up_lost - ended.others_lost),
        warm_up_lost=warm_up_lost,
        others_lost=ended.others_lost,
        came=generator.matched + generator.corrupt + generator.ambiguous,
        foreign=generator.foreign,
        cut_off=ended.cut_off,
    )


def with_losses(recorded: RecordedRun, analysis: Analysis) -> RunInfo:
    """The content of ``run.json``, with where packets were lost, by all counters."""
    info = recorded.info
    instrument, plan = info.instrument, info.plan
    assert instrument is not None, "it was measured"
    assert isinstance(plan, MeasurementPlan), "it was measured"
    counts = None if info.dut is None else info.dut.result
    losses = losses_of(
        int(analysis.summary["lost"] or 0),
        recorded.lost_in_instrument,
        counts,
        plan.wire,
        recorded.warm_up_lost + recorded.others_lost,
    )
    sent, watched = int(analysis.summary["sent"] or 0), instrument.timestamper is not None
    if watched:
        recorded = structs.replace(recorded, came=int(analysis.summary["post_packets"] or 0))
    return structs.replace(
        info,
        partial=(*info.partial, *_none_came(recorded, sent, losses)),
        warnings=(
            *info.warnings,
            *_loss_warnings(losses),
            *(_unseen(instrument, analysis) if watched else ()),
        ),
        instrument=structs.replace(
            instrument,
            lost_in_dut=losses.in_dut,
            lost_in_instrument=losses.in_instrument,
            lost_where_unknown=losses.where_unknown,
            dropped_by_dut=losses.dropped_by_dut,
        ),
    )


def _unseen(instrument: Instrument, analysis: Analysis) -> tuple[str, ...]:
    """Packets that a load generator sent and the timestamper did not see."""
    sent, seen = instrument.generator.gen.sent, int(analysis.summary["pre_packets"] or 0)
    if sent == seen:
        return ()
    return (
        f"the load generator sent {sent:,} packets, the timestamper saw {seen:,} before the device",
    )


def own_work(ended: EndedInstance) -> OwnWork:
    """Return the prefixes of causes that are a side's work: with links, softirqs of packets."""
    of_device = work_of_device(
        has_links=ended.platform is not None and bool(ended.platform.side.links),
        in_softirqs=ended.dut.in_softirqs,
        in_threads=ended.in_threads,
    )
    return OwnWork(instrument=(SOFTIRQ_NET,) if ended.side.links else (), dut=of_device)


def platform_record(name: str, about: Mapping[str, object]) -> PlatformRecord:
    """Return the record of a platform that ``run.json`` keeps."""
    return convert({"name": name, **about}, PlatformRecord)


def stalls_of(lcores: Sequence[LcoreCounts]) -> Stalls:
    """The stalls of all loops of a process together."""
    return Stalls(
        count=sum(lcore.stalls for lcore in lcores),
        stall_ns_total=sum(lcore.stall_ns_total for lcore in lcores),
        stall_ns_max=max((lcore.stall_ns_max for lcore in lcores), default=0),
        unrecorded=sum(lcore.stalls_unrecorded for lcore in lcores),
    )


def _replay_warnings(generated: GeneratedTraffic) -> Sequence[str]:
    alike = generated.ambiguous_sent
    if not alike:
        return ()
    return (
        f"{alike:,} frames of the capture are like others of it: whether those came back is not"
        " known, and they count as lost",
    )


def _unrecorded_warnings(generated: GeneratedTraffic) -> Sequence[str]:
    sent = generated.unrecorded_sent
    if not sent:
        return ()
    return (
        f"recorder behind: {sent:,} packets were sent while the disk of the recording was busy, and"
        " are in no figure",
    )


def _loss_warnings(losses: Losses) -> Sequence[str]:
    if not losses.in_instrument:
        return ()
    return (f"{losses.in_instrument:,} packets were lost in the instrument, not in the DuT",)


def _held_back(ended: EndedInstance, generator: SideNoise) -> HeldBack:
    """Packets that were not sent because of the generator."""
    import numpy as np

    from tailscope.engine.analysis import Clock, load_ticks, pieces
    from tailscope.noise.intervals import union

    folder = ended.folders["generator"]
    unsent_tsc, refused = (load_ticks(folder, name) for name in ("unsent_tsc", "unsent_refused"))
    clock = Clock(**asdict(ended.result.clock))
    start, lasted = generator.stalls_ns()
    stalls = union(start, start + lasted)
    found = HeldBack(0, 0)
    for some_tsc, some_refused in pieces(unsent_tsc, refused):
        unsent_ns = clock.all_at_ns(np.asarray(some_tsc, np.int64))
        more = held_back_by_generator(unsent_ns, some_refused > 0, *stalls)
        found = HeldBack(found.stalled + more.stalled, found.slow + more.slow)
    return found


def _none_came(recorded: RecordedRun, sent: int, losses: Losses) -> tuple[str, ...]:
    """Return the reason why there is no latency, if no packet came back."""
    if not sent or recorded.came:
        return ()
    dut = recorded.info.dut
    none_came = none_came_text(
        sent,
        losses,
        None if dut is None else dut.result,
        has_device=dut is not None,
        foreign=recorded.foreign,
    )
    instrument = recorded.info.instrument
    is_unexplained = not (losses.dropped_by_dut or recorded.info.partial)
    if instrument is not None and instrument.timestamper is not None and is_unexplained:
        none_came += (
            f"; {instrument.generator.gen.matched:,} came back to the load generator: see that"
            " `cards` of each of the hosts are the two ends that packets pass, in their order"
        )
    return (none_came,)


def _knobs(cores: Cores) -> dict[str, str | None]:
    """Return the settings of the host for the CPUs that poll, by knob."""
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
        rules_sha256=ended.running.rules_sha256,
    )


def configuration_of(found: str | Sequence[object]) -> str | tuple[object, ...]:
    """Commands or the text of a file that a device was set up with."""
    return found if isinstance(found, str) else tuple(found)
