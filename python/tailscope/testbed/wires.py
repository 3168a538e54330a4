"""Wires between the generator and the device under test."""

from __future__ import annotations

import os
import resource
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies
from tailscope.testbed.namespaces import (
    check_namespaces,
    command_in,
    inside,
    make_links,
    move_link,
    moved_into,
    namespace,
)
from tailscope.testbed.rights import Capability, require
from tailscope.units import rate_pps, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tailscope.testbed.folder import Folder

_SOCKET_PATH_BYTES = 107
_MEMORY_MB = 256
_STALL_NS, _LINK_STALL_NS = 1000, 20_000
_MOST_BY_MEMORY_PPS = 20_000_000
"""Twice of what docs/performance.md has of shared memory."""
_MEMIF_ROLES = ("client", "server")
_LINK_DRIVERS = ("af_packet", "af_xdp")
_CARDS = 4
"""Two cards for the generator, and two for the device."""
_NETWORK_CLASS = "0x02"
_LINKS = Path("/sys/class/net")
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_PCI_DRIVERS = ("vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core")


@dataclass(frozen=True)
class Side:
    """A side of a wire, with its ports."""

    eal: tuple[str, ...] = ()
    """Options of DPDK for memory and ports."""
    devices: tuple[str, ...] = ()
    """Names of the ports in DPDK."""
    links: tuple[str, ...] = ()
    """Names of the ports in the kernel, if it has them."""
    namespace: str | None = None
    """Network namespace of the links; None is that of this process."""
    sockets: tuple[Path, ...] = ()
    """Sockets of vhost-user, to which a guest's ports are connected."""

    @property
    def command(self) -> tuple[str, ...]:
        """Return the words that start processes in the namespace of the links."""
        return command_in(self.namespace) if self.namespace else ()


@dataclass(frozen=True)
class WireEnds:
    """Both sides of a wire."""

    generator: Side
    dut: Side


class Wire(ABC):
    """A kind of wire: two links, from the generator to the device and back."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What connects generator and device, as a noun."""
    options: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: Mapping[str, str]) -> None:
        for name in options:
            refuse_unknown(
                "--wire-option",
                name,
                self.options,
                "unknown-wire-option",
                of=f"the options of {self.name}",
            )
        self._given = dict(options)

    @property
    def instrument(self) -> str:
        """Return the name of the instrument, which has its own floor, as part of a file name."""
        return self.name

    @property
    def stall_ns(self) -> int:
        """Return the longest turn of a polling loop that is not a stall, in nanoseconds."""
        return _STALL_NS

    def most_pps(self, frame_bytes: float) -> int | None:  # noqa: ARG002
        """Return a packet rate above which the wire carries nothing more; None if unknown."""
        return None

    def check(self) -> None:  # noqa: B027
        """Check that this machine has everything that the wire needs."""

    def check_loop(self) -> None:
        """Check that this machine has what joins the generator with itself."""
        self.check()

    def try_out(self, folder: Folder) -> bool:
        """Check the wire, and put it up for a moment; return False where that takes more."""
        self.check()
        with self.open_loop(folder):
            return True

    @abstractmethod
    def open(self, folder: Folder, ports: int = 2) -> AbstractContextManager[WireEnds]:
        """Set the wire up within a block."""

    @abstractmethod
    def open_loop(self, folder: Folder) -> AbstractContextManager[Side]:
        """Join the generator with itself within a block."""


class Memif(Wire):
    """Shared memory between two processes: no root, no hugepages, no NIC."""

    name = "memif"
    about = "shared memory"

    def most_pps(self, frame_bytes: float) -> int:  # noqa: ARG002
        """Return more than was ever measured of a core that sends."""
        return _MOST_BY_MEMORY_PPS

    @contextmanager
    def open(self, folder: Folder, ports: int = 2) -> Iterator[WireEnds]:
        """Choose a socket in the folder, which the device serves."""
        yield WireEnds(
            *(self._side(folder, [(role, link) for link in range(ports)]) for role in _MEMIF_ROLES)
        )

    @contextmanager
    def open_loop(self, folder: Folder) -> Iterator[Side]:
        """Join both ports of the generator by one link."""
        yield self._side(folder, [("server", 0), ("client", 0)])

    def _side(self, folder: Folder, ports: Sequence[tuple[str, int]]) -> Side:
        socket = _socket_path(folder, "memif")
        devices = [f"net_memif{number}" for number in range(len(ports))]
        vdevs = [
            f"--vdev={device},role={role},socket={socket},socket-abstract=no,id={link}"
            for device, (role, link) in zip(devices, ports, strict=True)
        ]
        return Side((*_memory(), "--no-pci", *vdevs), tuple(devices))


class Veth(Wire):
    """Kernel links between two private network namespaces."""

    name = "veth"
    about = "links between namespaces"
    options: ClassVar[Mapping[str, str]] = {
        "driver": "af_packet (default) or af_xdp",
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._driver = self._given.get("driver", _LINK_DRIVERS[0])
        if self._driver not in _LINK_DRIVERS:
            expected = " or ".join(_LINK_DRIVERS)
            raise UsageError(
                f"--wire-option driver: got {self._driver!r}, expected {expected}",
                code="wire-driver",
            )

    @property
    def instrument(self) -> str:
        """Return the name of the wire with its driver."""
        return f"{self.name}-{self._driver}"

    @property
    def stall_ns(self) -> int:
        """Return the threshold of links, as every turn makes system calls."""
        return _LINK_STALL_NS

    def check(self) -> None:
        """Check the capabilities for namespaces, and those for AF_XDP."""
        otherwise = "measure a device that needs none: --dut l2fwd --wire memif"
        check_namespaces("wire veth", otherwise)
        if self._driver == "af_xdp":
            require(
                "wire veth: driver af_xdp", *_af_xdp_needs(), otherwise=otherwise, of_machine=True
            )

    @contextmanager
    def open(self, folder: Folder, ports: int = 2) -> Iterator[WireEnds]:
        """Make two namespaces, and pairs of links between them."""
        numbers = range(ports)
        with ExitStack() as stack:
            generator, dut = (
                stack.enter_context(self._namespace(f"{folder.name}-{side}"))
                for side in ("gen", "dut")
            )
            make_links(generator, [(f"gen{at}", f"dut{at}") for at in numbers], dut)
            yield WireEnds(
                link_side([f"gen{at}" for at in numbers], generator, self._driver),
                link_side([f"dut{at}" for at in numbers], dut, self._driver),
            )

    @contextmanager
    def open_loop(self, folder: Folder) -> Iterator[Side]:
        """Make one pair of links in one namespace."""
        with self._namespace(f"{folder.name}-gen") as home:
            make_links(home, [("gen0", "gen1")])
            yield link_side(["gen0", "gen1"], home, self._driver)

    def _namespace(self, name: str) -> AbstractContextManager[str]:
        # AF_XDP on a link that has never carried anything receives nothing at all (Linux 6.18).
        # There the kernel's own packets help.
        return namespace(name, quiet=self._driver != "af_xdp")

    @contextmanager
    def hosts(
        self, folder: Folder, side: Side, addresses: Mapping[str, str]
    ) -> Iterator[dict[str, list[str]]]:
        """Move links into namespaces of their own, as hosts with an address."""
        from pyroute2 import IPRoute

        with ExitStack() as stack:
            commands = {}
            for link, address in addresses.items():
                host = f"{folder.name}-{link}"
                stack.enter_context(namespace(host, quiet=False))
                with inside(side.namespace):
                    move_link(link, host)
                with inside(host), IPRoute() as links:
                    index = links.link_lookup(ifname=link)[0]
                    links.addr("add", index=index, address=address, prefixlen=24)
                    links.link("set", index=index, state="up")
                commands[link] = list(command_in(host))
            yield commands


class Pci(Wire):
    """Real network cards: by PCI address for DPDK, by the kernel's name for the kernel."""

    name = "pci"
    about = "network cards"
    options: ClassVar[Mapping[str, str]] = {
        "generator": "two PCI addresses or links, joined by +",
        "dut": "two PCI addresses or links, joined by +",
    }

    @property
    def instrument(self) -> str:
        """Return the name of the wire with the generator's cards."""
        return "-".join([self.name, *self._cards("generator")])

    @property
    def stall_ns(self) -> int:
        """Return the threshold of links or of DPDK, depending on the cards."""
        return _LINK_STALL_NS if are_links(self._cards("generator")) else _STALL_NS

    def most_pps(self, frame_bytes: float) -> int | None:
        """Return the line rate of the generator's slower link; None where no link tells it."""
        speeds = []
        for name in self._given.get("generator", "").split("+"):
            with suppress(OSError, ValueError):
                speeds.append(int((_LINKS / name / "speed").read_text()))
        known = [speed for speed in speeds if speed > 0]
        if not known:
            return None
        return rate_pps(f"{min(known)}Mbps", "speed", frame_bytes=frame_bytes)

    def check(self) -> None:
        """Check that the cards exist and can be used."""
        for role in self.options:
            self._check_cards(role)

    def check_loop(self) -> None:
        """Check the generator's cards: what lies between them is no business of this machine."""
        self._check_cards("generator")

    def _check_cards(self, role: str) -> None:
        if role not in self._given:
            raise UsageError(
                f"wire pci: no --wire-option {role}=ADDRESS+ADDRESS",
                code="cards-not-given",
                hint="`dpdk-devbind.py --status` lists the devices",
            )
        check_cards("wire pci", self._cards(role))

    def try_out(self, folder: Folder) -> bool:  # noqa: ARG002
        """Count the cards; which of them may be used, only their user knows."""
        found = [*cards_of_kernel(), *_cards_of_dpdk()]
        if len(found) < _CARDS:
            raise TestbedError(
                f"wire pci: expected {_CARDS} network cards, got {len(found)}",
                code="card-count",
                remedy=remedies.CARDS,
            )
        return False

    def _cards(self, role: str) -> list[str]:
        names = self._given.get(role, "").split("+")
        if len(names) != 2:
            raise UsageError(
                f"--wire-option {role}: expected two cards, got {len(names)}", code="card-count"
            )
        return names

    @contextmanager
    def open(self, folder: Folder, ports: int = 2) -> Iterator[WireEnds]:
        """Use the cards; links are lent to namespaces of their own."""
        with ExitStack() as stack:
            generator, dut = (
                stack.enter_context(cards(folder, side, self._cards(role)[:ports]))
                for side, role in (("gen", "generator"), ("dut", "dut"))
            )
            yield WireEnds(generator, dut)

    @contextmanager
    def open_loop(self, folder: Folder) -> Iterator[Side]:
        """Use the generator's cards, which a cable joins, or a device of somebody else's."""
        with cards(folder, "gen", self._cards("generator")) as side:
            yield side


class Vhost(Wire):
    """Shared memory between the generator and a guest, by vhost-user."""

    name = "vhost"
    about = "shared memory with a guest"

    @contextmanager
    def open(self, folder: Folder, ports: int = 2) -> Iterator[WireEnds]:
        """Choose sockets in the folder, which the guest serves, as it outlives generators."""
        sockets = tuple(_socket_path(folder, f"vhost{number}") for number in range(ports))
        devices = tuple(f"net_vhost{number}" for number in range(ports))
        vdevs = [
            f"--vdev={device},iface={socket},client=1"
            for device, socket in zip(devices, sockets, strict=True)
        ]
        generator = Side((*_memory(), "--no-pci", *vdevs), devices)
        yield WireEnds(generator, Side(sockets=sockets))

    def try_out(self, folder: Folder) -> bool:  # noqa: ARG002
        """Return False: the wire needs only what its guest needs."""
        return False

    def open_loop(self, folder: Folder) -> AbstractContextManager[Side]:  # noqa: ARG002
        """Raise an error: the wire always needs a guest."""
        raise UsageError("wire vhost: requires a guest (--platform vm)", code="vhost-guest")


WIRES: dict[str, type[Wire]] = {wire.name: wire for wire in (Memif, Veth, Pci, Vhost)}
"""Kinds of wires, by name."""


def wire_named(name: str, options: Mapping[str, str]) -> Wire:
    """Make a wire of the kind that has this name."""
    refuse_unknown("--wire", name, WIRES, "unknown-wire")
    return WIRES[name](options)


def _memory() -> list[str]:
    """Return DPDK's options for memory without files, in hugepages if enough are free."""
    free = 0
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = sizes["HugePages_Free"] * sizes["Hugepagesize"] // 1024
    pages = ["--in-memory"] if free >= 2 * _MEMORY_MB else ["--no-huge", "--no-shconf"]
    return [*pages, "-m", str(_MEMORY_MB)]


def no_side() -> Side:
    """Return a side without ports."""
    return Side((*_memory(), "--no-pci"))


def link_side(links: Sequence[str], home: str | None, driver: str = "af_packet") -> Side:
    """Return links of the kernel as a side of a wire; DPDK opens them by a driver for links."""
    devices = tuple(f"net_{driver}{number}" for number in range(len(links)))
    vdevs = [f"--vdev={device},iface={link}" for device, link in zip(devices, links, strict=True)]
    return Side((*_memory(), "--no-pci", *vdevs), devices, tuple(links), home)


@contextmanager
def cards(folder: Folder, side: str, names: Sequence[str]) -> Iterator[Side]:
    """Lend network cards to a side of a wire; links move to a namespace of their own."""
    if are_links(names):
        with namespace(f"{folder.name}-{side}", quiet=True) as home, moved_into(home, names):
            yield link_side(names, home)
        return
    allowed = [f"-a{address}" for address in names]
    yield Side((*_memory(), *allowed), tuple(names))


def check_cards(what: str, names: Sequence[str]) -> None:
    """Check that cards exist and can be used."""
    if are_links(names):
        for name in names:
            if "/" in name or not (_LINKS / name).exists():
                raise TestbedError(
                    f"{what}: no link {name}",
                    code="no-link",
                    hint="`ip link` lists them; PCI addresses are like 0000:01:00.0",
                )
        check_namespaces(what, "give PCI addresses of cards bound to vfio-pci")
        return
    for address in names:
        device = _PCI_DEVICES / address
        if "/" in address or not device.exists():
            raise TestbedError(
                f"{what}: no device {address}",
                code="no-card",
                hint="`dpdk-devbind.py --status` lists them; an address is like 0000:01:00.0",
            )
        driver = device / "driver"
        name = driver.resolve().name if driver.exists() else "none"
        if name not in _PCI_DRIVERS:
            raise TestbedError(
                f"{what}: {address}: expected one of the drivers {', '.join(_PCI_DRIVERS)},"
                f" got {name}",
                code="card-driver",
                hint=f"bind it: dpdk-devbind.py --bind=vfio-pci {address}",
            )


def cards_of_kernel() -> list[str]:
    """Return the names of the links that are network cards."""
    return sorted(path.parent.name for path in _LINKS.glob("*/device"))


def _cards_of_dpdk() -> list[str]:
    """Return the addresses of the network cards that are bound to drivers for programs."""
    return [
        path.parent.name
        for path in _PCI_DEVICES.glob("*/class")
        if path.read_text().startswith(_NETWORK_CLASS)
        and (path.parent / "driver").resolve().name in _PCI_DRIVERS[:3]
    ]


def _af_xdp_needs() -> list[Capability]:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    may_lock = limit == resource.RLIM_INFINITY
    return [*([] if may_lock else [Capability.IPC_LOCK]), Capability.SYS_ADMIN]


def are_links(names: Sequence[str]) -> bool:
    """Return True if cards are named by links, not by PCI addresses."""
    return not any(":" in name for name in names)


def _socket_path(folder: Folder, name: str) -> Path:
    socket = folder.path / name
    if len(os.fsencode(socket)) > _SOCKET_PATH_BYTES:
        raise TestbedError(
            f"{socket}: too long for a socket: got {len(os.fsencode(socket))} bytes,"
            f" expected at most {_SOCKET_PATH_BYTES}",
            code="socket-path",
            hint="set XDG_RUNTIME_DIR or TMPDIR to a shorter folder",
        )
    return socket
