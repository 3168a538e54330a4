"""What a guest boots: its kernel, and a root made of programs of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_KERNELS = Path(sys.prefix) / "share" / "tailscope" / "kernels"
_AGENT = Path(__file__).with_name("agent.sh")
_TOOLS = ("env", "flock", "ip", "nice")
_REAL = ("tc", "nsenter", "unshare", *_TOOLS)
"""What busybox has too, in a smaller form."""
_DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_virtio")
_CARD_DRIVERS = ("net_e1000", "net_ixgbe", "net_i40e", "net_ice", "net_iavf", "net_mlx5")


@dataclass(frozen=True)
class GuestKernel:
    """A kernel for guests."""

    image: Path
    modules: Path
    """The folder of its modules, with ``modules.dep``."""
    release: str


def guest_kernel(kind: str) -> GuestKernel:
    """Find a kernel for guests."""
    folder = _KERNELS / kind
    images = sorted(folder.glob("vmlinuz-*"))
    if not images:
        raise TestbedError(
            f"platform vm: no {kind} kernel for guests in {folder}",
            hint="`make setup-vm` downloads Debian's",
        )
    release = images[-1].name.removeprefix("vmlinuz-")
    return GuestKernel(images[-1], folder / "lib" / "modules" / release, release)


def build_initramfs(
    path: Path,
    kernel: GuestKernel,
    *,
    modules: Sequence[str],
    programs: Iterable[Path],
    files: Iterable[Path],
    dpdk: bool,
    cards: bool,
) -> None:
    """Write the root of a guest, as an archive of cpio."""
    root = _Root(path.with_suffix(".root"))
    try:
        root.add_busybox()
        root.write("init", _AGENT.read_text(), executable=True)
        for tool in _TOOLS:
            root.add_program(_found(tool))
        for program in programs:
            root.add_program(program)
        for each in files:
            root.add(each)
        if dpdk:
            root.add_drivers((*_DRIVERS, *(_CARD_DRIVERS if cards else ())))
        root.write("modules", "".join(f"{name}\n" for name in root.add_modules(kernel, modules)))
        root.archive(path)
    finally:
        shutil.rmtree(root.path, ignore_errors=True)


class _Root:
    """The root of a guest, while it is put together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("dev", "proc", "sys", "etc", "usr/bin", "usr/sbin"):
            (path / name).mkdir(parents=True)
        # As here, where some are links: a library by two ways is two libraries.
        for name in ("bin", "sbin", "lib", "lib64", "tmp", "run"):
            self._inside(self._led_to(Path("/", name))).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: str, *, executable: bool = False) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(0o755 if executable else 0o644)

    def add(self, path: Path) -> None:
        """Add a file or a folder as it is, the links on the way to it, and what it is a link to."""
        path = self._led_to(path.parent.absolute()) / path.name
        target = self._inside(path)
        if target.exists() or target.is_symlink():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(path.readlink())
            self.add(path.parent / path.readlink())
        elif path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy(path, target)

    def _inside(self, path: Path) -> Path:
        """Return the place in the guest's root of a path of this machine."""
        return self.path / path.relative_to("/")

    def _led_to(self, folder: Path) -> Path:
        """Follow the links on the way to a folder, and add them; return the folder itself."""
        if folder == folder.parent:
            return folder
        parent = self._led_to(folder.parent)
        if folder.name == "..":
            return parent.parent
        path = parent / folder.name
        if not path.is_symlink():
            return path
        link = self._inside(path)
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.readlink())
        return self._led_to(parent / path.readlink())

    def add_program(self, path: Path) -> None:
        """Add a program and its libraries, also where it is looked for."""
        self.add_with_libraries(path)
        short = self.path / "bin" / path.name
        if not short.exists():
            short.symlink_to(path)

    def add_with_libraries(self, path: Path) -> None:
        self.add(path)
        said = subprocess.run(  # noqa: S603
            ["ldd", path],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for library in re.findall(r"(/\S+) \(0x", said):
            self.add(Path(library))
            self.add(Path(library).resolve())

    def add_busybox(self) -> None:
        busybox = _found("busybox")
        shutil.copy(busybox, self.path / "bin" / "busybox")
        listed = subprocess.run(  # noqa: S603
            [busybox, "--list"], capture_output=True, text=True, check=True
        ).stdout
        for applet in listed.split():
            if applet not in ("busybox", *_REAL):
                (self.path / "bin" / applet).symlink_to("busybox")

    def add_drivers(self, names: Iterable[str]) -> None:
        """Add drivers of DPDK where its own library looks for them."""
        for name in names:
            for folder in _driver_folders():
                for path in folder.glob(f"librte_{name}.so*"):
                    self.add_with_libraries(path)

    def add_modules(self, kernel: GuestKernel, names: Sequence[str]) -> list[str]:
        """Add modules, and return their files in the order to load them in."""
        known: dict[str, tuple[str, list[str]]] = {}
        for line in (kernel.modules / "modules.dep").read_text().splitlines():
            file, _, needs = line.partition(":")
            known[_module(file)] = (file, needs.split())
        order: list[str] = []

        def want(file: str) -> None:
            if file in order:
                return
            for need in reversed(known[_module(file)][1]):
                want(need)
            order.append(file)

        for name in names:
            # What is built in has no file.
            if name in known:
                want(known[name][0])
        for file in order:
            target = self.path / "lib" / "modules" / Path(file).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kernel.modules / file, target)
        return [f"/lib/modules/{Path(file).name}" for file in order]

    def archive(self, path: Path) -> None:
        names = "".join(
            f"{found.relative_to(self.path)}\0" for found in sorted(self.path.rglob("*"))
        )
        with path.open("wb") as out:
            done = subprocess.run(
                ["cpio", "--null", "-o", "-H", "newc", "--quiet", "-R", "0:0"],  # noqa: S607
                input=os.fsencode(names),
                stdout=out,
                stderr=subprocess.PIPE,
                cwd=self.path,
                check=False,
            )
        if done.returncode != 0:
            raise TestbedError(f"platform vm: cpio: {os.fsdecode(done.stderr).strip()}")


def _found(program: str) -> Path:
    found = which(program)
    if found is None:
        raise TestbedError(f"platform vm: no program {program}", hint="`make setup-vm`")
    return found


def _module(file: str) -> str:
    return Path(file).name.removesuffix(".ko").replace("-", "_")


def _driver_folders() -> list[Path]:
    """Where DPDK's library looks for drivers: beside itself."""
    from tailscope.testbed.process import find_binary

    said = subprocess.run(  # noqa: S603
        ["ldd", find_binary()[0]],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"librte_eal\.so\.(\d+) => (\S+)", said)
    if found is None:
        return []
    return sorted(Path(found[2]).resolve().parent.glob(f"dpdk/pmds-{found[1]}*"))
