"""A guest as a machine of a laboratory: its own disk, kernels, boot loader, sshd and tailscope."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from disk_guest import CARD, LIMIT_S, Network, switched_on
from laboratory import ADDRESSES
from measurements import wait_until
from package_inside import environment, python_files, tools

from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator

    from disk_guest import DiskGuest
    from laboratory import Laboratory

_PROGRAMS = ("nsenter", "tc", "tcpdump", "unshare")
"""Programs that a device of the kernel needs, and busybox has not, or only smaller."""
_LINKS = {"mgmt": "mgmt", "pre-to": "in1", "post-from": "out1"}
"""Links of the hub and of the guest, in the order of the guest's slots (eth0 and so on)."""


class GuestHost:
    """The device's machine of a laboratory, which tailscope boots by its own boot loader."""

    def __init__(self, lab: Laboratory, guest: DiskGuest, command: Path) -> None:
        self._lab, self._guest, self._command = lab, guest, command
        self.releases = guest.releases

    @property
    def boots(self) -> int:
        """Return how many kernels have started since the guest was switched on."""
        return self._guest.console.count("Linux version")

    @property
    def console(self) -> str:
        """Return the end of what the guest printed."""
        return self._guest.console[-3000:]

    def host(self, how: str) -> dict[str, object]:
        """Return the machine as in an experiment."""
        boot = {"how": how, "kernels": self.releases, "wait": f"{LIMIT_S}s"}
        usual = self._lab.hosts["dut"]
        return {**usual, "command": str(self._command), "cpus": "1", "boot": boot}

    def run(self, *words: str) -> str:
        """Run a command in the guest by ssh."""
        ssh = self._lab.home / ".ssh"
        options = ["-F", ssh / "config", "-i", ssh / "id_ed25519"]
        options += ["-o", f"UserKnownHostsFile={ssh / 'known_hosts'}"]
        command = ["ip", "netns", "exec", self._lab.names["hub"], "ssh", *options, "dut"]
        return subprocess.run(
            [*command, shlex.join(words)], capture_output=True, text=True, check=True
        ).stdout


@contextmanager
def guest_host(lab: Laboratory) -> Iterator[GuestHost]:
    """Switch a guest on within a block."""
    folder = lab.path / "guest"
    folder.mkdir()
    own, command, python = tools(folder / "tools"), folder / "tailscope", Path(sys.executable)
    dash = which("dash")
    assert dash is not None
    # The shell of busybox takes its own programs before those of the path.
    shutil.copy(dash, own / "sh")
    words = shlex.join(["env", *environment(own), str(python.resolve()), "-m", "tailscope"])
    command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    command.chmod(0o755)
    programs = [python.resolve(), *filter(None, map(which, _PROGRAMS))]
    files = [own, command, *programs, *python_files([*own.iterdir(), *programs])]
    with switched_on(folder, "bios", _network(lab), files) as guest:
        wait_until(lambda: "Server listening" in guest.console, guest.process, LIMIT_S)
        yield GuestHost(lab, guest, command)


def _network(lab: Laboratory) -> Network:
    qemu, set_up = [], [f"ip addr add {ADDRESSES['dut']}/24 dev eth0"]
    for number, (outside, inside) in enumerate(_LINKS.items()):
        qemu += ["-netdev", f"tap,id=n{number},ifname={outside},script=no,downscript=no"]
        card = f"{CARD},netdev=n{number},addr={number + 8:#x}"
        qemu += ["-device", f"{card},mac=52:54:00:98:00:{number + 1:02x}"]
        set_up += [f"ip link set eth{number} name {inside}", f"ip link set {inside} up"]
    return Network(
        address="dut",
        port=2222,
        host_key=lab.path / "dut.key",
        authorized=lab.path / "authorized",
        qemu=qemu,
        set_up="\n".join(set_up),
        inside=("ip", "netns", "exec", lab.names["hub"]),
    )
