"""A plan says everything that a run will do; it can be printed, stored and run again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cpus import parse_cpus
from tailscope.host.kernel import KERNELS
from tailscope.noise.recorder import NOISE
from tailscope.platforms.catalogue import platform_named
from tailscope.testbed.neighbours import KINDS, check_neighbours
from tailscope.testbed.power import POWER, check_power, source_named
from tailscope.testbed.wires import wire_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope.duts.dut import Dut
    from tailscope.platforms.platform import Platform
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import Wire

__all__ = ["LOADS", "PATTERNS", "InstanceCpus", "RunPlan"]

PATTERNS = ("cbr", "poisson")
LOADS = ("all", "one")
_MOST_INSTANCES = 64
_MOST_BURST = 512


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


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One run: a device, a wire, traffic, and how long.

    Attributes
    ----------
    dut : str
        The device's name.
    dut_options : Mapping of str to str
        Its options, by name.
    wire : str
        The kind of wire.
    wire_options : Mapping of str to str
        Its options, by name.
    platform : str
        What the device runs on.
    platform_options : Mapping of str to str
        Its options, by name.
    kernel : str or None
        The kernel that it runs on, one of `KERNELS`; any where it is None.
    boot : str or None
        Parameters that its kernel is to be booted with; ``{cpus}`` stands for the device's CPUs.
    cpus : str or None
        The CPUs to poll on, a list in the order of `instance_cpus`; chosen by topology by default.
    instances : int
        How many devices run side by side, each with a wire of its own.
    load : str
        ``all`` of them get traffic, or ``one`` while the others idle.
    neighbours : Mapping of str to int
        For each kind of co-runner, how many workers.
    neighbour_cpus : str or None
        Where they run, as a list; where everything else does by default.
    rate_pps : int
        Mean rate of each generator.
    pattern : str
        ``cbr`` or ``poisson``.
    burst : int
        Packets back to back.
    size_bytes : int
        Of a frame, with its check sequence.
    flows : int
        Flows, which differ by source port.
    seed : int
        Of the Poisson process.
    warm_up_ns, duration_ns : int
        How long to send before the measurement, and during it.
    captures : bool
        Whether to keep captures of both sides.
    noise : str
        What is recorded of what keeps CPUs from their work, one of
        `tailscope.noise.recorder.NOISE`.
    counter_interval_ns : int
        How often to read counters of interrupts; 0 for before and after alone.
    power : str
        Where power is read, as `tailscope.testbed.power.POWER` has it.
    power_phase_ns : int
        How long to leave the machine idle, and then the device without packets, where it is read.
    tune : bool
        Whether to set the host's knobs for the run, and take them back after it.
    trim_ns, window_ns, bucket_ns, worst
        As in `tailscope.analyze`.
    """

    dut: str
    dut_options: Mapping[str, str] = field(default_factory=dict)
    wire: str = "memif"
    wire_options: Mapping[str, str] = field(default_factory=dict)
    platform: str = "bare"
    platform_options: Mapping[str, str] = field(default_factory=dict)
    kernel: str | None = None
    boot: str | None = None
    cpus: str | None = None
    instances: int = 1
    load: str = "all"
    neighbours: Mapping[str, int] = field(default_factory=dict)
    neighbour_cpus: str | None = None
    rate_pps: int = 10_000
    pattern: str = "cbr"
    burst: int = 1
    size_bytes: int = 64
    flows: int = 1
    seed: int = 1
    warm_up_ns: int = 1_000_000_000
    duration_ns: int = 10_000_000_000
    captures: bool = False
    noise: str = NOISE[0]
    counter_interval_ns: int = 0
    power: str = POWER[0]
    power_phase_ns: int = 1_000_000_000
    tune: bool = False
    trim_ns: int = 0
    window_ns: int = 5_000_000_000
    bucket_ns: int = 100
    worst: int = 5000

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise UsageError(f"--pattern: got {self.pattern!r}, expected {' or '.join(PATTERNS)}")
        if not 1 <= self.burst <= _MOST_BURST:
            raise UsageError(f"--burst: got {self.burst}, expected 1 to {_MOST_BURST} packets")
        if self.burst > 1 and self.pattern != "cbr":
            raise UsageError(f"--burst: got {self.burst}, expected 1 with --pattern poisson")
        if not 64 <= self.size_bytes <= 1518:
            raise UsageError(f"--size: got {self.size_bytes}, expected 64 to 1518 bytes")
        if not 1 <= self.flows < 1 << 16:
            raise UsageError(f"--flows: got {self.flows}, expected 1 to 65535")
        for option, value in (("--rate", self.rate_pps), ("--duration", self.duration_ns)):
            if value < 1:
                raise UsageError(f"{option}: got {value}, expected more")
        if self.kernel is not None and self.kernel not in KERNELS:
            expected = ", ".join(KERNELS)
            raise UsageError(f"--kernel: got {self.kernel!r}, expected one of {expected}")
        if not 1 <= self.instances <= _MOST_INSTANCES:
            raise UsageError(f"--instances: got {self.instances}, expected 1 to {_MOST_INSTANCES}")
        if self.load not in LOADS:
            raise UsageError(f"--load: got {self.load!r}, expected {' or '.join(LOADS)}")
        for kind, workers in self.neighbours.items():
            if kind not in KINDS:
                raise UsageError(f"--neighbour: got {kind!r}, expected one of {', '.join(KINDS)}")
            if workers < 1:
                raise UsageError(f"--neighbour {kind}: got {workers}, expected at least 1")
        if self.noise not in NOISE:
            raise UsageError(f"--noise: got {self.noise!r}, expected one of {', '.join(NOISE)}")
        source_named(self.power)
        for listed in (self.neighbour_cpus, self.cpus):
            if listed is not None:
                parse_cpus(listed)
        self.make_wire()
        dut, platform = self.make_dut(), self.make_platform()
        if self.wire not in platform.wires:
            expected = " or ".join(platform.wires)
            raise UsageError(
                f"--wire: got {self.wire!r}, expected {expected} with --platform {self.platform}"
            )
        if dut.cpus == 0 and (self.instances > 1 or self.platform != "bare"):
            raise UsageError(
                f"--dut: got {self.dut!r}, which is no device: expected one that is, with"
                " --instances or --platform"
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

    def _checks(self) -> list[Callable[[], None]]:
        return [
            self.make_wire().check,
            self.make_platform().check,
            self.make_dut().check,
            *([check_neighbours] if self.neighbours else []),
            partial(check_power, self.power),
            *([_check_tuning] if self.tune else []),
        ]

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

    def record(self) -> dict[str, Any]:
        """The plan as ``run.json`` keeps it."""
        return {"command": "run", **asdict(self), "stall_ns": self.stall_ns}

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
            "cores": f"{pinned}; all else on CPU {', '.join(map(str, cores.housekeeping))}",
            **({"power": self._power_text()} if self.asks_for_power else {}),
            **({"tuning": "the host for these CPUs, taken back afterwards"} if self.tune else {}),
        }

    def _power_text(self) -> str:
        return f"{self.power}; idle, then without packets, for {self.power_phase_ns / 1e9:g} s each"


def _check_tuning() -> None:
    from tailscope.host.apply import needs_root
    from tailscope.host.machine import Machine

    needs_root(Machine())
