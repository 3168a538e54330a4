"""The set-up of a run: devices on a platform, and the wire to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import TestbedError, UsageError
from tailscope.platforms.catalogue import platform_named
from tailscope.testbed.stage_recorder import check_stages
from tailscope.testbed.wires import wire_named
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from tailscope.duts.dut import Dut
    from tailscope.platforms.platform import Platform
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import Wire

_KERNEL_WIRES, _KERNEL_PLATFORMS = ("veth", "pci"), ("bare", "lxc", "podman")
"""Wires and platforms with which packets travel through this machine's kernel."""


@dataclass(frozen=True)
class InstanceCpus:
    """The CPUs of one instance."""

    generator: int | None
    """The CPU of its generator; None for an instance that gets no traffic."""
    dut: tuple[int, ...]
    dut_anywhere: tuple[int, ...] = ()
    """CPUs that the device may run on, where it is not pinned to its own; empty where it is."""

    def named(self, number: int | None = None) -> dict[str, str]:
        """Return the CPUs of each role; `number` tells instances apart."""
        which = "" if number is None else f" {number}"
        generator = {} if self.generator is None else {f"generator{which}": str(self.generator)}
        runs_on = ",".join(map(str, self.dut_anywhere or self.dut))
        dut = {f"DuT{which}": runs_on} if self.dut else {}
        return {**generator, **dut}


class Device(Struct, frozen=True, kw_only=True):
    """The part of a plan that says what is put up; `PlanFields` declares its fields."""

    dut: str
    dut_options: dict[str, str]
    platform: str
    platform_options: dict[str, str]
    kernel: str | None
    boot: str | None
    instances: int
    load: str
    wire: str
    wire_options: dict[str, str]

    def make_dut(self) -> Dut:
        """The device, with its options."""
        return dut_named(self.dut, self.dut_options, self.wire)

    def make_platform(self) -> Platform:
        """The platform, with its options."""
        return platform_named(self.platform, self.platform_options, self.kernel, self.boot)

    def make_wire(self) -> Wire:
        """The wire, with its options."""
        return wire_named(self.wire, self.wire_options)

    def check_together(self) -> None:
        """Refuse a device, a platform and a wire that do not go together."""
        dut, platform = self.make_dut(), self.make_platform()
        if dut.platforms is not None and self.platform not in dut.platforms:
            raise UsageError(
                f"--platform: got {self.platform!r}, expected {' or '.join(dut.platforms)} with"
                f" --dut {self.dut}",
                code="dut-platform",
            )
        refuse_unknown(
            "--wire",
            self.wire,
            platform.wires,
            "platform-wire",
            more=f" with --platform {self.platform}",
        )

    def numbered(self, number: int | None) -> Device:
        """Return the device for one of several instances, whose platform has a name of its own."""
        if number is None or "name" not in self.platform_options:
            return self
        name = f"{self.platform_options['name']}-{number}"
        return replace(self, platform_options={**self.platform_options, "name": name})

    @property
    def no_stages(self) -> str | None:
        """The reason why nobody can say where packets are in the device; None if one can."""
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
        if (why_not := self.no_stages) is not None:
            raise TestbedError(why_not, code="no-stages")
        if not self.make_dut().notes_stages:
            check_stages()

    @property
    def loaded(self) -> int:
        """The number of instances that get traffic."""
        return self.instances if self.load == "all" else 1

    @property
    def poller_roles(self) -> list[str]:
        """The role of each CPU that it wants: for each instance, its generator and its device."""
        own = ["dut"] * self.make_dut().cpus
        return [
            role
            for at in range(self.instances)
            for role in (*(["generator"] if at < self.loaded else []), *own)
        ]

    def instance_cpus(self, cores: Cores) -> list[InstanceCpus]:
        """Return the CPUs of each instance: in the order of `cores`, generator before device."""
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
    def instrument(self) -> str:
        """The name of the instrument, which has its own floor: the wire, and what drives it."""
        return self.make_wire().instrument

    @property
    def stall_ns(self) -> int:
        """A turn of a polling loop that takes longer is a stall."""
        return self.make_wire().stall_ns

    @property
    def ring_options(self) -> list[str]:
        """The generator makes the rings of shared memory: the device needs one for each queue."""
        queues = self.make_dut().sending_queues
        return [f"--rx-queues={queues}"] if self.wire == "memif" and queues > 1 else []
