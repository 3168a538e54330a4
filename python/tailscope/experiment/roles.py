"""What an agent does on its machine: generate load, be the device, or watch."""

from __future__ import annotations

import hashlib
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailscope.exceptions import TestbedError
from tailscope.experiment.account import platform_record
from tailscope.experiment.plan import RunPlan
from tailscope.host.cpus import parse_cpus
from tailscope.plan import PlanFields
from tailscope.store.machine import this_host
from tailscope.store.records.run import CapturedFiles, ClockSource, SideCounts, TimestampedFile
from tailscope.testbed.co_runners import co_runners
from tailscope.testbed.cores import pick_cores, read_topology, staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import GENERATOR, STAMP, GeneratorProgress
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.protocol import (
    CapturesEvent,
    CountsEvent,
    DutReady,
    LoadgenReady,
    PlayOrder,
    RecordingEvent,
    SendOrder,
    SentEvent,
    TimestamperReady,
)
from tailscope.testbed.tcpdump import Tap, best_clock, recording
from tailscope.testbed.wires import are_links, cards, check_cards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Literal

    from tailscope.testbed.cores import Cores
    from tailscope.testbed.protocol import AgentMessage, Order

    Say = Callable[[AgentMessage], None]
    Hear = Callable[[], Order | None]

__all__ = ["play"]


def play(part: PlayOrder, say: Say, hear: Hear) -> None:
    """Play a role until there is nothing more to hear.

    Parameters
    ----------
    part : PlayOrder
    say, hear : callable
        Tell the other side something, and wait for what it has to say; None is its end.

    Raises
    ------
    TestbedError
        If this machine lacks something, or what was started fails.
    """
    check_cards(part.role, part.cards)
    _ROLES[part.role](_plan_of(part), part, say, hear)


def _plan_of(part: PlayOrder) -> RunPlan:
    return RunPlan(**{name: getattr(part.plan, name) for name in PlanFields.__struct_fields__})


def _be_dut(plan: RunPlan, part: PlayOrder, say: Say, hear: Hear) -> None:
    from tailscope.duts.dut import DutContext

    dut, platform = plan.make_dut(), plan.make_platform()
    platform.check()
    dut.check()
    cores = pick_cores(read_topology(), dut.cpus, part.cpus)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        side = stack.enter_context(cards(folder, "dut", part.cards))
        given = {"cpus": cores.pollers, "housekeeping": cores.housekeeping}
        opened = stack.enter_context(platform.open(folder.part("platform"), side, dut, **given))
        context = DutContext(
            opened.place, opened.side, opened.cpus, opened.housekeeping, plan.stall_ns
        )
        running = stack.enter_context(dut.open(context))
        busy_on = (
            cores.housekeeping if plan.co_runner_cpus is None else parse_cpus(plan.co_runner_cpus)
        )
        stack.enter_context(co_runners(folder, plan.co_runners, busy_on))
        opened.hand_over()
        say(
            DutReady(
                host=this_host(),
                version=running.version,
                configuration=running.configuration,
                platform=platform_record(plan.platform, opened.about),
                warnings=[*cores.warnings, *opened.warnings],
                cpus=list(cores.pollers),
            )
        )
        if hear() is None:
            return
        died = None if running.is_running else str(running.failure())
        counts = running.stop()
        say(CountsEvent(counts=counts, died=died))
        hear()


def _generate(plan: RunPlan, part: PlayOrder, say: Say, hear: Hear) -> None:
    cores = pick_cores(read_topology(), 1, part.cpus)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        side = stack.enter_context(cards(folder, "gen", part.cards))
        place = Here(folder.path, side.command, mark=folder.name)
        say(LoadgenReady(host=this_host(), warnings=list(cores.warnings), cpus=list(cores.pollers)))
        while isinstance(asked := hear(), SendOrder):
            part_of_it = replace(plan, warm_up_ns=0, duration_ns=asked.duration_ns)
            say(_sent(place, list(side.eal), part_of_it.generator_options(), cores, say))


def _sent(place: Here, eal: list[str], options: list[str], cores: Cores, say: Say) -> SentEvent:
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
        try:
            while True:
                event = generator.next_event(None)
                if event is None:
                    break
                if isinstance(event, GeneratorProgress):
                    say(event)
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
    say: Say,
    hear: Hear,
) -> None:
    names = part.cards
    method: Literal["tcpdump", "stamp"] = "tcpdump" if are_links(names) else "stamp"
    if part.method in ("tcpdump", "stamp"):
        method = part.method
    if (method == "tcpdump") != are_links(names):
        expected = "links of the kernel" if method == "tcpdump" else "PCI addresses"
        raise TestbedError(f"method {method}: got cards {', '.join(names)}, expected {expected}")
    cores = pick_cores(read_topology(), 1, part.cpus)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        say(TimestamperReady(host=this_host(), warnings=[]))
        if hear() is None:
            return
        record = _by_tcpdump if method == "tcpdump" else _by_stamp
        captures = folder.make("captures")
        with record(names, folder, captures, cores) as recorded:
            say(RecordingEvent())
            if hear() is None:
                return
        ending = "pcap" if method == "tcpdump" else "pcapng.zst"
        pre, post = (_described(captures / f"{side}.{ending}") for side in ("pre", "post"))
        say(
            CapturesEvent(
                method=method,
                clock=recorded.clock,
                timestamp_type=recorded.timestamp_type,
                dropped=recorded.dropped,
                files=CapturedFiles(pre=pre, post=post),
            )
        )
        # The files are fetched until then.
        hear()


@dataclass
class _Recorded:
    """What is known of a recording; of frames that it lacks once it has ended."""

    clock: ClockSource = field(init=False)
    timestamp_type: str = field(init=False)
    dropped: SideCounts = field(init=False)


@contextmanager
def _by_tcpdump(
    names: list[str],
    folder: RunFolder,
    captures: Path,
    cores: Cores,  # noqa: ARG001 - it does not poll
) -> Iterator[_Recorded]:
    clock = best_clock(names)
    pre, post = map(Tap, names)
    recorded = _Recorded()
    recorded.clock = "kernel-software" if clock == "host" else "kernel-hardware"
    recorded.timestamp_type = clock
    taps = {"pre": pre, "post": post}
    with recording(taps, Here(captures, mark=folder.name), clock=clock):
        yield recorded
    recorded.dropped = SideCounts(pre=pre.dropped, post=post.dropped)


@contextmanager
def _by_stamp(
    names: list[str], folder: RunFolder, captures: Path, cores: Cores
) -> Iterator[_Recorded]:
    recorded = _Recorded()
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
    recorded.dropped = SideCounts(pre=own.pre.missed, post=own.post.missed)


def _described(path: Path) -> TimestampedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return TimestampedFile(path=str(path), size_bytes=path.stat().st_size, sha256=digest)


_ROLES = {"dut": _be_dut, "loadgen": _generate, "timestamper": _watch}
