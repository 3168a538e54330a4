"""Carrying out a plan in a laboratory: load generator, device and timestamper are machines."""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import convert

from tailscope.analysis import analyze
from tailscope.experiment.account import (
    configuration_of,
    dut_counts,
    generator_counts,
    stalls_of,
)
from tailscope.experiment.measured import Measured, own_figures
from tailscope.store.provenance import MeasurementRecord, measurement_info
from tailscope.store.records.base import as_content
from tailscope.store.records.host import HostRecord
from tailscope.store.records.run import (
    ClockRecord,
    DutRecord,
    Instrument,
    PlatformRecord,
    StallsOfSides,
    TimestamperRecord,
)
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.hosts import agent_on

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailscope.analysis import Analysis
    from tailscope.experiment.instance import Progress
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.spec import Host, Hosts
    from tailscope.testbed.hosts import Agent

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
        If the plan wants what only this machine can record.
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
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=writer.sink,
        )
        info = measurement_info(plan.record(), _info(plan, analysis, found))
        if plan.captures:
            writer.add_captures(captures)
        writer.finish(
            analysis,
            info=info,
            bucket_ns=plan.bucket_ns,
            figures=own_figures(info),
            report=lambda run: page([run]),
        )
    return Measured(analysis, info, None, None, False, out)


class _Found(NamedTuple):
    """What the machines said, and the timestamper's captures."""

    ready: Mapping[str, Mapping[str, Any]]
    sent: Mapping[str, Any]
    seen: Mapping[str, Any]
    device: Mapping[str, Any]
    pre: Path
    post: Path


def _measure(plan: RunPlan, hosts: Hosts, captures: Path, progress: Progress | None) -> _Found:
    """Let the machines play their roles; they are released at the end."""
    with ExitStack() as stack:
        # The device comes first and goes last.
        agents = {
            role: stack.enter_context(_agent(role, getattr(hosts, role)))
            for role in ("dut", "timestamper", "loadgen")
        }
        for role, agent in agents.items():
            host = getattr(hosts, role)
            method = {"method": host.method} if role == "timestamper" else {}
            own = {"cards": host.cards, "cpus": host.cpus, **method}
            agent.say(role=role, plan=as_content(plan.record()), **own)
        # Barrier: nothing is sent before all are there.
        ready = {role: agent.wait_for("ready", _READY_S) for role, agent in agents.items()}
        if plan.warm_up_ns:
            _send(agents, plan.warm_up_ns, None)
        timestamper = agents["timestamper"]
        timestamper.say(do="record")
        timestamper.wait_for("recording", _MARGIN_S)
        sent = _send(agents, plan.duration_ns, progress)
        timestamper.say(do="stop")
        seen = timestamper.wait_for("result", _MARGIN_S)
        agents["dut"].say(do="stop")
        device = agents["dut"].wait_for("result", _MARGIN_S)
        pre, post = (timestamper.fetch(seen["files"][side], captures) for side in ("pre", "post"))
    return _Found(ready, sent, seen, device, pre, post)


def _agent(role: str, host: Host) -> Agent:
    return agent_on(role, host.ssh, port=host.port, command=host.command)


def _send(
    agents: Mapping[str, Agent], duration_ns: int, progress: Progress | None
) -> dict[str, Any]:
    """Let the load generator send, and listen to all machines meanwhile."""
    agents["loadgen"].say(do="send", duration_ns=duration_ns)
    deadline_s = time.monotonic() + duration_ns / 1e9 + _MARGIN_S
    while time.monotonic() < deadline_s:
        for role, agent in agents.items():
            try:
                event = agent.hear(0.2 if role == "loadgen" else 0.0)
            except queue.Empty:
                continue
            if event["event"] == "sent":
                return event
            if event["event"] == "progress" and progress is not None:
                progress(event)
    raise agents["loadgen"].error(f"no result {_MARGIN_S:g} s after it should have ended")


def _info(plan: RunPlan, analysis: Analysis, found: _Found) -> MeasurementRecord:
    """What ``run.json`` keeps of all machines."""
    ready, sent, seen, device = found.ready, found.sent, found.seen, found.device
    summary, generator, counts = analysis.summary, sent["gen"], device["counts"]
    lost = int(summary["lost"] or 0)
    in_instrument = min(lost, int(seen["dropped"]["post"]))
    dropped = None if counts is None else counts.get("dropped")
    partial = list(sent["partial"])
    if device["died"] is not None or counts is None:
        partial.append(device["died"] or "dut: it did not say what it counted")
    warnings = [f"{role}: {said}" for role in ready for said in ready[role]["warnings"]]
    if summary["pre_packets"] != generator["sent"]:
        warnings.append(
            f"the load generator sent {generator['sent']:,} packets,"
            f" the timestamper saw {summary['pre_packets']:,} before the device"
        )
    return MeasurementRecord(
        clock=ClockRecord(source=seen["clock"], timestamp_type=seen["timestamp_type"]),
        floor=None,
        partial=tuple(partial),
        warnings=tuple(warnings),
        instrument=Instrument(
            unsent=generator["unsent"],
            lost_in_dut=lost - in_instrument,
            lost_in_instrument=in_instrument,
            dropped_by_dut=None if dropped is None else min(lost - in_instrument, dropped),
            stalls=StallsOfSides(generator=stalls_of(sent["lcores"])),
            cpus={
                name: ",".join(map(str, ready[role]["cpus"]))
                for name, role in (("generator", "loadgen"), ("DuT", "dut"))
            },
            raised_priority=sent["priority"],
            generator=generator_counts(sent),
            timestamper=convert(
                {name: seen[name] for name in ("method", "dropped", "files")}, TimestamperRecord
            ),
        ),
        dut=DutRecord(
            name=plan.dut,
            version=ready["dut"]["version"],
            configuration=configuration_of(ready["dut"]["configuration"]),
            result=None if counts is None else dut_counts(plan.dut, counts),
        ),
        platform=convert(ready["dut"]["platform"], PlatformRecord),
        hosts={role: convert(ready[role]["host"], HostRecord) for role in ready},
    )
