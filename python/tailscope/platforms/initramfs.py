"""Kernel and root of a guest; the root is made of programs of this machine."""

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
from tailscope.host import remedies
from tailscope.host.kernel import is_release
from tailscope.host.machine import natural
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_KERNELS = Path(sys.prefix) / "share" / "tailscope" / "kernels"
_AGENT = Path(__file__).with_name("agent.sh")
_TOOLS = ("env", "flock", "ip", "nice")
_REAL = ("tc", "nsenter", "unshare", *_TOOLS)
"""Programs that take the place of busybox's smaller ones."""
_DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_virtio")
_CARD_DRIVERS = ("net_e1000", "net_ixgbe", "net_i40e", "net_ice", "net_iavf", "net_mlx5")


@dataclass(frozen=True)
class GuestKernel:
    """A kernel for guests."""

    image: Path
    modules: Path
    """Folder of its modules, with ``modules.dep``."""
    release: str


def guest_kernel(kind: str, beginning: str = "") -> GuestKernel:
    """Return the newest kernel of a kind for guests, or of those whose release begins so."""
    folder = _KERNELS / kind
    images = {path.name.removeprefix("vmlinuz-"): path for path in folder.glob("vmlinuz-*")}
    releases = [release for release in images if is_release(release, beginning)]
    if not releases:
        wanted = f"{kind}-{beginning}" if beginning else kind
        raise TestbedError(
            f"platform vm: no {wanted} kernel for guests in {folder}",
            code="no-guest-kernel",
            remedy=remedies.GUESTS,
        )
    release = max(releases, key=natural)
    return GuestKernel(images[release], folder / "lib" / "modules" / release, release)


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
    """Write the root of a guest as an archive of cpio."""
    root = _Root(path.with_suffix(".root"))
    try:
        root.add_busybox()
        root.write("init", _AGENT.read_text(), executable=True)
        for tool in _TOOLS:
            root.add_program(_program(tool))
        for program in programs:
            root.add_program(program)
        for file in files:
            root.add(file)
        if dpdk:
            root.add_drivers((*_DRIVERS, *(_CARD_DRIVERS if cards else ())))
        root.write("modules", "".join(f"{name}\n" for name in root.add_modules(kernel, modules)))
        root.archive(path)
    finally:
        shutil.rmtree(root.path, ignore_errors=True)


class _Root:
    """The root of a guest while it is built."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("dev", "proc", "sys", "etc", "usr/bin", "usr/sbin"):
            (path / name).mkdir(parents=True)
        # Some of these are links on this machine. They must be links in the guest, too: a library
        # by two paths is loaded twice.
        for name in ("bin", "sbin", "lib", "lib64", "tmp", "run"):
            self._inside(self._led_to(Path("/", name))).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: str, *, executable: bool = False) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(0o755 if executable else 0o644)

    def add(self, path: Path) -> None:
        """Add a file or folder, the links on the way to it, and the target if it is a link."""
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
        """Return the place of a path in the guest's root."""
        return self.path / path.relative_to("/")

    def _led_to(self, folder: Path) -> Path:
        """Add the links on the way to a folder, and return the folder itself."""
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
        """Add a program and its libraries, and a link to it in ``/bin``."""
        self.add_with_libraries(path)
        short = self.path / "bin" / path.name
        if not short.exists():
            short.symlink_to(path)

    def add_with_libraries(self, path: Path) -> None:
        self.add(path)
        listed = subprocess.run(  # noqa: S603
            ["ldd", path],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            self.add(Path(library))
            self.add(Path(library).resolve())

    def add_busybox(self) -> None:
        busybox = _program("busybox")
        shutil.copy(busybox, self.path / "bin" / "busybox")
        listed = subprocess.run(  # noqa: S603
            [busybox, "--list"], capture_output=True, text=True, check=True
        ).stdout
        for applet in listed.split():
            if applet not in ("busybox", *_REAL):
                (self.path / "bin" / applet).symlink_to("busybox")

    def add_drivers(self, names: Iterable[str]) -> None:
        """Add drivers of DPDK in the folders where its library searches."""
        for name in names:
            for folder in _driver_folders():
                for path in folder.glob(f"librte_{name}.so*"):
                    self.add_with_libraries(path)

    def add_modules(self, kernel: GuestKernel, names: Sequence[str]) -> list[str]:
        """Add modules, and return their files in loading order."""
        dependencies: dict[str, tuple[str, list[str]]] = {}
        for line in (kernel.modules / "modules.dep").read_text().splitlines():
            file, _, needs = line.partition(":")
            dependencies[_module(file)] = (file, needs.split())
        order: list[str] = []

        def want(file: str) -> None:
            if file in order:
                return
            for need in reversed(dependencies[_module(file)][1]):
                want(need)
            order.append(file)

        for name in names:
            # Built-in modules have no file.
            if name in dependencies:
                want(dependencies[name][0])
        for file in order:
            target = self.path / "lib" / "modules" / Path(file).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kernel.modules / file, target)
        return [f"/lib/modules/{Path(file).name}" for file in order]

    def archive(self, path: Path) -> None:
        names = "".join(
            f"{entry.relative_to(self.path)}\0" for entry in sorted(self.path.rglob("*"))
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
            text = f"platform vm: cpio: {os.fsdecode(done.stderr).strip()}"
            raise TestbedError(text, code="guest-archive")


def _program(program: str) -> Path:
    path = which(program)
    if path is None:
        text = f"platform vm: no program {program}"
        raise TestbedError(text, code="no-program", remedy=remedies.GUESTS)
    return path


def _module(file: str) -> str:
    return Path(file).name.removesuffix(".ko").replace("-", "_")


def _driver_folders() -> list[Path]:
    """Return the folders beside DPDK's library in which it searches drivers."""
    from tailscope.testbed.process import find_binary

    listed = subprocess.run(  # noqa: S603
        ["ldd", find_binary()[0]],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    library = re.search(r"librte_eal\.so\.(\d+) => (\S+)", listed)
    if library is None:
        return []
    return sorted(Path(library[2]).resolve().parent.glob(f"dpdk/pmds-{library[1]}*"))
