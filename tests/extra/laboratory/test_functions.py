"""Virtual functions of cards, on a machine made of files whose kernel makes them."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest
from errors import raises
from trees import tree

from tailscope.exceptions import TestbedError
from tailscope.extra.laboratory.functions import lent_cards, virtual_functions
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PCI, MAC = "/sys/bus/pci", "02:00:00:00:00:10"
ADDRESSES = {"enp1s0f0": "0000:01:00.0", "enp1s0f1": "0000:01:00.1"}
FUNCTIONS = {"0000:01:00.0": "0000:01:10.0", "0000:01:00.1": "0000:01:10.1"}


class Kernel(Machine):
    """A kernel that acts on writes to sysfs; a driver that takes a function makes it a link."""

    vfio_takes = True
    driver = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.links = {address: link for link, address in ADDRESSES.items()}

    def write(self, path: str, text: str) -> None:
        if not self._file(path).exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        super().write(path, text)
        name = path.rpartition("/")[2]
        if name == "sriov_numvfs":
            self._made(self._file(path).parent.resolve(), int(text))
        elif name == "drivers_probe":
            self._probe(text)
        elif name == "unbind":
            (self._file(path).parent / text).unlink()
            (self._device(text) / "driver").unlink()
            shutil.rmtree(self._device(text) / "net", ignore_errors=True)

    def _probe(self, address: str) -> None:
        override = (self._device(address) / "driver_override").read_text().strip()
        if override:
            if self.vfio_takes:
                self._bind(address, override)
        elif self.driver:
            self._bind(address, "ixgbe" if address in ADDRESSES.values() else "ixgbevf")
            link = self.links.get(address, f"v{address[-1]}")
            (self._device(address) / "net" / link).mkdir(parents=True)

    def _device(self, address: str) -> Path:
        return self._file(f"{PCI}/devices/{address}")

    def _made(self, card: Path, number: int) -> None:
        address = FUNCTIONS[card.name]
        if number == 0:
            for driver in self._file(f"{PCI}/drivers").iterdir():
                (driver / address).unlink(missing_ok=True)
            shutil.rmtree(self._device(address), ignore_errors=True)
            (card / "virtfn0").unlink(missing_ok=True)
            return
        tree(self.root, {f"{PCI}/devices/{address}/driver_override": ""})
        (card / "virtfn0").symlink_to(f"../{address}")
        if (card / "sriov_drivers_autoprobe").read_text() == "1":
            self._probe(address)

    def _bind(self, address: str, name: str) -> None:
        driver = self._file(f"{PCI}/drivers/{name}")
        (self._device(address) / "driver").symlink_to(driver)
        (driver / address).symlink_to(self._device(address))


@pytest.fixture
def machine(tmp_path: Path) -> Kernel:
    files = {
        f"{PCI}/drivers/vfio-pci/unbind": "",
        f"{PCI}/drivers/ixgbevf/": "",
        f"{PCI}/drivers/ixgbe/unbind": "",
        f"{PCI}/drivers_probe": "",
    }
    for link, address in ADDRESSES.items():
        own = f"{PCI}/devices/{address}"
        files |= {f"{own}/sriov_totalvfs": "63\n", f"{own}/sriov_numvfs": "0\n"}
        files |= {f"{own}/sriov_drivers_autoprobe": "1", f"{own}/driver_override": "\n"}
        files |= {f"{own}/net/{link}/": "", f"{own}/iommu_group/": ""}
        files[f"/sys/class/net/{link}/flags"] = "0x1003\n"
    root = tree(tmp_path / "machine", files)
    for address in ADDRESSES.values():
        (root / f"{PCI[1:]}/devices/{address}/driver").symlink_to(root / f"{PCI[1:]}/drivers/ixgbe")
        (root / f"{PCI[1:]}/drivers/ixgbe/{address}").symlink_to(
            root / f"{PCI[1:]}/devices/{address}"
        )
    for link, address in ADDRESSES.items():
        (root / f"sys/class/net/{link}/device").symlink_to(root / f"{PCI[1:]}/devices/{address}")
    return Kernel(root)


def functions(machine: Kernel) -> list[str]:
    return machine.glob(f"{PCI}/devices/*/virtfn*")


@pytest.mark.parametrize("names", [list(ADDRESSES), list(ADDRESSES.values())])
def test_functions_become_links(names: list[str], machine: Kernel) -> None:
    told: list[Sequence[str]] = []
    with virtual_functions(names, "kernel", MAC, machine, tell=told.append) as made:
        assert made == ["v0", "v1"]
        assert len(functions(machine)) == 2
    assert functions(machine) == []
    assert [" ".join(words) for words in told] == [
        f"ip link set dev {link} vf 0 {what}"
        for link in ADDRESSES
        for what in (f"mac {MAC}", "spoofchk off", "trust on")
    ]


def test_functions_are_handed_to_vfio(machine: Kernel) -> None:
    """The kernel's own driver does not take them first, and takes those that others make later."""
    with virtual_functions(list(ADDRESSES), "vfio-pci", MAC, machine, tell=lambda _: None) as made:
        assert made == list(FUNCTIONS.values())
        for address in made:
            assert machine.exists(f"{PCI}/drivers/vfio-pci/{address}")
            assert not machine.exists(f"{PCI}/drivers/ixgbevf/{address}")
            assert machine.read(f"{PCI}/devices/{address}/driver_override") == "vfio-pci\n"
    assert functions(machine) == []
    assert not machine.glob(f"{PCI}/drivers/vfio-pci/0000*")
    for address in ADDRESSES.values():
        assert machine.read(f"{PCI}/devices/{address}/sriov_drivers_autoprobe") == "1"


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("sriov_totalvfs", None, "no-sriov"),
        ("sriov_totalvfs", "0\n", "sriov-off"),
        ("sriov_numvfs", "4\n", "vf-in-use"),
        ("net/enp1s0f1/", None, "pf-no-link"),
        ("iommu_group/", None, "no-iommu-group"),
    ],
)
def test_what_a_card_lacks_is_said_before_any_is_made(
    path: str, text: str | None, code: str, machine: Kernel
) -> None:
    """The second card lacks something; the first one must stay as it is, too."""
    file = machine.root / f"{PCI[1:]}/devices/0000:01:00.1/{path}"
    if text is not None:
        file.write_text(text)
    elif path.endswith("/"):
        file.rmdir()
    else:
        file.unlink()
    before = {item: item.is_dir() or item.read_bytes() for item in machine.root.rglob("*")}
    told: list[Sequence[str]] = []
    with (
        raises(TestbedError, code) as error,
        virtual_functions(list(ADDRESSES), "vfio-pci", MAC, machine, tell=told.append),
    ):
        raise AssertionError("not reached")
    assert "enp1s0f1" in str(error.value) and "enp1s0f0" not in str(error.value)
    after = {item: item.is_dir() or item.read_bytes() for item in machine.root.rglob("*")}
    assert before == after and not told


def test_a_card_that_is_down_is_named(machine: Kernel) -> None:
    (machine.root / "sys/class/net/enp1s0f0/flags").write_text("0x1002\n")
    with (
        raises(TestbedError, "link-down") as error,
        virtual_functions(list(ADDRESSES), "kernel", MAC, machine, tell=lambda _: None),
    ):
        raise AssertionError("not reached")
    assert "enp1s0f0" in str(error.value)
    assert error.value.hint == "ip link set enp1s0f0 up"


def test_a_machine_without_vfio_is_told_how_to_have_it(machine: Kernel) -> None:
    shutil.rmtree(machine.root / f"{PCI[1:]}/drivers/vfio-pci")
    with (
        raises(TestbedError, "no-vfio-pci") as error,
        virtual_functions(list(ADDRESSES), "vfio-pci", MAC, machine, tell=lambda _: None),
    ):
        raise AssertionError("not reached")
    assert error.value.hint == "modprobe vfio-pci"


def test_cards_are_lent_and_given_back(machine: Kernel) -> None:
    """Those that the kernel drives: their links come back, and are up again."""
    told: list[Sequence[str]] = []
    addresses = list(ADDRESSES.values())
    before = state(machine)
    with lent_cards(addresses, machine, tell=told.append):
        for address in addresses:
            assert machine.exists(f"{PCI}/drivers/vfio-pci/{address}")
            assert not machine.exists(f"{PCI}/drivers/ixgbe/{address}")
        # Whoever lends a card that vfio-pci has gives nothing back.
        with lent_cards(addresses, machine, tell=told.append):
            pass
        assert not told
    assert state(machine) == before
    ups = [["ip", "link", "set", "dev", link, "up"] for link in ADDRESSES]
    assert sorted(told) == sorted(ups)


def test_links_get_the_names_back_that_they_had(machine: Kernel) -> None:
    """Without udev, a link that comes back has the first name that is free."""
    told: list[Sequence[str]] = []
    with lent_cards(list(ADDRESSES.values()), machine, tell=told.append):
        machine.links = dict(zip(ADDRESSES.values(), ("eth0", "eth1"), strict=True))
    for now, link in zip(("eth0", "eth1"), ADDRESSES, strict=True):
        renamed = told.index(["ip", "link", "set", "dev", now, "name", link])
        assert told[renamed + 1] == ["ip", "link", "set", "dev", link, "up"]


def test_links_are_not_lent(machine: Kernel) -> None:
    before = state(machine)
    with lent_cards(list(ADDRESSES), machine, tell=lambda _: None):
        assert state(machine) == before


def test_a_card_that_cannot_be_lent_is_named(machine: Kernel) -> None:
    (machine.root / f"{PCI[1:]}/devices/0000:01:00.1/iommu_group").rmdir()
    before = state(machine)
    with (
        raises(TestbedError, "no-iommu-group") as error,
        lent_cards(list(ADDRESSES.values()), machine, tell=lambda _: None),
    ):
        raise AssertionError("not reached")
    assert "0000:01:00.1" in str(error.value)
    assert state(machine) == before


def state(machine: Kernel) -> dict[str, str]:
    """Return which driver has each card, and which link each is."""
    links = machine.glob(f"{PCI}/devices/*/net/*") + machine.glob(f"{PCI}/drivers/*/0000*")
    overrides = {
        path: machine.read(path) for path in machine.glob(f"{PCI}/devices/*/driver_override")
    }
    return {**dict.fromkeys(links, ""), **overrides}


def refuse(command: Sequence[str]) -> None:
    if command[4] == "enp1s0f1":
        raise TestbedError("ip link set: Operation not supported", code="not-trusted")


@pytest.mark.parametrize("broken", ["no driver", "vfio refuses", "no trust"])
def test_nothing_is_left_of_functions_that_cannot_be_used(broken: str, machine: Kernel) -> None:
    machine.driver, machine.vfio_takes = broken != "no driver", broken != "vfio refuses"
    code, function = {
        "no driver": ("vf-no-link", "0000:01:10.0"),
        "vfio refuses": ("vf-unbound", "0000:01:10.0"),
        "no trust": ("not-trusted", ""),
    }[broken]
    tell = refuse if broken == "no trust" else lambda _: None
    driver = "vfio-pci" if broken == "vfio refuses" else "kernel"
    with (
        raises(TestbedError, code) as error,
        virtual_functions(list(ADDRESSES), driver, MAC, machine, tell=tell, wait_s=0.1),  # type: ignore[arg-type]
    ):
        raise AssertionError("not reached")
    assert function in str(error.value)
    assert functions(machine) == []
    assert machine.read(f"{PCI}/devices/0000:01:00.0/sriov_numvfs") == "0"
