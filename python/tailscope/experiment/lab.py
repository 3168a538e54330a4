"""Carrying out a plan in a laboratory: load generator, device and timestamper are machines."""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from tailscope.analysis import analyze
from tailscope.experiment.account import configuration_of, stalls_of
from tailscope.experiment.blame import losses_of, none_came_text
from tailscope.experiment.measured import Measured, own_figures
from tailscope.store.provenance import MeasurementRecord, measurement_info
from tailscope.store.records.run import (
    ClockRecord,
    DutRecord,
    Instrument,
    StallsOfSides,
    TimestamperRecord,
)
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.hosts import agent_on
from tailscope.testbed.messages import GeneratorProgress
from tailscope.testbed.protocol import (
    CapturesEvent,
    CountsEvent,
    DutReady,
    LoadgenReady,
    PlayOrder,
    RecordingEvent,
    RecordOrder,
    SendOrder,
    SentEvent,
    StopOrder,
    TimestamperReady,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.analysis import Analysis
    from tailscope.experiment.instance import Progress
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.spec import Host, Hosts
    from tailscope.testbed.hosts import Agent
    from tailscope.testbed.protocol import Method, Role

__all__ = ["execute_in_lab"]

_READY_S = 300.0
_MARGIN_S = 60.0


def execute_in_lab(
    plan: RunPlan, hosts: Hosts, *, out: Path, progress: Progress | None = None
) -> Measured:
    """Carry out a plan on several machines.

    The timestamper's captures are analysed here; the load generator's own counts stand beside them.

    Parameters
    ----------
    plan : RunPlan
    hosts : Hosts
    out : Path
        The run directory to write.
    progress : callable, optional
        Receives what the load generator says once a second.

    Raises
    ------
    UsageError
        If the plan wants what only this machine can record or set.
    HostError
        If a machine refuses, fails or is gone; the others are released.
    """
    plan.check_for_laboratory()
    from tailscope.report.page import page
    from tailscope.store.directory import RunWriter

    with ExitStack() as stack:
        writer = stack.enter_context(RunWriter(out))
        folder = stack.enter_context(RunFolder())
        captures = folder.make("captures")
        found = _measure(plan, hosts, captures, progress)
        analysis = analyze(
            found.pre,
            found.post,
            match_on="probe",
            clocks="same",
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=writer.sink,
        )
        info = measurement_info(plan.record(), _info(plan, analysis, found))
        if plan.captures:
            writer.add_captures(captures)
        lacks = writer.finish(
            analysis,
            info=info,
            bucket_ns=plan.bucket_ns,
            figures=own_figures(info),
            report=lambda run: page([run]),
        )
    return Measured(analysis, info, None, None, False, out, tuple(lacks))


class _Ready(NamedTuple):
    """What the machines said of themselves before anything was sent."""

    dut: DutReady
    timestamper: TimestamperReady
    loadgen: LoadgenReady


class _Found(NamedTuple):
    """What the machines said, and the timestamper's captures."""

    ready: _Ready
    sent: SentEvent
    seen: CapturesEvent
    device: CountsEvent
    pre: Path
    post: Path


def _measure(plan: RunPlan, hosts: Hosts, captures: Path, progress: Progress | None) -> _Found:
    """Let the machines play their roles; they are released at the end."""
    with ExitStack() as stack:
        # The device comes first and goes last.
        dut = stack.enter_context(_agent("dut", hosts.dut))
        timestamper = stack.enter_context(_agent("timestamper", hosts.timestamper))
        loadgen = stack.enter_context(_agent("loadgen", hosts.loadgen))
        agents = (dut, timestamper, loadgen)
        dut.say(_part("dut", plan, hosts.dut))
        timestamper.say(_part("timestamper", plan, hosts.timestamper, hosts.timestamper.method))
        loadgen.say(_part("loadgen", plan, hosts.loadgen))
        # Barrier: nothing is sent before all are there.
        ready = _Ready(
            dut.wait_for(DutReady, _READY_S),
            timestamper.wait_for(TimestamperReady, _READY_S),
            loadgen.wait_for(LoadgenReady, _READY_S),
        )
        if plan.warm_up_ns:
            _send(agents, plan.warm_up_ns, None)
        timestamper.say(RecordOrder())
        timestamper.wait_for(RecordingEvent, _MARGIN_S)
        sent = _send(agents, plan.duration_ns, progress)
        timestamper.say(StopOrder())
        seen = timestamper.wait_for(CapturesEvent, _MARGIN_S)
        dut.say(StopOrder())
        device = dut.wait_for(CountsEvent, _MARGIN_S)
        pre = timestamper.fetch(seen.files.pre, captures)
        post = timestamper.fetch(seen.files.post, captures)
    return _Found(ready, sent, seen, device, pre, post)


def _agent(role: Role, host: Host) -> Agent:
    return agent_on(role, host.ssh, port=host.port, command=host.command)


def _part(role: Role, plan: RunPlan, host: Host, method: Method | None = None) -> PlayOrder:
    cpus = None if host.cpus is None else str(host.cpus)
    return PlayOrder(role=role, plan=plan.record(), cards=host.cards, cpus=cpus, method=method)


def _send(agents: Sequence[Agent], duration_ns: int, progress: Progress | None) -> SentEvent:
    """Let the load generator, which is the last, send; listen to all machines meanwhile."""
    loadgen = agents[-1]
    loadgen.say(SendOrder(duration_ns=duration_ns))
    deadline_s = time.monotonic() + duration_ns / 1e9 + _MARGIN_S
    while time.monotonic() < deadline_s:
        for agent in agents:
            try:
                event = agent.hear(0.2 if agent is loadgen else 0.0)
            except queue.Empty:
                continue
            if isinstance(event, SentEvent):
                return event
            if isinstance(event, GeneratorProgress) and progress is not None:
                progress(event)
    raise loadgen.error(f"no result {_MARGIN_S:g} s after it should have ended")


def _info(plan: RunPlan, analysis: Analysis, found: _Found) -> MeasurementRecord:
    """What ``run.json`` keeps of all machines."""
    ready, sent, seen, device = found.ready, found.sent, found.seen, found.device
    summary, generator, counts = analysis.summary, sent.result.gen, device.counts
    lost = int(summary["lost"] or 0)
    losses = losses_of(lost, seen.dropped.post, counts, plan.wire)
    partial = list(sent.result.partial)
    if device.died is not None or counts is None:
        partial.append(device.died or "dut: it did not report its counters")
    if not summary["post_packets"]:
        partial.append(
            none_came_text(int(summary["sent"] or 0), losses, counts, has_device=True, foreign=0)
        )
    roles = ready._asdict()
    warnings = [f"{role}: {said}" for role in roles for said in roles[role].warnings]
    if summary["pre_packets"] != generator.sent:
        warnings.append(
            f"the load generator sent {generator.sent:,} packets,"
            f" the timestamper saw {summary['pre_packets']:,} before the device"
        )
    cpus = {"generator": ready.loadgen.cpus, "DuT": ready.dut.cpus}
    return MeasurementRecord(
        clock=ClockRecord(source=seen.clock, timestamp_type=seen.timestamp_type),
        floor=None,
        partial=tuple(partial),
        warnings=tuple(warnings),
        instrument=Instrument(
            unsent=generator.unsent,
            lost_in_dut=losses.in_dut,
            lost_in_instrument=losses.in_instrument,
            lost_where_unknown=losses.where_unknown,
            dropped_by_dut=losses.dropped_by_dut,
            stalls=StallsOfSides(generator=stalls_of(sent.result.lcores)),
            cpus={role: ",".join(map(str, polled)) for role, polled in cpus.items()},
            raised_priority=sent.priority,
            generator=sent.result.counts,
            timestamper=TimestamperRecord(
                method=seen.method,
                dropped=seen.dropped,
                files=seen.files,
            ),
        ),
        dut=DutRecord(
            name=plan.dut,
            instance=None,
            version=ready.dut.version,
            configuration=configuration_of(ready.dut.configuration),
            result=counts,
        ),
        platform=ready.dut.platform,
        hosts={role: said.host for role, said in roles.items()},
    )
