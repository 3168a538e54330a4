"""What joins the generator with the device under test."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tailscope.exceptions import TestbedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.testbed.folder import RunFolder

__all__ = ["WIRES", "Ends", "Memif", "Pci", "Veth", "Wire", "wire_named"]

_SOCKET_PATH_BYTES = 107
_MEMORY_MB = 256
_LINKS = ("gen0", "gen1", "dut0", "dut1")
# The af_packet driver names what must be unique in a namespace by the exclusive or of process and
# link: links of the two sides are far apart, so that neighbouring processes never meet.
_DUT_INDEX, _GENERATOR_INDEX = 0x10, 0x4020


@dataclass(frozen=True)
class Ends:
    """How the two sides get at a wire that is there.

    Attributes
    ----------
    generator, dut : list of str
        DPDK's options for each: two ports.
    loop : list of str
        DPDK's options for a generator that is joined with itself.
    command : list of str
        What to start processes with, such as ``ip netns exec NAME``.
    """

    generator: list[str]
    dut: list[str]
    loop: list[str]
    command: list[str] = field(default_factory=list)


class Wire(ABC):
    """A kind of wire. Two links: from the generator to the device, and back."""

    name: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    stall_ns: ClassVar[int] = 1000
    """A turn of a polling loop that takes longer is a stall: more where turns call the system."""

    def __init__(self, options: Mapping[str, str]) -> None:
        for name in options:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(
                    f"--wire-option: got {name!r}, expected one of the options of {self.name}:"
                    f" {known}"
                )
        self._given = dict(options)

    @property
    def instrument(self) -> str:
        """What has a floor of its own, as part of a file's name."""
        return self.name

    def check(self) -> None:  # noqa: B027
        """See whether this machine has what the wire needs, before anything is started.

        Raises
        ------
        TestbedError
            If it has not.
        """

    @abstractmethod
    def open(self, folder: RunFolder) -> Any:
        """Put the wire up within a block.

        Parameters
        ----------
        folder : RunFolder
            Of the measurement: what the wire needs lies in it or carries its name.

        Returns
        -------
        context manager of Ends
        """


class Memif(Wire):
    """Shared memory between two processes: no root, no hugepages, no NIC."""

    name = "memif"

    @contextmanager
    def open(self, folder: RunFolder) -> Iterator[Ends]:
        """Choose a socket in the folder; the device serves it."""
        socket = folder.path / "memif"
        if len(os.fsencode(socket)) > _SOCKET_PATH_BYTES:
            raise TestbedError(
                f"{socket}: too long for a socket: got {len(os.fsencode(socket))} bytes,"
                f" expected at most {_SOCKET_PATH_BYTES}",
                hint="set XDG_RUNTIME_DIR or TMPDIR to a shorter folder",
            )

        def port(number: int, role: str, link: int) -> str:
            return (
                f"--vdev=net_memif{number},role={role},socket={socket},socket-abstract=no,id={link}"
            )

        common = [*_memory(), "--no-pci"]
        yield Ends(
            generator=[*common, port(0, "client", 0), port(1, "client", 1)],
            dut=[*common, port(0, "server", 0), port(1, "server", 1)],
            loop=[*common, port(0, "server", 0), port(1, "client", 0)],
        )


class Veth(Wire):
    """Kernel links in a network namespace of their own."""

    name = "veth"
    options: ClassVar[Mapping[str, str]] = {
        "driver": "af_packet (default) or af_xdp",
    }
    stall_ns: ClassVar[int] = 20_000
    _DRIVERS = ("af_packet", "af_xdp")

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._driver = self._given.get("driver", "af_packet")
        if self._driver not in self._DRIVERS:
            expected = " or ".join(self._DRIVERS)
            raise UsageError(f"--wire-option driver: got {self._driver!r}, expected {expected}")

    @property
    def instrument(self) -> str:
        """Drivers differ."""
        return f"{self.name}-{self._driver}"

    def check(self) -> None:
        """Namespaces are root's."""
        if os.geteuid() != 0:
            raise TestbedError(
                "wire veth: expected root, got an ordinary user",
                hint="run it with sudo, or take --wire memif, which needs no rights",
            )
        if shutil.which("ip") is None:
            raise TestbedError(
                "wire veth: no program ip", hint="install iproute2 (apt install iproute2)"
            )

    @contextmanager
    def open(self, folder: RunFolder) -> Iterator[Ends]:
        """Make a namespace with two pairs of links."""
        from pyroute2 import netns

        namespace = folder.name
        with ExitStack() as stack:
            netns.create(namespace)
            stack.callback(_remove_namespace, namespace)
            _make_links(namespace, quiet=self._driver != "af_xdp")
            common = [*_memory(), "--no-pci"]

            def ports(*names: str) -> list[str]:
                return [
                    *common,
                    *(
                        f"--vdev=net_{self._driver}{number},iface={name}"
                        for number, name in enumerate(names)
                    ),
                ]

            yield Ends(
                generator=ports("gen0", "gen1"),
                dut=ports("dut0", "dut1"),
                loop=ports("gen0", "dut0"),
                command=["ip", "netns", "exec", namespace],
            )

    @contextmanager
    def hosts(
        self, folder: RunFolder, addresses: Mapping[str, str]
    ) -> Iterator[dict[str, list[str]]]:
        """Move links into namespaces of their own, as hosts that have an address.

        Parameters
        ----------
        folder : RunFolder
            Of a wire that is open.
        addresses : Mapping of str to str
            The IPv4 address of each link, all in one /24.

        Returns
        -------
        context manager of dict
            For each link, what to start programs on that host with.
        """
        from pyroute2 import IPRoute, netns

        with ExitStack() as stack:
            commands = {}
            for link, address in addresses.items():
                host = f"{folder.name}-{link}"
                netns.create(host)
                stack.callback(_remove_namespace, host)
                with _inside(folder.name), IPRoute() as links:
                    links.link("set", index=links.link_lookup(ifname=link)[0], net_ns_fd=host)
                with _inside(host), IPRoute() as links:
                    index = links.link_lookup(ifname=link)[0]
                    links.addr("add", index=index, address=address, prefixlen=24)
                    links.link("set", index=index, state="up")
                commands[link] = ["ip", "netns", "exec", host]
            yield commands


class Pci(Wire):
    """Real network cards."""

    name = "pci"
    options: ClassVar[Mapping[str, str]] = {
        "generator": "two PCI addresses with a + between",
        "dut": "two PCI addresses with a + between",
    }
    _DEVICES = Path("/sys/bus/pci/devices")
    _DRIVERS = ("vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core")

    @property
    def instrument(self) -> str:
        """Cards differ."""
        return "-".join([self.name, *self._addresses("generator")])

    def check(self) -> None:
        """The devices are there, and DPDK can have them."""
        for role in self.options:
            if role not in self._given:
                raise UsageError(
                    f"wire pci: no --wire-option {role}=ADDRESS+ADDRESS",
                    hint="`dpdk-devbind.py --status` lists the devices",
                )
            for address in self._addresses(role):
                self._check_device(address)

    def _addresses(self, role: str) -> list[str]:
        found = self._given[role].split("+")
        if len(found) != 2:
            raise UsageError(f"--wire-option {role}: expected two addresses, got {len(found)}")
        return found

    def _check_device(self, address: str) -> None:
        device = self._DEVICES / address
        if "/" in address or not device.exists():
            raise TestbedError(
                f"wire pci: no device {address}",
                hint="`dpdk-devbind.py --status` lists them; an address is like 0000:01:00.0",
            )
        driver = device / "driver"
        name = driver.resolve().name if driver.exists() else "none"
        if name not in self._DRIVERS:
            raise TestbedError(
                f"wire pci: {address}: expected one of the drivers {', '.join(self._DRIVERS)},"
                f" got {name}",
                hint=f"bind it: dpdk-devbind.py --bind=vfio-pci {address}",
            )

    @contextmanager
    def open(self, folder: RunFolder) -> Iterator[Ends]:  # noqa: ARG002
        """Name the devices."""
        generator, dut = (
            [f"-a{address}" for address in self._addresses(role)] for role in ("generator", "dut")
        )
        # Without a device, a cable joins the generator's own ports.
        common = [*_memory(), *generator]
        yield Ends(generator=common, dut=[*_memory(), *dut], loop=common)


WIRES: dict[str, type[Wire]] = {wire.name: wire for wire in (Memif, Veth, Pci)}
"""Every wire by its name."""


def wire_named(name: str, options: Mapping[str, str]) -> Wire:
    """Make a wire of a kind.

    Raises
    ------
    UsageError
        If there is no such kind, or it has no such option.
    """
    if name not in WIRES:
        raise UsageError(f"--wire: got {name!r}, expected one of {', '.join(WIRES)}")
    return WIRES[name](options)


def _memory() -> list[str]:
    """DPDK's options for memory, of no files: hugepages where enough are free."""
    free = 0
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = sizes["HugePages_Free"] * sizes["Hugepagesize"] // 1024
    pages = ["--in-memory"] if free >= 2 * _MEMORY_MB else ["--no-huge", "--no-shconf"]
    return [*pages, "-m", str(_MEMORY_MB)]


def _make_links(namespace: str, *, quiet: bool) -> None:
    """Make two pairs of links in a namespace.

    Quiet ones carry nothing of the kernel's own: no IPv6. AF_XDP on a link that has never carried
    anything receives nothing at all (Linux 6.18): there the kernel's greetings are welcome.
    """
    from pyroute2 import IPRoute

    with _inside(namespace):
        for scope in ("all", "default") if quiet else ():
            with suppress(OSError):
                Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
        with IPRoute() as links:
            for number in (0, 1):
                peer = {"ifname": f"dut{number}", "index": _DUT_INDEX + number}
                index = _GENERATOR_INDEX + number
                links.link("add", ifname=f"gen{number}", kind="veth", index=index, peer=peer)
            for name in _LINKS:
                links.link("set", index=links.link_lookup(ifname=name)[0], state="up")


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """Take this thread into a namespace within a block.

    pyroute2's own way in is a process that shares our signal handlers.
    """
    from pyroute2 import netns

    netns.pushns(namespace)
    try:
        yield
    finally:
        netns.popns()


def _remove_namespace(name: str) -> None:
    from pyroute2 import netns

    with suppress(OSError):
        netns.remove(name)
