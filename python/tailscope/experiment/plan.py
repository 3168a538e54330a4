"""A plan says everything that a run will do; it can be printed, stored and run again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import TestbedError, UsageError
from tailscope.experiment.run.packets import check_packets, check_replay
from tailscope.host.cpus import cpus_by_role, parse_cpus
from tailscope.noise.recorder import check_noise
from tailscope.plan.field import fields_of
from tailscope.plan.fields import CAPTURED, PlanFields
from tailscope.platforms.catalogue import platform_named
from tailscope.store.records.plan import MeasurementPlan
from tailscope.testbed.co_runners import check_co_runners
from tailscope.testbed.cores import check_cpus, pick_cores, read_topology
from tailscope.testbed.power import check_power, source_named
from tailscope.testbed.process import find_binary
from tailscope.testbed.stage_recorder import check_stages
from tailscope.testbed.wires import wire_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tailscope.duts.dut import Dut
    from tailscope.platforms.platform import Platform
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import Wire

WAYS = ("forth", "back")
"""Directions of packets: from the generator's first port to its second, and the other way."""
_KERNEL_WIRES, _KERNEL_PLATFORMS = ("veth", "pci"), ("bare", "lxc", "podman")
"""Where this machine's kernel is the one that packets travel through."""
_STAGED_PPS, _STAGED = 10_000, 1_000_000
"""Packets in a second, and in all, that are looked at on their way: of more, a part."""


@dataclass(frozen=True)
class InstanceCpus:
    """The CPUs of one instance."""

    generator: int | None
    """None for an instance that gets no traffic."""
    dut: tuple[int, ...]
    dut_anywhere: tuple[int, ...] = ()
    """CPUs that the device may run on, where it is not pinned to its own; empty where it is."""

    def named(self, number: int | None = None) -> dict[str, str]:
        """Which CPU has which role; `number` tells instances apart."""
        which = "" if number is None else f" {number}"
        generator = {} if self.generator is None else {f"generator{which}": str(self.generator)}
        runs_on = ",".join(map(str, self.dut_anywhere or self.dut))
        dut = {f"DuT{which}": runs_on} if self.dut else {}
        return {**generator, **dut}


class RunPlan(PlanFields, frozen=True, kw_only=True):
    """One run: a device, a wire, traffic, and how long.

    Its fields are those of `PlanFields`; here is what follows from them.
    """

    def __post_init__(self) -> None:
        for attribute, declared in fields_of(RunPlan).items():
            declared.check(getattr(self, attribute))
        check_packets(self)
        source_named(self.power)
        if self.co_runner_cpus is not None:
            parse_cpus(self.co_runner_cpus, "--co-runner-cpus")
        by_role = {} if self.cpus is None else cpus_by_role(self.cpus, "--cpus")
        self.make_wire()
        dut, platform = self.make_dut(), self.make_platform()
        if by_role.get("dut") == [] and dut.pins_itself:
            raise UsageError(
                f"--cpus: got dut=any, expected CPUs for --dut {self.dut}, which pins its threads"
            )
        if dut.platforms is not None and self.platform not in dut.platforms:
            raise UsageError(
                f"--platform: got {self.platform!r}, expected {' or '.join(dut.platforms)} with"
                f" --dut {self.dut}"
            )
        if self.wire not in platform.wires:
            expected = " or ".join(platform.wires)
            raise UsageError(
                f"--wire: got {self.wire!r}, expected {expected} with --platform {self.platform}"
            )
        dut.check_traffic(self)
        if self.stages == "on" and (why_not := self._no_stages) is not None:
            raise UsageError(f"--stages: got on, expected off or auto: {why_not}")
        if dut.cpus == 0 and (self.instances > 1 or self.platform != "bare"):
            raise UsageError(
                f"--dut: got {self.dut!r}, expected a device with --instances or --platform"
            )

    def make_dut(self) -> Dut:
        """The device, with its options."""
        return dut_named(self.dut, self.dut_options, self.wire)

    def make_platform(self) -> Platform:
        """The platform, with its options."""
        return platform_named(self.platform, self.platform_options, self.kernel, self.boot)

    def make_wire(self) -> Wire:
        """The wire, with its options."""
        return wire_named(self.wire, self.wire_options)

    def check(self) -> None:
        """See whether this machine has what the run needs, before anything is started."""
        for check in self._checks():
            check()

    def missing(self) -> list[str]:
        """What this machine lacks for the run, with what to do about it; nothing is none."""
        return failures(self._checks())

    def _checks(self) -> list[Callable[[], object]]:
        return [
            self.make_wire().check,
            self.make_platform().check,
            self.make_dut().check,
            find_binary,
            self.cores,
            partial(check_cpus, self.co_runner_cpus, "--co-runner-cpus"),
            *([check_co_runners] if self.co_runners else []),
            *self.recording_checks().values(),
            *([partial(check_replay, self)] if self.replay is not None else []),
        ]

    def recording_checks(self) -> dict[str, Callable[[], object]]:
        """What the device's machine has to record or to set, and how to see whether it can.

        Under the words of an experiment. What a run does without, if need be, is not among them.
        """
        checks: dict[str, Callable[[], object]] = {}
        if self.stages == "on":
            checks["stages: on"] = self.check_stages
        if self.noise == "events":
            checks["noise: events"] = partial(check_noise, self.noise)
        if self.asks_for_power:
            checks[f"power: {self.power}"] = partial(check_power, self.power)
        if self.tune:
            checks["tune: true"] = _check_tuning
        return checks

    @property
    def _no_stages(self) -> str | None:
        """Why nobody can say where packets of this run are in the device; None if one can."""
        dut = self.make_dut()
        if dut.notes_stages:
            if self.platform in _KERNEL_PLATFORMS:
                return None
            return f"the device has another clock than its packets with --platform {self.platform}"
        if not dut.cpus or dut.uses_dpdk or dut.leaves_stack_out:
            return (
                "packets do not pass the kernel's stack, nor a forwarder of tailscope, with"
                f" --dut {self.dut}"
            )
        if dut.hides_packets:
            return f"packets are encrypted on their way through --dut {self.dut}"
        if dut.ports == 1:
            return "packets of a device with a single port have no way from one to another"
        if self.wire not in _KERNEL_WIRES or self.platform not in _KERNEL_PLATFORMS:
            return f"this machine's kernel is not the device's with --platform {self.platform}"
        if self.instances > 1:
            return "they are recorded of one device, not of several with --instances"
        return None

    def check_stages(self) -> None:
        """See whether stages can be recorded."""
        if (why_not := self._no_stages) is not None:
            raise TestbedError(why_not)
        if not self.make_dut().notes_stages:
            check_stages()

    @property
    def records_stages(self) -> bool:
        """Whether stages are recorded of this run, as far as the plan says."""
        return self.stages != "off" and self._no_stages is None

    @property
    def stages_every(self) -> int:
        """Of so many packets, one is looked at on its way through the device."""
        by_rate = -(-self.rate_pps // _STAGED_PPS)
        by_number = -(-self.rate_pps * self.duration_ns // (_STAGED * 1_000_000_000))
        return max(by_rate, by_number)

    def cores(self) -> Cores:
        """The CPUs of this machine, as the plan wants them used."""
        return pick_cores(read_topology(), self.poller_roles, self.cpus)

    def folders(self, out: Path) -> list[Path]:
        """The run directories within `out`: of each instance that gets traffic, and direction."""
        instances = [out / f"instance-{number + 1}" for number in range(self.loaded)]
        folders = [out] if self.loaded == 1 else instances
        if not self.both_ways:
            return folders
        return [folder / direction for folder in folders for direction in WAYS]

    @property
    def both_ways(self) -> bool:
        """Whether packets travel in both directions, each with a book of its own."""
        return self.direction == "both"

    @property
    def runs(self) -> int:
        """How many run directories come of it."""
        return self.loaded * (len(WAYS) if self.both_ways else 1)

    @property
    def loaded(self) -> int:
        """How many instances get traffic."""
        return self.instances if self.load == "all" else 1

    @property
    def poller_roles(self) -> list[str]:
        """What each CPU that it wants is for: of each instance, its generator and its device."""
        own = ["dut"] * self.make_dut().cpus
        return [
            role
            for at in range(self.instances)
            for role in (*(["generator"] if at < self.loaded else []), *own)
        ]

    def instance_cpus(self, cores: Cores) -> list[InstanceCpus]:
        """For each instance, its CPUs: in the order of `cores`, generator before device."""
        left = list(cores.pollers)

        def take(count: int) -> tuple[int, ...]:
            taken, left[:count] = tuple(left[:count]), []
            return taken

        own = self.make_dut().cpus
        return [
            InstanceCpus(
                (take(1) or (None,))[0] if at < self.loaded else None, take(own), cores.anywhere
            )
            for at in range(self.instances)
        ]

    @property
    def asks_for_power(self) -> bool:
        """Whether it names a source of power, rather than take what there is."""
        return self.power not in ("auto", "none")

    @property
    def instrument(self) -> str:
        """What has a floor of its own: the wire, and what drives it."""
        return self.make_wire().instrument

    @property
    def stall_ns(self) -> int:
        """A turn of a polling loop that takes longer is a stall."""
        return self.make_wire().stall_ns

    def record(self) -> MeasurementPlan:
        """The plan as ``run.json`` keeps it."""
        return MeasurementPlan(**asdict(self), stall_ns=self.stall_ns)

    def generator_options(self) -> list[str]:
        """Arguments of ``tailscope-dp gen``, apart from folders."""
        if self.replay is not None:
            # It is started in a folder of its own.
            replay = f"--replay={Path(self.replay).absolute()}"
            rate = [] if self.pattern == CAPTURED else [f"--rate={self.rate_pps}"]
            return [replay, *rate, *self._receive_queues, f"--stall-ns={self.stall_ns}"]
        optional = {"vlan": self.vlan, "src-mac": self.src_mac}
        return [
            f"--rate={self.rate_pps}",
            f"--pattern={self.pattern}",
            f"--burst={self.burst}",
            f"--burst-gap={self.burst_gap_ns}ns",
            f"--size={self.size_mix or self.size_bytes}",
            f"--flows={self.flows}",
            f"--queues={self.queues}",
            *self._receive_queues,
            f"--protocol={self.protocol}",
            f"--dst-mac={self.dst_mac}",
            f"--src-ip={self.src_ip}",
            f"--dst-ip={self.dst_ip}",
            f"--src-port={self.src_port}",
            f"--dst-port={self.dst_port}",
            f"--direction={self.direction}",
            *(f"--{name}={value}" for name, value in optional.items() if value is not None),
            f"--seed={self.seed}",
            f"--warm-up={self.warm_up_ns}ns",
            f"--duration={self.duration_ns}ns",
            f"--stall-ns={self.stall_ns}",
        ]

    @property
    def _receive_queues(self) -> list[str]:
        """The generator makes the rings of shared memory: the device needs one for each queue."""
        queues = self.make_dut().sending_queues
        return [f"--rx-queues={queues}"] if self.wire == "memif" and queues > 1 else []

    def describe(self, cores: Cores) -> dict[str, str]:
        """The plan in words, for ``--dry-run``."""
        from tailscope.words.figures import device_text, platform_text, traffic_text

        plan = self.record()
        pinned = "; ".join(
            f"{role} on CPU {cpus}"
            for at, instance in enumerate(self.instance_cpus(cores))
            for role, cpus in instance.named(at + 1 if self.instances > 1 else None).items()
        )
        return {
            "device": device_text(plan),
            "platform": platform_text(plan),
            "wire": self.wire,
            "traffic": traffic_text(plan),
            **({} if self.replay is not None else {"packets": self._packets_text()}),
            "cores": f"{pinned}; everything else on CPU {', '.join(map(str, cores.housekeeping))}",
            **({"power": self._power_text()} if self.asks_for_power else {}),
            **({"tuning": "the host for these CPUs, restored afterwards"} if self.tune else {}),
        }

    def _packets_text(self) -> str:
        each_way = " in each direction" if self.both_ways else ""
        return f"{self.rate_pps * self.duration_ns // 1_000_000_000:,}{each_way}"

    def _power_text(self) -> str:
        return f"{self.power}; idle, then without packets, for {self.power_phase_ns / 1e9:g} s each"


def failures(checks: Iterable[Callable[[], object]]) -> list[str]:
    """What checks say that fail, with what to do about it; nothing is none."""
    lacks = []
    for check in checks:
        try:
            check()
        except TestbedError as error:
            lacks.append(f"{error}; {error.hint}" if error.hint else str(error))
    return lacks


def _check_tuning() -> None:
    from tailscope.host.apply import needs_root
    from tailscope.host.machine import Machine

    needs_root(Machine())
