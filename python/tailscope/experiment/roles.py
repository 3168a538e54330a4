"""What an agent does on its machine: generate load, be the device, or watch."""

from __future__ import annotations

import hashlib
import queue
import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailscope.exceptions import TestbedError
from tailscope.experiment.plan import RunPlan
from tailscope.host.cpus import parse_cpus
from tailscope.host.fingerprint import fingerprint
from tailscope.testbed.co_runners import co_runners
from tailscope.testbed.cores import pick_cores, read_topology, staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.tcpdump import Tap, best_clock, recording
from tailscope.testbed.wires import are_links, cards, check_cards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tailscope.testbed.cores import Cores

    Say = Callable[[Mapping[str, Any]], None]
    Hear = Callable[[], Mapping[str, Any] | None]

__all__ = ["play"]

_POLL_S = 0.2


def play(part: Mapping[str, Any], say: Say, hear: Hear) -> None:
    """Play a role until there is nothing more to hear.

    Parameters
    ----------
    part : Mapping
        ``role``, ``plan`` (as in ``run.json``), ``cards``, ``cpus`` and what the role needs.
    say, hear : callable
        Tell the other side something, and wait for what it has to say; None is its end.

    Raises
    ------
    TestbedError
        If this machine lacks something, or what was started fails.
    """
    plan = RunPlan(**{name: value for name, value in part["plan"].items() if name in _PLANNED})
    check_cards(part["role"], part["cards"])
    cpus = None if part["cpus"] is None else str(part["cpus"])
    _ROLES[part["role"]](plan, part, cpus, say, hear)


_PLANNED = frozenset(RunPlan.__struct_fields__)


def _be_dut(plan: RunPlan, part: Mapping[str, Any], cpus: str | None, say: Say, hear: Hear) -> None:
    from tailscope.duts.dut import DutContext

    dut, platform = plan.make_dut(), plan.make_platform()
    platform.check()
    dut.check()
    cores = pick_cores(read_topology(), dut.cpus, cpus)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        side = stack.enter_context(cards(folder, "dut", part["cards"]))
        given = {"cpus": cores.pollers, "housekeeping": cores.housekeeping}
        home = stack.enter_context(platform.open(folder.part("platform"), side, dut, **given))
        site = DutContext(home.place, home.side, home.cpus, home.housekeeping, plan.stall_ns)
        running = stack.enter_context(dut.open(site))
        busy_on = (
            cores.housekeeping if plan.co_runner_cpus is None else parse_cpus(plan.co_runner_cpus)
        )
        stack.enter_context(co_runners(folder, plan.co_runners, busy_on))
        home.hand_over()
        say(
            {
                "event": "ready",
                "host": fingerprint(),
                "version": running.version,
                "configuration": running.configuration,
                "platform": {"name": plan.platform, **home.about},
                "warnings": [*cores.warnings, *home.warnings],
                "cpus": list(cores.pollers),
            }
        )
        if hear() is None:
            return
        died = None if running.is_running else str(running.failure())
        counts = running.stop()
        say({"event": "result", "counts": counts, "died": died})
        hear()


def _generate(
    plan: RunPlan, part: Mapping[str, Any], cpus: str | None, say: Say, hear: Hear
) -> None:
    cores = pick_cores(read_topology(), 1, cpus)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        side = stack.enter_context(cards(folder, "gen", part["cards"]))
        place = Here(folder.path, side.command, mark=folder.name)
        ready = {"warnings": list(cores.warnings), "cpus": list(cores.pollers)}
        say({"event": "ready", "host": fingerprint(), **ready})
        while (asked := hear()) is not None and asked["do"] == "send":
            part_of_it = replace(plan, warm_up_ns=0, duration_ns=asked["duration_ns"])
            say(_sent(place, list(side.eal), part_of_it.generator_options(), cores, say))


def _sent(
    place: Here, eal: list[str], options: list[str], cores: Cores, say: Say
) -> dict[str, Any]:
    generator = Dataplane(
        "loadgen",
        "gen",
        eal,
        options,
        place=place,
        lcores=cores.pollers,
        housekeeping=cores.housekeeping,
    )
    with generator:
        try:
            while True:
                try:
                    event = generator.next_event(_POLL_S)
                except queue.Empty:
                    continue
                if event is None:
                    break
                if event["event"] == "progress":
                    say(event)
        except KeyboardInterrupt:
            generator.process.signal(signal.SIGINT)
            generator.finish()
            raise
        result = generator.finish()
        if result is None:
            raise generator.failure()
        return {**result, "event": "sent", "priority": generator.process.urgent}


def _watch(
    plan: RunPlan,  # noqa: ARG001 - it only watches
    part: Mapping[str, Any],
    cpus: str | None,
    say: Say,
    hear: Hear,
) -> None:
    names = part["cards"]
    method = part["method"]
    if method == "auto":
        method = "tcpdump" if are_links(names) else "stamp"
    if (method == "tcpdump") != are_links(names):
        expected = "links of the kernel" if method == "tcpdump" else "PCI addresses"
        raise TestbedError(f"method {method}: got cards {', '.join(names)}, expected {expected}")
    cores = pick_cores(read_topology(), 1, cpus)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        say({"event": "ready", "host": fingerprint(), "warnings": []})
        if hear() is None:
            return
        record = _by_tcpdump if method == "tcpdump" else _by_stamp
        captures = folder.make("captures")
        with record(names, folder, captures, cores) as about:
            say({"event": "recording"})
            if hear() is None:
                return
        files = {side: _described(captures / name) for side, name in about.pop("files").items()}
        say({"event": "result", "method": method, **about, "files": files})
        # The files are fetched until then.
        hear()


@contextmanager
def _by_tcpdump(
    names: list[str],
    folder: RunFolder,
    captures: Path,
    cores: Cores,  # noqa: ARG001 - it does not poll
) -> Iterator[dict[str, Any]]:
    clock = best_clock(names)
    taps = {side: Tap(link) for side, link in zip(("pre", "post"), names, strict=True)}
    about: dict[str, Any] = {
        "clock": "kernel-software" if clock == "host" else "kernel-hardware",
        "timestamp_type": clock,
        "files": {side: f"{side}.pcap" for side in taps},
    }
    with recording(taps, Here(captures, mark=folder.name), clock=clock):
        yield about
    about["dropped"] = {side: tap.dropped for side, tap in taps.items()}


@contextmanager
def _by_stamp(
    names: list[str], folder: RunFolder, captures: Path, cores: Cores
) -> Iterator[dict[str, Any]]:
    about: dict[str, Any] = {"files": {side: f"{side}.pcapng.zst" for side in ("pre", "post")}}
    with cards(folder, "tap", names) as side:
        stamp = Dataplane(
            "timestamper",
            "stamp",
            side.eal,
            [f"--captures={captures}"],
            place=Here(folder.path, side.command, mark=folder.name),
            lcores=cores.pollers,
            housekeeping=cores.housekeeping,
        )
        with stamp:
            stamp.wait_ready()
            yield about
            stamp.stop()
            result = stamp.finish()
    if result is None:
        raise stamp.failure()
    own = result["stamp"]
    about["clock"] = about["timestamp_type"] = own["timestamps"]
    about["dropped"] = {
        side: own[side]["ring_full"] + own[side]["unstamped"] for side in about["files"]
    }


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": str(path), "size_bytes": path.stat().st_size, "sha256": digest}


_ROLES = {"dut": _be_dut, "loadgen": _generate, "timestamper": _watch}
