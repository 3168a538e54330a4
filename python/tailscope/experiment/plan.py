"""A plan says everything that a run will do; it can be printed, stored and run again."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, convert
from msgspec.structs import asdict

from tailscope.exceptions import TestbedError, UsageError
from tailscope.experiment.co_runners import co_runners_of
from tailscope.experiment.device import Device
from tailscope.experiment.packets import Traffic, Volume, check_packets, check_replay
from tailscope.host.cpus import cpus_by_role, parse_cpus
from tailscope.noise.recorder import check_noise
from tailscope.plan.field import fields_of
from tailscope.plan.fields import PlanFields
from tailscope.store.records.plan import MeasurementPlan
from tailscope.testbed.cores import check_cpus, pick_cores, read_topology
from tailscope.testbed.power import check_power, source_named
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailscope.experiment.co_runners import CoRunning
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.folder import Folder

_STAGED_PPS, _STAGED = 10_000, 1_000_000
"""Packets in a second, and in all, that are looked at on their way: of more, a part."""


class Measurement(Struct, frozen=True, kw_only=True):
    """The part of a plan that says for how long, and what is recorded meanwhile."""

    duration_ns: int
    warm_up_ns: int
    captures: bool
    noise: str
    stages: str
    counter_interval_ns: int
    power: str
    power_phase_ns: int

    @property
    def asks_for_power(self) -> bool:
        """True if it names a source of power, rather than take what there is."""
        return self.power not in ("auto", "none")


class HostPlan(Struct, frozen=True, kw_only=True):
    """The part of a plan that says how the machine is used."""

    cpus: str | None
    co_runners: dict[str, int]
    co_runner_cpus: str | None
    co_runner_platform: str
    tune: bool


class RunPlan(PlanFields, frozen=True, kw_only=True):
    """One run: a device, a wire, traffic, and how long.

    Its fields are those of `PlanFields`; a room that carries it out is handed its own part of them.
    """

    def __post_init__(self) -> None:
        for attribute, declared in fields_of(RunPlan).items():
            declared.check(getattr(self, attribute))
        check_packets(self.traffic, self.wire, self.warm_up_ns)
        source_named(self.power)
        if self.co_runner_cpus is not None:
            parse_cpus(self.co_runner_cpus, "--co-runner-cpus")
        by_role = {} if self.cpus is None else cpus_by_role(self.cpus, "--cpus")
        device = self.device
        device.make_wire()
        dut = device.make_dut()
        device.make_platform()
        if by_role.get("dut") == [] and dut.pins_itself:
            raise UsageError(
                f"--cpus: got dut=any, expected CPUs for --dut {self.dut}, which pins its threads",
                code="dut-pins-itself",
            )
        device.check_together()
        dut.check_traffic(self.traffic)
        if self.co_runners:
            co_runners_of(self)
        if self.stages == "on" and (why_not := device.no_stages) is not None:
            raise UsageError(f"--stages: got on, expected off or auto: {why_not}", code="no-stages")
        if dut.cpus == 0 and (self.instances > 1 or self.platform != "bare"):
            raise UsageError(
                f"--dut: got {self.dut!r}, expected a device with --instances or --platform",
                code="dut-without-cpus",
            )

    @property
    def device(self) -> Device:
        """The part of the plan that says what is put up."""
        return convert(self, Device, from_attributes=True)

    @property
    def traffic(self) -> Traffic:
        """The part of the plan that says what is sent."""
        return convert(self, Traffic, from_attributes=True)

    @property
    def measurement(self) -> Measurement:
        """The part of the plan that says for how long, and what is recorded meanwhile."""
        return convert(self, Measurement, from_attributes=True)

    @property
    def host(self) -> HostPlan:
        """The part of the plan that says how the machine is used."""
        return convert(self, HostPlan, from_attributes=True)

    def check(self) -> None:
        """See whether this machine has what the run needs, before anything is started."""
        for check in self._checks():
            check()

    def missing(self) -> list[str]:
        """Return what this machine lacks for the run, with what to do about it."""
        return failures(self._checks())

    def _checks(self) -> list[Callable[[], object]]:
        wire = self.device.make_wire()
        return [
            wire.check if self.device.make_dut().cpus else wire.check_loop,
            self.device.make_platform().check,
            self.device.make_dut().check,
            find_binary,
            self.cores,
            partial(check_cpus, self.co_runner_cpus, "--co-runner-cpus"),
            *([co_runners_of(self).check] if self.co_runners else []),
            *self.recording_checks().values(),
            *(
                [partial(check_replay, self.traffic, self.duration_ns)]
                if self.replay is not None
                else []
            ),
        ]

    def recording_checks(self) -> dict[str, Callable[[], object]]:
        """Return checks of whether the device's machine can record or set what it has to.

        They are under the words of an experiment. What a run does without, if need be, has none.
        """
        checks: dict[str, Callable[[], object]] = {}
        if self.stages == "on":
            checks["stages: on"] = self.device.check_stages
        if self.noise == "events":
            checks["noise: events"] = partial(check_noise, self.noise)
        if self.measurement.asks_for_power:
            checks[f"power: {self.power}"] = partial(check_power, self.power)
        if self.tune:
            checks["tune: true"] = _check_tuning
        return checks

    @property
    def records_stages(self) -> bool:
        """True if stages are recorded of this run, as far as the plan says."""
        return self.stages != "off" and self.device.no_stages is None

    @property
    def stages_every(self) -> int:
        """The number of packets of which one is looked at on its way through the device."""
        by_rate = -(-self.rate_pps // _STAGED_PPS)
        by_number = -(-self.rate_pps * self.duration_ns // (_STAGED * 1_000_000_000))
        return max(by_rate, by_number)

    def cores(self) -> Cores:
        """The CPUs of this machine, as the plan wants them used."""
        return pick_cores(read_topology(), self.device.poller_roles, self.cpus)

    def co_runners_beside(
        self, folder: Folder, cores: Cores
    ) -> AbstractContextManager[CoRunning | None]:
        """Run the co-runners within a block, which gets None without any."""
        if not self.co_runners:
            return nullcontext()
        given = self.co_runner_cpus
        cpus = cores.housekeeping if given is None else tuple(parse_cpus(given))
        return co_runners_of(self).open(folder, cpus)

    def folders(self, out: Path) -> list[Path]:
        """The run directories within `out`: of each instance that gets traffic, and direction."""
        loaded = self.device.loaded
        instances = [out / f"instance-{number + 1}" for number in range(loaded)]
        folders = [out] if loaded == 1 else instances
        ways = self.traffic.ways
        return [folder / way for folder in folders for way in ways] if len(ways) > 1 else folders

    @property
    def runs(self) -> int:
        """Number of run directories that come of it."""
        return self.device.loaded * len(self.traffic.ways)

    def volume(self) -> Volume:
        """Return the number and size of the packets that it records."""
        sent, frame_bytes = self.traffic.sent_in(self.duration_ns)
        packets = sent * self.runs
        return Volume(
            packets,
            captured=packets if self.captures else 0,
            staged=0 if self.stages == "off" else packets // self.stages_every,
            frame_bytes=frame_bytes,
        )

    def record(self) -> MeasurementPlan:
        """The plan as ``run.json`` keeps it."""
        return MeasurementPlan(**asdict(self), stall_ns=self.device.stall_ns)

    def generator_options(self) -> list[str]:
        """Arguments of ``tailscope-dp gen``, apart from folders."""
        lasts = [f"--warm-up={self.warm_up_ns}ns", f"--duration={self.duration_ns}ns"]
        return [
            *self.traffic.generator_options(),
            *([] if self.replay is not None else lasts),
            *self.device.ring_options,
            f"--stall-ns={self.device.stall_ns}",
        ]

    def describe(self, cores: Cores) -> dict[str, str]:
        """The plan in words, for ``--dry-run``."""
        from tailscope.words.figures import device_text, platform_text, traffic_text

        plan = self.record()
        pinned = "; ".join(
            f"{role} on CPU {cpus}"
            for at, instance in enumerate(self.device.instance_cpus(cores))
            for role, cpus in instance.named(at + 1 if self.instances > 1 else None).items()
        )
        return {
            "device": device_text(plan),
            "platform": platform_text(plan),
            "wire": self.wire,
            "traffic": traffic_text(plan),
            **({} if self.replay is not None else {"packets": self._packets_text()}),
            "cores": f"{pinned}; everything else on CPU {', '.join(map(str, cores.housekeeping))}",
            **({"power": self._power_text()} if self.measurement.asks_for_power else {}),
            **({"tuning": "the host for these CPUs, restored afterwards"} if self.tune else {}),
        }

    def _packets_text(self) -> str:
        each_way = " in each direction" if len(self.traffic.ways) > 1 else ""
        return f"{self.rate_pps * self.duration_ns // 1_000_000_000:,}{each_way}"

    def _power_text(self) -> str:
        return f"{self.power}; idle, then without packets, for {self.power_phase_ns / 1e9:g} s each"


def failures(checks: Iterable[Callable[[], object]]) -> list[str]:
    """Run checks; return the errors of those that fail, with what to do; empty if none does."""
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
