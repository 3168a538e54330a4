"""Roles of an agent: load generator, device, or timestamper."""

from __future__ import annotations

import queue
import signal
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict as asdict_of
from typing import TYPE_CHECKING, NamedTuple

from msgspec import convert
from msgspec.structs import replace

from tailscope.exceptions import TestbedError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.account import platform_record
from tailscope.experiment.run.instance import PLATFORM_PART
from tailscope.extra.laboratory.functions import lent_cards, virtual_functions
from tailscope.extra.laboratory.own_machine import (
    MachineWatch,
    Watched,
    described,
    knobs_of,
    seen_by_links,
)
from tailscope.extra.laboratory.protocol import (
    CapturesEvent,
    CountsEvent,
    DutReady,
    LoadgenReady,
    PlayOrder,
    RecordedEvent,
    RecordingEvent,
    RecordOrder,
    SendOrder,
    SentEvent,
    TimestamperReady,
)
from tailscope.extra.laboratory.session import keep_session_on
from tailscope.extra.laboratory.stamps.host_clocks import clock_reports
from tailscope.extra.laboratory.stamps.links import Recorded, by_socket
from tailscope.extra.laboratory.stamps.stamping import (
    KernelLinks,
    Stamping,
    by_kernel,
    by_ports,
    stamping,
)
from tailscope.host.apply import tuned
from tailscope.host.machine import Machine
from tailscope.plan.fields import NOISE, PlanFields
from tailscope.store.machine import boot_id, this_host
from tailscope.store.records.messages import GeneratorProgress, ProgramCounts
from tailscope.store.records.run import CapturedFiles, SideCounts, Written
from tailscope.testbed.cores import check_cpus, confined, pick_cores, read_topology
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import GENERATOR, STAMP, missed_frames
from tailscope.testbed.places import Here
from tailscope.testbed.power import PowerRecorder
from tailscope.testbed.process import Dataplane
from tailscope.testbed.tcpdump import Tap, recording
from tailscope.testbed.waiting import LOOK_S
from tailscope.testbed.wires import are_links, cards, check_cards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Literal

    from tailscope.duts.dut import Dut
    from tailscope.extra.laboratory.protocol import AgentMessage, Order
    from tailscope.host.apply import KnobOutcome
    from tailscope.platforms.platform import OpenPlatform, Platform
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.steady import SteadyClock
    from tailscope.testbed.wires import Side

    Say = Callable[[AgentMessage], None]
    Hear = Callable[[], Order | None]


def play(
    part: PlayOrder, say: Say, hear: Hear, traffic_ends: Future[None], clock: SteadyClock
) -> None:
    """Play a role until there are no more orders."""
    with ExitStack() as stack:
        if part.vfs is not None:
            functions = stack.enter_context(
                virtual_functions(part.cards, part.vfs, part.plan.dst_mac)
            )
            part = replace(part, cards=functions)
        elif part.lent:
            stack.enter_context(lent_cards(part.cards))
        check_cards(part.role, part.cards)
        _ROLES[part.role](_plan_of(part), part, _Mouth(say, hear, traffic_ends, clock))


def _plan_of(part: PlayOrder) -> RunPlan:
    return RunPlan(**{name: getattr(part.plan, name) for name in PlanFields.__struct_fields__})


class _Mouth(NamedTuple):
    """The connection of a role to the other side, and its clock."""

    say: Say
    hear: Hear
    traffic_ends: Future[None]
    clock: SteadyClock


def _be_dut(plan: RunPlan, part: PlayOrder, talk: _Mouth) -> None:
    dut, platform = plan.device.make_dut(), plan.device.make_platform()
    cores = pick_cores(read_topology(), ["dut"] * dut.cpus, part.cpus)
    platform.check()
    dut.check()
    check_cpus(plan.co_runner_cpus, "--co-runner-cpus")
    for check in plan.recording_checks().values():
        check()
    with ExitStack() as stack:
        _make_way(stack, cores)
        tuning = _tuned(stack, cores) if plan.tune else []
        folder = stack.enter_context(RunFolder())
        power = stack.enter_context(
            PowerRecorder(
                folder.path, plan.power, phase_s=plan.power_phase_ns / 1e9, clock=talk.clock
            )
        )
        side = stack.enter_context(cards(folder, "dut", part.cards))
        device, opened = _put_up(stack, plan, folder, side, dut, platform, cores, power)
        watch = MachineWatch(
            folder,
            cores.pollers,
            talk.clock,
            # Events on CPUs say nothing about a device that moves between them.
            noise="stalls" if cores.anywhere else plan.noise,
            counter_interval_s=plan.counter_interval_ns / 1e9 or None,
            by_counter=device.running.clock is not None and device.folder is not None,
        )
        running = device.running
        talk.say(
            DutReady(
                host=this_host(),
                boot_id=boot_id(),
                knobs=knobs_of(cores.pollers),
                tuning=[convert(asdict_of(outcome), Written) for outcome in tuning],
                reports=clock_reports(),
                version=running.version,
                configuration=running.configuration,
                platform=platform_record(plan.platform, opened.about),
                warnings=[*cores.warnings, *opened.warnings],
                cpus=list(cores.pollers),
            )
        )
        if talk.hear() is None:
            return
        captured, capturing = seen_by_links(opened, dut, folder, plan.rate_pps)
        with watch.recording():
            with capturing:
                talk.say(RecordingEvent())
                if talk.hear() is None:
                    return
            noise, drawn = watch.finish(), power.finish()
        died = None if running.is_running else str(running.failure())
        counts = running.stop()
        loops = [lcore.tid for lcore in counts.lcores] if isinstance(counts, ProgramCounts) else []
        recorded = watch.of_device(noise, device, loops, captured, drawn)
        talk.say(CountsEvent(counts=counts, died=died, recorded=recorded))
        # The files are fetched until the next order.
        talk.hear()


def _make_way(stack: ExitStack, cores: Cores) -> None:
    """Keep all our processes, and the connection, off the polling CPUs."""
    stack.enter_context(confined(cores.housekeeping))
    keep_session_on(cores.housekeeping)


def _tuned(stack: ExitStack, cores: Cores) -> list[KnobOutcome]:
    """Tune this machine for the polling CPUs until the end."""
    cpus = tuple(sorted(set(cores.pollers)))
    return stack.enter_context(tuned(Machine(), cpus, by="tailscope agent"))


def _put_up(
    stack: ExitStack,
    plan: RunPlan,
    folder: RunFolder,
    side: Side,
    dut: Dut,
    platform: Platform,
    cores: Cores,
    power: PowerRecorder,
) -> tuple[Watched, OpenPlatform]:
    """Start the device on its platform, and the co-runners."""
    from tailscope.duts.dut import DutContext

    home = folder.part(PLATFORM_PART)
    opened = stack.enter_context(
        platform.open(
            home,
            side,
            dut,
            cpus=cores.pollers,
            housekeeping=cores.anywhere or cores.housekeeping,
            pinned=not cores.anywhere,
        )
    )
    record = folder.make("dut") if opened.shares_clock else None
    context = DutContext(
        opened.place,
        opened.side,
        opened.cpus,
        opened.housekeeping,
        plan.device.stall_ns,
        record,
        pinned=not cores.anywhere,
    )
    power.rest("idle")
    running = stack.enter_context(dut.open(context))
    stack.enter_context(plan.co_runners_beside(folder, cores))
    power.rest("running")
    opened.hand_over()
    return Watched(dut, running, opened, record, home.name), opened


def _generate(plan: RunPlan, part: PlayOrder, talk: _Mouth) -> None:
    cores = pick_cores(read_topology(), ["generator"], part.cpus)
    with ExitStack() as stack:
        _make_way(stack, cores)
        folder = stack.enter_context(RunFolder())
        side = stack.enter_context(cards(folder, "gen", part.cards))
        place = Here(folder.path, side.command, mark=folder.name)
        # Only the device's machine must be able to record events.
        noise = NOISE[0] if plan.noise == "events" else plan.noise
        watch = MachineWatch(folder, cores.pollers, talk.clock, noise=noise)
        talk.say(
            LoadgenReady(
                host=this_host(),
                boot_id=boot_id(),
                knobs=knobs_of(cores.pollers),
                reports=clock_reports(),
                warnings=list(cores.warnings),
                cpus=list(cores.pollers),
            )
        )
        sides = list(side.eal)

        def sent(order: SendOrder, record: Path | None = None) -> SentEvent:
            part_of_it = replace(plan, warm_up_ns=0, duration_ns=order.duration_ns)
            options = [
                *part_of_it.generator_options(),
                f"--unix-ahead-ns={talk.clock.ahead_ns}",
            ]
            options += [] if record is None else [f"--record={record}"]
            return _sent(place, sides, options, cores, talk)

        while isinstance(order := talk.hear(), SendOrder):
            talk.say(sent(order))
        if not isinstance(order, RecordOrder):
            return
        record = folder.make("generator")
        with watch.recording():
            talk.say(RecordingEvent())
            order = talk.hear()
            if not isinstance(order, SendOrder):
                return
            event = sent(order, record)
            # Meanwhile the last packets are still on their way through the timestamper.
            talk.say(event)
            recorded = watch.finish()
        if talk.hear() is None:
            return
        talk.say(RecordedEvent(recorded=watch.of_generator(recorded, event.result, record)))
        # The files are fetched until the next order.
        talk.hear()


def _sent(place: Here, eal: list[str], options: list[str], cores: Cores, talk: _Mouth) -> SentEvent:
    generator = Dataplane(
        "loadgen",
        GENERATOR,
        eal,
        options,
        place=place,
        lcores=cores.pollers,
        housekeeping=cores.housekeeping,
    )
    with generator:
        talk.traffic_ends.add_done_callback(lambda _: generator.process.signal(signal.SIGINT))
        try:
            while True:
                try:
                    event = generator.next_event(LOOK_S)
                except queue.Empty:
                    generator.check_progress()
                    continue
                if event is None:
                    break
                if isinstance(event, GeneratorProgress):
                    talk.say(event)
        except KeyboardInterrupt:
            generator.process.signal(signal.SIGINT)
            generator.finish()
            raise
        result = generator.finish()
        if result is None:
            raise generator.failure()
        return SentEvent(result=result, priority=generator.process.urgent)


def _watch(
    plan: RunPlan,  # noqa: ARG001 - it only watches
    part: PlayOrder,
    talk: _Mouth,
) -> None:
    names = part.cards
    method: Literal["socket", "tcpdump", "stamp"] = "socket" if are_links(names) else "stamp"
    if part.method in ("socket", "tcpdump", "stamp"):
        method = part.method
    if (method == "stamp") == are_links(names):
        expected = "PCI addresses" if method == "stamp" else "links of the kernel"
        raise TestbedError(
            f"method {method}: got cards {', '.join(names)}, expected {expected}",
            code="timestamper-method",
        )
    cores = pick_cores(read_topology(), ["timestamper"], part.cpus)
    with ExitStack() as stack:
        _make_way(stack, cores)
        folder = stack.enter_context(RunFolder())
        captures = folder.make("captures")
        with _TIMES[method](names) as times:
            warnings = list(times.warnings)
            talk.say(
                TimestamperReady(
                    host=this_host(),
                    boot_id=boot_id(),
                    knobs=knobs_of(cores.pollers),
                    reports=clock_reports(),
                    warnings=warnings,
                    cpus=list(cores.pollers) if method == "stamp" else [],
                )
            )
            if talk.hear() is None:
                return
            with _RECORD[method](names, folder, captures, cores, times) as recorded:
                talk.say(RecordingEvent())
                if talk.hear() is None:
                    return
        ending = "pcap" if method == "tcpdump" else "pcapng.zst"
        pre, post = (described(captures / f"{side}.{ending}") for side in ("pre", "post"))
        talk.say(
            CapturesEvent(
                method=method,
                clock=recorded.clock,
                timestamp_type=recorded.timestamp_type,
                dropped=recorded.dropped,
                files=CapturedFiles(pre=pre, post=post),
                clock_set_by_ns=talk.clock.set_by_ns(),
                port_clocks=recorded.port_clocks,
                warnings=[*recorded.warnings, *times.warnings[len(warnings) :]],
            )
        )
        # The files are fetched until the next order.
        talk.hear()


@contextmanager
def _by_socket(
    names: list[str], folder: RunFolder, captures: Path, cores: Cores, times: Stamping
) -> Iterator[Recorded]:
    place = Here(folder.path, mark=folder.name)
    with by_socket(names, captures, times, place=place, cpus=cores.housekeeping) as recorded:
        yield recorded


@contextmanager
def _by_tcpdump(
    names: list[str],
    folder: RunFolder,
    captures: Path,
    cores: Cores,  # noqa: ARG001 - it does not poll
    times: Stamping,  # noqa: ARG001 - the kernel's
) -> Iterator[Recorded]:
    pre, post = map(Tap, names)
    recorded = Recorded("kernel-software", "host")
    with recording({"pre": pre, "post": post}, Here(captures, mark=folder.name)):
        yield recorded
    recorded.dropped = SideCounts(pre=pre.dropped, post=post.dropped)


@contextmanager
def _by_stamp(
    names: list[str],
    folder: RunFolder,
    captures: Path,
    cores: Cores,
    times: Stamping,  # noqa: ARG001 - its ports stamp, or it does not start
) -> Iterator[Recorded]:
    recorded = Recorded("nic-hardware", "nic-hardware")
    with cards(folder, "tap", names) as side:
        stamp = Dataplane(
            "timestamper",
            STAMP,
            side.eal,
            [f"--captures={captures}"],
            place=Here(folder.path, side.command, mark=folder.name),
            lcores=cores.pollers,
            housekeeping=cores.housekeeping,
        )
        with stamp:
            stamp.wait_ready()
            yield recorded
            stamp.stop()
            result = stamp.finish()
    if result is None:
        raise stamp.failure()
    own = result.stamp
    recorded.clock = recorded.timestamp_type = own.timestamps
    recorded.dropped = SideCounts(pre=missed_frames(own.pre), post=missed_frames(own.post))


_RECORD = {"socket": _by_socket, "tcpdump": _by_tcpdump, "stamp": _by_stamp}
_TIMES: dict[str, Callable[[list[str]], AbstractContextManager[Stamping]]] = {
    "socket": lambda names: stamping(names, KernelLinks()),
    "tcpdump": lambda _names: nullcontext(by_kernel(["tcpdump was asked for"])),
    "stamp": lambda names: nullcontext(by_ports(names)),
}
"""Set-up of the timestamps of each method, before anything is sent."""


_ROLES = {"dut": _be_dut, "loadgen": _generate, "timestamper": _watch}
