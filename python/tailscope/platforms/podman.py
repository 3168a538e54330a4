"""The platform ``podman``: containers as root or as an ordinary user."""

from __future__ import annotations

import os
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
from tailscope.platforms.lxc import check_memory, lent
from tailscope.platforms.platform import OpenPlatform, Platform
from tailscope.testbed.containers import cgroup_version, hidden_paths, remove_cgroups
from tailscope.testbed.places import Here
from tailscope.testbed.podman import (
    GROUP,
    container_runtime,
    is_rootless,
    limits,
    marks,
    own_podman,
    remove_podman,
)
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tailscope.duts.dut import Dut
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.places import Process
    from tailscope.testbed.wires import Side

_START_S = 30.0
_POLL_S = 0.05
_KATA = "kata"
_KVM = Path("/dev/kvm")
_GROUPS = Path("/sys/fs/cgroup")
_NOT_SHARED = ("proc", "sys", "dev", "run")
"""Top-level folders that a container does not share with this machine."""
_WAITS = ("sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait")
_JOINS = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec "$@"'
"""Shell script that joins control groups by their files, and runs the command after ``--``."""


class Podman(Platform):
    """A container whose root consists of this machine's folders.

    The device joins its namespaces and control groups, as by ``lxc-attach``, so that it remains
    our child process. Podman's filters of system calls do not apply to it.
    """

    name = "podman"
    about = "a podman container; over memif also for ordinary users"
    options = {  # noqa: RUF012
        "runtime": "crun or runc: the program that starts it",
        "memory": "memory that it may use, in MiB (as root)",
    }
    wires = ("memif", "veth")
    programs = {"podman": "podman", "nsenter": "util-linux"}  # noqa: RUF012

    def __init__(
        self, options: Mapping[str, str], kernel: str | None = None, boot: str | None = None
    ) -> None:
        super().__init__(options, kernel, boot)
        runtime = self.given.get("runtime", "crun")
        if runtime not in ("crun", "runc", _KATA):
            raise UsageError(
                f"--platform-option runtime: got {runtime!r}, expected crun or runc",
                code="platform-option",
            )
        check_memory(self.given)

    @property
    def starts_in_s(self) -> float:
        """Return the time to start a container, in seconds."""
        return 1.0

    def check(self) -> None:
        """Check podman, its runtime, and the running kernel."""
        super().check()
        if self.given.get("runtime") == _KATA:
            raise _kata_refused()
        self._runtime()
        if "memory" in self.given and is_rootless():
            raise TestbedError(
                "platform podman: memory: expected root, got an ordinary user, whose containers"
                " have no control groups here",
                code="not-root",
                hint="leave --platform-option memory out, or run as root",
            )
        check_kernel(self.kernel, self.boot)

    def _runtime(self) -> str:
        runtime = self.given.get("runtime") or container_runtime()
        if runtime is None:
            raise TestbedError(
                "platform podman: no program crun or runc",
                code="no-program",
                remedy=remedies.RUNTIME,
            )
        return runtime

    @contextmanager
    def open(
        self,
        folder: Folder,
        side: Side,
        dut: Dut,
        *,
        cpus: tuple[int, ...],
        housekeeping: tuple[int, ...],
        pinned: bool = True,  # noqa: ARG002
    ) -> Iterator[OpenPlatform]:
        """Start an idle container, which the device joins."""
        here = Here(folder.path, mark=folder.name, ended_by=signal.SIGTERM)
        runtime = self._runtime()
        podman = own_podman(folder.path, folder.name, runtime)
        shared = _shared(folder.path, hidden_paths(dut.needed_files(), _NOT_SHARED))
        command = [*podman, *self._run(folder, runtime, {*cpus, *housekeeping}, shared)]
        with here.start("container", command, merged=True) as process, ExitStack() as stack:
            stack.callback(_stop, folder, process)
            pid = _wait_running(folder.path, process)
            if side.links:
                stack.enter_context(lent(side, pid))
            place = Here(folder.path, _joining(pid), mark=folder.name, ended_by=signal.SIGTERM)
            for link in side.links:
                place.run(["ip", "link", "set", "dev", link, "up"])
            about: dict[str, str | int] = {
                "container": folder.name,
                "version": _version(here, podman, runtime),
                "configuration": " ".join(command),
                "cgroup_version": cgroup_version(),
            }
            yield OpenPlatform(
                place, replace(side, namespace=None), cpus, housekeeping, about=about
            )

    def _run(
        self, folder: Folder, runtime: str, cpus: Iterable[int], shared: Iterable[str]
    ) -> list[str]:
        """Return podman's words for a container without network; links are lent to it."""
        groups = []
        if not is_rootless():
            groups = [f"--cgroup-parent=/{GROUP}{folder.name}", f"--cpuset-cpus={cpu_list(cpus)}"]
            if "memory" in self.given:
                groups.append(f"--memory={self.given['memory']}m")
        elif runtime == "crun":
            groups = ["--cgroups=disabled"]
        return [
            "run",
            "--rm",
            f"--name={folder.name}",
            f"--hostname={folder.name}",
            "--network=none",
            # Otherwise shared memory would be a mount of this machine.
            *("--ipc=none", "--tmpfs=/dev/shm"),
            "--privileged",
            *groups,
            *limits(),
            *marks(folder.path, folder.name),
            f"--pidfile={_pid_file(folder.path)}",
            f"--conmon-pidfile={_keeper_file(folder.path)}",
            *shared,
            *("--rootfs", str(_root(folder.path))),
            *_WAITS,
        ]


def _kata_refused() -> TestbedError:
    """Make the error that says what of Kata is missing, here and in tailscope."""
    here = ["the program kata-runtime"] if which("kata-runtime") is None else []
    here += [] if os.access(_KVM, os.R_OK | os.W_OK) else ["KVM"]
    lacks = f"; this machine also lacks {' and '.join(here)}" if here else ""
    return TestbedError(
        "platform podman: runtime=kata: a device joins the namespaces of its container, and those"
        f" of Kata are in the kernel of a guest{lacks}",
        code="kata",
        hint="--platform vm measures in a guest with a kernel of its own",
    )


def _shared(folder: Path, others: Iterable[Path]) -> list[str]:
    """Make a root, and return the options that mount this machine's folders into it."""
    root = _root(folder)
    root.mkdir()
    # The wire's sockets are beside the device's folder.
    options = ["--tmpfs=/run", *(f"--volume={path}:{path}" for path in (folder.parent, *others))]
    for path in sorted(Path("/").iterdir()):
        own = root / path.name
        if path.is_symlink():
            own.symlink_to(path.readlink())
        elif path.is_dir():
            own.mkdir()
            if path.name not in _NOT_SHARED and os.access(path, os.R_OK | os.X_OK):
                options.append(f"--volume={path}:{path}")
    return options


def _root(folder: Path) -> Path:
    return folder / "root"


def _pid_file(folder: Path) -> Path:
    return folder / "container.pid"


def _keeper_file(folder: Path) -> Path:
    return folder / "keeper.pid"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _wait_running(folder: Path, process: Process) -> int:
    """Wait until the container runs, and return the number of its first process."""
    deadline_s = time.monotonic() + _START_S
    while process.is_running and time.monotonic() < deadline_s:
        pid = _number(_pid_file(folder))
        if pid is not None:
            return pid
        time.sleep(_POLL_S)
    how = "did not start" if process.is_running else process.how_it_ended()
    process.wait_end(_POLL_S)
    raise TestbedError(
        f"platform podman: the container {how}; it said: {process.last_words()}",
        code="container-start",
        hint="`podman info` shows what is missing; --platform-option runtime=runc or crun takes"
        " another program to start it",
    )


def _joining(pid: int) -> tuple[str, ...]:
    """Return the words that start processes in the container."""
    kinds = ["--mount", "--uts", "--ipc", "--net", "--pid"]
    if is_rootless():
        return ("nsenter", f"--target={pid}", "--user", "--preserve-credentials", *kinds)
    files = map(str, _group_files(pid))
    return ("sh", "-c", _JOINS, "sh", *files, "--", "nsenter", f"--target={pid}", *kinds)


def _group_files(pid: int) -> Iterator[Path]:
    """Find the files by which processes join the control groups of a process."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        names = [controllers.removeprefix("name=")] if controllers else ["", "unified"]
        for name in names:
            path = _GROUPS / name / group.lstrip("/") / "cgroup.procs"
            if path.exists():
                yield path
                break


def _stop(folder: Folder, process: Process) -> None:
    """Stop a container, and remove all traces of it."""
    process.signal(signal.SIGTERM)
    if not process.wait_end(_START_S) and (pid := _number(_pid_file(folder.path))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        process.wait_end(_START_S)
    if keeper := _number(_keeper_file(folder.path)):
        _wait_gone(keeper)
    # A user's podman leaves a process that keeps its namespaces.
    if holder := _number(folder.path / "podman" / "tmp" / "pause.pid"):
        with suppress(OSError):
            os.kill(holder, signal.SIGKILL)
    with suppress(OSError):
        remove_cgroups(folder.name)
    remove_podman(folder.path, folder.name)


def _wait_gone(pid: int) -> None:
    """Wait until the container's monitor has removed its files."""
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(_POLL_S)


def _version(here: Here, podman: Sequence[str], runtime: str) -> str:
    """Return both versions; asked outside of its own folders, podman makes others in /tmp."""
    versions = (here.run([*program, "--version"]) for program in (podman, [runtime]))
    return ", ".join(version.splitlines()[0] for version in versions)
