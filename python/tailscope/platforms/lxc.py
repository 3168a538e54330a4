"""The platform ``lxc``: LXC containers, as in containers2024."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies
from tailscope.host.cpus import cpu_list
from tailscope.host.kernel import check_kernel
from tailscope.platforms.platform import OpenPlatform, Platform
from tailscope.testbed.containers import (
    cgroup_version,
    container_names,
    hidden_paths,
    remove_cgroups,
    remove_locks,
)
from tailscope.testbed.namespaces import inside, move_link
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tailscope.duts.dut import Dut
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.places import Process
    from tailscope.testbed.wires import Side

_CONTAINERS = Path("/var/lib/lxc")
_START_S = 20.0
_POLL_S = 0.05
_PARTITIONS = ("member", "root", "isolated")
"""Kinds of cpuset partitions, by the kernel's names."""
_PARTITION_FILE = "cpuset.cpus.partition"
_NOT_SHARED = ("proc", "sys", "dev")
"""Top-level folders that a container does not share with this machine."""


class Lxc(Platform):
    """A container that shares the root of this machine."""

    name = "lxc"
    about = "an LXC container"
    options = {  # noqa: RUF012
        "name": "name of the container",
        "partition": "member, root (its CPUs are its own), or isolated (also not load-balanced)",
        "memory": "memory that it may use, in MiB",
    }
    wires = ("memif", "veth", "pci")
    programs = {"lxc-execute": "lxc", "lxc-attach": "lxc"}  # noqa: RUF012

    def __init__(
        self, options: Mapping[str, str], kernel: str | None = None, boot: str | None = None
    ) -> None:
        super().__init__(options, kernel, boot)
        name = self.given.get("name", "tailscope")
        if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 48:
            raise UsageError(
                f"--platform-option name: got {name!r}, expected up to 48 letters, digits, - and _",
                code="container-name",
            )
        if self._partition not in _PARTITIONS:
            raise UsageError(
                f"--platform-option partition: got {self._partition!r},"
                f" expected {', '.join(_PARTITIONS[:-1])} or {_PARTITIONS[-1]}",
                code="platform-option",
            )
        check_memory(self.given)

    @property
    def _partition(self) -> str:
        return self.given.get("partition", "member")

    @property
    def starts_in_s(self) -> float:
        """Return the time to start a container, in seconds."""
        return 1.0

    def check(self) -> None:
        """Check LXC, the rights to use it, and the running kernel."""
        import os

        super().check()
        if os.geteuid() != 0:
            raise TestbedError(
                "platform lxc: expected root, got an ordinary user",
                code="not-root",
                remedy=remedies.SUDO,
                hint="use --platform bare",
            )
        check_kernel(self.kernel, self.boot)
        if self._partition != "member" and cgroup_version() == 1:
            raise TestbedError(
                f"platform lxc: partition={self._partition}: expected control groups of version 2,"
                " got version 1, in which LXC's own groups share the container's CPUs",
                code="cgroup-version",
                hint="boot with systemd.unified_cgroup_hierarchy=1",
            )
        if "name" in self.given:
            _check_free(self.given["name"])

    @contextmanager
    def open(
        self,
        folder: Folder,
        side: Side,
        dut: Dut,
        *,
        cpus: tuple[int, ...],
        housekeeping: tuple[int, ...],
        pinned: bool = True,
    ) -> Iterator[OpenPlatform]:
        """Start an idle container, which the device joins."""
        name = self.given.get("name", folder.name)
        _check_free(name)
        if self._partition != "member" and not pinned:
            raise UsageError(
                f"--cpus: got dut=any, expected CPUs with --platform-option"
                f" partition={self._partition}",
                code="cpus-any",
            )
        here = Here(folder.path, mark=folder.name, ended_by=signal.SIGTERM)
        # The wire's sockets are beside the device's folder.
        needed = (folder.path.parent, *dut.needed_files())
        lent_files = (*dut.device_files, *hidden_paths(needed, _NOT_SHARED))
        text = self._configuration(name, cpus, housekeeping, lent_files)
        configuration = here.write("lxc.conf", text)
        container = ["-P", str(folder.path), "-n", name]
        start = ["lxc-execute", *container, "-f", str(configuration), "--", "sleep", "infinity"]
        with here.start("container", start, merged=True) as process, ExitStack() as stack:
            stack.callback(_stop, here, container, process)
            pid = _wait_running(here, container, process)
            self._check_partition(here, container)
            stack.enter_context(lent(side, pid))
            enter = ("lxc-attach", *container, "--")
            place = Here(folder.path, enter, mark=folder.name, ended_by=signal.SIGTERM)
            for link in ("lo", *side.links):
                place.run(["ip", "link", "set", "dev", link, "up"])
            about: dict[str, str | int] = {
                "container": name,
                "version": _version(here),
                "configuration": text,
                "cgroup_version": cgroup_version(),
            }
            moved = replace(side, namespace=None)
            others = housekeeping if self._partition == "member" else cpus
            yield OpenPlatform(place, moved, cpus, others, about=about)

    def _configuration(
        self,
        name: str,
        cpus: tuple[int, ...],
        housekeeping: tuple[int, ...],
        lent_files: Iterable[Path],
    ) -> str:
        own = {*cpus, *housekeeping} if self._partition == "member" else {*cpus}
        lines = {
            "lxc.uts.name": name,
            "lxc.rootfs.path": "dir:/",
            "lxc.mount.auto": "proc:rw sys:rw",
            "lxc.net.0.type": "empty",
            # LXC uses the line for the version that the kernel has.
            "lxc.cgroup.cpuset.cpus": cpu_list(own),
            "lxc.cgroup2.cpuset.cpus": cpu_list(own),
        }
        if self._partition != "member":
            lines[f"lxc.cgroup2.{_PARTITION_FILE}"] = self._partition
        if "memory" in self.given:
            lines["lxc.cgroup.memory.limit_in_bytes"] = f"{self.given['memory']}M"
            lines["lxc.cgroup2.memory.max"] = f"{self.given['memory']}M"
        mounted = map(_mount_entry, lent_files)
        return "".join((*(f"{key} = {value}\n" for key, value in lines.items()), *mounted))

    def _check_partition(self, here: Here, container: list[str]) -> None:
        """Check that the kernel made the partition: it reports a failure in the file alone."""
        if self._partition == "member":
            return
        got = here.run(["lxc-cgroup", *container, _PARTITION_FILE]).strip()
        if got != self._partition:
            raise TestbedError(
                f"platform lxc: partition: expected {self._partition}, the kernel says: {got}",
                code="partition-refused",
                hint="other groups must not use these CPUs: `systemd-cgls` lists groups",
            )


def _mount_entry(path: Path) -> str:
    """Return the line that mounts a path of this machine at the same path of a container."""
    # Spaces separate fields, as in fstab.
    word = str(path).replace("\\", r"\134").replace(" ", r"\040")
    kind = "dir" if path.is_dir() else "file"
    return f"lxc.mount.entry = {word} {word.lstrip('/')} none bind,create={kind} 0 0\n"


def _stop(here: Here, container: list[str], process: Process) -> None:
    """Stop a container, and remove all traces of it."""
    with suppress(TestbedError):
        here.run(["lxc-stop", "-k", *container])
    process.wait_end(_START_S)
    with suppress(OSError):
        remove_cgroups(container[-1])
    remove_locks(here.folder)


def check_memory(given: Mapping[str, str]) -> None:
    """Check how much memory a container may use."""
    most_mib = 1 << 24
    memory = given.get("memory", "1")
    if not memory.isdecimal() or not 1 <= int(memory) <= most_mib:
        raise UsageError(
            f"--platform-option memory: got {memory!r}, expected 1 to {most_mib:,} MiB",
            code="platform-option",
        )


@contextmanager
def lent(side: Side, pid: int) -> Iterator[None]:
    """Lend links to a container within a block, as cards must outlive it."""
    with inside(side.namespace):
        for link in side.links:
            move_link(link, pid)
    try:
        yield
    finally:
        with suppress(OSError, TestbedError), inside(f"/proc/{pid}/ns/net"):
            for link in side.links:
                move_link(link, side.namespace or 1)


def _wait_running(here: Here, container: list[str], process: Process) -> int:
    """Wait until the container runs, and return the number of its first process."""
    deadline_s = time.monotonic() + _START_S
    while process.is_running and time.monotonic() < deadline_s:
        with suppress(TestbedError, ValueError):
            if "RUNNING" in here.run(["lxc-info", *container, "-sH"]):
                return int(here.run(["lxc-info", *container, "-pH"]))
        time.sleep(_POLL_S)
    how = "did not start" if process.is_running else process.how_it_ended()
    process.wait_end(_POLL_S)
    raise TestbedError(
        f"platform lxc: the container {container[-1]} {how}; it said: {process.last_words()}",
        code="container-start",
        hint="`lxc-checkconfig` shows what the kernel lacks",
    )


def _check_free(name: str) -> None:
    """Check that no container has this name, by its control groups and its definition."""
    if (_CONTAINERS / name).exists() or name in container_names():
        raise TestbedError(
            f"platform lxc: container {name} already exists",
            code="container-exists",
            hint="choose another --platform-option name=NAME; `lxc-ls --fancy` lists containers,"
            " `tailscope runs clean` removes leftovers of killed measurements",
        )


def _version(here: Here) -> str:
    return f"LXC {here.run(['lxc-execute', '--version']).strip()}"
