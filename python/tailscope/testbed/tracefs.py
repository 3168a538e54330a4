"""The kernel's tracing file system, and private instances in it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies
from tailscope.host.cpus import parse_cpus
from tailscope.testbed.rights import Capability, may_write, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WHAT, _WITHOUT = "kernel events", "run without them: --noise stalls"
_STANDARD = Path("/sys/kernel/tracing")
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CMD_CREATE = 6
_OSNOISE = "osnoise"
_WORKLOAD = "OSNOISE_WORKLOAD"
_LOOK_S, _BUSY_S = 0.01, 1.0


@contextmanager
def tracefs() -> Iterator[Path]:
    """Open the file system within a block; mount it for this process alone if necessary."""
    if os.path.ismount(_STANDARD):
        # A user who owns the instances needs no capability.
        if not may_write(_STANDARD / "instances"):
            _require(Capability.DAC_OVERRIDE)
        yield _STANDARD
        return
    _require(Capability.DAC_OVERRIDE, Capability.SYS_ADMIN)
    mount = _detached()
    try:
        yield Path(f"/proc/self/fd/{mount}")
    finally:
        os.close(mount)


def _require(*capabilities: Capability) -> None:
    require(_WHAT, *capabilities, otherwise=_WITHOUT, of_machine=True)


def instances(root: Path) -> list[str]:
    """Return the names of all instances."""
    with suppress(OSError):
        return sorted(path.name for path in (root / "instances").iterdir())
    return []


@contextmanager
def osnoise(root: Path, owner: str, cpus: Iterable[int]) -> Iterator[bool]:
    """Run the kernel's osnoise tracer on CPUs within a block, without its own threads.

    Starting none is an option of the whole kernel. An instance of the tracer stands for the change
    from before it is made until it is undone: `remove_instance` undoes it.
    """
    if not _has_unused_osnoise(root, set(cpus)):
        yield False
        return
    name = f"{owner}-{_OSNOISE}"
    instance = root / "instances" / name
    instance.mkdir()
    try:
        is_running = False
        with suppress(OSError):
            (root / "osnoise/options").write_text(f"NO_{_WORKLOAD}")
            (instance / "current_tracer").write_text(_OSNOISE)
            is_running = True
        yield is_running
    finally:
        with suppress(OSError):
            remove_instance(root, name)


def _has_unused_osnoise(root: Path, cpus: set[int]) -> bool:
    """Return True if osnoise exists, has its initial options, and is idle."""
    try:
        options = (root / "osnoise/options").read_text().split()
        timed = parse_cpus((root / "osnoise/cpus").read_text())
        tracers = [root / "current_tracer", *root.glob("instances/*/current_tracer")]
        running = {tracer.read_text().strip() for tracer in tracers}
    except (OSError, UsageError):
        return False
    return _WORKLOAD in options and cpus <= set(timed) and not running & {_OSNOISE, "timerlat"}


def remove_instance(root: Path, name: str) -> None:
    """Stop an instance, remove it with its buffers, and undo the change that it stands for."""
    path = root / "instances" / name
    until_s = time.monotonic() + _BUSY_S
    with suppress(OSError):
        (path / "tracing_on").write_text("0")
    if name.endswith(f"-{_OSNOISE}"):
        (path / "current_tracer").write_text("nop")
        (root / "osnoise/options").write_text(_WORKLOAD)
    while True:
        try:
            return path.rmdir()
        except OSError as error:
            # Another measurement looks which tracers are in use: it has a file open for an instant.
            if error.errno != errno.EBUSY or time.monotonic() > until_s:
                raise
            time.sleep(_LOOK_S)


def remove_leftover(root: Path, name: str) -> bool:
    """Remove an instance of a dead measurement, and return True if it was still there.

    Processes that remove instances wait for each other: a late one would undo the change that a
    third one has meanwhile made.
    """
    folder = os.open(root / "instances", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not (root / "instances" / name).is_dir():
            return False
        remove_instance(root, name)
        return True
    except OSError as error:
        # The message must not name the private mount.
        raise OSError(error.errno, error.strerror) from None
    finally:
        os.close(folder)


def _detached() -> int:
    """Mount the file system without a path: it vanishes with the descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(number, *arguments)
        if result < 0:
            reason = os.strerror(ctypes.get_errno())
            raise TestbedError(
                f"{_WHAT}: tracefs cannot be mounted: {reason}",
                code="tracefs-mount",
                remedy=remedies.TRACING,
                hint=_WITHOUT,
            )
        return result

    context = call(_FSOPEN, b"tracefs", 0)
    try:
        call(_FSCONFIG, context, _CMD_CREATE, None, None, 0)
        return call(_FSMOUNT, context, 1, 0)
    finally:
        os.close(context)
