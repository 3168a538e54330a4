"""A plan says everything that a run will do; it can be printed, stored and run again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import TestbedError, UsageError
from tailscope.field import fields_of
from tailscope.host.cpus import parse_cpus
from tailscope.noise.recorder import check_noise
from tailscope.plan import PlanFields
from tailscope.platforms.catalogue import platform_named
from tailscope.store.records.plan import MeasurementPlan
from tailscope.testbed.co_runners import check_co_runners
from tailscope.testbed.cores import check_cpus, pick_cores, read_topology
from tailscope.testbed.power import check_power, source_named
from tailscope.testbed.process import find_binary
from tailscope.testbed.wires import wire_named

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.duts.dut import Dut
    from tailscope.platforms.platform import Platform
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import Wire

__all__ = ["InstanceCpus", "RunPlan"]


@dataclass(frozen=True)
class InstanceCpus:
    """The CPUs of one instance.

    Attributes
    ----------
    generator : int or None
        None for an instance that gets no traffic.
    dut : tuple of int
    """

    generator: int | None
    dut: tuple[int, ...]

    def named(self, number: int | None = None) -> dict[str, str]:
        """Which CPU has which role; `number` tells instances apart."""
        which = "" if number is None else f" {number}"
        generator = {} if self.generator is None else {f"generator{which}": str(self.generator)}
        dut = {f"DuT{which}": ",".join(map(str, self.dut))} if self.dut else {}
        return {**generator, **dut}


class RunPlan(PlanFields, frozen=True, kw_only=True):
    """One run: a device, a wire, traffic, and how long.

    Its fields are those of `PlanFields`; here is what follows from them.

    Raises
    ------
    UsageError
        If a value is not allowed, or some contradict each other.
    """

    def __post_init__(self) -> None:
        for attribute, declared in fields_of(RunPlan).items():
            declared.check(getattr(self, attribute))
        if self.burst > 1 and self.pattern != "cbr":
            raise UsageError(f"--burst: got {self.burst}, expected 1 with --pattern poisson")
        source_named(self.power)
        for option, listed in (("--co-runner-cpus", self.co_runner_cpus), ("--cpus", self.cpus)):
            if listed is not None:
                parse_cpus(listed, option)
        self.make_wire()
        dut, platform = self.make_dut(), self.make_platform()
        if self.wire not in platform.wires:
            expected = " or ".join(platform.wires)
            raise UsageError(
                f"--wire: got {self.wire!r}, expected {expected} with --platform {self.platform}"
            )
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
        """See whether this machine has what the run needs, before anything is started.

        Raises
        ------
        TestbedError
            If it has not.
        """
        for check in self._checks():
            check()

    def missing(self) -> list[str]:
        """What this machine lacks for the run, with what to do about it; nothing is none."""
        lacks = []
        for check in self._checks():
            try:
                check()
            except TestbedError as error:
                lacks.append(f"{error}; {error.hint}" if error.hint else str(error))
        return lacks

    def _checks(self) -> list[Callable[[], object]]:
        return [
            self.make_wire().check,
            self.make_platform().check,
            self.make_dut().check,
            find_binary,
            self.cores,
            partial(check_cpus, self.co_runner_cpus, "--co-runner-cpus"),
            *([check_co_runners] if self.co_runners else []),
            partial(check_noise, self.noise),
            partial(check_power, self.power),
            *([_check_tuning] if self.tune else []),
        ]

    def check_for_laboratory(self) -> None:
        """See that it wants nothing that only this machine can record or set.

        Raises
        ------
        UsageError
            If it does: with the option.
        """
        own = {
            "--noise": self.noise == "events",
            "--counter-interval": self.counter_interval_ns > 0,
            "--power": self.asks_for_power,
            "--tune": self.tune,
        }
        for option, is_asked in own.items():
            if is_asked:
                raise UsageError(
                    f"{option}: not possible with hosts: only this machine is recorded and tuned"
                )

    def cores(self) -> Cores:
        """The CPUs of this machine, as the plan wants them used.

        Raises
        ------
        TestbedError
            If a CPU that it names is not there, or may not be used.
        """
        return pick_cores(read_topology(), self.pollers, self.cpus)

    def folders(self, out: Path) -> list[Path]:
        """The run directories: one for each instance that gets traffic, within `out`."""
        if self.loaded == 1:
            return [out]
        return [out / f"instance-{number + 1}" for number in range(self.loaded)]

    @property
    def loaded(self) -> int:
        """How many instances get traffic."""
        return self.instances if self.load == "all" else 1

    @property
    def pollers(self) -> int:
        """How many CPUs it wants: one for each generator, and those of each device."""
        return self.loaded + self.instances * self.make_dut().cpus

    def instance_cpus(self, cores: Cores) -> list[InstanceCpus]:
        """For each instance, its CPUs: in the order of `cores`, generator before device."""
        left = list(cores.pollers)

        def take(count: int) -> tuple[int, ...]:
            taken, left[:count] = tuple(left[:count]), []
            return taken

        own = self.make_dut().cpus
        return [
            InstanceCpus((take(1) or (None,))[0] if at < self.loaded else None, take(own))
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
        return [
            f"--rate={self.rate_pps}",
            f"--pattern={self.pattern}",
            f"--burst={self.burst}",
            f"--size={self.size_bytes}",
            f"--flows={self.flows}",
            f"--seed={self.seed}",
            f"--warm-up={self.warm_up_ns}ns",
            f"--duration={self.duration_ns}ns",
            f"--stall-ns={self.stall_ns}",
        ]

    def describe(self, cores: Cores) -> dict[str, str]:
        """The plan in words, for ``--dry-run``."""
        from tailscope.wording import device_text, platform_text, traffic_text

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
            "packets": f"{self.rate_pps * self.duration_ns // 1_000_000_000:,}",
            "cores": f"{pinned}; everything else on CPU {', '.join(map(str, cores.housekeeping))}",
            **({"power": self._power_text()} if self.asks_for_power else {}),
            **({"tuning": "the host for these CPUs, restored afterwards"} if self.tune else {}),
        }

    def _power_text(self) -> str:
        return f"{self.power}; idle, then without packets, for {self.power_phase_ns / 1e9:g} s each"


def _check_tuning() -> None:
    from tailscope.host.apply import needs_root
    from tailscope.host.machine import Machine

    needs_root(Machine())
