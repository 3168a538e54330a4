"""A campaign over three real boots of a guest by GRUB, with tailscope as its agent there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from guest_host import guest_host
from laboratory import laboratory, start
from measurements import wait_until
from runs import AS_ROOT, needed, records, sound

if TYPE_CHECKING:
    from pathlib import Path

    from guest_host import GuestHost
    from laboratory import Laboratory

pytestmark = [AS_ROOT, pytest.mark.long, pytest.mark.usefixtures("dataplane", "alone")]

TRAFFIC = {"rate": "200", "duration": "1s", "warm_up": "300ms", "dut": "bridge"}
LIMIT_S = 1500


def test_a_killed_campaign_boots_a_guest_into_each_kernel_once(tmp_path: Path) -> None:
    needed("sshd", "ssh-keygen", "tcpdump", "qemu-system-x86_64", "busybox", "cpio")
    with laboratory(tmp_path, guest="dut") as lab, guest_host(lab) as guest:
        try:
            measure(lab, guest, tmp_path / "out")
        except BaseException:
            print(guest.console)
            raise


def measure(lab: Laboratory, guest: GuestHost, out: Path) -> None:
    boot_loader = ("sh", "-c", "ls /boot/grub/*.c*; grub-editenv /boot/grub/grubenv list")
    before_it = guest.run(*boot_loader)
    path = lab.experiment(
        hosts={**lab.hosts, "dut": guest.host("grub")},
        fixed={**TRAFFIC, "boot": "skew_tick=1"},
        vary={"kernel": ["vanilla", "rt", "nohz"], "size": [64, 128]},
    )
    process = start(lab, "run", path, "--out", out)
    # The guest is booting into the second kernel.
    wait_until(lambda: guest.boots == 3, process, LIMIT_S)
    process.kill()
    process.communicate()
    finished = {cell["name"]: cell for cell in records(out) if cell["state"] == "done"}
    assert len(finished) == 2, [cell["reason"] for cell in records(out)]

    process = start(lab, "run", path, "--out", out, "--resume")
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output + errors
    print(output)
    cells = records(out)
    assert len(cells) == 6
    rows = []
    for cell in cells:
        assert cell["state"] == "done"
        assert finished.get(cell["name"], cell) == cell, "it was measured once"
        run = sound(out / cell["runs"][0])
        host, kernel = run["hosts"]["dut"], cell["values"]["kernel"]
        assert host["kernel_release"] == guest.releases["rt" if kernel == "rt" else "vanilla"]
        words = host["kernel_command_line"].split()
        assert "skew_tick=1" in words
        assert ("nohz_full=1" in words) == (kernel == "nohz")
        # CPU 1 is isolated there: threads that poll the links work on it.
        assert ("task napi/" in run["noise"]["own_work"]["dut"]) == (kernel == "nohz")
        links = run["dut"]["result"]["links"]
        came = {name: links[name]["rx_packets"] for name in ("in1", "out1")}
        before = "yes" if cell["name"] in finished else "no"
        rows.append(
            f"{cell['name']:<24}{host['kernel_release']:<24}{came} before the kill: {before}"
        )
        rows.append(f"  {host['kernel_command_line']}")
    assert guest.boots == 1 + 3, "once by itself, and once into each kernel"
    assert guest.run(*boot_loader) == before_it
    print(*rows, f"boots made: {guest.boots - 1}", sep=os.linesep)
