"""What every device under test is: prepared, started, ready, described, stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from tailscope.exceptions import UsageError
from tailscope.testbed.programs import find_program, which

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tailscope.exceptions import TestbedError
    from tailscope.store.records.dataplane import DutCounts
    from tailscope.store.records.messages import CounterClock, PassedPackets
    from tailscope.testbed.places import Place
    from tailscope.testbed.wires import Side

Configuration: TypeAlias = str | list[str] | list[list[str]]
"""How a device was set up: a file, a command line, or commands."""

ANY_WIRE = ("memif", "veth", "pci", "vhost")


@dataclass(frozen=True)
class DutContext:
    """What a device is given to live in."""

    place: Place
    """Where its commands run."""
    side: Side
    """Its ports, as they are known there."""
    cpus: tuple[int, ...]
    """The CPUs that work for it, as they are numbered there."""
    housekeeping: tuple[int, ...]
    """CPUs for everything else."""
    stall_ns: int
    """A turn of a polling loop that takes longer is a stall."""
    record: Path | None = None
    """Where to write down stalls: of this machine, on the clock of the packets."""
    stages_every: int | None = None
    """Of so many packets it writes down there when it received and sent one, if it can."""
    pinned: bool = True
    """Whether it stays on its CPUs; else it may run on all of these."""

    @property
    def allowed(self) -> tuple[int, ...]:
        """All CPUs that its threads may run on."""
        return tuple(sorted({*self.cpus, *self.housekeeping}))

    @property
    def working(self) -> tuple[int, ...]:
        """CPUs that what forwards packets may run on."""
        return self.cpus if self.pinned else self.allowed


class Packets(Protocol):
    """What packets a device will get: fields of a run."""

    @property
    def direction(self) -> str:
        """In one direction, or both."""

    @property
    def vlan(self) -> int | None:
        """The VLAN that frames are tagged with."""

    @property
    def dst_mac(self) -> str:
        """Their destination's MAC address."""

    @property
    def src_ip(self) -> str:
        """Their source addresses."""

    @property
    def dst_ip(self) -> str:
        """Their destination addresses."""

    @property
    def replay(self) -> str | None:
        """The capture that they are of."""

    @property
    def queues(self) -> int:
        """By how many queues they come to each port."""


class Running(ABC):
    """A device that forwards."""

    version: str
    """What it says of itself."""
    configuration: Configuration
    """How it was set up."""
    rules_sha256: str | None = None
    """The checksum of the rules by which it filters; None without rules."""
    partial: Sequence[str] = ()
    """Why what it counted is not all; known once it was stopped."""
    clock: CounterClock | None = None
    """What the counter is in Unix time by which it writes down its stalls, if it does."""
    passed: PassedPackets | None = None
    """What it has written down of the way of packets; known once it was stopped."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it is there."""

    @abstractmethod
    def failure(self) -> TestbedError:
        """Say how it ended."""

    @abstractmethod
    def stop(self) -> DutCounts | None:
        """End it, and return what it counted; None when it could not say."""


class Dut(ABC):
    """A kind of device under test, with its options."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What it does, in a line."""
    options: ClassVar[Mapping[str, Callable[[str, str], object]]] = {}
    """For each option, what reads its value: from its name and text; it raises a `UsageError`."""
    wires: ClassVar[tuple[str, ...]] = ANY_WIRE
    platforms: ClassVar[tuple[str, ...] | None] = None
    """What it may run on; None is everything."""
    in_softirqs: ClassVar[bool] = False
    """Whether it does its work in softirqs alone, which tasks do not keep from running."""
    leaves_stack_out: ClassVar[bool] = False
    """Whether it takes packets before the kernel's stack does, where they have no stages."""
    hides_packets: ClassVar[bool] = False
    """Whether it encrypts packets on their way, where nobody knows them."""
    notes_stages: ClassVar[bool] = False
    """Whether it notes itself when its calls received and sent packets."""
    both_ways: ClassVar[bool] = True
    """Whether it forwards in both directions."""
    programs: ClassVar[Mapping[str, str]] = {}
    """Programs that it needs, and the packages that have them."""

    def __init__(self, options: Mapping[str, str], wire: str) -> None:
        if wire not in self.wires:
            raise UsageError(
                f"--wire: got {wire!r}, expected {' or '.join(self.wires)} with --dut {self.name}"
            )
        self.wire = wire
        self.given = dict(options)
        for name, value in options.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(
                    f"--dut-option: got {name!r}, expected one of the options of {self.name}:"
                    f" {known}"
                )
            self.options[name](name, value)

    @property
    def cpus(self) -> int:
        """How many CPUs work for it."""
        return 1

    @property
    def ports(self) -> int:
        """How many ports it has: 2, or 1 for both directions."""
        return 2

    @property
    def queues(self) -> int:
        """By how many queues it receives on each port."""
        return 1

    @property
    def sending_queues(self) -> int:
        """By how many queues it may send to a port of shared memory."""
        return 1

    @property
    def uses_dpdk(self) -> bool:
        """Whether it gets at its ports by DPDK, or by the kernel's links."""
        return True

    @property
    def pins_itself(self) -> bool:
        """Whether it pins its threads to CPUs whatever it is told."""
        return False

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules of a guest's kernel that it needs."""
        return ()

    def guest_programs(self) -> tuple[Path, ...]:
        """Programs of this machine that it needs in a guest."""
        return tuple(filter(None, map(which, self.programs)))

    def guest_files(self) -> tuple[Path, ...]:
        """Files and folders of this machine that it needs in a guest."""
        return ()

    def needed_files(self) -> tuple[Path, ...]:
        """Programs, files and folders of this machine that it needs wherever it runs."""
        return (*self.guest_programs(), *self.guest_files())

    @property
    def device_files(self) -> tuple[Path, ...]:
        """Files of this machine's devices that it needs in a container."""
        return ()

    @property
    def starts_in_s(self) -> float:
        """How long it takes to be ready, roughly."""
        return 0.5

    def check(self) -> None:
        """See whether this machine has what the device needs."""
        for program, package in self.programs.items():
            find_program(f"dut {self.name}", program, package)

    def check_traffic(self, packets: Packets) -> None:
        """See whether it can forward what a run sends."""
        if packets.direction == "both" and not (self.both_ways and self.ports == 2):
            raise UsageError(
                f"--direction: got both, expected one with --dut {self.name}: it forwards one way"
            )
        if packets.queues != self.queues:
            raise UsageError(
                f"--queues: got {packets.queues}, expected {self.queues}, by which --dut"
                f" {self.name} receives on each port"
            )

    @abstractmethod
    def open(self, context: DutContext) -> AbstractContextManager[Running]:
        """Start it within a block, at whose beginning it is ready."""


def as_it_is(_name: str, value: str) -> str:
    """Read an option that is any text."""
    return value


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Make what reads an option that is one of a few words."""

    def read(name: str, value: str) -> str:
        if value not in choices:
            expected = " or ".join((", ".join(choices[:-1]), choices[-1]))
            raise UsageError(f"--dut-option {name}: got {value!r}, expected {expected}")
        return value

    return read
