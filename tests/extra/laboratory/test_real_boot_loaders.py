"""Reboots of guests by GRUB, kexec and systemd-boot as Debian has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from disk_guest import DiskGuest, forwarded, switched_on
from runs import AS_ROOT

from tailscope.extra.laboratory.boot.boot_loaders import BOOT_LOADERS
from tailscope.host.boot_line import boot_line, expanded

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.host.boot_line import Booted

pytestmark = [AS_ROOT, pytest.mark.long]

DEFAULT = boot_line(None, None, "")


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_a_loader_boots_other_kernels_once(
    firmware: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = {"bios": ["grub", "kexec"], "uefi": ["systemd-boot"]}
    with switched_on(tmp_path, firmware, forwarded(tmp_path, monkeypatch)) as guest:
        try:
            for how in ways[firmware]:
                boots_as_asked(guest, how)
        except BaseException:
            print(guest.console[-3000:])
            raise


def boots_as_asked(guest: DiskGuest, how: str) -> None:
    rebooter, loader = guest.rebooter(how), BOOT_LOADERS[how]()
    first, files = rebooter.awaited(), guest.files()
    told(how, "before", first)
    rt = boot_line("rt", guest.releases["rt"], "isolcpus=1 skew_tick=1")

    last = loader.prepare(guest.machine, rt, first)
    guest.machine.run_last(last)
    once = rebooter._wait(first.boot_id)
    told(how, "asked for", once)
    assert once.lacks(rt) == []
    assert (once.release, once.flavour) == (guest.releases["rt"], "rt")
    assert set(first.base) <= set(once.command_line.split())
    assert once.command_line.split()[-2:] == ["isolcpus=1", "skew_tick=1"]
    assert guest.machine.contents("/sys/devices/system/cpu/isolated") == ["1\n"]

    guest.switch_off()
    guest.switch_on()
    cycled = rebooter._wait(once.boot_id)
    told(how, "after a power cycle", cycled)
    assert (cycled.release, cycled.command_line) == (first.release, first.command_line)
    rebooter.settle()
    assert guest.files() == files

    parameters = expanded("nohz", None).replace("{cpus}", "1")
    other = rebooter.boot(boot_line("nohz", guest.releases["vanilla"], parameters), cycled)
    told(how, "asked for", other)
    assert (other.release, other.flavour) == (guest.releases["vanilla"], "nohz")
    assert sum(word.startswith("tailscope.boot=") for word in other.command_line.split()) == 1
    assert "skew_tick=1" not in other.command_line

    usual = rebooter.boot(DEFAULT, other)
    told(how, "by default", usual)
    assert (usual.release, usual.command_line) == (first.release, first.command_line)
    assert guest.files() == files
    boots = {booted.boot_id for booted in (first, once, cycled, other, usual)}
    assert len(boots) == 5, "each was another boot"


def told(how: str, when: str, booted: Booted) -> None:
    print(f"{how}, {when}: {booted.release}: {booted.command_line}")
