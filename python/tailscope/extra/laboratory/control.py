"""Execution of a plan in a laboratory of load generator, device and timestamper."""

from __future__ import annotations

import os
import queue
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tailscope.exceptions import AnalysisError, HostError
from tailscope.experiment.run.evaluate import analysed, of_captures
from tailscope.experiment.run.measured import Measured
from tailscope.extra.laboratory.agents import agent_on
from tailscope.extra.laboratory.hosts import Dut
from tailscope.extra.laboratory.keeping import kept
from tailscope.extra.laboratory.machines import by_role, cpus_of
from tailscope.extra.laboratory.protocol import (
    CapturesEvent,
    CountsEvent,
    DutReady,
    EndOrder,
    LoadgenReady,
    PlayOrder,
    RecordedEvent,
    RecordingEvent,
    RecordOrder,
    SendOrder,
    SentEvent,
    StopOrder,
    TimestamperReady,
)
from tailscope.extra.laboratory.reported import Reported, reported_run, write_reported
from tailscope.noise.table import read_recorded
from tailscope.signals import Patience, patient
from tailscope.store import layout
from tailscope.store.records.messages import GeneratorProgress
from tailscope.testbed.clean import Leftover
from tailscope.testbed.cores import confined
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.waiting import LOOK_S, Countdown
from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.instance import Progress
    from tailscope.extra.laboratory.agents import Agent
    from tailscope.extra.laboratory.hosts import Host, Hosts
    from tailscope.extra.laboratory.protocol import Method, Role
    from tailscope.store.directory import Draw
    from tailscope.store.records.run import TimestampedFile

_READY_S = 300.0
_MARGIN_S = 60.0
_SILENCE_S = 180.0
"""Timeout for a silent agent, in seconds: longer than its own for a stuck generator."""
_RESULT_S = 600.0
"""Timeout for results, in seconds: agents hash captures and read kernel events first."""
_QUESTIONS = 32
"""Number of time queries to each machine before the traffic, and after it."""


def execute_in_lab(
    plan: RunPlan,
    hosts: Hosts,
    *,
    out: Path,
    draw: Draw,
    progress: Progress | None = None,
    ending: Callable[[], None] | None = None,
) -> Measured:
    """Carry out a plan on several machines.

    The timestamper's captures are analysed here, beside the load generator's own counts. The
    machines' recordings are converted to the clock of the captures.
    """
    from tailscope.store.directory import RunWriter, move_all

    with ExitStack() as stack:
        writer = stack.enter_context(RunWriter(out, draw=draw))
        folder = stack.enter_context(RunFolder())
        patience = Patience()

        def finish(cut_short: bool) -> None:
            nonlocal patience
            patience = stack.enter_context(patient(ending or _say_nothing, asked=cut_short))

        reported = _measure(plan, hosts, folder, progress, finish)
        run, tables = reported_run(plan, reported)
        captures = [reported.pre, reported.post]

        def write(place: RunWriter) -> None:
            if plan.captures:
                place.add_captures(reported.pre.parent)
            write_reported(place, tables)

        move = partial(move_all, [] if plan.captures else captures)
        with kept(writer, run, spare=folder.spare, write=write, move=move) as recording:
            captured = recording.parent / layout.CAPTURES if plan.captures else recording
            find = of_captures(*(captured / path.name for path in captures))
            with _counts_added(reported, captured):
                done = analysed(run, find, read_recorded(writer.path, run.info), writer)
    measured = Measured(done.analysis, done.info, None, None, False, out, tuple(done.lacks))
    return replace(measured, interrupted=patience.asked)


def clean_hosts(hosts: Hosts) -> Iterator[Leftover]:
    """Remove what dead agents left behind on other machines, by `tailscope runs clean` there."""
    from tailscope.extra.laboratory.remote import SshMachine

    for role, host in by_role(hosts).items():
        if host.ssh is None:
            continue
        machine = SshMachine(role, host.ssh, host.port)
        try:
            [output] = machine.run([host.command, "runs", "clean"])
        except HostError as error:
            yield Leftover(machine.where, str(error).removeprefix(f"{machine.where}: "))
            continue
        for line in output.splitlines():
            if line.startswith("removed "):
                yield Leftover(f"{machine.where}: {line.removeprefix('removed ')}")


@contextmanager
def _counts_added(reported: Reported, captures: Path) -> Iterator[None]:
    """Add the load generator's counts to the error of an analysis within a block."""
    try:
        yield
    except AnalysisError as error:
        counted = reported.sent.result.gen
        problem = str(error).replace(f"{captures}/", "")
        text = (
            f"{problem}; the load generator sent {count_text(counted.sent)} packets, and"
            f" {count_text(counted.matched)} came back to it"
        )
        raise AnalysisError(text, code=error.code, hint=error.hint) from None


def _say_nothing() -> None:
    pass


def _measure(
    plan: RunPlan,
    hosts: Hosts,
    folder: RunFolder,
    progress: Progress | None,
    ended: Callable[[bool], None],
) -> Reported:
    """Have the machines play their roles, and release them at the end.

    `ended` is called at the end of the traffic, with True if Ctrl-C ended it.
    """
    captures, files = folder.make("captures"), folder.make("machines")
    parts = [
        _part("dut", plan, hosts.dut),
        _part("timestamper", plan, hosts.timestamper, hosts.timestamper.method),
        _part("loadgen", plan, hosts.loadgen),
    ]
    with ExitStack() as stack:
        # The device starts first and ends last.
        dut = stack.enter_context(_agent("dut", hosts.dut))
        timestamper = stack.enter_context(_agent("timestamper", hosts.timestamper))
        loadgen = stack.enter_context(_agent("loadgen", hosts.loadgen))
        agents = (dut, timestamper, loadgen)
        for agent, part in zip(agents, parts, strict=True):
            agent.say(part)
        # Barrier: nothing is sent before all are ready.
        of_dut = dut.wait_for(DutReady, _READY_S)
        of_timestamper = timestamper.wait_for(TimestamperReady, _READY_S)
        of_loadgen = loadgen.wait_for(LoadgenReady, _READY_S)
        polled = {
            "dut": of_dut.cpus,
            "timestamper": of_timestamper.cpus,
            "loadgen": of_loadgen.cpus,
        }
        stack.enter_context(confined(_not_polled(hosts, polled)))
        if plan.warm_up_ns:
            _, cut_short = _send(agents, plan.warm_up_ns, None)
            if cut_short:
                raise KeyboardInterrupt
        for agent in agents:
            agent.say(RecordOrder())
        for agent in agents:
            agent.wait_for(RecordingEvent, _MARGIN_S)
        for agent in agents:
            agent.ask(_QUESTIONS)
        sent, cut_short = _send(agents, plan.duration_ns, progress)
        if cut_short and not sent.result.gen.sent:
            raise KeyboardInterrupt
        ended(cut_short)
        for agent in agents:
            agent.ask(_QUESTIONS)
        for agent in agents[1:]:
            agent.say(StopOrder())
        seen = timestamper.wait_for(CapturesEvent, _RESULT_S)
        # The last packets have passed, so the device can be stopped.
        dut.say(StopOrder())
        device = dut.wait_for(CountsEvent, _RESULT_S)
        load = loadgen.wait_for(RecordedEvent, _RESULT_S)
        recorded = {"dut": device.recorded, "loadgen": load.recorded}
        return Reported(
            of_dut,
            of_timestamper,
            of_loadgen,
            sent,
            seen,
            device,
            load.recorded,
            {agent.role: agent.answers for agent in agents},
            timestamper.fetch(seen.files.pre, captures),
            timestamper.fetch(seen.files.post, captures),
            {
                agent.role: _fetched(agent, recorded[agent.role].files, files)
                for agent in (dut, loadgen)
            },
        )


def _fetched(agent: Agent, files: Mapping[str, TimestampedFile], folder: Path) -> dict[str, Path]:
    own = folder / agent.role
    own.mkdir()
    return {name: agent.fetch(file, own) for name, file in files.items()}


def _not_polled(hosts: Hosts, polled: Mapping[str, Sequence[int]]) -> set[int]:
    """Return the CPUs of this machine that none of its roles polls on, or all if none is left."""
    allowed = os.sched_getaffinity(0)
    own = {cpu for role, cpus in polled.items() for cpu in cpus if getattr(hosts, role).ssh is None}
    return allowed - own or allowed


def _agent(role: Role, host: Host) -> Agent:
    return agent_on(role, host.ssh, port=host.port, command=host.command)


def _part(
    role: Role,
    plan: RunPlan,
    host: Host,
    method: Method | None = None,
) -> PlayOrder:
    return PlayOrder(
        role=role,
        plan=plan.record(),
        cards=host.cards,
        cpus=cpus_of(role, plan, host),
        method=method,
        vfs=host.functions(plan.platform) if isinstance(host, Dut) else None,
        lent=isinstance(host, Dut) and isinstance(host.vfs, dict),
    )


def _send(
    agents: Sequence[Agent], duration_ns: int, progress: Progress | None
) -> tuple[SentEvent, bool]:
    """Have the load generator, which is the last agent, send, and follow all machines.

    The first Ctrl-C ends the traffic, the second one everything. This function mostly sleeps, as
    this machine may play a role. It waits for the load generator as long as that sends messages.
    """
    loadgen = agents[-1]
    bell: queue.SimpleQueue[None] = queue.SimpleQueue()
    for agent in agents:
        agent.bell = bell
    loadgen.say(SendOrder(duration_ns=duration_ns))
    ends_s = time.monotonic() + duration_ns / 1e9
    silence, cut_short = Countdown(_SILENCE_S), False
    while not silence.is_over() or time.monotonic() < ends_s:
        try:
            for agent in agents:
                with suppress(queue.Empty):
                    event = agent.hear(0)
                    if isinstance(event, SentEvent):
                        return event, cut_short
                    if agent is loadgen:
                        silence = Countdown(_SILENCE_S)
                    if isinstance(event, GeneratorProgress) and progress is not None:
                        progress(event)
            with suppress(queue.Empty):
                bell.get(timeout=LOOK_S)
        except KeyboardInterrupt:
            if cut_short:
                raise
            cut_short = True
            loadgen.say(EndOrder())
            ends_s = time.monotonic()
        except HostError as error:
            # The signal ends a generator that has just started without a result.
            if cut_short:
                raise KeyboardInterrupt from error
            raise
    raise loadgen.error(f"no result, and nothing said for {_SILENCE_S:g} s", code="agent-silent")
