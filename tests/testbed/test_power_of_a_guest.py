"""Power by IPMI, through a kernel's driver and ipmitool, from controllers that QEMU emulates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from board_controller import board_controller
from guests import booted, kernel
from runs import needed

from tailscope.exceptions import TestbedError
from tailscope.testbed.power import Ipmi
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.platforms.guest import Guest

pytestmark = pytest.mark.long

MODULES = ("ipmi_si", "ipmi_devintf")
WATTS = 160
"""Its low byte ends a message of QEMU's, unless it is escaped."""


def read(tmp_path: Path, devices: Sequence[str]) -> tuple[str, object]:
    """Boot a guest with a controller, and read its power."""
    needed("ipmitool")
    ipmitool = which("ipmitool")
    assert ipmitool is not None
    devices = [*devices, "-device", "isa-ipmi-kcs,bmc=bmc"]
    with booted(
        kernel("vanilla"), tmp_path, modules=MODULES, programs=[ipmitool], devices=devices
    ) as guest:
        found = guest.run(["sh", "-c", "ls /dev/ipmi0; dmesg | grep -i ipmi"])
        return found, reading(guest)


def reading(guest: Guest) -> object:
    try:
        return Ipmi().read(guest)
    except TestbedError as error:
        return error


def test_a_controller_with_dcmi_tells_watts(tmp_path: Path) -> None:
    port = tmp_path / "controller"
    devices = ["-chardev", f"socket,id=bmc-port,path={port},server=on,wait=off"]
    devices += ["-device", "ipmi-bmc-extern,id=bmc,chardev=bmc-port"]
    with board_controller(port, WATTS):
        found, watts = read(tmp_path, devices)
    assert watts == (WATTS,), f"{found}\n{watts}"


def test_a_controller_without_dcmi_says_so(tmp_path: Path) -> None:
    found, error = read(tmp_path, ["-device", "ipmi-bmc-sim,id=bmc"])
    assert isinstance(error, TestbedError), f"{found}\n{error}"
    print(error)
    assert error.code == "command-failed"
    assert "Invalid command" in str(error)
