"""Trials of wires, platforms, devices and recordings, as a run would use them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tailscope.doctor import trial
from tailscope.doctor.trial import examined, start_programs
from tailscope.duts.catalogue import DUTS
from tailscope.duts.dut import DutContext
from tailscope.exceptions import TestbedError, UsageError
from tailscope.experiment.plan import failures
from tailscope.host import remedies
from tailscope.host.apply import needs_root
from tailscope.host.machine import Machine
from tailscope.noise.tracer import Tracer
from tailscope.platforms.bare import Bare
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.registry import extras, offered
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.power import Rapl
from tailscope.testbed.process import find_binary
from tailscope.testbed.stage_recorder import check_stages
from tailscope.testbed.wires import WIRES, Veth

if TYPE_CHECKING:
    from tailscope.duts.dut import Dut
    from tailscope.experiment.co_runners import CoRunners
    from tailscope.experiment.plan import RunPlan
    from tailscope.platforms.platform import Platform
    from tailscope.store.records.doctor import Finding, State
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.wires import Wire

_EVENTS = "kernel events"
_LONGEST_START_S = 0.5
"""Devices that take longer to start are not tried."""


class Examined(NamedTuple):
    """The things that a measurement can use, by their kinds."""

    wires: tuple[Finding, ...]
    devices: tuple[Finding, ...]
    platforms: tuple[Finding, ...]
    recordings: tuple[Finding, ...]
    host_parts: tuple[Finding, ...]
    extras: tuple[Finding, ...]


def examine(folder: Folder, cores: Cores) -> Examined:
    """Try everything that is registered."""
    platforms = {
        name: examined(name, kind.about, partial(_platform, kind), f"platform {name}")
        for name, kind in PLATFORMS.items()
    }
    wires = {
        name: examined(name, kind.about, partial(_wire, kind, folder, platforms), f"wire {name}")
        for name, kind in WIRES.items()
    }
    devices = (
        examined(name, kind.about, partial(_device, kind, wires, folder, cores), f"dut {name}")
        for name, kind in DUTS.items()
    )
    added = (
        examined(name, ", ".join(each.packages.values()), partial(trial.packages, each))
        for name, each in extras().items()
    )
    return Examined(
        tuple(wires.values()),
        tuple(devices),
        tuple(platforms.values()),
        (
            examined("events", _EVENTS, partial(_kernel_events, folder, cores), _EVENTS),
            examined("stages", "stages of packets in the kernel", _stages, "--stages"),
            examined("power", "energy counters of the processor (RAPL)", _power, "power"),
        ),
        (
            examined("tuning", "changes of the host's settings", _tuning),
            *(
                examined("co-runners", "loads beside the device", partial(_co_runners, kind))
                for kind in offered("co-runners")
            ),
            examined("hugepages", "large pages for DPDK", trial.hugepages),
            examined("kvm", "guests at the speed of the processor", trial.kvm),
        ),
        tuple(added),
    )


def _platform(kind: type[Platform]) -> tuple[State, None]:
    kind({}).check()
    start_programs(f"platform {kind.name}", kind.programs)
    return ("found" if kind.programs else "tried"), None


def _wire(kind: type[Wire], folder: Folder, platforms: dict[str, Finding]) -> tuple[State, None]:
    find_binary()
    _any_of([platforms[each.name] for each in PLATFORMS.values() if kind.name in each.wires])
    was_up = kind({}).try_out(folder.part(f"wire-{kind.name}"))
    return ("tried" if was_up else "found"), None


def _device(
    kind: type[Dut], wires: dict[str, Finding], folder: Folder, cores: Cores
) -> tuple[State, None]:
    what = f"dut {kind.name}"
    wire = _any_of([wires[name] for name in kind.wires]).name
    try:
        dut = kind({}, wire)
    except UsageError:
        # Which program it is, only its user knows.
        start_programs(what, kind.programs)
        return "found", None
    dut.check()
    start_programs(what, kind.programs)
    return _started(dut, folder, cores), None


def lacks_of(plan: RunPlan, cores: Cores) -> list[str]:
    """Return what this machine lacks for a run; a device that starts quickly is started."""
    missing = plan.missing()
    if missing or plan.platform != Bare.name:
        return missing
    with RunFolder() as folder:
        return failures([partial(_started, plan.device.make_dut(), folder, cores)])


def _started(dut: Dut, folder: Folder, cores: Cores) -> State:
    """Start a device for a moment, if it is the kernel's and that is quick."""
    if dut.uses_dpdk or dut.starts_in_s > _LONGEST_START_S or dut.wire != Veth.name:
        return "found"
    try:
        _open(dut, folder.part(f"dut-{dut.name}"), cores)
    except TestbedError as error:
        remedy = error.remedy or remedies.KERNEL_OF_DEBIAN
        raise TestbedError(str(error), code=error.code, remedy=remedy) from None
    return "tried"


def _any_of(findings: list[Finding]) -> Finding:
    """Return the first that is not missing; raise what the first one lacks if all are."""
    for each in findings:
        if each.state != "missing":
            return each
    lacking = findings[0]
    raise TestbedError(str(lacking.detail), code="missing", remedy=lacking.remedy)


def _open(dut: Dut, folder: Folder, cores: Cores) -> None:
    """Set a device of the kernel up on links, and take it down."""
    wire = WIRES[dut.wire]({})
    with ExitStack() as stack:
        ends = stack.enter_context(wire.open(folder))
        place = Here(folder.path, ends.dut.command, mark=folder.name)
        cpus, housekeeping = cores.pollers[-1:], cores.housekeeping
        context = DutContext(place, ends.dut, cpus, housekeeping, wire.stall_ns)
        stack.enter_context(dut.open(context))


def _kernel_events(folder: Folder, cores: Cores) -> tuple[State, None]:
    with Tracer(folder.part("events"), cores.pollers):
        return "tried", None


def _stages() -> tuple[State, None]:
    check_stages()
    return "found", None


def _power() -> tuple[State, None]:
    Rapl().check()
    return "tried", None


def _tuning() -> tuple[State, None]:
    needs_root(Machine())
    return "found", None


def _co_runners(kind: type[CoRunners]) -> tuple[State, None]:
    start_programs("co-runners", kind.programs)
    return "found", None
