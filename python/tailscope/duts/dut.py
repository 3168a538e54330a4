"""Interfaces of devices under test: a kind of device, and one that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from tailscope.exceptions import UsageError
from tailscope.testbed.programs import find_program, which
from tailscope.units import refuse_unknown

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
"""Set-up of a device: a file, a command line, or several commands."""

ANY_WIRE = ("memif", "veth", "pci", "vhost")


@dataclass(frozen=True)
class DutContext:
    """The place, ports and CPUs that a device gets."""

    place: Place
    """Place in which the commands of the device run."""
    side: Side
    """Ports of the device, as they are named there."""
    cpus: tuple[int, ...]
    """CPUs that forward packets, as they are numbered there."""
    housekeeping: tuple[int, ...]
    """CPUs for everything else."""
    stall_ns: int
    """Longest turn of a polling loop that is not a stall, in nanoseconds."""
    record: Path | None = None
    """Folder for the recorded stalls; None if they are not recorded."""
    stages_every: int | None = None
    """Interval of the packets whose stages are recorded, in packets; None without stages."""
    hold: Path | None = None
    """Pipe whose byte a program of ours waits for before it touches packets."""
    pinned: bool = True
    """True if the device stays on its CPUs; otherwise it may run on all of these."""
    generator: Side | None = None
    """The other ends of its ports, where these are links that the wire has made."""

    @property
    def allowed(self) -> tuple[int, ...]:
        """Return all CPUs that the device's threads may run on."""
        return tuple(sorted({*self.cpus, *self.housekeeping}))

    @property
    def working(self) -> tuple[int, ...]:
        """Return the CPUs that the forwarding threads may run on."""
        return self.cpus if self.pinned else self.allowed


class Packets(Protocol):
    """The fields of a run that describe the packets for a device."""

    @property
    def direction(self) -> str:
        """Return the direction of the packets: one way, or ``both``."""

    @property
    def vlan(self) -> int | None:
        """Return the VLAN of the frames; None if they are not tagged."""

    @property
    def encap(self) -> str | None:
        """Return the tunnel through which the first port sends; None without one."""

    @property
    def dst_mac(self) -> str:
        """Return the destination MAC address."""

    @property
    def src_ip(self) -> str:
        """Return the source addresses."""

    @property
    def dst_ip(self) -> str:
        """Return the destination addresses."""

    @property
    def replay(self) -> str | None:
        """Return the capture that is replayed; None if the packets are generated."""

    @property
    def queues(self) -> int:
        """Return the number of queues of each port by which the packets arrive."""


class Running(ABC):
    """A device that forwards."""

    version: str
    """Version as the device reports it."""
    configuration: Configuration
    """Set-up of the device."""
    rules_sha256: str | None = None
    """SHA-256 of the filter rules; None without rules."""
    partial: Sequence[str] = ()
    """Reasons why the counts are incomplete; set when the device was stopped."""
    clock: CounterClock | None = None
    """Unix time of the counter in which stalls are recorded; None without a recording."""
    passed: PassedPackets | None = None
    """Recorded stages of packets; set when the device was stopped."""
    in_threads: bool = False
    """True if threads of the kernel handle what arrives, which tasks can delay."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Return True if the device still runs."""

    @abstractmethod
    def failure(self) -> TestbedError:
        """Make the error that says how the device ended."""

    @abstractmethod
    def stop(self) -> DutCounts | None:
        """Stop the device, and return its counts; None if it could not report them."""


class Dut(ABC):
    """A kind of device under test, with its options."""

    name: ClassVar[str]
    about: ClassVar[str]
    """Description of the device in one line."""
    options: ClassVar[Mapping[str, Callable[[str, str], object]]] = {}
    """Parser of each option, called with name and text; it raises a `UsageError`."""
    wires: ClassVar[tuple[str, ...]] = ANY_WIRE
    platforms: ClassVar[tuple[str, ...] | None] = None
    """Platforms on which the device runs; None for all."""
    in_softirqs: ClassVar[bool] = False
    """True if the device works in softirqs alone, which tasks cannot delay."""
    leaves_stack_out: ClassVar[bool] = False
    """True if packets bypass the kernel's stack, so that they have no stages."""
    hides_packets: ClassVar[bool] = False
    """True if the device encrypts packets, so that the tracer cannot recognise them."""
    notes_stages: ClassVar[bool] = False
    """True if the device itself records when its calls received and sent packets."""
    both_ways: ClassVar[bool] = True
    """True if the device forwards in both directions."""
    programs: ClassVar[Mapping[str, str]] = {}
    """Programs that the device needs, and the packages that contain them."""

    def __init__(self, options: Mapping[str, str], wire: str) -> None:
        refuse_unknown("--wire", wire, self.wires, "dut-wire", more=f" with --dut {self.name}")
        self.wire = wire
        self.given = dict(options)
        for name, value in options.items():
            refuse_unknown(
                "--dut-option",
                name,
                self.options,
                "unknown-dut-option",
                of=f"the options of {self.name}",
            )
            self.options[name](name, value)

    @property
    def cpus(self) -> int:
        """Return the number of CPUs that forward packets."""
        return 1

    @property
    def ports(self) -> int:
        """Return the number of ports: 2, or 1 for both directions."""
        return 2

    @property
    def queues(self) -> int:
        """Return the number of receive queues of each port."""
        return 1

    @property
    def sending_queues(self) -> int:
        """Return the number of queues by which the device may send to a port of shared memory."""
        return 1

    @property
    def uses_dpdk(self) -> bool:
        """Return True if the ports are opened by DPDK, False if they are links of the kernel."""
        return True

    @property
    def pins_itself(self) -> bool:
        """Return True if the device always pins its threads to CPUs."""
        return False

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules that the device needs in the kernel of a guest."""
        return ()

    def guest_programs(self) -> tuple[Path, ...]:
        """Return the programs of this machine that the device needs in a guest."""
        return tuple(filter(None, map(which, self.programs)))

    def guest_files(self) -> tuple[Path, ...]:
        """Return the files and folders of this machine that the device needs in a guest."""
        return ()

    def needed_files(self) -> tuple[Path, ...]:
        """Return the programs, files and folders that the device needs on every platform."""
        return (*self.guest_programs(), *self.guest_files())

    @property
    def device_files(self) -> tuple[Path, ...]:
        """Return the device files of this machine that are needed in a container."""
        return ()

    @property
    def starts_in_s(self) -> float:
        """Return the approximate time until the device is ready, in seconds."""
        return 0.5

    def check(self) -> None:
        """Check that this machine has everything that the device needs."""
        for program, package in self.programs.items():
            find_program(f"dut {self.name}", program, package)

    def check_traffic(self, packets: Packets) -> None:
        """Check that the device can forward the packets of a run."""
        if packets.direction == "both" and not (self.both_ways and self.ports == 2):
            raise UsageError(
                f"--direction: got both, expected one with --dut {self.name}: it forwards one way",
                code="dut-direction",
            )
        if packets.queues != self.queues:
            raise UsageError(
                f"--queues: got {packets.queues}, expected {self.queues}, by which --dut"
                f" {self.name} receives on each port",
                code="dut-queues",
            )

    @abstractmethod
    def open(self, context: DutContext) -> AbstractContextManager[Running]:
        """Run the device within a block; it is ready when the block begins."""


def as_it_is(_name: str, value: str) -> str:
    """Return the value of an option that may be any text."""
    return value


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Make the parser of an option that is one of a few words."""

    def read(name: str, value: str) -> str:
        if value not in choices:
            expected = " or ".join((", ".join(choices[:-1]), choices[-1]))
            raise UsageError(
                f"--dut-option {name}: got {value!r}, expected {expected}", code="dut-option"
            )
        return value

    return read
