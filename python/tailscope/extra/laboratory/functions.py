"""Virtual functions of network cards (SR-IOV): their creation, drivers and removal."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from tailscope.exceptions import TestbedError
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FunctionDriver: TypeAlias = Literal["kernel", "vfio-pci"]

_PCI = "/sys/bus/pci"
_WAIT_S = 10.0
_UP = 1
"""Flag IFF_UP of a network interface."""


def _tell(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise TestbedError(
            f"{' '.join(command)}: {done.stderr.strip() or done.returncode}", code="command-failed"
        )


@contextmanager
def virtual_functions(
    names: Sequence[str],
    driver: FunctionDriver,
    address: str,
    machine: Machine | None = None,
    *,
    tell: Callable[[Sequence[str]], None] = _tell,
    wait_s: float = _WAIT_S,
) -> Iterator[list[str]]:
    """Make a virtual function of each card within a block.

    The functions have the MAC address to which the traffic is sent: not every card hands frames for
    other addresses to a function, even if it is trusted (igb). They may send from any address.
    """
    machine = machine or Machine()
    cards = [_Card(name, machine) for name in names]
    for card in cards:
        card.check(driver)
    with ExitStack() as stack:
        for card in cards:
            stack.callback(card.remove)
            card.make(address, tell)
        yield [card.bound(driver, wait_s) for card in cards]


@contextmanager
def lent_cards(
    names: Sequence[str],
    machine: Machine | None = None,
    *,
    tell: Callable[[Sequence[str]], None] = _tell,
    wait_s: float = _WAIT_S,
) -> Iterator[None]:
    """Hand cards named by PCI address to vfio-pci within a block, and give them back.

    Links of the kernel stay what they are, and so do cards that vfio-pci has already.
    """
    machine = machine or Machine()
    cards = [_Card(name, machine) for name in names if ":" in name]
    cards = [card for card in cards if card.driver != "vfio-pci"]
    for card in cards:
        card.check_vfio()
    with ExitStack() as stack:
        for card in cards:
            stack.callback(card.give_back, card.link_name, card.is_up, tell, wait_s)
            card.lend()
        yield


class _Card:
    """A network card, which may have virtual functions."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name, self._machine = name, machine
        self._path = f"{_PCI}/devices/{name}" if ":" in name else f"/sys/class/net/{name}/device"

    def check(self, driver: FunctionDriver) -> None:
        """Check that the card can have a virtual function."""
        total, made = self._read("sriov_totalvfs"), self._read("sriov_numvfs")
        if total is None or made is None:
            raise self._error("it has no virtual functions (SR-IOV)", "no-sriov")
        if total == "0":
            raise self._error(
                "its virtual functions are switched off",
                "sriov-off",
                hint="switch SR-IOV on in the setup of the machine or of the card",
            )
        if made != "0":
            raise self._error(
                f"expected no virtual functions, got {made}",
                "vf-in-use",
                hint=f"`echo 0 > {self._path}/sriov_numvfs` removes them if nobody uses them",
            )
        link = self._link()
        if not self.is_up:
            raise self._error(
                "it is down, and its functions would be, too",
                "link-down",
                hint=f"ip link set {link} up",
            )
        if driver == "vfio-pci":
            self.check_vfio()

    def check_vfio(self) -> None:
        """Check that vfio-pci can take the card, or functions of it."""
        if not self._machine.exists(f"{_PCI}/drivers/vfio-pci/"):
            raise self._error(
                "there is no driver vfio-pci", "no-vfio-pci", hint="modprobe vfio-pci"
            )
        if not self._machine.exists(f"{self._path}/iommu_group"):
            raise self._error(
                "it has no IOMMU group, which vfio-pci requires",
                "no-iommu-group",
                hint="boot with intel_iommu=on or amd_iommu=on, and allow VT-d or AMD-Vi",
            )

    @property
    def driver(self) -> str | None:
        """Return the name of its driver."""
        with suppress(OSError):
            return _name(self._machine.link(f"{self._path}/driver"))
        return None

    @property
    def link_name(self) -> str | None:
        """Return the name of its link; None if it is no link of the kernel."""
        links = self._machine.glob(f"{self._path}/net/*")
        return _name(links[0]) if links else None

    @property
    def is_up(self) -> bool:
        """Return whether it is a link of the kernel that is up."""
        link = self.link_name
        flags = None if link is None else self._machine.read(f"/sys/class/net/{link}/flags")
        return bool(int(flags or "0", 16) & _UP)

    def lend(self) -> None:
        """Hand it to vfio-pci."""
        self._bind(self.name, "vfio-pci")

    def give_back(
        self,
        link: str | None,
        is_up: bool,
        tell: Callable[[Sequence[str]], None],
        wait_s: float,
    ) -> None:
        """Return it to the kernel's driver, and its link to its name and state."""
        # An empty name takes the choice back.
        self._bind(self.name, "")
        if link is None:
            return
        # Without udev, the kernel gives the first name that is free.
        if (now := self._wait_link(self._path, self.name, wait_s)) != link:
            tell(["ip", "link", "set", "dev", now, "name", link])
        if is_up:
            tell(["ip", "link", "set", "dev", link, "up"])

    def make(self, address: str, tell: Callable[[Sequence[str]], None]) -> None:
        """Create one function; no driver takes it before it is set up."""
        probing = self._read("sriov_drivers_autoprobe") or "1"
        self._write(f"{self._path}/sriov_drivers_autoprobe", "0")
        try:
            self._write(f"{self._path}/sriov_numvfs", "1")
        finally:
            self._write(f"{self._path}/sriov_drivers_autoprobe", probing)
        change = ["ip", "link", "set", "dev", self._link(), "vf", "0"]
        for setting in (["mac", address], ["spoofchk", "off"], ["trust", "on"]):
            tell([*change, *setting])

    def bound(self, driver: FunctionDriver, wait_s: float) -> str:
        """Bind the function to a driver; return its link, or its PCI address for vfio-pci."""
        address = self._address()
        if driver == "vfio-pci":
            self._bind(address, driver)
            return address
        self._write(f"{_PCI}/drivers_probe", address)
        return self._wait_link(f"{self._path}/virtfn0", address, wait_s)

    def _bind(self, address: str, driver: str) -> None:
        own = f"{_PCI}/devices/{address}"
        self._write(f"{own}/driver_override", f"{driver}\n")
        if self._machine.exists(f"{own}/driver/"):
            self._write(f"{own}/driver/unbind", address)
        self._write(f"{_PCI}/drivers_probe", address)
        if driver and not self._machine.exists(f"{_PCI}/drivers/{driver}/{address}"):
            raise self._error(f"{driver} does not take {address}", "vf-unbound")

    def _wait_link(self, path: str, address: str, wait_s: float) -> str:
        deadline_s = time.monotonic() + wait_s
        while not (links := self._machine.glob(f"{path}/net/*")):
            if time.monotonic() > deadline_s:
                raise self._error(
                    f"{address} became no link within {wait_s:g} s",
                    "vf-no-link",
                    hint="load the driver of its functions, such as iavf or ixgbevf",
                )
            time.sleep(0.05)
        return _name(links[0])

    def remove(self) -> None:
        """Remove its functions."""
        self._write(f"{self._path}/sriov_numvfs", "0")

    def _address(self) -> str:
        with suppress(OSError):
            return _name(self._machine.link(f"{self._path}/virtfn0"))
        raise self._error(
            "the kernel made no function, although it was asked for one", "vf-missing"
        )

    def _link(self) -> str:
        link = self.link_name
        if link is None:
            raise self._error(
                "it is no link of the kernel, so that its functions cannot be set up",
                "pf-no-link",
                hint="bind it to the kernel's driver; its functions may have another",
            )
        return link

    def _read(self, name: str) -> str | None:
        text = self._machine.read(f"{self._path}/{name}")
        return None if text is None else text.strip()

    def _write(self, path: str, text: str) -> None:
        try:
            self._machine.write(path, text)
        except OSError as error:
            raise self._error(
                f"{path}: {text} was refused: {error.strerror}", "vf-setting-refused"
            ) from None

    def _error(self, text: str, code: str, hint: str | None = None) -> TestbedError:
        return TestbedError(f"vfs: {self.name}: {text}", code=code, hint=hint)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
