"""A guest with emulated cards, in which the package of this machine and its programs run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from package_inside import TOOLS, environment, python_files, tools
from runs import needed

from tailscope.exceptions import TestbedError
from tailscope.platforms.accelerator import machine
from tailscope.platforms.guest import Guest
from tailscope.platforms.initramfs import GuestKernel, build_initramfs, guest_kernel
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tailscope.testbed.places import Process

BOOT_S, COMMAND_S = 600, 600
_PATIENT = "no_timer_check tsc=reliable nohz=off highres=off"
"""Kernel parameters for a processor whose emulation is kept waiting: single timers may get lost."""
_NEWER_QEMU = "share/tailscope/qemu"


def vanilla() -> GuestKernel:
    """Return a kernel for guests, which continuous integration must have."""
    needed("qemu-system-x86_64", "busybox", "cpio", *TOOLS)
    try:
        return guest_kernel("vanilla")
    except TestbedError as error:
        assert not os.environ.get("CI"), error
        pytest.skip(str(error))


def qemu_with(card: str) -> str:
    """Return the QEMU that emulates a card: that of the system, or a newer one beside it."""
    name = "qemu-system-x86_64"
    programs = [path for path in (which(name), Path(sys.prefix, _NEWER_QEMU, name)) if path]
    for program in filter(Path.exists, programs):
        if subprocess.run([program, "-device", f"{card},help"], capture_output=True).stdout:
            return str(program)
    assert not os.environ.get("CI"), f"no QEMU with {card}: make setup-ci installs it"
    pytest.skip(f"no QEMU with {card}")


class Inside:
    """The inside of a guest: commands, and the package's Python."""

    def __init__(self, guest: Guest, tools: Path) -> None:
        self.guest = guest
        self._environment = environment(tools)

    def run(self, *words: object) -> str:
        """Run a command in the package's environment to its end."""
        return self.guest.run(["env", *self._environment, *map(str, words)], timeout_s=COMMAND_S)

    def python(self, script: Path, *arguments: object) -> str:
        """Run a program of Python to its end."""
        return self.run(*self._program(script), *arguments)

    def start_python(self, script: Path, *arguments: object) -> Process:
        """Start a program of Python."""
        words = map(str, (*self._environment, *self._program(script), *arguments))
        return self.guest.start(script.stem, ["env", *words], merged=True)

    def _program(self, script: Path) -> tuple[Path, Path]:
        content = self.guest.write(script.name, script.read_text())
        return Path(sys.executable).resolve(), content

    def shell(self, script: str, *arguments: object) -> str:
        """Run a script of the shell."""
        return self.run("sh", "-ec", script, "sh", *arguments)


@contextmanager
def booted(
    folder: Path,
    devices: Sequence[str],
    *,
    qemu: str,
    modules: Sequence[str],
    cpus: int = 3,
    files: Iterable[Path] = (),
    parameters: str = "",
) -> Iterator[Inside]:
    """Boot a guest with devices and modules within a block."""
    kernel, root, own = vanilla(), folder / "root.cpio", tools(folder / "tools")
    drivers = _drivers()
    build_initramfs(
        root,
        kernel,
        modules=["af_packet", "veth", *modules],
        programs=[Path(sys.executable).resolve()],
        files=[own, *python_files([*own.iterdir(), *drivers]), *drivers, *files],
        dpdk=True,
        cards=True,
    )
    agent, console = folder / "agent", folder / "console.log"
    # As the platform's guests: with a usual share of a busy machine, timeouts would pass.
    command = ["nice", "-n", "-20", qemu, *machine("tcg", cpus=cpus, memory_mb=2560)[1:], *devices]
    command += ["-kernel", str(kernel.image), "-initrd", str(root)]
    command += ["-append", f"console=ttyS0 panic=-1 net.ifnames=0 {_PATIENT} {parameters}"]
    command += ["-serial", f"file:{console}"]
    command += ["-chardev", f"socket,id=agent,path={agent},server=on,wait=off"]
    command += ["-serial", "chardev:agent"]
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + BOOT_S
        # The agent's socket is there before QEMU listens to it, the console's file only afterwards.
        while not console.exists():
            assert process.poll() is None and time.monotonic() < deadline_s, (
                folder / "qemu.log"
            ).read_text()
            time.sleep(0.1)
        guest = Guest(agent, lambda: console.read_text(errors="replace")[-2000:])
        guest.wait_ready(BOOT_S)
        assert "refused" not in console.read_text(errors="replace")
        yield Inside(guest, own)
        guest.close()
    finally:
        process.kill()
        process.wait()


def _drivers() -> list[Path]:
    """Return DPDK's drivers of emulated cards that a guest of the platform does not have."""
    folders = Path("/usr/lib/x86_64-linux-gnu/dpdk").glob("pmds-*")
    return [path for folder in folders for path in folder.glob("librte_net_vmxnet3.so*")]
